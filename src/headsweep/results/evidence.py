"""The evidence on the papers' claims, of their tables and of a run, by prompt and grading."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from headsweep.config import Config
from headsweep.experiments.sprint.evaluation import DIVERSITY_COLUMNS, PAIRED_COLUMNS
from headsweep.experiments.sprint.methods import SPRINT, is_baseline, is_sampling
from headsweep.files import paths
from headsweep.results import compression_evidence, excess, judges
from headsweep.results import published as papers
from headsweep.results.excess import EASY, HARD, Excess, Statistic
from headsweep.results.facts import Source, rows_of
from headsweep.results.gains import by_layer, cells, read_z
from headsweep.results.judges import Evidence
from headsweep.statistics.intervals import unpaired_difference, wilson
from headsweep.store.batches import placebos
from headsweep.store.layout import Store

Rules = tuple[str, str]
NO_RULES: Rules = ("", "")
"""Prompt and grading rules; both are empty where they do not matter."""

_SELECTOR = "Qwen2.5-Math-1.5B-Instruct"  # the model of the paper's selector
_CELL = ["model", "layer", "subject"]
_FIGURE = "Figure 5"
_COUNTED: Mapping[str, Statistic] = {
    judges.HARMLESS: excess.harmless,
    judges.INCREASED: excess.increased,
    judges.BEST: excess.best,
    judges.MEDIAN: excess.median,
    judges.SUBJECTS: excess.particular,
}


def _counted(subjects: Iterable[str]) -> dict[str, Statistic]:
    """Return what is counted of heads on these subjects."""
    there = {*excess.PARTICULAR} < {*subjects}
    return {name: count for name, count in _COUNTED.items() if name != judges.SUBJECTS or there}


def evidence(store: Store, published: Path) -> tuple[Evidence, dict[Rules, Evidence]]:
    """Return what is known of the claims by the papers, and by the run, by rules.

    If two sweeps of a model measured the same cell under the same rules, the first one counts.

    Raises:
        TableError: a table is missing or damaged.
    """
    config = store.config
    table = papers.head_pruning(published)
    base = table[table["head"].isna()][[*_CELL, "accuracy"]].rename(columns={"accuracy": "base"})
    printed = table.dropna(subset="head").merge(base, on=_CELL)
    conditions = papers.conditions(published)
    of_paper = Evidence(
        _printed(table, config.seed),
        _of_heads(printed) | {"sizes": _sizes(conditions)},
        compression_evidence.printed(conditions),
        printed=True,
    )
    of_run: dict[Rules, Evidence] = {}
    for rules, sweeps in _sweeps(config).items():
        parts = [_cells(store, sweep, table) for sweep in sweeps]
        measured = pd.concat(parts).drop_duplicates([*_CELL, "head"])
        if len(measured):
            heads = {
                str(papers.published_name(model)): model.heads for model in config.models.values()
            }
            of_heads = _of_heads(measured, heads)
            of_run[rules] = Evidence(_measured(store, sweeps, table), of_heads)
    for rules, tables in _of_selectors(store).items():
        found = of_run.get(rules, Evidence())
        of_run[rules] = replace(found, tables={**found.tables, **tables})
    of_run[NO_RULES] = Evidence(compressions=compression_evidence.of_run(store))
    beside = of_paper.tables
    return of_paper, {rules: replace(found, beside=beside) for rules, found in of_run.items()}


def _sizes(conditions: pd.DataFrame) -> pd.DataFrame:
    """Return by how much less the second paper's larger solver loses at 25%, by data."""
    ratios = conditions.query("of == 'ratio'")
    cut = ratios[np.isclose(ratios["ratio"], 0.25)]
    change = cut.pivot(index="data", columns="published_model", values="published_change")
    lead = (change["ATHENA-large"] - change["ATHENA-base"]).round(9)
    return pd.DataFrame({"of": "sizes", "lead": lead})


def _sweeps(config: Config) -> dict[Rules, list[str]]:
    """Return the sweeps of the paper's models on MATH-500, by rules.

    Those of all heads of a layer come first: of what two of them measured, the first counts.
    """
    sweeps_of_rules: dict[Rules, list[str]] = {}
    for sweep, section in config.sweeps.items():
        same = config.questions[section.questions].benchmark == "math500"
        if same and papers.published_name(config.models[section.model]):
            rules = config.decodings[section.decoding].prompt, config.grading_of(sweep)
            sweeps_of_rules.setdefault(rules, []).append(sweep)
    for sweeps in sweeps_of_rules.values():
        sweeps.sort(key=lambda sweep: config.sweeps[sweep].heads != "all")
    return sweeps_of_rules


