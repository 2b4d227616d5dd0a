"""The papers' tables, with the rows and columns that the papers give them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from headsweep.config.experiments import BASELINE, METHOD
from headsweep.page.printed.exhibits import PrintedExhibit
from headsweep.page.printed.numbers import AS_PUBLISHED, Numbers
from headsweep.text import counted, percent

NO_PRUNE = "No Prune"

_CUTS = {
    "parameters_removed": "Parameters ↓ (%)",
    "faster_large": "Speed ↑ (%)",
    "flops_removed": "FLOPs ↓ (%)",
    "weight_removed": "Memory ↓ (%)",
}
"""The savings that the second paper prints. In a run these are: shares of the encoder's parameters,
floating-point operations and bytes of weights; and t0 / t1 - 1 of a pass of the largest batch."""

_UNITS = (
    "Parameters, FLOPs and memory (bytes of weights): shares of the encoder's; speed: t0/t1 − 1 of "
    "a pass of the largest batch."
)
_UNSAID = "The paper does not say of what batch speed is, nor of what memory is."
_STRATA = {"low": "Simple", "medium": "Medium", "high": "Complex", "all": "All"}

_STRATEGIES = {
    BASELINE: ("", "Baseline"),
    "pruning_only": ("w/o recursive distillation", "Pruning only"),
    "without_entropy": ("w/o recursive distillation", "w/o entropy"),
    "without_norm": ("w/o recursive distillation", "w/o norm"),
    "response_distillation": ("w/o recursive distillation", "Response distill."),
    "feature_distillation": ("w/o recursive distillation", "Feature distill."),
    "random": ("w/o dynamic pruning", "Random pruning"),
    "global": ("w/o dynamic pruning", "Global pruning"),
    "attention_visualisation": ("w/o dynamic pruning", "Attention vis. pruning"),
    "distillation_only": ("w/o dynamic pruning", "Distill. only"),
    METHOD: (" ", "Ours"),
}
"""Columns of the second paper's Table 4: each arm's group and name."""


class Part(NamedTuple):
    """A part of a table: its title, its cells, and which of them are bold."""

    title: str
    cells: pd.DataFrame
    """Numbers; the first column names the rows. Columns that two rows name are a MultiIndex."""
    bold: np.ndarray | None = None
    digits: int = 1
    """Decimals of its numbers."""


class PrintedTable(NamedTuple):
    """A table in a paper's form."""

    parts: list[Part]
    """None if there are no numbers."""
    notes: str
    words: Mapping[str, object]
    """For the placeholders of its title."""
    wide: bool = False
    """Whether it takes a landscape page."""


