"""A simulated run, and scenes that change its tables and so what it says."""

from itertools import product

import pandas as pd
from scipy.stats import norm

import simulation
from headsweep.config import parse
from headsweep.files import paths
from headsweep.files.record import Stopwatch, rewrite_checksums, write_record
from headsweep.files.safe_files import write_csv, write_table
from headsweep.files.tables import CURVES
from headsweep.page.page_tables import PAGE_TABLES
from headsweep.results import jobs
from headsweep.results.facts import Source
from headsweep.results.verdicts import verdicts
from headsweep.store.layout import Store


def planned():
    values = simulation.DEMO | {"comparisons": {}}
    values["selectors"] = dict.fromkeys(("one", "two"), values["selectors"]["math"])
    return parse(values)


def fill(config):
    simulation.fill(config)
    jobs.write_controls(Store(config), "demo")
    audit = pd.DataFrame({"pairs": [100], "beyond": 5, "luck": 2.7, "luck_high": 7, "p": 0.2})
    write_csv(Store(config).path(paths.AUDIT_TABLE, paper="total"), audit)


def outcome(config, section):
    return next(verdict for verdict in verdicts(Store(config)) if verdict.section == section)


def change(config, template, changes, rows=slice(None), **names):
    """Set columns of a table of the run; `rows` are those of a query, or all."""
    path = Store(config).path(template, **names)
    table = pd.read_csv(path)
    chosen = table.index if isinstance(rows, slice) else table.query(rows).index
    for column, values in changes.items():
        table[column] = table[column].astype(object)
        table.loc[chosen, column] = values
    table.to_csv(path, index=False)
    rewrite_checksums(path)


def heads(config, **changes):
    change(config, paths.CONTROLS, changes, "variant != 'base'", sweep="demo", table="heads")


def lead(low, high, **more):
    """Return a difference in the middle of an interval, with its normal p-value."""
    middle, half = (low + high) / 2, (high - low) / 2
    p = 2 * norm.sf(norm.ppf(0.975) * abs(middle) / half)
    return {"difference": middle, "low": low, "high": high, "p": p, **more}


def leads(config, one, two):
    for name, ends in (("one", one), ("two", two)):
        change(config, paths.PAIRED, lead(*ends), selector=name)


def question(config, p, low, cover):
    """Change the differences from shuffled questions, and those from greedy cover."""
    for name in ("one", "two"):
        shuffled = {"difference": low + 0.05, "low": low, "high": low + 0.1, "p": p}
        change(config, paths.EMBEDDING_VALUE, shuffled, selector=name)
        of_cover = dict(zip(("low", "high", "adjusted"), cover, strict=True))
        change(config, paths.EMBEDDING_VALUE, of_cover, "against == 'greedy cover'", selector=name)


def versus(config, method):
    values = config.model_dump(mode="json")
    for name in ("one", "two"):
        values["selectors"][name]["versus"] = method
    return parse(values)


def three_samplings(config, method):
    values = config.model_dump(mode="json")
    values["decodings"] |= {
        f"T{heat}": {"temperature": heat, "samples": 16, "prompt": "default"} for heat in (0.1, 0.9)
    }
    values["selectors"]["one"] |= {"sampling": ["T0.1", "T0.6", "T0.9"], "versus": method}
    leads(config, (-0.110096, -0.0120162), (-0.1, 0.1))  # p = 0.015 of the first
    return parse(values)


def short_curves(config, most):
    """Leave random heads so many answers."""
    for name in ("one", "two"):
        file = Store(config).path(CURVES, selector=name)
        curves = Source.read(Store(config), CURVES, selector=name).rows
        few = (curves["method"] != "random heads") | (curves["n"] <= most)
        write_table(file, curves[few].reset_index(drop=True), CURVES, {"test_questions": 200})
        rewrite_checksums(file)
        path = Store(config).path(paths.PAIRED, selector=name)
        paired = pd.read_csv(path)
        paired[(paired["method"] != "random heads") | (paired["n"] <= most)].to_csv(
            path, index=False
        )
        rewrite_checksums(path)
    return versus(config, "random heads")


def one_head(config):
    path = Store(config).path(paths.CONTROLS, sweep="demo", table="heads")
    pd.read_csv(path).head(2).to_csv(path, index=False)
    rewrite_checksums(path)


def several_sweeps(config):
    folder = Store(config).path(paths.CONTROLS, sweep="demo", table="heads").parent
    again = folder.with_name("again")
    again.mkdir()
    for file in folder.iterdir():
        (again / file.name).write_bytes(file.read_bytes())
    return config.model_copy(update={"sweeps": config.sweeps | {"again": config.sweeps["demo"]}})