def _cells(store: Store, sweep: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a sweep that the paper's table has, too."""
    model = papers.published_name(store.config.models[store.config.sweeps[sweep].model])
    measured = cells(*read_z(store, sweep)).query("by == 'subject'").dropna(subset="head")
    measured = measured.rename(columns={"group": "subject"}).assign(model=model)
    return measured.merge(
        table[["model", "layer", "exhibit"]].drop_duplicates(), on=["model", "layer"]
    )


def _measured(store: Store, sweeps: list[str], table: pd.DataFrame) -> dict[str, dict[str, Excess]]:
    """Return what is counted beyond placebos, or chance, of each of the paper's models."""
    config = store.config
    excesses_of_model: dict[str, dict[str, Excess]] = {}
    for sweep in sweeps:
        section = config.sweeps[sweep]
        model = str(papers.published_name(config.models[section.model]))
        exhibits = table[table["model"] == model].groupby("layer")["exhibit"].first()
        z, variants = read_z(store, sweep)
        noise = [placebo for placebo in placebos(config, section) if placebo.kind == "noise"]
        heads_of, noise_of = by_layer(variants), by_layer(noise)
        printed = [layer for layer in heads_of if layer in exhibits.index]
        of_figure = [layer for layer in printed if exhibits[layer] == _FIGURE]
        of_tables = [layer for layer in printed if exhibits[layer] != _FIGURE]
        for layers, in_figure in ((of_tables, False), (of_figure, True)):
            if not layers:
                continue
            heads = [heads_of[layer] for layer in layers]
            others = [noise_of.get(layer, []) for layer in layers]
            fair = list(map(len, heads)) == list(map(len, others))
            counted = of_sweep(z, heads, others if fair else [], config.seed, figure=in_figure)
            excesses_of_model[model] = counted | excesses_of_model.get(model, {})
    return excesses_of_model


def of_sweep(
    z: pd.DataFrame,
    heads: list[list[str]],
    others: list[list[str]],
    seed: int,
    *,
    figure: bool = False,
    resamples: int = excess.RESAMPLES,
) -> dict[str, Excess]:
    """Return what is counted of a sweep's heads beyond its placebos, or chance, without any.

    Heads and placebos are columns of Z by layer; of the layer of Figure 5, one thing is counted.
    """
    subjects = z["subject"].to_numpy()
    level = z["level"].to_numpy(float, na_value=np.nan)
    groups = {str(name): np.flatnonzero(subjects == name) for name in pd.unique(subjects)}
    how = {"resamples": resamples, "seed": seed}
    if figure:
        (increased,) = excess.measured(z, heads, others, groups, [excess.increased], **how)
        return {judges.FIGURE: increased}
    counted = _counted(groups)
    counts = excess.measured(z, heads, others, groups, list(counted.values()), **how)
    excess_of_claim = dict(zip(counted, counts, strict=True))
    ends = {EASY: np.flatnonzero(level <= 2), HARD: np.flatnonzero(level >= 4)}
    if all(map(len, ends.values())):
        (excess_of_claim[judges.CONTRAST],) = excess.measured(
            z, heads, others, ends, [excess.contrast], **how
        )
    return excess_of_claim


def _printed(table: pd.DataFrame, seed: int) -> dict[str, dict[str, Excess]]:
    """Return what is counted of the paper's tables beyond chance, by model."""
    excesses_of_model: dict[str, dict[str, Excess]] = {}
    for place, ((exhibit, model), part) in enumerate(
        table.groupby(["exhibit", "model"], sort=False)
    ):
        counted = _counted(papers.pairs_of(part)["subject"])
        if exhibit == _FIGURE:
            counted = {judges.FIGURE: excess.increased}
        excesses = of_printed(part, list(counted.values()), seed + place)
        excesses_of_model.setdefault(str(model), {}).update(zip(counted, excesses, strict=True))
    return excesses_of_model


def of_printed(
    part: pd.DataFrame, counted: list[Statistic], seed: int, resamples: int = excess.RESAMPLES
) -> list[Excess]:
    """Return what is counted of one printed table (`headsweep.results.published.head_pruning`)."""
    pairs = papers.pairs_of(part)
    legible = dict(tuple(part.dropna(subset="head").groupby(["subject", "layer"])["accuracy"]))
    gains: dict[str, list[np.ndarray]] = {}
    for row in rows_of(pairs):
        accuracies = legible[row.subject, row.layer].to_numpy()
        gains.setdefault(row.subject, []).append((accuracies - row.base).round(9))
    return excess.printed(pairs, gains, counted, resamples, seed)


def _of_selectors(store: Store) -> dict[Rules, dict[str, pd.DataFrame]]:
    """Return the leads of the paper's selector over its baselines, and its overhead, by rules."""
    config = store.config
    curves: dict[Rules, list[pd.DataFrame]] = {}
    costs: dict[Rules, list[pd.DataFrame]] = {}
    distinct: dict[Rules, list[pd.DataFrame]] = {}
    for name, selector in config.selectors.items():
        model = papers.published_name(config.models[selector.model])
        trained_on, tested_on = (config.questions[name] for name in (selector.train, selector.test))
        if model == _SELECTOR and not tested_on.generated and trained_on.home == tested_on.home:
            table = Source.read(store, paths.PAIRED, PAIRED_COLUMNS, selector=name).rows
            # Intervals that hold at all N at once: the claims are about the whole curve.
            ends = {"difference": "lead", "band_low": "lead_low", "band_high": "lead_high"}
            rules: Rules = config.decodings[selector.decoding].prompt, config.grading
            leads_of_methods = (
                table[table["method"].map(is_baseline)].rename(columns=ends).assign(of="leads")
            )
            curves.setdefault(rules, []).append(leads_of_methods)
            spent = Source.read(store, paths.DIVERSITY, DIVERSITY_COLUMNS, selector=name).rows
            costs.setdefault(rules, []).append(overhead(spent))
            distinct.setdefault(rules, []).append(viewpoints(spent))
    tables_of_rules: dict[Rules, dict[str, pd.DataFrame]] = {}
    for rules, parts in curves.items():
        leads = pd.concat(parts)
        tables = {"leads": leads, "peaks": leads[leads["n"] == leads["peak"]]}
        tables["viewpoints"] = pd.concat(distinct[rules])
        spent = pd.concat(costs[rules])
        tables_of_rules[rules] = tables | ({"overhead": spent} if len(spent) else {})
    return tables_of_rules


def viewpoints(diversity: pd.DataFrame) -> pd.DataFrame:
    """Return by how many distinct answers SPRINT leads samples, of as many answers.

    The table has `headsweep.experiments.sprint.evaluation.DIVERSITY_COLUMNS`; returned are columns
    ``of``, ``method``, ``n`` and ``lead`` with its interval, as of independent numbers: it is too
    wide.
    """
    several = diversity[diversity["n"] > 1]
    sprint = several[several["method"] == SPRINT]
    both = several[several["method"].map(is_sampling)].merge(sprint, on="n", suffixes=("", "_own"))
    names = ["distinct_answers", "distinct_low", "distinct_high"]
    value, low, high = both[names].to_numpy(float).T
    own, own_low, own_high = both[[f"{name}_own" for name in names]].to_numpy(float).T
    least, most = unpaired_difference(value, (low, high), own, (own_low, own_high))
    rows = both[["method", "n"]].assign(of="viewpoints", lead=own - value)
    return rows.assign(lead_low=least, lead_high=most)


def overhead(costs: pd.DataFrame) -> pd.DataFrame:
    """Return how much more SPRINT computes than samples do for as many answers.

    The table has `headsweep.experiments.sprint.evaluation.DIVERSITY_COLUMNS`; returned are columns
    ``method``, ``n`` and ``overhead``, a share.
    """
    computed = costs[costs["method"] == SPRINT].set_index("n")["computed"]
    others = costs[costs["method"].map(is_sampling)]
    more = computed.reindex(others["n"]).to_numpy() / others["computed"] - 1
    return others[["method", "n"]].assign(overhead=more).dropna()


def _of_heads(
    table: pd.DataFrame, heads_of_model: Mapping[str, int] = MappingProxyType({})
) -> dict[str, pd.DataFrame]:
    """Return the tables of single heads, from those of `published.head_pruning` with ``base``, and
    where measured ``gain_low`` and ``gain_high``.

    A layer has as many heads as its model, by name, or else as many as are in the table.
    """
    gain = (table["accuracy"] - table["base"]).round(9)
    ends = {"gain_low": "tested_low", "gain_high": "tested_high"}
    heads = table.rename(columns=ends).assign(of=table["model"], gain=gain, tested=gain)
    whole = heads.groupby(["of", "model", "layer", "head"])[["n", "correct"]].sum().reset_index()
    low, high = wilson(whole["correct"].to_numpy(float), whole["n"].to_numpy(float))
    head_study = heads[heads["exhibit"] != _FIGURE]  # not among the head study's Tables 1-4
    pairs = head_study.groupby(_CELL)["gain"].agg(gain="max", size="size").reset_index()
    heads_there = head_study.groupby("model")["head"].nunique().to_dict() | dict(heads_of_model)
    known_share = pairs["size"] / pairs["model"].map(heads_there)
    # A head that is not legible, or was not pruned, may gain.
    unknown = (known_share < 1) & (pairs["gain"] <= 0)
    least = pairs["gain"].where(unknown)
    most = np.where(unknown, np.inf, np.nan)
    pairs = pairs.assign(of=pairs["model"], gain_low=least, gain_high=most)
    accuracy = whole["correct"] / whole["n"]
    return {
        "heads": heads,
        "without": whole.assign(accuracy=accuracy, accuracy_low=low, accuracy_high=high),
        "pairs": pairs,
    }
