"""Small solvers and what is asked of them; a process that is killed in the middle of its work."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver, new_solver
from headroom.config.compression import Solver
from headroom.models.learner import Learner


def certain_solver(settings: Solver, n: int, seed: int) -> MathSolver:
    """Return a solver of n generated problems that is sure of this and that."""
    solver = new_solver(settings, generate(n, seed=5), seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in solver.athena.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))
    return solver


def build(kind: Any, config: Any, std: float = 0.3) -> PreTrainedModel:
    """Return a model with random weights, in evaluation mode."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = kind(config)
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model.eval()


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
