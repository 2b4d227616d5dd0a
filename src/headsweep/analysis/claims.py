"""Which claims of the papers hold, in their own tables and in a run.

A claim is a row of ``*_claims.csv``: the rows it is about (``table`` and ``filter``), the
``column`` that decides it, what it states, in percent, and its ``kind``, which names the judge. A
claim without a kind is not judged, only counted.

The tables of the papers' numbers and of a run's have the same form. Numbers are fractions. ``of``
names what a row is about, alike in the paper's and the run's row. A column may have its interval
(``_low``, ``_high``) and the most that arithmetic allows (``_at_most``) beside it.
"""

from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headsweep import paths
from headsweep.analysis import published as papers
from headsweep.analysis.facts import Source, read_csv, rows_of
from headsweep.analysis.gains import cells, read_z
from headsweep.config import Config
from headsweep.sprint.evaluation import PAIRED
from headsweep.sprint.methods import is_baseline
from headsweep.statistics.intervals import wilson
from headsweep.text import percent

COLUMNS = ["paper", "claim", "value", "where", "stated", "published", "published_why"]
COLUMNS += ["published_value", "published_low", "published_high", "published_most"]
COLUMNS += ["prompt", "grading", "run", "run_why", "run_value", "run_low", "run_high"]
"""Columns: the claim and where it stands; the verdict by the paper's own numbers and by the run's
under a prompt and grading rules, each with why and the deciding number with its interval, as a
fraction (for ``no later`` the N; of a share of rows what open ones leave possible)."""

_OPEN = "cannot be judged"
_UNDECIDED = {"": _OPEN, "_why": "no number decides it"}
_CLAIM = ["claim", "value", "where", "kind", "table", "filter", "column", "stated", "tolerance"]
_SELECTOR = "Qwen2.5-Math-1.5B-Instruct"  # the model of the paper's selector
_CELL = ["model", "layer", "subject"]

Tables = dict[str, pd.DataFrame]


def claims(config: Config, published: Path) -> pd.DataFrame:
    """Judge the papers' claims by a folder of their own tables and by a run: columns `COLUMNS`.

    There is a row for each claim and each prompt and grading under which the run measured something
    of it, or one row if it measured nothing.

    Raises:
        TableError: a table is missing or damaged.
    """
    own = _evidence(config, published)
    paper = own.pop(("", ""))
    rows: list[dict[str, Any]] = []
    for of, file in papers.CLAIMS.items():
        for claim in rows_of(read_csv(published / file, _CLAIM)):
            said = {"paper": of} | {name: getattr(claim, name) for name in _CLAIM[:3]}
            found, theirs = {}, _UNDECIDED
            if not pd.isna(claim.kind):
                said["stated"] = claim.stated / (1 if claim.kind == "no later" else 100)
                asked = _rows_about(paper, claim)
                theirs, wanted = judge(claim, asked), set(asked["of"])
                about = ((how, _rows_about(tables, claim)) for how, tables in own.items())
                found = {how: judge(claim, part, wanted) for how, part in about if len(part)}
                found = found or {("", ""): judge(claim, asked.head(0))}
            said |= {f"published{name}": value for name, value in theirs.items()}
            for (prompt, grading), ours in (found or {("", ""): _UNDECIDED}).items():
                here = {f"run{name}": value for name, value in ours.items()}
                rows.append({**said, "prompt": prompt, "grading": grading, **here})
    return pd.DataFrame(rows).reindex(columns=COLUMNS)


def _rows_about(tables: Tables, claim: Any) -> pd.DataFrame:
    found = tables.get(claim.table, pd.DataFrame({"of": []}))
    return found if pd.isna(claim.filter) or found.empty else found.query(claim.filter)


