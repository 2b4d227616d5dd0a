"""Names of the methods compared, as tables and figures show them."""

from collections import Counter
from collections.abc import Sequence

from headsweep.config import Config

SPRINT = "SPRINT"
RANDOM = "random heads"
POOL = "random, whole pool"
NEAREST = "nearest questions"
REGRESSION = "logistic regression"
BY_SUBJECT = "cover by subject"
RIVALS = (NEAREST, REGRESSION, BY_SUBJECT)
"""Simpler ways to match questions with heads (headsweep.experiments.sprint.rankers)."""
COVER = "greedy cover"
SINGLE = "best single head"
BASE = "base greedy"
ONE_ANSWER = (SINGLE, BASE)
"""Methods that have one answer, whatever N."""
ORACLE = "all heads (oracle)"

_SAMPLING = "sampling T="


def sampling(config: Config, decodings: Sequence[str]) -> dict[str, str]:
    """Return the display names of sampling decodings: T, and the config name where T is shared."""
    temperatures = {name: config.decodings[name].temperature for name in decodings}
    shared = Counter(temperatures.values())
    return {
        name: f"{_SAMPLING}{value:g}" + (f" ({name})" if shared[value] > 1 else "")
        for name, value in temperatures.items()
    }


def is_sampling(method: str) -> bool:
    """Return whether a method is one of those that `sampling` names."""
    return method.startswith(_SAMPLING)


def is_baseline(method: str) -> bool:
    """Return whether a method is one of the paper's own baselines: sampling or random heads."""
    return is_sampling(method) or method == RANDOM
