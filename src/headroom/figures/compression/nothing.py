"""A figure of one sentence, where a run has nothing to draw."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure as Image

from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS

EMPTY = "An empty figure."
"""How the alternative text of such a figure starts."""


def nothing(title: str, sentence: str, columns: Sequence[str]) -> Figure:
    """Return a figure that says why it is empty; its numbers have the columns of a full one."""
    image = Image(figsize=(TWO_COLUMNS, 0.8))
    image.text(0.5, 0.5, sentence, ha="center", va="center")
    data = pd.DataFrame(columns=list(columns))
    return Figure(image, title, sentence, f"{EMPTY} {sentence}", data)