def head_pruning(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make one of SPRINT's Tables 1-4: rows are heads, columns the layers of each subject.

    A second part is for the reader: the best head of each layer, by subject.
    """
    cells = numbers.of_model(exhibit.of)
    if cells.empty:
        words = {"models": exhibit.of, "tested": "MATH500"}
        return PrintedTable([], f"Empty: {exhibit.of} is {numbers.missing}.", words)
    pruned = cells.dropna(subset="head")
    subjects = list(dict.fromkeys(pruned["subject"]))
    layers = sorted(pruned["layer"].unique())
    columns = pd.MultiIndex.from_product([subjects, layers])
    grid = pruned.pivot(index="head", columns=["subject", "layer"], values="accuracy")
    grid = grid.reindex(columns=columns)
    base = _unpruned(cells, columns)
    is_best = grid.eq(grid.max()).to_numpy()
    whole = pd.concat([grid, base.to_frame().T])
    absent = int(whole.isna().sum().sum())
    whole.insert(0, ("", "Head"), [*map(str, grid.index), NO_PRUNE])
    bold = np.pad(is_best, ((0, 1), (1, 0)))  # neither No Prune nor names of rows
    sizes = dict(zip(pruned["subject"], pruned["n"], strict=True))
    named = [(f"{subject} (n={sizes[subject]:g})", str(layer)) for subject, layer in columns]
    whole.columns = pd.MultiIndex.from_tuples([("", "Head"), *named])
    notes = (
        "Rows: the head pruned; columns: its layer. Bold: the best head of a column, ties "
        f"included; a maximum of {counted(len(grid), 'head')}, raised by selection."
    )
    if absent:
        notes += f" --: {numbers.missing} ({absent:,} of {whole.shape[0] * len(columns):,} cells)."
    model, tested = cells[["model", "tested"]].iloc[0]
    words = {"models": in_place_of(model, exhibit.of), "tested": tested}
    parts = [
        Part("", whole, bold, digits=2),
        Part("Best head of each layer, by subject", _best(grid, base, sizes), digits=2),
    ]
    return PrintedTable(parts, notes, words, wide=True)


def in_place_of(model: str, paper: str) -> str:
    """Return a model's name, and the paper's model in whose place it stands, if that is another."""
    return model if model == paper else f"{model} (in the place of {paper})"


def _unpruned(cells: pd.DataFrame, columns: pd.MultiIndex) -> pd.Series:
    """Return the base model's accuracy in each column; a run has one for all layers."""
    base = cells[cells["head"].isna()]
    by_layer = base.dropna(subset="layer").set_index(["subject", "layer"])["accuracy"]
    of_all = base[base["layer"].isna()].set_index("subject")["accuracy"]
    values = [by_layer.get((name, at), of_all.get(name, np.nan)) for name, at in columns]
    return pd.Series(values, columns, dtype=float)


def _best(grid: pd.DataFrame, base: pd.Series, sizes: Mapping[str, float]) -> pd.DataFrame:
    """Return the best head of each layer and its accuracy, by subject, beside No Prune."""
    rows = []
    for subject, n in sizes.items():
        row: dict[tuple[str, str], object] = {
            ("", "Subject"): subject,
            ("", "n"): f"{n:g}",
            ("", NO_PRUNE): base[subject].median(),
        }
        for layer, accuracies in grid[subject].items():
            known = accuracies.dropna()
            row[(f"layer {layer}", "best")] = known.max() if len(known) else np.nan
            row[(f"layer {layer}", "head")] = str(known.idxmax()) if len(known) else np.nan
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.set_axis(pd.MultiIndex.from_tuples(list(rows[0])), axis=1)


def ratios(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make the second paper's Table 1: rows are ratios, a part for each data set."""
    parts = []
    for compressed in numbers.compressions:
        if compressed.condition and compressed.condition[0] == "ATHENA-large":
            continue
        rows = compressed.tables["table1"].sort_values("ratio")
        rows = rows.assign(change=rows["change"].where(rows["ratio"] > 0, 0.0))
        columns = {"accuracy": "Accuracy (%)", "change": "Change", **_CUTS}
        del columns["weight_removed"]
        parts.append(_part(compressed.title, rows, {"ratio": "Pruning ratio (%)"} | columns))
    return _study(exhibit, numbers, parts)


def sizes(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make the second paper's Table 2: each solver, unpruned and at 25%."""
    rows = []
    for compressed in numbers.compressions:
        for_size = compressed.tables["table1"]
        for_size = for_size[np.isclose(for_size["ratio"], 0) | np.isclose(for_size["ratio"], 0.25)]
        rows.append(for_size.assign(solver=compressed.title))
    columns = {
        "solver": "Solver and data",
        "ratio": "Pruning ratio (%)",
        "accuracy": "Accuracy (%)",
        "parameters_removed": _CUTS["parameters_removed"],
        "faster_large": _CUTS["faster_large"],
    }
    parts = [_part("", pd.concat(rows), columns)] if rows else []
    return _study(exhibit, numbers, parts)


def mixtures(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make the second paper's Table 3(a): rows are values of alpha, with distillation."""
    columns = {"alpha": "alpha", "accuracy": "Accuracy (%)", **_CUTS}
    del columns["weight_removed"]
    return _main(exhibit, numbers, "table3a", columns)


def strata(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make the second paper's Table 3(b): rows are classes of complexity."""
    columns = {
        "stratum": "Complexity",
        "baseline": "Baseline (%)",
        "accuracy": "Ours (%)",
        "change": "Change",
    }
    return _main(exhibit, numbers, "table3b", columns)


def arms(exhibit: PrintedExhibit, numbers: Numbers) -> PrintedTable:
    """Make the second paper's Table 4: columns are strategies, in groups.

    Last come variations whose scores or distillation are as the paper prints them, if there are.
    """
    if numbers.main is None:
        return _study(exhibit, numbers, [])
    tables = numbers.main.tables
    rows = tables["table4"].set_index("arm")
    columns = dict(_STRATEGIES)
    if "variations" in tables:
        literal = tables["variations"]["changed"].astype(str).str.contains("raw|literal")
        varied = tables["variations"][literal].set_index("arm")
        columns |= {arm: ("Ours, literally", arm.replace("_", " ")) for arm in varied.index}
        rows = pd.concat([rows, varied])
    shown = {"accuracy": "Accuracy (%)", **_CUTS}
    if rows["flops_removed"].isna().all():
        del shown["flops_removed"]  # the paper prints none
    cells = 100 * rows.reindex(index=list(columns), columns=list(shown)).astype(float).T
    cells.columns = pd.MultiIndex.from_tuples(list(columns.values()))
    cells.insert(0, ("", "Metric"), list(shown.values()))
    return _study(exhibit, numbers, [Part("", cells)])


def _main(
    exhibit: PrintedExhibit, numbers: Numbers, table: str, columns: Mapping[str, str]
) -> PrintedTable:
    """Make a table of the main compression alone."""
    if numbers.main is None or numbers.main.tables[table].empty:
        return _study(exhibit, numbers, [])
    rows = numbers.main.tables[table]
    if "distilled" in rows:
        rows = rows[rows["distilled"].eq(True)]
    return _study(exhibit, numbers, [_part("", rows, columns)])


def _part(title: str, rows: pd.DataFrame, columns: Mapping[str, str]) -> Part:
    """Return a part of some columns: shares in percent, the ratio and alpha as names of rows."""
    rows = rows.reset_index(drop=True)
    cells = pd.DataFrame(index=rows.index)
    for column, shown_as in columns.items():
        values = rows[column] if column in rows else pd.Series(np.nan, rows.index)
        match column:
            case "solver":
                cells[shown_as] = values
            case "ratio":
                cells[shown_as] = [f"{100 * value:g}" for value in values]
            case "alpha":
                cells[shown_as] = [f"{value:g}" for value in values]
            case "stratum":
                cells[shown_as] = values.replace(_STRATA)
            case _:
                cells[shown_as] = 100 * values.astype(float)
    return Part(title, cells)


def _study(exhibit: PrintedExhibit, numbers: Numbers, parts: Sequence[Part]) -> PrintedTable:
    """Return a table of the second paper, and why it is empty if it is."""
    main = numbers.main
    words = {"models": main.title if main else "ATHENA-base, Math23k"}
    if not any(len(part.cells) for part in parts):
        return PrintedTable([], f"Empty: {exhibit.place} is {numbers.missing}.", words)
    absent = sum(int(part.cells.isna().sum().sum()) for part in parts)
    whole = sum(part.cells.size for part in parts)
    saved = any(set(_CUTS.values()) & {*part.cells, *part.cells.iloc[:, 0]} for part in parts)
    notes = ""
    if saved:
        notes = _UNSAID if numbers.source == AS_PUBLISHED else _UNITS
    if absent:
        notes += f" --: {numbers.missing} ({percent(absent / whole)} of the cells)."
    return PrintedTable(list(parts), notes, words)