def judge(claim: Any, rows: pd.DataFrame, wanted: Set[str] = frozenset()) -> dict[str, Any]:
    """Judge a claim by rows, each of which bears it out, contradicts it or leaves it open.

    A claim about every row is refuted by one, but confirmed only by all that the paper has;
    `wanted` is what these are about (``of``).

    Returns:
        The verdict (key ""), ``_why``, and the deciding number: ``_value``, its interval ``_low``
        and ``_high``, and ``_most``.
    """
    names = [f"{claim.column}{end}" for end in ("", "_low", "_high", "_at_most")]
    numbers = rows.reindex(columns=names).set_axis(["value", "low", "high", "most"], axis=1)
    exact = numbers["low"].isna()
    numbers = numbers.assign(
        **{end: numbers[end].fillna(numbers["value"]) for end in ("low", "high")}
    )
    rows = rows.assign(**numbers, exact=exact).dropna(subset="value")
    if rows.empty:
        return {"": _OPEN, "_why": "nothing was measured of it"}
    shown, refuted = _sides(claim, rows)
    needed = claim.stated / 100 if claim.kind == "share" else 1.0
    least, possible = shown.mean(), 1 - refuted.mean()
    word = "holds" if least >= needed else "fails" if possible < needed else _OPEN
    left = (~shown & ~refuted).sum()
    why = f"true of {shown.sum()} of {len(rows)}{f', open for {left}' if left else ''}"
    last = rows.iloc[int(rows["high"].argmax())]
    found = {f"_{name}": last[name] for name in ("value", "low", "high", "most")}
    if last["exact"]:
        found |= {"_low": np.nan, "_high": np.nan}
    if claim.kind == "share":
        why += f"; taken: at least {claim.stated:g}%"
        found = {"_value": least, "_low": least, "_high": possible}
    elif claim.kind != "no later":
        interval = "" if last["exact"] else f" ({percent(last['low'])} to {percent(last['high'])})"
        why = f"{percent(last['value'])}{interval}" + f" at most; {why}" * (len(rows) > 1)
    if last["value"] > last["most"]:
        why += f"; removing these heads saves at most {percent(last['most'])} (arithmetic)"
    lacking = ", ".join(sorted(wanted - set(rows["of"])))
    if lacking and needed == 1 and word != "fails":
        word, why = _OPEN, f"nothing on {lacking}; {why}"
    return {"": word, "_why": why, **found}


