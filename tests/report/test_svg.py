"""Scales of the page's drawings."""

import math

import pytest

from headroom.report.svg import Scale


@pytest.mark.parametrize(
    ("values", "limit"),
    [([], math.inf), ([0.0], math.inf), ([math.nan, -3.0], math.inf), ([2.0, 7.0], 5.0)],
)
def test_a_scale_holds_zero_and_its_values_up_to_the_limit(values: list[float], limit: float):
    scale = Scale.over(values, limit)
    places = [scale.share(max(-limit, min(limit, each))) for each in (0.0, *values) if each == each]
    assert all(0 <= place <= 100 for place in places)
    assert scale.low < scale.high


def test_a_single_point_lies_at_the_start_of_its_axis() -> None:
    assert Scale(1, 1, log=True).share(1) == Scale(7, 7).share(7) == 0
