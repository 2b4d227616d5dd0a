"""The tables that claims are judged from, in one form for the papers' numbers and for a run's.

Numbers are parts of 1. ``of`` is what a row is about, as the paper's row about the same has it, and
``name`` is how a reason names the row. Beside a column may stand the ends of its interval
(``_low``, ``_high``), the value that means no effect (``_null``), and the most that arithmetic
allows (``_most``).
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.compression import claims as compression
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import read_trials
from headroom.analysis.controls import GAINS
from headroom.analysis.gains import cells, groups_of, read_z
from headroom.analysis.published import EXHIBITS, SIZES, head_pruning, published_name
from headroom.analysis.sheet import read_csv
from headroom.config import Config
from headroom.sprint.evaluation import PAIRED
from headroom.sprint.methods import is_baseline
from headroom.statistics.paired import paired_interval
from headroom.statistics.proportion import unpaired_difference, wilson
from headroom.variants import BASE

Tables = Mapping[str, pd.DataFrame]
Condition = tuple[str, str]
"""Prompt and grading rules; both empty where a claim is of neither."""

WANTED = {
    "heads": "head beside its base model",
    "without": "pruned head",
    "pairs": "head beside its base model",
    "medians": "median gain of all four models",
    "base": "accuracy of the base model",
    "levels": "held-out gain by level on a model and layer of the paper",
    "leads": "selector of the paper's model tested on MATH-500 or GSM8K",
    "peaks": "selector of the paper's model tested on MATH-500 or GSM8K",
    "ratios": "compression",
    "alphas": "compression",
    "strata": "compression",
    "arms": "compression",
    "sizes": "two solvers on the same data, compressed alike",
}
"""Each table, and what is missing where it has no row."""

_FIGURE = "Figure 5"  # no part of the head study's Tables 1-4
_SELECTOR = "Qwen2.5-Math-1.5B-Instruct"  # the model that the paper's selector is for
_LEGIBLE = 0.5  # share of a pair's heads that a median over pairs needs
_CELL = ["model", "layer", "subject"]


def printed(folder: Path) -> dict[str, pd.DataFrame]:
    """Return what the papers print.

    Args:
        folder: where the published tables lie.

    Raises:
        TableError: a table is missing or damaged.
    """
    return _of_cells(head_pruning(folder)) | compression.printed(Published.read(folder))


def measured(config: Config, paper: Tables) -> dict[Condition, Tables]:
    """Return what a run measured of the papers' models, by prompt and grading rules.

    Where two sweeps or selectors of a model share these and a cell, the first one counts.

    Args:
        config: of the run.
        paper: what the papers print.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    shown = paper["heads"][["model", "layer", "exhibit"]].drop_duplicates()
    parts, levels, leads = (defaultdict[Condition, list[pd.DataFrame]](list) for _ in range(3))
    for sweep, section in config.sweeps.items():
        model = published_name(config.models[section.model])
        if model is None or config.questions[section.questions].benchmark != "math500":
            continue
        how: Condition = config.decodings[section.decoding].prompt, config.grading_of(sweep)
        z, variants = read_z(config, sweep)
        own = cells(z, variants)
        parts[how].append(_tested(own[own["by"] == "subject"], z).assign(model=model))
        names = {"run": config.run, "sweep": sweep, "table": "gains", "suffix": "csv"}
        gains = read_csv(Path(paths.CONTROLS.format(**names)), GAINS)
        of_paper = shown.loc[shown["model"] == model, "layer"]
        levels[how].append(gains[gains["layer"].isin(of_paper)].assign(model=model))
    for name, selector in config.selectors.items():
        model = published_name(config.models[selector.model])
        learnt, asked = (config.questions[name] for name in (selector.train, selector.test))
        if model == _SELECTOR and not asked.generated and learnt.family == asked.family:
            prompt = config.decodings[selector.decoding].prompt
            leads[prompt, config.grading].append(_leads(config, name))
    found = defaultdict[Condition, dict[str, pd.DataFrame]](dict)
    for how, cells_of in parts.items():
        table = pd.concat(cells_of).drop_duplicates([*_CELL, "head"])
        found[how] |= _of_cells(table.merge(shown, on=["model", "layer"]))
        found[how]["levels"] = _levels(pd.concat(levels[how]))
    for how, tables in leads.items():
        found[how]["leads"] = pd.concat(tables)
        found[how]["peaks"] = _peaks(found[how]["leads"])
    found["", ""] |= compression.measured(read_trials(config), paper["ratios"])
    return dict(found)


