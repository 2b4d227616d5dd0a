"""Every statistic at 500 questions, 1,000 variants and 10,000 resamples: far below a minute.

CPU time of one thread counts, so that other work on the machine does not.
"""

import time
from collections.abc import Callable

import numpy as np
import pytest

from headroom.sprint import matching
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import false_discovery, mcnemar, paired_interval
from headroom.statistics.selection import (
    against_placebos,
    best_gain,
    head_variance,
    held_out_gain,
    surely_hurts,
)

QUESTIONS, VARIANTS, RESAMPLES = 500, 1000, 10_000
SECONDS = 60


@pytest.fixture(scope="module")
def z() -> np.ndarray:
    draw = np.random.default_rng(0)
    chance = draw.beta(2, 1, (QUESTIONS, 1))
    return (draw.random((QUESTIONS, 1 + 2 * VARIANTS)) < chance).astype(np.int8)


def embedding_matters(z: np.ndarray) -> None:
    correct = z[:, 1 : VARIANTS + 1] == 1
    draw = np.random.default_rng(1)
    order = draw.permuted(np.tile(np.arange(VARIANTS), (QUESTIONS, 1)), axis=1)
    part = matching.Ranked(np.arange(QUESTIONS), correct, order, correct[:300], z[:300, 0] == 1)
    matching.compare("SPRINT", [part], "test", 16, RESAMPLES, 0)


STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], object]] = {
    "sign flips": lambda _, heads, __: best_gain(heads, ~surely_hurts(heads), RESAMPLES, 0),
    "placebos": lambda _, heads, placebos: against_placebos(heads, placebos, RESAMPLES, 0),
    "held out": lambda _, heads, __: held_out_gain(heads, np.arange(QUESTIONS) % 7, RESAMPLES, 0),
    "bootstrap": lambda _, heads, __: Bootstrap(QUESTIONS, RESAMPLES, 0).interval(heads),
    "tests": lambda _, heads, __: (false_discovery(mcnemar(heads)), paired_interval(heads)),
    "variance": lambda z, _, __: head_variance(z[:, 1:]),
    "embedding": lambda z, _, __: embedding_matters(z),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_scales(name: str, z: np.ndarray) -> None:
    differences = z[:, 1:] - z[:, :1]
    begin = time.process_time()
    STATISTICS[name](z, differences[:, :VARIANTS], differences[:, VARIANTS:])
    assert time.process_time() - begin < SECONDS
