"""Sweeps of two shapes that no constant of the plan was fitted to: `python -m benchmarks.plan`.

CPU seconds of one thread are compared. Other work on the machine lengthens them, too, so the
product whose rate the plan takes for the CPU's is timed now and then while the sweep runs. Heads of
every third layer are pruned; a random model ends no answer, so all have the length that is planned.
"""

import argparse
import time
from statistics import median
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from headsweep.arguments import count
from headsweep.config import Decoding, parse
from headsweep.generation.engine import Engine
from headsweep.generation.requests import Request
from headsweep.models.geometry import find_heads
from headsweep.models.loaded import LoadedModel
from headsweep.planning.assumptions import LENGTHS
from headsweep.planning.batches import batches
from headsweep.planning.cards import CPU_SHARE, product_rate, this_cpu
from headsweep.planning.cost import generation_seconds

_BENCHMARK = "generated_math"
_BETWEEN = 16  # answers between two looks at the product's rate
_SHAPES: dict[str, dict[str, int]] = {
    "light layers": {
        "hidden_size": 448,
        "num_hidden_layers": 14,
        "num_attention_heads": 7,
        "num_key_value_heads": 7,
        "intermediate_size": 1216,
        "vocab_size": 6000,
    },
    "heavy layers": {
        "hidden_size": 896,
        "num_hidden_layers": 8,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 2816,
        "vocab_size": 12000,
    },
}


def main(arguments: list[str] | None = None) -> None:
    """Read a command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=count, default=12, help="of each sweep (default: 12)")
    run(parser.parse_args(arguments).questions)


def run(questions: int) -> None:
    """Print foretold and measured CPU seconds of a sweep of each shape, and their ratio."""
    torch.set_num_threads(1)
    print(f"{'':14}{'weights':>9}{'answers':>9}{'foretold':>10}{'CPU s':>8}{'ratio':>7}")
    for name, sizes in _SHAPES.items():
        weights, answers, foretold, measured = _measured(sizes, questions)
        print(
            f"{name:14}{weights / 1e6:7.0f} M{answers:9}{foretold:10.1f}{measured:8.1f}"
            f"{foretold / measured:7.2f}"
        )


def _measured(sizes: dict[str, int], questions: int) -> tuple[int, int, float, float]:
    """Return a model's weights, its answers, and their CPU seconds as planned and as spent."""
    config: Any = Qwen2Config(**sizes, max_position_embeddings=512, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM._from_config(config, dtype=torch.float32).eval()
    weights = sum(parameter.numel() for parameter in model.parameters())
    absent: Any = None  # neither text nor files are needed
    loaded = LoadedModel(
        model, absent, find_heads(model), absent, model.device, model.dtype, 0, eos_token_ids=()
    )
    prompt, length = LENGTHS[_BENCHMARK]
    planned = parse(_config(sizes, weights, questions, length))
    (batch,) = batches(planned)
    draw = torch.Generator().manual_seed(0)
    texts = torch.randint(3, sizes["vocab_size"], (questions, prompt), generator=draw).tolist()
    requests = [
        Request(f"q{number}", tuple(text), variant)
        for number, text in enumerate(texts)
        for variant in batch.variants
    ]
    engine = Engine(loaded, Decoding(max_new_tokens=length), None)
    rates = [product_rate()]
    answers = 0
    measured = 0.0
    begin = time.process_time()
    for _ in engine.run(requests):
        answers += 1
        if answers % _BETWEEN == 0:
            measured += time.process_time() - begin
            rates.append(product_rate())
            begin = time.process_time()
    measured += time.process_time() - begin
    card = this_cpu()._replace(flops=CPU_SHARE * median(rates))  # of one core
    foretold = generation_seconds(planned, batch, card)
    return weights, answers, foretold, measured


def _config(sizes: dict[str, int], weights: int, questions: int, length: int) -> dict[str, Any]:
    heads = sizes["num_attention_heads"]
    model = {
        "source": "nobody/random",
        "revision": "0" * 40,
        "layers": sizes["num_hidden_layers"],
        "heads": heads,
        "kv_heads": sizes["num_key_value_heads"],
        "billions": weights / 1e9,
        "dtype": "float32",
        "device": "cpu",
    }
    layers = range(0, sizes["num_hidden_layers"], 3)
    return {
        "run": "plan",
        "models": {"random": model},
        "questions": {"test": {"benchmark": _BENCHMARK, "split": "test", "n": questions}},
        "decodings": {"greedy": {"max_new_tokens": length}},
        "sweeps": {"few": {"model": "random", "questions": "test", "layers": [*layers]}},
    }


if __name__ == "__main__":
    main()
