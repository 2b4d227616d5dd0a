"""The page that says whether the best of many tries is lucky; it needs no server."""

from pathlib import Path

import pandas as pd

from headsweep import __version__
from headsweep.analysis.published import SIZES, audit, head_pruning
from headsweep.report.explorer import script
from headsweep.report.page import asset, render

_HEADING = "Is your best of K luck?"
_SEED = 0


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
    )


def published_tables(cells: pd.DataFrame) -> list[dict[str, str]]:
    """Return each model's table of a layer as it may be pasted, from `head_pruning`.

    Cells are divided by tabs: titles, numbers of questions, the unpruned model, the heads.
    """
    found = []
    of_model = cells.groupby("model")["head"].max()
    for (exhibit, model, layer), part in cells.groupby(["exhibit", "model", "layer"], sort=False):
        subjects = [subject for subject in SIZES if subject in set(part["subject"])]
        printed = part.set_index(["head", "subject"])["accuracy"]
        by_head = {
            (head, subject): f"{value:.2f}"
            for (head, subject), value in printed.items()
            if not pd.isna(head)
        }
        unpruned = part[part["head"].isna()].set_index("subject")["accuracy"]
        rows = [["", *subjects], ["questions", *(str(SIZES[each]) for each in subjects)]]
        rows.append(["No Prune", *(f"{unpruned[s]:.2f}" if s in unpruned else "" for s in subjects)])
        for head in range(int(of_model[model]) + 1):
            rows.append([f"head {head}", *(by_head.get((head, s), "") for s in subjects)])
        text = "\n".join("\t".join(row) for row in rows)
        found.append({"title": f"{exhibit}: {model}, layer {layer}", "text": text})
    return found
