"""The figure of families draws its tables, and fills the marks that Holm's test leaves."""

import pandas as pd
import pytest
from matplotlib.colors import to_rgba

from headroom.figures.frontier import frontier
from headroom.figures.style import BLUE, SURFACE

TITLES = {"head": "heads", "skip": "skipped layers", "sampling": "sampling"}
REACHED = {"head": 0.81, "skip": 0.44, "sampling": 0.67}


def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    curves = [
        {"family": family, "order": order, "n": n, "answers": 0.9 * n, "pass": value * n / 5,
         "majority": value / 2}
        for family, value in REACHED.items()
        for order in ("drawn", "ordered")
        for n in range(1, 6)
    ]  # fmt: skip
    paired = [
        {"family": family, "versus": "sampling", "outcome": outcome, "budget": 4.0,
         "difference": change, "low": change - 0.03, "high": change + 0.05, "adjusted": adjusted,
         "order": "ordered", "n": 37, "family_title": TITLES[family], "versus_title": "sampling"}
        for family, outcome, change, adjusted in (
            ("head", "pass", 0.14, 0.01), ("head", "majority", 0.02, 0.7),
            ("skip", "pass", -0.23, 0.2), ("skip", "majority", -0.11, 0.04),
        )
    ]  # fmt: skip
    untested = [{**paired[0], "budget": 2.0, "adjusted": None, "difference": 9.0}]
    families = pd.DataFrame({"family": TITLES.keys(), "title": TITLES.values(), "members": 5})
    return pd.DataFrame(curves), pd.DataFrame(paired + untested), families


def test_curves_and_differences_are_those_of_the_tables():
    curves, paired, families = tables()
    figure = frontier(curves, paired, families)
    left, right = figure.image.axes
    drawn = [line for line in left.lines if len(line.get_xdata())]
    assert len(drawn) == 2 * len(TITLES)  # solved, and right by vote
    heads = [line for line in drawn if to_rgba(line.get_color()) == to_rgba(BLUE)]
    assert heads[0].get_ydata() == pytest.approx([100 * 0.81 * n / 5 for n in range(1, 6)])
    assert heads[0].get_xdata() == pytest.approx([0.9 * n for n in range(1, 6)])
    marks = {
        round(float(line.get_xdata()[0]), 9): line.get_markerfacecolor() != SURFACE
        for line in right.lines
        if len(line.get_xdata()) == 1
    }
    assert marks == {14.0: True, 2.0: False, -23.0: False, -11.0: True}
    assert [text.get_text() for text in right.get_yticklabels()] == ["heads", "skipped layers"]
    assert "heads 81.0%, sampling 67.0%, skipped layers 44.0%" in figure.alt
    assert "heads +14.0 (+11.0 to +19.0)" in figure.alt
    assert set(figure.data["order"]) == {"ordered"}
    assert figure.facts["n"] == 37


def test_without_samples_only_curves_are_drawn():
    curves, paired, families = tables()
    figure = frontier(curves, paired[paired["versus"] == "noise"], families)
    assert not [line for line in figure.image.axes[1].lines if len(line.get_xdata()) == 1]
