"""The page that says whether the best of many tries is lucky; it needs no server."""

from pathlib import Path

import pandas as pd

from headsweep import __version__
from headsweep.analysis.facts import FORMS, p_template
from headsweep.analysis.published import SIZES, audit, head_pruning
from headsweep.report.explorer import script
from headsweep.report.page import asset, render

_HEADING = "Is your best of K luck?"
_SEED = 0
_UNPRUNED = -1  # in place of a head's number, before all heads


def luck_page(published: Path | None) -> str:
    """Return the page, filled with the tables of a folder of published numbers, if there is one.

    Raises:
        TableError: a published table is missing or damaged.
    """
    tables: list[dict[str, str]] = []
    total = None
    if published is not None:
        cells = head_pruning(published)
        tables = published_tables(cells)
        total = audit(cells, _SEED)["total"].iloc[0]
    return render(
        "luck.html",
        script=asset("luck.js"),
        data=script(tables),
        heading=_HEADING,
        version=__version__,
        total=total,
        p_value=p_value,
    )


def p_value(p: float) -> str:
    """Return a p-value in words: ``p = 0.753``, ``p < 0.001``."""
    return p_template(p).format(p=FORMS["p"](p))


def published_tables(cells: pd.DataFrame) -> list[dict[str, str]]:
    """Return each model's table of a layer as it may be pasted, from `head_pruning`.

    Cells are divided by tabs: titles, numbers of questions, the unpruned model, the heads.
    """
    pasted = []
    most = cells.groupby("model")["head"].max().astype(int).to_dict()
    for (exhibit, model, layer), part in cells.groupby(["exhibit", "model", "layer"], sort=False):
        grid = part.fillna({"head": _UNPRUNED}).pivot(
            index="head", columns="subject", values="accuracy"
        )
        subjects = [subject for subject in SIZES if subject in grid]
        rows = [["", *subjects], ["questions", *(str(SIZES[subject]) for subject in subjects)]]
        for head in range(_UNPRUNED, most[model] + 1):
            values = grid[subjects].reindex([head]).iloc[0]
            name = "No Prune" if head == _UNPRUNED else f"head {head}"
            rows.append([name, *("" if pd.isna(value) else f"{value:.2f}" for value in values)])
        text = "\n".join("\t".join(row) for row in rows)
        pasted.append({"title": f"{exhibit}: {model}, layer {layer}", "text": text})
    return pasted
