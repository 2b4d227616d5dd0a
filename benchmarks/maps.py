"""A map's texts scored beside a loop of plain forward passes: `python -m benchmarks.maps`."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from benchmarks.baselines import Costs
from headsweep.arguments import count
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.benchmarks.sources import read_source
from headsweep.config import Decoding, Questions
from headsweep.engine.decoder import Decoder
from headsweep.errors import ModelError
from headsweep.experiments.maps.gradients import log_probability
from headsweep.experiments.maps.outcomes import SOLUTION
from headsweep.experiments.maps.scoring import Text, score
from headsweep.models.load import load_model
from headsweep.models.loaded import LoadedModel
from headsweep.models.masks import edited_weights
from headsweep.models.source import BUILTIN
from headsweep.text import aligned
from headsweep.variants import Variant

_T = TypeVar("_T")


class Work(NamedTuple):
    """Floating-point operations of products; attention's own are left out."""

    layers: float
    logits: float

    @property
    def all(self) -> float:
        """Of both."""
        return self.layers + self.logits


def main(arguments: list[str] | None = None) -> None:
    """Read a command line and measure."""
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--model", default="demo", help="a folder, or 'demo'")
    dtypes = ("float32", "bfloat16")
    parser.add_argument("--dtype", default="float32", choices=dtypes, help="of the model")
    parser.add_argument("--layer", type=int, help="whose heads are lost; None: the middle one")
    parser.add_argument("--questions", type=count, default=40, help="solutions that are scored")
    plain = "solutions that the loop of plain forwards scores"
    parser.add_argument("--plain", type=count, default=10, help=plain)
    parser.add_argument("--threads", type=count, default=1, help="CPU threads to use")
    run(**vars(parser.parse_args(arguments)))


def run(
    model: str, dtype: str, layer: int | None, questions: int, plain: int, threads: int
) -> None:
    """Time the scoring of reference solutions without each head of a layer, and print a table.

    Args:
        model: a folder, or ``demo``.
        dtype: of weights and activations.
        layer: whose heads are lost; None: the middle one.
        questions: how many reference solutions are scored.
        plain: how many of them the loop of plain forwards scores, which has the same rate for all.
        threads: of the processor.

    Raises:
        ModelError: the layer is not there.
    """
    torch.set_num_threads(threads)
    source = next(iter(BUILTIN)) if model == "demo" else str(Path(model))
    loaded = load_model(source, dtype=dtype, device="cpu", attention="sdpa")
    depth = len(loaded.geometry.layers)
    index = depth // 2 if layer is None else layer
    if not 0 <= index < depth:
        raise ModelError(f"layer {index}: the model has {depth} layers, numbered from 0")
    heads = loaded.geometry.layer(index).query_heads
    variants = [Variant(index, 0, "replay"), *(Variant(index, head) for head in range(heads))]
    texts = solutions(loaded, questions)
    decoder = Decoder.of(loaded)
    list(score(loaded, texts[:1], variants, decoder))  # what is made once
    scored, seconds = _timed(lambda: list(score(loaded, texts, variants, decoder)))
    looped, plain_seconds = _timed(lambda: _looped(loaded, texts[:plain], variants))
    shared_pass = {(entry.text, entry.variant): entry.log_probability for entry in scored}
    worst = max(abs(shared_pass[key] - value) for key, value in looped.items())
    shared = work(loaded, texts, len(variants), index)
    whole = work(loaded, texts, len(variants))
    rates = len(scored) / seconds, len(looped) / plain_seconds
    rows = [("way", "texts/s", "GFLOP a text", "GFLOP/s")]
    for name, operations, rate in (
        ("the pass", shared, rates[0]),
        ("plain forwards", whole, rates[1]),
    ):
        gigaflops = operations.all / len(scored) / 1e9
        rows.append((name, f"{rate:.2f}", f"{gigaflops:.3g}", f"{gigaflops * rate:.1f}"))
    print(aligned(rows, left=1))
    print(
        f"{model}, {dtype}, layer {index} of {depth}, {len(texts)} texts, {len(variants)} variants,"
        f" {threads} threads: {rates[0] / rates[1]:.2f} times as fast as plain forwards; the "
        f"arithmetic allows {whole.all / shared.all:.2f}. Largest difference: {worst:.2g} nats."
    )


def solutions(loaded: LoadedModel, number: int) -> list[Text]:
    """Return reference solutions of the generated benchmark as texts."""
    section = Questions(benchmark="generated_math", split="train", n=number)
    questions = read_source(section).head(number)
    tokenizer = loaded.tokenizer
    decoding = Decoding()
    texts = []
    for row in questions.to_dict("records"):
        prompt = encode_prompt(tokenizer, str(row["question"]), decoding, section.grader_name)
        tokens = tokenizer(str(row["solution"]), add_special_tokens=False)["input_ids"]
        texts.append(Text(str(row["question_id"]), SOLUTION, prompt, tuple(tokens)))
    return texts


def work(
    loaded: LoadedModel, texts: Sequence[Text], variants: int, layer: int | None = None
) -> Work:
    """Return the operations that scoring texts takes: two for each weight and token.

    Args:
        loaded: the model.
        texts: with a logit for each of their tokens.
        variants: of each text.
        layer: up to which all variants share one row; None: each has a row of its own.
    """
    costs = Costs.of(loaded)
    shared = 0 if layer is None else layer
    layers = shared + variants * (costs.layers - shared)
    fed = sum(len(text.prompt) + len(text.tokens) - 1 for text in texts)
    logits = variants * sum(len(text.tokens) for text in texts)
    inner = costs.projections + costs.rest
    return Work(float(layers * inner * fed), float(costs.logits * logits))


@torch.inference_mode()
def _looped(
    loaded: LoadedModel, texts: Sequence[Text], variants: Sequence[Variant]
) -> dict[tuple[Text, Variant], float]:
    """Score by `transformers` alone, with the head's weights zeroed, text by text."""
    log_probabilities = {}
    for variant in variants:
        with edited_weights(loaded.model, loaded.geometry, variant):
            for text in texts:
                log_probabilities[text, variant] = log_probability(loaded, text).item()
    return log_probabilities


def _timed(measured: Callable[[], _T]) -> tuple[_T, float]:
    begin = time.perf_counter()
    result = measured()
    return result, time.perf_counter() - begin


if __name__ == "__main__":
    main()