def family(config, adjusted, budget=4):
    frontier = {"model": "reasoner", "train": "math_train", "test": "math_test"}
    named = parse(simulation.DEMO | {"frontiers": dict.fromkeys(("one", "two"), frontier)})
    both = config.model_copy(update={"frontiers": named.frontiers})
    row = {"family": "head", "versus": "sampling", "outcome": "pass", "order": "ordered"}
    row |= {"family_title": "heads", "versus_title": "sampling"}
    row |= {"budget": budget, "difference": 0.03, "low": 0.01, "high": 0.05, "adjusted": adjusted}
    needed = {declared.table: declared.needed_columns for declared in PAGE_TABLES}
    for name, table in product(both.frontiers, paths.FRONTIER_TABLES):
        file = Store(both).path(paths.FRONTIER, frontier=name, table=table)
        write_csv(file, pd.DataFrame([dict.fromkeys(needed.get(table, []), 0.1) | row]))
        write_record(file, Stopwatch(), {"primary_budget": 4})
    return both


SHOWN = {"gain": 0.1, "adjusted": 0.001, "band_low": 0.001, "band_high": 0.2}
PART = {"gain": [0.2, *[0.1] * 23], "cut_decides": [True, *[False] * 23]}
NONE = (-0.1, 0.1)
WORSE, BETTER, LITTLE = (-0.1, -0.02), (0.02, 0.2), (0.01, 0.2)
COVERED = (-0.1, 0.1, 0.4)
SCENES = {
    "heads: none is shown": lambda config: heads(config),
    "heads: all help": lambda config: heads(config, **SHOWN),
    "heads: the band and not the test": lambda config: heads(config, **SHOWN | {"adjusted": 0.062}),
    "heads: cut answers decide of the largest gain": lambda config: heads(config, **SHOWN | PART),
    "heads: cut answers decide of all": lambda config: heads(
        config, **SHOWN | {"cut_decides": True, "uncut_gain": 0.012}
    ),
    "heads: cut answers decide of all harm": lambda config: heads(
        config, gain=-0.1, adjusted=0.001, band_low=-0.2, band_high=-0.001, cut_decides=True
    ),
    "heads: a little over 2% is cut": lambda config: heads(config, truncated=0.021),
    "heads: 2% is cut": lambda config: heads(config, truncated=0.02),
    "heads: there is one": one_head,
    "heads: one question": lambda config: heads(config, n=1),
    "heads: two sweeps": several_sweeps,
    "sampling: worse on one": lambda config: leads(config, WORSE, (-0.1, 0.02)),
    "sampling: worse on both": lambda config: leads(config, WORSE, (-0.2, -0.1)),
    "sampling: better on one": lambda config: leads(config, BETTER, NONE),
    "sampling: one alone leaves out zero by too little": lambda config: leads(config, LITTLE, NONE),
    "sampling: none is shown": lambda config: leads(config, NONE, NONE),
    "sampling: better and worse": lambda config: leads(config, LITTLE, (-0.2, -0.1)),
    "sampling: picked of three, corrected": lambda config: three_samplings(config, None),
    "sampling: named among three": lambda config: three_samplings(config, "T0.9"),
    "sampling: greedy cover is the rival": lambda config: versus(config, "greedy cover"),
    "sampling: the rival has four answers": lambda config: short_curves(config, 4),
    "sampling: the rival has one answer": lambda config: short_curves(config, 1),
    "question: helps": lambda config: question(config, 0.001, 0.1, (0.02, 0.1, 0.01)),
    "question: helps, corrected for two": lambda config: question(config, 0.02, 0.01, COVERED),
    "question: not shown after correction": lambda config: question(config, 0.04, 0.01, COVERED),
    "question: a tiny p": lambda config: question(config, 0.0001, 0.1, (-0.1, -0.02, 0.01)),
    "question: cover by an uncorrected test": lambda config: question(
        config, 0.2, -0.01, (0.02, 0.1, 0.12)
    ),
    "families: heads are better": lambda config: family(config, 0.02),
    "families: not after correction": lambda config: family(config, 0.2),
    "families: one answer": lambda config: family(config, 0.02, budget=1),
    "published: as luck gives": lambda config: None,
    "published: more than luck": lambda config: change(
        config, paths.AUDIT_TABLE, {"beyond": 8}, paper="total"
    ),
}
