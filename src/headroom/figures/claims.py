"""Which claims of the papers hold: in their own tables, and in a run.

A claim of ``*_claims.csv`` is judged from numbers, by the judge that its text names; a claim that
no number can decide, or whose numbers are not there, cannot be judged, and it is said why.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.figures import claims_compression, claims_heads, claims_printed, claims_selection
from headroom.figures.claims_heads import GENERAL_7B, LLAMA, MATH_1B, MATH_7B, no_prune
from headroom.figures.compression import claims as measured
from headroom.figures.compression.evidence import read_trials
from headroom.figures.controls import GAINS, LEVEL
from headroom.figures.curves import PAIRED_COLUMNS
from headroom.figures.gains import cells, read_z
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.listing import rows_of
from headroom.figures.published import (
    COMPRESSION_CLAIMS,
    SPRINT_CLAIMS,
    head_pruning,
    published_name,
)
from headroom.figures.tables import read_csv
from headroom.figures.text import points
from headroom.figures.verdict import read_gains
from headroom.statistics.paired import paired_interval
from headroom.statistics.proportion import unpaired_difference
from headroom.tables import CURVES, read_table
from headroom.variants import BASE, Variant

COLUMNS = ["paper", "claim", "value", "where", "published", "published_why", "run", "run_why"]
"""Columns: the claim, what it states and where; what the paper's own numbers say of it, and why;
what the run's say."""

_EXAMPLE = (Variant(15, 0), "Counting & Probability", 0.16)  # the paper's own example, section 3.2
_CHALLENGING = "gains arise particularly on challenging tasks"
_POSITIVE = "head pruning consistently produces positive gains for all evaluated models"

_HEADS: dict[str, claims_heads.Judge] = {
    "removing head 3 of layer 0 causes performance to drop to near zero in Tables 2, 3 and 4": (
        claims_heads.head_3_near_zero
    ),
    _POSITIVE: claims_heads.positive_gains,
    "specialised math models show higher median gains, general-purpose models more modest gains": (
        claims_heads.median_order
    ),
    "pruning individual heads often does not reduce accuracy and in many cases increases it": (
        claims_heads.often_harmless
    ),
    "Figure 5: pruning a head mostly leads to improvement in accuracy at 1": (
        claims_heads.mostly_improves
    ),
    f"No Prune accuracy, Number Theory, {MATH_1B}": no_prune(MATH_1B, "Number Theory", 0.89),
    f"No Prune accuracy, Intermediate Algebra, {MATH_1B}": no_prune(
        MATH_1B, "Intermediate Algebra", 0.58
    ),
    f"overall No Prune accuracy, {LLAMA}": no_prune(LLAMA, None, 0.241),
    f"overall No Prune accuracy, {MATH_1B}": no_prune(MATH_1B, None, 0.738),
    f"overall No Prune accuracy, {MATH_7B}": no_prune(MATH_7B, None, 0.823),
    f"overall No Prune accuracy, {GENERAL_7B}": no_prune(GENERAL_7B, None, 0.765),
}
"""Claims on single heads, judged alike from printed and from measured accuracies."""

_EXAMPLE_CLAIM = f"pruning head 0 of layer 15 in {MATH_1B}, Counting & Probability"

_PRINTED: dict[str, claims_printed.Judge] = {
    "layers pruned per model in the head study": claims_printed.layers_per_model,
    "which four layers": claims_printed.which_layers,
    "model variants per base model": claims_printed.variants_per_model,
    "questions in the head study (MATH500)": claims_printed.questions,
    "models studied": claims_printed.models,
    "layer shown in Figure 5": claims_printed.figure_5_layer,
    _EXAMPLE_CLAIM: claims_printed.example,
    "MATH problems total / train / test": claims_printed.sums_up,
    "GSM8K problems total / train / test": claims_printed.sums_up,
}
"""Claims on the paper's own experiment."""