def _sides(claim: Any, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return which rows bear a claim out, and which contradict it.

    A printed number may differ from the stated one by the tolerance; a measured one's interval must
    contain it, and if it also contains zero, an effect is neither shown nor excluded.
    """
    low, high, stated = rows["low"], rows["high"], claim.stated / 100
    slack = 0.0 if pd.isna(claim.tolerance) else claim.tolerance / 100
    match claim.kind:
        case "states":
            within = np.where(rows["exact"], slack, 0)
            refuted = (stated < low - within) | (stated > high + within)
            refuted |= rows["value"] > rows["most"]
            return ~refuted & (rows["exact"] | (low > 0) | (high < 0)), refuted
        case "at most":
            return low <= stated, low > stated
        case "share":
            return low > -slack, high <= -slack
        case _:  # the N of the largest lead, and the lead
            early = (high <= claim.stated) & (rows["lead_low"] > 0)
            return early, (low > claim.stated) | (rows["lead_high"] < 0)


def _evidence(config: Config, published: Path) -> dict[tuple[str, str], Tables]:
    """Return the tables that claims are judged by, by the run's prompt and grading; both are empty
    for the papers' own.

    If two sweeps of a model measured the same cell under the same rules, the first one counts.
    """
    table = papers.head_pruning(published).assign(prompt="", grading="")
    base = table[table["head"].isna()][[*_CELL, "accuracy"]].rename(columns={"accuracy": "base"})
    found = [table.dropna(subset="head").merge(base, on=_CELL)]
    exhibits = table[["model", "layer", "exhibit"]].drop_duplicates()
    for sweep, section in config.sweeps.items():
        model = papers.published_name(config.models[section.model])
        if model is not None and config.questions[section.questions].benchmark == "math500":
            own = cells(*read_z(config, sweep)).query("by == 'subject'").dropna(subset="head")
            own = own.rename(columns={"group": "subject"}).assign(model=model)
            how = {"prompt": config.decodings[section.decoding].prompt}
            how["grading"] = config.grading_of(sweep)
            found.append(own.merge(exhibits, on=["model", "layer"]).assign(**how))
    heads = pd.concat(found).drop_duplicates(["prompt", "grading", *_CELL, "head"])
    by_rules: Any = heads.groupby(["prompt", "grading"])
    tables: dict[tuple[str, str], Tables] = {how: _of_heads(own) for how, own in by_rules}
    ratios = papers.conditions(published).query("of == 'ratio'").assign(of="ratios")
    cut = ratios[np.isclose(ratios["ratio"], 0.25)]
    change = cut.pivot(index="data", columns="published_model", values="published_change")
    lead = (change["ATHENA-large"] - change["ATHENA-base"]).round(9)
    tables["", ""] |= {"ratios": ratios, "sizes": pd.DataFrame({"of": "sizes", "lead": lead})}
    curves = []
    for name, selector in config.selectors.items():
        model = papers.published_name(config.models[selector.model])
        learnt, asked = (config.questions[name] for name in (selector.train, selector.test))
        if model == _SELECTOR and not asked.generated and learnt.family == asked.family:
            table = Source.read(config, paths.PAIRED, PAIRED, selector=name).rows
            # Intervals that hold at all N at once: the claims are about the whole curve.
            ends = {"difference": "lead", "band_low": "lead_low", "band_high": "lead_high"}
            how = {"prompt": config.decodings[selector.decoding].prompt, "grading": config.grading}
            own = table[table["method"].map(is_baseline)].rename(columns=ends)
            curves.append(own.assign(of="leads", **how))
    by_rules = pd.concat(curves).groupby(["prompt", "grading"]) if curves else ()
    for key, own in by_rules:
        peaks = own[own["n"] == own["peak"]]
        tables[key] = tables.get(key, {}) | {"leads": own, "peaks": peaks}
    return tables


def _of_heads(table: pd.DataFrame) -> Tables:
    """Return the tables of single heads, from those of `published.head_pruning` with ``base``, and
    where measured ``gain_low`` and ``gain_high``.
    """
    gain = (table["accuracy"] - table["base"]).round(9)
    ends = {"gain_low": "tested_low", "gain_high": "tested_high"}
    heads = table.rename(columns=ends).assign(of=table["model"], gain=gain, tested=gain)
    whole = heads.groupby(["of", "model", "layer", "head"])[["n", "correct"]].sum().reset_index()
    low, high = wilson(whole["correct"].to_numpy(float), whole["n"].to_numpy(float))
    own = heads[heads["exhibit"] != "Figure 5"]  # not among the head study's Tables 1-4
    pairs = own.groupby(_CELL)["gain"].agg(gain="max", size="size").reset_index()
    known = pairs["size"] / pairs["model"].map(own.groupby("model")["head"].nunique())
    unknown = (known < 1) & (pairs["gain"] <= 0)  # a head that is not legible may gain
    least, most = pairs["gain"].where(unknown), np.where(unknown, np.inf, np.nan)
    pairs = pairs.assign(of=pairs["model"], gain_low=least, gain_high=most)
    medians = pairs[known >= papers.LEGIBLE].groupby("model")["gain"].median()
    math = medians.index.str.contains("Math")
    leads = np.subtract.outer(medians[math].to_numpy(), medians[~math].to_numpy()).ravel()
    if set(medians.index) != set(papers.EXHIBITS):
        leads = leads[:0]
    accuracy = whole["correct"] / whole["n"]
    return {
        "heads": heads,
        "without": whole.assign(accuracy=accuracy, accuracy_low=low, accuracy_high=high),
        "pairs": pairs,
        "medians": pd.DataFrame({"of": "medians", "lead": leads}),
    }
