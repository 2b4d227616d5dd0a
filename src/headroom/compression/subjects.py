"""What is compressed, and what it learns from: read from the store for the jobs."""

from pathlib import Path

from headroom import paths
from headroom.athena.solver import MathSolver, load_solver
from headroom.athena.splits import Parts
from headroom.athena.storage import read_parts
from headroom.plan import Arm


def rows(arm: Arm) -> Parts:
    """Return the data that an arm is trained, looked at and tested on."""
    return read_parts(Path(paths.PROBLEMS.format(data=arm.data)))


def start(arm: Arm, seed: int) -> MathSolver:
    """Return what an arm starts from, with all heads."""
    return load_solver(Path(arm.file(paths.TEACHER, seed)).parent)


def left(arm: Arm, seed: int) -> MathSolver:
    """Return what an arm left."""
    return load_solver(Path(arm.model(seed)))