_SELECTION: dict[str, Callable[[claims_selection.Curves], Judgement]] = {
    "SPRINT outperforms baselines for nearly all N": claims_selection.ahead_of_baselines,
    "greatest improvements at N": claims_selection.greatest_early,
    "gains become more gradual": claims_selection.gradual_later,
}
"""Claims on selection, judged from Pass@N curves."""


@dataclass(frozen=True)
class Evidence:
    """What a run measured of the paper's models, on MATH-500."""

    cells: pd.DataFrame
    """In the form of `headroom.figures.claims_heads`."""
    gains: pd.DataFrame
    """Rows of `headroom.figures.controls.GAINS`, of the paper's layers."""
    judged: dict[str, Judgement]
    """Claims that are judged question by question."""
    curves: claims_selection.Curves


def claims(config: Config, folder: Path) -> pd.DataFrame:
    """Judge every claim of both papers.

    Args:
        config: of the run.
        folder: where the published tables lie.

    Returns:
        One row a claim, with `COLUMNS`.

    Raises:
        TableError: a table is missing or damaged.
    """
    wanted = ["claim", "value", "where"]
    sprint, compression = (
        read_csv(folder / name, wanted)[wanted] for name in (SPRINT_CLAIMS, COMPRESSION_CLAIMS)
    )
    printed, tables = head_pruning(folder), claims_compression.Printed.read(folder)
    evidence, trials = _evidence(config, printed), read_trials(config)
    rows = []
    for row in rows_of(sprint):
        own = _of_sprint(row.claim, str(row.value), printed), _of_run(row.claim, evidence)
        rows.append(("SPRINT", row.claim, row.value, row.where, *own))
    for row in rows_of(compression):
        own = (
            _of_compression(row.claim, str(row.value), tables),
            measured.judge(row.claim, str(row.value), trials),
        )
        rows.append(("compression", row.claim, row.value, row.where, *own))
    return pd.DataFrame(
        [(*row[:4], row[4].word, row[4].why, row[5].word, row[5].why) for row in rows],
        columns=COLUMNS,
    )


def _of_sprint(claim: str, value: str, printed: pd.DataFrame) -> Judgement:
    if claim in _HEADS:
        return _named(_HEADS[claim](printed), "the paper prints")
    if claim in _PRINTED:
        return _named(_PRINTED[claim](printed, value), "the paper prints")
    if claim in _SELECTION:
        return unjudged("Figure 4 prints no numbers")
    return unjudged("the paper prints no number that decides it")


def _of_run(claim: str, evidence: Evidence) -> Judgement:
    if claim in _HEADS:
        found = _HEADS[claim](evidence.cells)
        subjects = evidence.gains[evidence.gains["by"] == "subject"]
        if claim == _POSITIVE and len(subjects):
            real = int((subjects["q"] < LEVEL).sum())
            chance = f"{real} of {len(subjects)} gains are beyond chance (q < {LEVEL})"
            found = Judgement(found.word, f"{found.why}; {chance}")
        return _named(found, "the run has")
    if claim in evidence.judged:
        return _named(evidence.judged[claim], "the run has")
    if claim in _SELECTION:
        if not evidence.curves:
            return unjudged(f"the run has no selector of {MATH_1B} tested on MATH-500 or GSM8K")
        return _named(_SELECTION[claim](evidence.curves), "the run has")
    if claim in _PRINTED:
        return unjudged("about the authors' own experiment")
    return unjudged("nothing that a run measures decides it")


def _of_compression(claim: str, value: str, tables: claims_compression.Printed) -> Judgement:
    judge = claims_compression.JUDGES.get(claim)
    return judge(tables, value) if judge else unjudged("the paper prints no number that decides it")


def _named(found: Judgement, where: str) -> Judgement:
    """Say where something is lacking."""
    if found.word == "cannot be judged" and found.why.startswith("no "):
        return unjudged(f"{where} {found.why}")
    return found


