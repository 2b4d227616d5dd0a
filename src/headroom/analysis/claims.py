"""Which claims of the papers hold, in their own tables and in a run.

A claim is a row of ``*_claims.csv``: the rows it is about (``table`` and ``filter``), the
``column`` that decides it, what it states, in percent, and its ``kind``, which names the judge. A
claim without a kind is not judged, only counted.

The tables of the papers' numbers and of a run's have the same form. Numbers are fractions. ``of``
names what a row is about, alike in the paper's and the run's row. A column may have its interval
(``_low``, ``_high``) and the most that arithmetic allows (``_most``) beside it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.audit import ENCODERS
from headroom.analysis.compression.tables import printed as printed_conditions
from headroom.analysis.files import read_csv, rows_of
from headroom.analysis.gains import cells, read_z
from headroom.analysis.published import CLAIMS, EXHIBITS, head_pruning, published_name
from headroom.analysis.text import percent
from headroom.config import Config
from headroom.sprint.evaluation import PAIRED
from headroom.sprint.methods import is_baseline
from headroom.statistics.proportion import wilson

COLUMNS = ["paper", "claim", "value", "where", "stated", "published", "published_why"]
COLUMNS += ["published_value", "published_low", "published_high", "published_most"]
COLUMNS += ["prompt", "grading", "run", "run_why", "run_value", "run_low", "run_high"]
"""Columns: the claim, what it states and where; the verdict by the paper's own numbers, and why;
the verdict by the run's under a prompt and grading rules (empty if it measured nothing of it).
Numbers are fractions (for ``no later`` the N): the stated one, the paper's with the most that
arithmetic allows, and the run's, with their intervals."""

_OPEN = "cannot be judged"
_CLAIM = ["claim", "value", "where", "kind", "table", "filter", "column", "stated", "tolerance"]
_SELECTOR = "Qwen2.5-Math-1.5B-Instruct"  # the model of the paper's selector
_LEGIBLE = 0.5  # smallest share of legible heads for a pair to count in a median
_CELL = ["model", "layer", "subject"]

Tables = Mapping[str, pd.DataFrame]
Condition = tuple[str, str]
"""Prompt and grading rules; both empty for claims that do not depend on them."""


class Verdict(NamedTuple):
    """Whether a claim holds, why, and the deciding number with its interval."""

    word: str
    why: str
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    most: float = np.nan


def claims(config: Config, published: Path) -> pd.DataFrame:
    """Judge the papers' claims by their own tables and by a run.

    Args:
        config: the run's config.
        published: folder of the published tables.

    Returns:
        `COLUMNS`: a row for each claim and each prompt and grading under which the run measured
        something of it, or one row if it measured nothing.

    Raises:
        TableError: a table is missing or damaged.
    """
    paper = printed(published)
    own = measured(config, paper)
    rows: list[tuple[Any, ...]] = []
    undecided = Verdict(_OPEN, "no number decides it")
    for of, file in CLAIMS.items():
        for claim in rows_of(read_csv(published / file, _CLAIM)):
            said = of, claim.claim, claim.value, claim.where
            if pd.isna(claim.kind):
                rows.append((*said, np.nan, *undecided, "", "", *undecided[:5]))
                continue
            asked = rows_about(paper, claim)
            stated = float(str(claim.stated).split()[0]) / (1 if claim.kind == "no later" else 100)
            here = {how: found for how, t in own.items() if len(found := rows_about(t, claim))}
            for how, found in (here or {("", ""): rows_about({}, claim)}).items():
                verdicts = judge(claim, asked, asked), judge(claim, found, asked)[:5]
                rows.append((*said, stated, *verdicts[0], *how, *verdicts[1]))
    return pd.DataFrame(rows, columns=COLUMNS)


def judge(claim: Any, rows: pd.DataFrame, paper: pd.DataFrame) -> Verdict:
    """Judge a claim.

    Args:
        claim: a row of the claims.
        rows: the rows to judge it by.
        paper: the paper's rows about it.
    """
    if rows.empty:
        return Verdict(_OPEN, "nothing was measured of it")
    found = _JUDGES[claim.kind](claim, rows)
    lacking = ", ".join(sorted(set(paper["of"]) - set(rows["of"])))
    if lacking and claim.kind in ("at most", "every") and found.word != "fails":
        # One row can refute such a claim, but only all of the paper's rows can confirm it.
        return found._replace(word=_OPEN, why=f"nothing on {lacking}; {found.why}")
    return found


def rows_about(tables: Tables, claim: Any) -> pd.DataFrame:
    """Return the rows that a claim is about; none if the table is missing."""
    found = tables.get(claim.table, pd.DataFrame({"of": []}))
    return found if pd.isna(claim.filter) or found.empty else found.query(claim.filter)


