"""Measure the engine on a GPU, in stages of minutes: `python -m benchmarks.gpu STAGE`.

It needs torch, transformers and numpy; where headsweep is not installed, PYTHONPATH has to name its
source folder. Without a GPU every stage runs at tiny size on the CPU, as a rehearsal.

- ``smoke``: rates of products and of memory, ``exact``, three engines with three batches each in
  one process, whose captured steps have to live, and a step's rate in each way; within a minute.
- ``exact``: the reasoner's answers, compared with `generate`'s in float32, and checked by the
  engine itself in half precision.
- ``1.5b``, ``7b``: random weights of Qwen2.5's shapes (timing only): `generate` in batches of 16,
  the engine decoding, and sweeps whose heads are made to accept 0, 30, 60 and 90% of the base
  model's answers.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

if importlib.util.find_spec("jaxtyping") is None:  # only its names are needed, in annotations
    stub = ModuleType("jaxtyping")
    stub.__getattr__ = lambda name: Annotated  # type: ignore[method-assign]
    sys.modules["jaxtyping"] = stub

from benchmarks.shapes import SIZES
from headsweep.engine import batch
from headsweep.engine.attention import avoid_compiling
from headsweep.engine.decoder import Decoder
from headsweep.engine.devices import give_back_memory
from headsweep.engine.engine import Engine, Request
from headsweep.engine.graphs import cuda_graph
from headsweep.engine.operators import PLAIN, Operators
from headsweep.models.geometry import find_heads
from headsweep.models.masks import edited_weights
from headsweep.models.timing import seconds_of
from headsweep.variants import BASE, Variant, heads

STAGES = ("smoke", "exact", "1.5b", "7b")
REASONER = Path(__file__).parents[1] / "src" / "headsweep" / "models" / "reasoner"


def main(arguments: list[str] | None = None) -> None:
    """Run a stage and print its measurements, one per line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stage", choices=STAGES)
    stage = parser.parse_args(arguments).stage
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, a rehearsal"
    print(f"{name}; torch {torch.__version__}")
    avoid_compiling()  # for rivals too
    if stage == "smoke":
        rates(device)
        exact(device)
        lives(device)
        steps("1.5b" if device.type == "cuda" else "tiny", device)
    elif stage == "exact":
        exact(device)
    else:
        speed(stage if device.type == "cuda" else "tiny", device)


def rates(device: torch.device) -> None:
    """Print the rates of large products and copies."""
    size = 8192 if device.type == "cuda" else 256
    ones = torch.ones(size, size, device=device, dtype=torch.bfloat16)
    seconds = min(seconds_of(lambda: ones @ ones) for _ in range(5))
    print(f"product of {size}: {2e-12 * size**3 / seconds:.2f} TFLOP/s")
    seconds = min(seconds_of(ones.clone) for _ in range(5))
    print(f"copy: {4e-9 * ones.numel() / seconds:.0f} GB/s")


def exact(device: torch.device) -> None:
    """Print how the engine's answers in each type compare with the model's own."""
    types = [torch.float32, torch.bfloat16]
    types += [torch.float16] if device.type == "cuda" else []
    for dtype in types:
        model = AutoModelForCausalLM.from_pretrained(REASONER, dtype=dtype).to(device).eval()
        loaded = _loaded(model)
        layers = range(len(loaded.geometry.layers))
        questions = 6 if device.type == "cuda" else 2
        wanted = _requests(model, questions, [BASE, *heads(layers, [0, 3])])
        engine = Engine(loaded, _decoding(24), None, checked=True)
        answers = {answer.request: answer.token_ids for answer in engine.run(wanted)}
        facts = engine.facts
        if dtype == torch.float32:
            facts["differing"] = sum(
                answers[request] != _published(loaded, [request], 24)[0] for request in wanted
            )
        print(f"{dtype}: {len(wanted)} answers, {facts}")


def lives(device: torch.device) -> None:
    """Print what became of captured steps over three engines with three batches each.

    A step that cannot be captured is tried, too. What comes after it, another engine and a random
    number, must not notice.
    """
    model = AutoModelForCausalLM.from_pretrained(REASONER, dtype=torch.bfloat16).to(device).eval()
    loaded = _loaded(model)
    questions = 40 if device.type == "cuda" else 6  # more than a batch of 20 rows holds
    wanted = _requests(model, questions, [BASE, *heads([1], [0, 3]), Variant(2, 1, kind="noise")])
    facts: list[Any] = []
    decoders = [Decoder.of(loaded, graphs=True) for _ in range(3)]
    for number, decoder in enumerate(decoders):
        if number == 2 and device.type == "cuda":
            print(f"a capture that fails: {_failing_capture(device)}")
            give_back_memory()
        engine = Engine(loaded, _decoding(24), 20, decoder)
        for _ in range(3):
            count = len(list(engine.run(wanted)))
        facts.append((count, engine.facts))
    drawn = torch.rand((), device=device).item()
    print(f"three engines, three batches each: {facts}; then a random number: {drawn:.3f}")


def _failing_capture(device: torch.device) -> str:
    """Read a number of the device while a function is captured; return the error."""
    try:
        cuda_graph(lambda: torch.zeros(int(torch.ones((), device=device).item())), device)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return "none, though it reads from the device"


