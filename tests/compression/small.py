"""A small solver and decoder; a process that is killed in the middle of its work."""

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from headsweep.benchmarks.generated import corpus
from headsweep.config import Decoding
from headsweep.config.solvers import Encoder, Solver
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.athena.solver import MathSolver, new_solver
from headsweep.experiments.compression.decoder import DecoderLearner
from headsweep.experiments.reasoner import Settings, new_model, train_tokenizer
from headsweep.models.geometry import find_heads
from headsweep.models.learner import Learner
from headsweep.models.loaded import LoadedModel

SMALL = Solver(
    encoder=Encoder(layers=2, width=24, heads=3, intermediate=20, dropout=0.3, min_count=1),
    depth=4,
    dropout=0.2,
)


def certain_solver(n: int) -> MathSolver:
    solver = new_solver(SMALL, generate(n, seed=5), 1)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in solver.network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))
    return solver


def small_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer((text for one in corpus(60, seed=1) for text in one[:2]), 300)


def decoder(shape: Settings) -> DecoderLearner:
    """Return a decoder that knows nothing, in training."""
    tokenizer = small_tokenizer()
    model = new_model(shape, tokenizer).train()
    where = Path("nowhere"), model.device, model.dtype
    loaded = LoadedModel(model, tokenizer, find_heads(model), *where, 0, (1,))
    return DecoderLearner(loaded, "decoder", Decoding(max_new_tokens=5), "math")


def save_decoder(folder: Path) -> Path:
    """Write a decoder that knows nothing."""
    tokenizer = small_tokenizer()
    heads = {"query_heads": 6, "kv_heads": 3, "head_dim": 10}
    shape = Settings(layers=2, hidden=20, intermediate=28, vocabulary=300, **heads)
    for part in (new_model(shape, tokenizer), tokenizer):
        part.save_pretrained(folder)
    return folder


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def assert_trained_alike(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Hold weights against those of a training that differs in rounding, all but one in a thousand.

    Where a gradient is about 0, rounding decides where the first step of AdamW goes.
    """
    assert one.keys() == other.keys()
    close = [torch.isclose(one[name], other[name], rtol=1e-3, atol=1e-4).flatten() for name in one]
    assert torch.cat(close).double().mean() > 0.999


def killed_at(step: int, work: Callable[[Callable[[], None]], Any]) -> None:
    """Do work, which takes what counts, in a copy of this process that dies at a step, from 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which do nothing here
        child = os.fork()
    if child == 0:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            work(count)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