def _evidence(config: Config, printed: pd.DataFrame) -> Evidence:
    shown = printed[["model", "layer", "exhibit"]].drop_duplicates()
    parts, gains = [], [pd.DataFrame(columns=GAINS)]
    judged = {_EXAMPLE_CLAIM: unjudged(f"no head 0 of layer 15 of {MATH_1B}")}
    for sweep, section in config.sweeps.items():
        model = published_name(config.models[section.model])
        if model is None or config.questions[section.questions].benchmark != "math500":
            continue
        z, variants = read_z(config, sweep)
        parts.append(_form(cells(z, variants)).assign(model=model))
        names = {"run": config.run, "sweep": sweep, "suffix": "csv"}
        table = read_gains(Path(paths.CONTROLS.format(**names, table="gains")))
        gains.append(table[table["layer"].isin(shown.loc[shown["model"] == model, "layer"])])
        if model == MATH_1B and _EXAMPLE[0] in variants:
            judged[_EXAMPLE_CLAIM] = _example(z)
    measured = pd.concat(parts) if parts else pd.DataFrame(columns=[*_FORM, "model"])
    found = pd.concat([table for table in gains if len(table)] or gains)
    return Evidence(
        cells=measured.drop_duplicates(["model", "layer", "head", "subject"]).merge(
            shown, on=["model", "layer"]
        ),
        gains=found,
        judged=judged | {_CHALLENGING: _challenging(found)},
        curves=_curves(config),
    )


_FORM = ["layer", "head", "subject", "n", "correct", "accuracy"]


def _form(table: pd.DataFrame) -> pd.DataFrame:
    """Return a sweep's cells by subject in the form of `claims_heads`, all but the exhibit."""
    own = table[table["by"] == "subject"].rename(columns={"group": "subject"})
    heads = own[own["head"].notna()]
    base = own[own["head"].isna()].drop(columns="layer")
    base = base.merge(heads[["layer"]].drop_duplicates(), how="cross")
    return pd.concat([base, heads])[_FORM]


def _challenging(gains: pd.DataFrame) -> Judgement:
    """Judge: the best head's held-out gain is greater at level 5 than at level 1.

    Levels have different questions: their gains are independent.
    """
    easy, hard = (
        gains[gains["group"] == f"Level {level}"].dropna(subset="held_out") for level in (1, 5)
    )
    if easy.empty or len(easy) != len(hard):
        return unjudged("no held-out gain by level on a model and layer of the paper")
    a, b = (
        [part[name].to_numpy(float) for name in ("held_out", "low", "high")]
        for part in (easy, hard)
    )
    low, high = unpaired_difference(a[0], (a[1], a[2]), b[0], (b[1], b[2]))
    greater, smaller = int((low > 0).sum()), int((high < 0).sum())
    why = (
        f"held-out gain of a layer's best head, level 5 against level 1: greater in {greater}, "
        f"smaller in {smaller} of {len(low)} layers (95% intervals), {points(b[0].mean())} against "
        f"{points(a[0].mean())} on average"
    )
    if 2 * greater > len(low):
        return holds_if(True, why)
    return holds_if(False, why) if 2 * smaller > len(low) else unjudged(why)


def _example(z: pd.DataFrame) -> Judgement:
    """Hold the paper's example against the paired interval of the run's gain."""
    head, subject, stated = _EXAMPLE
    own = z[z["subject"] == subject]
    if own.empty:
        return unjudged(f"no question of {subject}")
    differences = own[[str(head)]].to_numpy() - own[[str(BASE)]].to_numpy()
    low, high = (float(end[0]) for end in paired_interval(differences))
    why = (
        f"{points(float(differences.mean()))} points ({points(low)} to {points(high)}), "
        f"n = {len(own)}"
    )
    if not low <= stated <= high:
        return holds_if(False, why)
    return holds_if(True, why) if low > 0 else unjudged(f"{why}: both 0 and +16 are possible")


def _curves(config: Config) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    found = {}
    for name, selector in config.selectors.items():
        test = config.questions[selector.test]
        if published_name(config.models[selector.model]) != MATH_1B or test.generated:
            continue
        files = [
            Path(t.format(run=config.run, selector=name)) for t in (paths.CURVES, paths.PAIRED)
        ]
        found[name] = read_table(files[0], CURVES), read_csv(files[1], PAIRED_COLUMNS)
    return found