def _numbers(rows: pd.DataFrame, column: str) -> np.ndarray:
    """Return a column with its interval and its limit, [rows, 4]; NaN where missing."""
    names = [f"{column}{end}" for end in ("", "_low", "_high", "_most")]
    return rows.reindex(columns=names).to_numpy(float)


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{percent(value)} ({percent(low)} to {percent(high)})".replace("-", "−")


def _states(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge whether the row has the stated number.

    A printed number may differ by the tolerance; a measured one's interval must contain the stated
    number. An interval that also contains zero leaves a claim of a drop or gain open.
    """
    value, low, high, most = _numbers(rows, claim.column)[0]
    stated, within = float(claim.stated) / 100, float(claim.tolerance) / 100
    exact = bool(np.isnan(low))
    verdict = Verdict("", percent(value).replace("-", "−"), value, low, high, most)
    if exact:
        low, high = value - within, value + within
        verdict = verdict._replace(high=np.nan)
    else:
        verdict = verdict._replace(why=_with_interval(value, low, high))
    if value > most:
        why = f"{percent(value)}; removing these heads saves at most {percent(most)} (arithmetic)"
        return verdict._replace(word="fails", why=why)
    if np.isnan(value):
        return verdict._replace(word=_OPEN, why="it was not measured")
    if not low <= stated <= high:
        return verdict._replace(word="fails")
    if -np.inf < low <= 0 <= high and not exact:
        why = f"{verdict.why}: no effect and what is stated are both possible"
        return verdict._replace(word=_OPEN, why=why)
    return verdict._replace(word="holds")


def _at_most(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge whether no row is significantly above the stated number."""
    numbers = _numbers(rows, claim.column)
    value, low, high, _ = numbers[numbers[:, 1].argmax()]
    word = "fails" if low > float(claim.stated) / 100 else "holds"
    why = f"{_with_interval(value, low, high)} at most of {len(rows)}"
    return Verdict(word, why, value, low, high)


def _share(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge whether columns are above zero (``kept``: not below) in at least the stated shares.

    A row whose interval contains zero counts for neither side.
    """
    found = []
    for column, stated in zip(claim.column.split(), str(claim.stated).split(), strict=True):
        value, low, high, _ = _numbers(rows, column).T
        shown = np.where(np.isnan(low), value, low) > 0
        may_be = shown | ((low <= 0) & (high >= 0))
        least, most, needed = shown.mean(), may_be.mean(), float(stated) / 100
        why = f"{'not below' if column == 'kept' else 'above'} 0 in {shown.sum()} of {len(rows)}"
        why += f", open in {(may_be & ~shown).sum()}" * bool((may_be & ~shown).any())
        word = "holds" if least >= needed else "fails" if most < needed else _OPEN
        found.append(Verdict(word, f"{why}; taken: at least {stated}%", least, least, most))
    worst = min(found, key=lambda verdict: ["fails", _OPEN, "holds"].index(verdict.word))
    return worst._replace(why="; ".join(verdict.why for verdict in found))


def _no_later(claim: Any, rows: pd.DataFrame) -> Verdict:
    """Judge whether each lead is largest at the stated N or before, and significant there."""
    bound = int(claim.stated)
    early = (rows["peak_high"] <= bound) & (rows["difference_low"] > 0)
    late = (rows["peak_low"] > bound) | (rows["difference_high"] < 0)
    last = rows.sort_values("peak_high").iloc[-1]
    why = f"{early.sum()} of {len(rows)} leads are, {late.sum()} are not"
    word = "fails" if late.any() else "holds" if early.all() else _OPEN
    return Verdict(word, why, last["peak"], last["peak_low"], last["peak_high"])


_JUDGES: dict[str, Callable[[Any, pd.DataFrame], Verdict]] = {
    "states": _states,
    "at most": _at_most,
    "every": _share,
    "share": _share,
    "no later": _no_later,
}


def printed(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the papers' printed numbers, by table name.

    Args:
        folder: folder of the published tables.

    Raises:
        TableError: a table is missing or damaged.
    """
    table = printed_conditions(folder).query("of == 'ratio'")
    shape = list(zip(table["published_model"].map(ENCODERS), table["ratio"], strict=True))
    ratios = table.rename(columns={"published_model": "model"}).assign(
        of="ratios",
        ratio=(100 * table["ratio"]).round(6),
        drop=-table["published_change"],
        parameters=table["published_parameters"],
        parameters_most=table["published_parameters_at_most"],
        speed=table["published_speedup"],
        speed_most=[encoder.speed_up(ratio) for encoder, ratio in shape],
        flops=table["published_flops"],
        flops_most=[encoder.flops_cut(ratio) for encoder, ratio in shape],
    )
    cut = ratios.query("ratio == 25").pivot(index="data", columns="model", values="drop")
    lead = (cut["ATHENA-base"] - cut["ATHENA-large"]).round(9)
    sizes = pd.DataFrame({"of": "sizes", "difference": lead.to_numpy()})
    return _of_heads(head_pruning(folder)) | {"ratios": ratios, "sizes": sizes}


def measured(config: Config, paper: Tables) -> dict[Condition, dict[str, pd.DataFrame]]:
    """Return what a run measured of the papers' models, by prompt and grading rules.

    If two sweeps of a model measured the same cell under the same rules, the first one counts.

    Args:
        config: the run's config.
        paper: the papers' numbers, as returned by `printed`.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    shown = paper["heads"][["model", "layer", "exhibit"]].drop_duplicates()
    heads, leads = (defaultdict[Condition, list[pd.DataFrame]](list) for _ in range(2))
    for sweep, section in config.sweeps.items():
        model = published_name(config.models[section.model])
        if model is not None and config.questions[section.questions].benchmark == "math500":
            how: Condition = config.decodings[section.decoding].prompt, config.grading_of(sweep)
            own = cells(*read_z(config, sweep)).query("by == 'subject'")
            own = own.rename(columns={"group": "subject"}).assign(model=model)
            layers = own[["layer"]].dropna().drop_duplicates()
            base = own[own["head"].isna()].drop(columns="layer").merge(layers, how="cross")
            heads[how] += [base, own[own["head"].notna()]]
    for name, selector in config.selectors.items():
        model = published_name(config.models[selector.model])
        learnt, asked = (config.questions[name] for name in (selector.train, selector.test))
        if model == _SELECTOR and not asked.generated and learnt.family == asked.family:
            table = read_csv(Path(paths.PAIRED.format(run=config.run, selector=name)), PAIRED)
            # Intervals that hold at all N at once: the claims are about the whole curve.
            ends = {"band_low": "difference_low", "band_high": "difference_high"}
            own = table[table["method"].map(is_baseline)].rename(columns=ends).assign(of="leads")
            leads[config.decodings[selector.decoding].prompt, config.grading].append(own)
    found = defaultdict[Condition, dict[str, pd.DataFrame]](dict)
    for how, tables in heads.items():
        table = pd.concat(tables).drop_duplicates([*_CELL, "head"])
        found[how] |= _of_heads(table.merge(shown, on=["model", "layer"]))
    for how, tables in leads.items():
        found[how]["leads"] = table = pd.concat(tables)
        found[how]["peaks"] = table[table["n"] == table["peak"]]
    return dict(found)


def _of_heads(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of single heads.

    Args:
        table: ``exhibit``, ``model``, ``layer``, ``head`` (null for No Prune, which every layer
            has), ``subject``, ``n``, ``correct``, ``accuracy``, and where measured ``gain_low`` and
            ``gain_high``.
    """
    base, pruned = (table[table["head"].isna() == own] for own in (True, False))
    heads = pruned.drop(columns="base", errors="ignore").merge(
        base[[*_CELL, "accuracy"]], on=_CELL, suffixes=("", "_base")
    )
    gain = (heads["accuracy"] - heads["accuracy_base"]).round(9)
    ends = {"gain_low": "tested_low", "gain_high": "tested_high"}
    heads = heads.rename(columns=ends).assign(
        of=heads["model"], gain=gain, tested=gain, kept=np.where(gain < 0, -1, 1)
    )
    whole = pruned.groupby(["model", "layer", "head"])[["n", "correct"]].sum().reset_index()
    low, high = wilson(whole["correct"].to_numpy(float), whole["n"].to_numpy(float))
    whole = whole.assign(of=whole["model"], accuracy=whole["correct"] / whole["n"])
    own = heads[heads["exhibit"] != "Figure 5"]  # not among the head study's Tables 1-4
    best = own.groupby(_CELL)["gain"].agg(["max", "size"]).reset_index()
    known = best["size"] / best["model"].map(own.groupby("model")["head"].nunique())
    unknown = (known < 1) & (best["max"] <= 0)  # a head that is not legible may gain
    pairs = best.assign(
        of=best["model"],
        gain=best["max"],
        gain_low=best["max"].where(unknown),
        gain_high=np.where(unknown, np.inf, np.nan),
    )
    medians = pairs[known >= _LEGIBLE].groupby("model")["gain"].median()
    leads = [
        medians[math] - medians[general]
        for math, general in product(medians.index, medians.index)
        if "Math" in math and "Math" not in general and set(medians.index) == set(EXHIBITS)
    ]
    return {
        "heads": heads,
        "without": whole.assign(accuracy_low=low, accuracy_high=high),
        "pairs": pairs,
        "medians": pd.DataFrame({"of": "medians", "difference": leads}),
    }
