"""Which N and which sources of chance are told of Pass@N."""

from collections.abc import Iterable

import pandas as pd

from headroom.sprint.methods import SPRINT

_COVERED = {
    "by_questions": "test questions",
    "by_draw": "draws of training questions",
    "by_seed": "seeds",
}


def covered(paired: pd.DataFrame) -> str:
    """Say what the intervals of paired differences cover (see `headroom.sprint.evaluation`)."""
    known = [text for of, text in _COVERED.items() if of in paired and paired[of].any()]
    *others, last = known or ["test questions"]
    return f"{', '.join(others)} and {last}" if others else last


def told(numbers: Iterable[int]) -> list[int]:
    """Return the N of which differences are told: 1, 4 and the largest, where there are answers."""
    there = set(numbers)
    return sorted({1, 4, max(there, default=0)} & there)


def largest_n(table: pd.DataFrame) -> int:
    """Return the largest N of SPRINT, or of any method where SPRINT is missing."""
    own = table[table["method"] == SPRINT]
    return int((own if len(own) else table)["n"].max())