def steps(shape: str, device: torch.device) -> None:
    """Print tokens a second of decoding steps by PyTorch's operators, fused ones, and in graphs.

    The second batch of each engine is timed: the first compiles and captures.
    """
    loaded = _random(shape, device)
    tiny = shape == "tiny"
    counts = (2, 3) if tiny else (64, 512)
    for rows in counts:
        base = _requests(loaded.model, rows, [BASE])
        plain = Decoder.of(loaded)
        fused = Decoder.of(loaded)
        captured = Decoder.of(loaded, graphs=True)
        assert plain is not None
        plain.operators = PLAIN
        for decoder in (plain, fused, captured):
            tokens = 160 if decoder is captured and not tiny else 20
            engine = Engine(loaded, _decoding(tokens), rows, decoder, checked=False)
            first = _seconds(engine, base)
            seconds = _seconds(engine, base)
            print(
                f"{rows} rows, {engine.facts['path']}: {rows * tokens / seconds:.0f} tokens/s, "
                f"{1000 * seconds / tokens:.2f} ms a step; the first batch took {first:.1f} s"
            )


def _seconds(engine: Engine, wanted: Sequence[Request]) -> float:
    return seconds_of(lambda: [*engine.run(wanted)])


def _random(shape: str, device: torch.device) -> Any:
    """Return a loaded model of one of Qwen2.5's shapes with random weights."""
    sizes: Any = SIZES[f"qwen2.5-{shape}"]
    config = Qwen2Config(**sizes, tie_word_embeddings=True, max_position_embeddings=4096)
    with torch.device(device):
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16).eval()
    return _loaded(model)


def speed(shape: str, device: torch.device) -> None:
    """Print tokens a second of each way to answer."""
    loaded = _random(shape, device)
    model = loaded.model
    tiny = shape == "tiny"
    tokens, questions = (8, 6) if tiny else (600, 512)
    base = _requests(model, questions, [BASE])
    seconds = seconds_of(lambda: _published(loaded, base[:16], tokens))
    print(f"generate, batch 16: {min(16, len(base)) * tokens / seconds:.0f} tokens/s")
    drafts = _run("decoding", loaded, base, tokens, {})
    few = heads([len(loaded.geometry.layers) // 2], range(3 if tiny else 12))
    sweep = _requests(model, questions // 6, few)
    for share in (0.0, 0.3, 0.6, 0.9):
        with accepting(share, drafts):
            _run(f"sweep, {share:.0%} forced", loaded, sweep, tokens, drafts)


@contextmanager
def accepting(share: float, drafts: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Let verification accept this share of each draft, whatever the model says."""
    right = batch.choices

    def forced(
        logits: Any, owners: Any, _: Any, operators: Operators, drawn: Any = None
    ) -> Iterator[tuple[int, float]]:
        chosen = right(logits, (), None, operators, drawn)
        for (_, gap), (row, number) in zip(chosen, owners, strict=False):
            draft = drafts[row.request.question_id]
            yield draft[number] if number < share * len(draft) else draft[number] ^ 1, gap

    with patch.object(batch, "choices", forced):
        yield


def _run(
    name: str,
    loaded: Any,
    wanted: list[Request],
    tokens: int,
    drafts: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int, ...]]:
    """Print how fast the engine answers; return the answers by question."""
    decoder = Decoder.of(loaded, graphs=True)
    engine = Engine(loaded, _decoding(tokens), None, decoder, checked=False if drafts else None)
    answers: list[Any] = []
    seconds = seconds_of(lambda: answers.extend(engine.run(wanted, drafts)))
    kept = sum(len(answer.token_ids) for answer in answers)
    accepted = sum(answer.accepted for answer in answers)
    print(
        f"engine, {name}: {kept / seconds:.0f} kept tokens/s, "
        f"{accepted / kept:.0%} accepted, {engine.facts}"
    )
    return {answer.request.question_id: answer.token_ids for answer in answers}


def _loaded(model: Any) -> Any:
    facts = {"geometry": find_heads(model), "device": model.device, "dtype": model.dtype}
    return SimpleNamespace(model=model, **facts, pad_token_id=0, eos_token_ids=())


def _decoding(tokens: int) -> Any:
    return SimpleNamespace(greedy=True, max_new_tokens=tokens, seed=0, stop=())


def _requests(model: Any, questions: int, variants: list[Variant]) -> list[Request]:
    draw = torch.Generator().manual_seed(0)
    words = model.config.vocab_size
    prompts = [
        tuple(torch.randint(3, words, (20 + number % 7,), generator=draw).tolist())
        for number in range(questions)
    ]
    return [
        Request(f"q{number}", prompt, variant)
        for number, prompt in enumerate(prompts)
        for variant in variants
    ]


def _published(loaded: Any, requests: list[Request], tokens: int) -> list[tuple[int, ...]]:
    """Answer with `generate`; all requests of the first one's variant."""
    length = {"max_new_tokens": tokens, "min_new_tokens": tokens, "eos_token_id": None}
    prompts = [request.prompt for request in requests]
    with edited_weights(loaded.model, loaded.geometry, requests[0].variant):
        rows = generated(loaded, prompts, **length, do_sample=False, pad_token_id=0)
    return [tuple(row) for row in rows]


def generated(loaded: Any, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[int]]:
    """Answer prompts with `generate`, padded on the left."""
    width = max(map(len, prompts))
    ids = [[loaded.pad_token_id] * (width - len(prompt)) + [*prompt] for prompt in prompts]
    visible = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    tokens, mask = (torch.tensor(numbers, device=loaded.device) for numbers in (ids, visible))
    rows: Any = loaded.model.generate(tokens, attention_mask=mask, **options)
    return rows[:, width:].tolist()


if __name__ == "__main__":
    main()
