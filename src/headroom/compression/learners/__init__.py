"""What can be compressed: solvers of word problems, encoders of texts, decoders.

Each is a `headroom.models.learner.Learner`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headroom.athena.problems import Problem
from headroom.athena.solver import MathSolver, load_solver, new_solver
from headroom.compression.learners.decoder import Decoder, load_decoder
from headroom.compression.learners.texts import TextLearner, load_text_learner, new_text_learner
from headroom.config.compression import Solver
from headroom.errors import ModelError


def new(settings: Solver, rows: Sequence[Any], seed: int) -> MathSolver | TextLearner:
    """Return an untrained learner for a training part: what it learns follows from the rows.

    Args:
        settings: of the encoder and of what stands on it.
        rows: word problems, or labelled texts.
        seed: decides the weights that are not pretrained.

    Raises:
        ModelError: the encoder cannot be loaded.
    """
    if isinstance(rows[0], Problem):
        return new_solver(settings, rows, seed)
    return new_text_learner(settings, rows, seed)


def load(folder: Path) -> MathSolver | TextLearner | Decoder:
    """Read a learner that was saved.

    Raises:
        ModelError: there is none, or a part of it is missing or damaged.
    """
    readers: dict[str, Callable[[Path], MathSolver | TextLearner | Decoder]] = {
        "texts.json": load_text_learner,
        "decoder.json": load_decoder,
        "solver.json": load_solver,  # last: the workflow puts one beside trained texts, too
    }
    for name, read in readers.items():
        if (folder / name).exists():
            return read(folder)
    raise ModelError(f"{folder} holds none of {', '.join(readers)}; make what it is to hold again")