def _tested(own: pd.DataFrame, z: pd.DataFrame) -> pd.DataFrame:
    """Return a sweep's cells, No Prune in each layer, with the paired intervals of their gains."""
    own = own.rename(columns={"group": "subject"})
    ends = []
    for _, subject, part in groups_of(z):
        names = [each for each in own["variant"].unique() if each != str(BASE)]
        low, high = paired_interval(part[names].to_numpy() - part[[str(BASE)]].to_numpy())
        ends.append(pd.DataFrame({"subject": subject, "variant": names, "low": low, "high": high}))
    heads = own[own["head"].notna()].merge(pd.concat(ends), on=["subject", "variant"])
    base = own[own["head"].isna()].drop(columns="layer")
    base = base.merge(heads[["layer"]].drop_duplicates(), how="cross")
    heads = heads.rename(columns={"low": "tested_low", "high": "tested_high"})
    return pd.concat([base, heads.assign(tested_null=0.0)])


def _of_cells(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of single heads.

    Args:
        table: ``exhibit``, ``model``, ``layer``, ``head`` (null for No Prune, which stands in every
            layer), ``subject``, ``n``, ``correct``, ``accuracy``; the paper's also ``printed``.
    """
    base = table[table["head"].isna()]
    pruned = table[table["head"].notna()]
    heads = pruned.merge(base[[*_CELL, "accuracy"]], on=_CELL, suffixes=("", "_base"))
    gain = (heads["accuracy"] - heads["accuracy_base"]).round(9)
    kept = np.where(gain < 0, -1.0, 1.0)
    heads = _named(heads.assign(gain=gain, tested=gain, kept=kept))
    tables = pruned[pruned["exhibit"] != _FIGURE]
    pairs = _pairs(heads[heads["exhibit"] != _FIGURE], tables.groupby("model")["head"].nunique())
    return {
        "heads": heads,
        "without": _pooled(pruned),
        "pairs": pairs,
        "medians": _medians(pairs),
        "base": _base(base),
    }


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Name the cells of a table of heads or pairs."""
    place = zip(table["model"], table["subject"], table["layer"], strict=True)
    names = [f"{model}, {subject}, layer {layer}" for model, subject, layer in place]
    return table.assign(of=table["model"], name=names)


def _pooled(pruned: pd.DataFrame) -> pd.DataFrame:
    """Return each head's accuracy over all subjects that are known."""
    table = pruned.groupby(["model", "layer", "head"])[["n", "correct"]].sum().reset_index()
    low, high = wilson(table["correct"].to_numpy(), table["n"].to_numpy())
    found = table.assign(accuracy=table["correct"] / table["n"])
    found = found.assign(accuracy_low=low, accuracy_high=high)
    return found.assign(of=found["model"], name=found["model"])


def _pairs(heads: pd.DataFrame, most: pd.Series) -> pd.DataFrame:
    """Return the best gain of each pair; without gain it is open where not all heads are known."""
    best = heads.groupby(_CELL)["gain"].agg(["max", "size"]).reset_index()
    best = best.assign(gain=best["max"], known=best["size"] / best["model"].map(most))
    unknown = (best["known"] < 1) & (best["gain"] <= 0)
    low, high = best["gain"].where(unknown), np.where(unknown, np.inf, np.nan)
    return _named(best.assign(gain_low=low, gain_high=high))


def _medians(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return by how much each specialised model's median gain exceeds each general one's."""
    medians = pairs[pairs["known"] >= _LEGIBLE].groupby("model")["gain"].median()
    rows = [
        {"name": f"{math} over {general}", "difference": medians[math] - medians[general]}
        for math, general in product(medians.index, medians.index)
        if "Math" in math and "Math" not in general and set(medians.index) == set(EXHIBITS)
    ]
    return pd.DataFrame(rows, columns=["name", "difference"]).assign(of="medians")


def _base(base: pd.DataFrame) -> pd.DataFrame:
    """Return No Prune by subject, and over all subjects where a model's own table has them all.

    Layers of the paper print different numbers of the one model: over all subjects their median
    counts. Of a run, each value stands once.
    """
    own = base[base["exhibit"] == base["model"].map(EXHIBITS)]
    if "printed" in base:
        base, own = (table.assign(correct=table["printed"] * table["n"]) for table in (base, own))
    keys = ["model", "exhibit"]
    whole = own.groupby([*keys, "subject"])[["n", "correct"]].median().groupby(keys).sum()
    whole = whole[whole["n"] == sum(SIZES.values())].reset_index().assign(subject="all subjects")
    table = pd.concat([base, whole])[[*keys, "subject", "n", "correct"]]
    found = table.assign(accuracy=table["correct"] / table["n"])
    found = found.assign(of=found["model"] + " on " + found["subject"], name=found["exhibit"])
    if "printed" in base:
        return found.round({"accuracy": 9}).drop_duplicates()
    low, high = wilson(found["correct"].to_numpy(float), found["n"].to_numpy(float))
    found = found.assign(accuracy_low=low, accuracy_high=high, name="this run")
    return found.drop_duplicates("of")


def _levels(gains: pd.DataFrame) -> pd.DataFrame:
    """Return by how much the best heads' held-out gains are greater at level 5 than at level 1.

    In accuracy, and as shares of the base model's errors: the more of an easy level the base model
    solves, the less is left to gain. Levels have different questions: their gains are independent.
    """
    keys = ["model", "layer"]
    easy, hard = (gains[gains["group"] == f"Level {level}"] for level in (1, 5))
    both = easy.merge(hard, on=keys, suffixes=("_easy", "_hard"))
    both = both.dropna(subset=["held_out_easy", "held_out_hard"])
    for name, *columns in (
        ("gain", "held_out", "low", "high"),
        ("of_errors", "of_errors", "of_errors_low", "of_errors_high"),
    ):
        first, second = (
            [both[f"{column}_{level}"].to_numpy(float) for column in columns]
            for level in ("easy", "hard")
        )
        ends = (first[1], first[2]), (second[1], second[2])
        low, high = unpaired_difference(first[0], ends[0], second[0], ends[1])
        found = {name: second[0] - first[0], f"{name}_low": low, f"{name}_high": high}
        both = both.assign(**found)
    names = [f"{model}, layer {layer}" for model, layer in zip(both.model, both.layer, strict=True)]
    return both.assign(of="levels", name=names)


def _leads(config: Config, selector: str) -> pd.DataFrame:
    """Return a selector's leads over the paper's own baselines.

    Their intervals hold at all N at once: the claims are about the whole curve.
    """
    table = read_csv(Path(paths.PAIRED.format(run=config.run, selector=selector)), PAIRED)
    own = table[[is_baseline(method) for method in table["method"]]]
    own = own.rename(columns={"band_low": "difference_low", "band_high": "difference_high"})
    return own.assign(of=selector, name=own["method"] + ", N = " + own["n"].astype(str))


def _peaks(leads: pd.DataFrame) -> pd.DataFrame:
    """Return at which N each lead is largest, with the lead and its band there."""
    found = leads[leads["n"] == leads["peak"]]
    return found.assign(name=found["of"] + " over " + found["method"])
