"""A small solver and what is asked of it; a process that is killed in the middle of its work."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import torch

from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver, new_solver
from headroom.config.compression import Encoder, Solver
from headroom.models.learner import Learner

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


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def killed_at(step: int, work: Callable[[Callable[[], None]], Any]) -> None:
    """Do work in a copy of this process, which is killed when it counts to a step.

    Args:
        step: from 1.
        work: takes what counts; has to reach the step.
    """
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
