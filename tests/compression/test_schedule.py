"""Schedules never give a head back, and end where they were told to."""

import pytest

from headroom.compression.choice import heads_at, heads_due
from headroom.config.compression import Compression


@pytest.mark.parametrize(
    ("heads", "settings", "removed"),
    [
        (144, {"ratio": 0.25}, [9, 18, 27, 36]),  # RoBERTa-base: nine a round
        (100, {"ratio": 0.4, "exponent": 2}, [2, 10, 22, 40]),  # late
        (100, {"ratio": 0.4, "exponent": 0.5}, [20, 28, 34, 40]),  # early
        (100, {"ratio": 0.5, "start": 0.1, "exponent": 2}, [12, 20, 32, 50]),
        (100, {"ratio": 0.29}, [7, 14, 21, 29]),  # 0.29 * 100 is below 29 in floating point
        (18, {"ratio": 0.25}, [1, 2, 3, 4]),
    ],
)
def test_rounds_rise_to_the_target(heads: int, settings: dict, removed: list[int]) -> None:
    found = [heads_due(Compression(**settings), heads, time, 4) for time in (1, 2, 3, 4)]
    assert found == removed
    assert found[-1] == heads_at(settings["ratio"], heads)
