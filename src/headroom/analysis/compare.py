"""Compares two runs: settings, right answers of each variant, Pass@N.

Runs are matched by the names in their configs: models, decodings, question sets and selectors of
the same name are compared even if their settings differ, since differing settings are what one
wants to compare. Questions are matched by id, within the same split only, and right answers are
compared question by question, with paired intervals and tests.
"""

import json
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from headroom import paths
from headroom.analysis.controls import LEVEL
from headroom.analysis.facts import FORMS
from headroom.analysis.files import write_csv
from headroom.analysis.text import short
from headroom.config import Config, load
from headroom.errors import ConfigError
from headroom.planning.batches import Batch, batches
from headroom.planning.store import Store, split_key
from headroom.record import read_record
from headroom.statistics.paired import false_discovery, mcnemar, paired_interval
from headroom.statistics.proportion import unpaired_difference
from headroom.tables import ACCURACY, CURVES, GRADED, read_table

SETTINGS = ["setting", "first", "second"]
VARIANTS = ["of", "variant", "n", "first", "second", "gained", "lost", "difference"]
VARIANTS += ["low", "high", "p", "q", "changed"]
PASS_AT_N = ["of", "method", "n", "first", "second", "difference", "low", "high"]
TABLES = {"settings": SETTINGS, "variants": VARIANTS, "pass_at_n": PASS_AT_N}
"""Columns of each table. Settings are JSON, null if missing. Accuracies are on the common
questions; `gained`: questions that only the second run has right, `lost`: only the first;
`changed`: share of final answers that differ. Differences are second − first."""

_SHOWN = 8  # rows of each table shown in the terminal
_CONFIG = Path(paths.CONFIG).name


class Run(NamedTuple):
    """A run's folder, which may have been moved, and its config."""

    folder: Path
    config: Config

    @classmethod
    def find(cls, given: str) -> "Run":
        """Find a run by its folder, or by its name under results/.

        Raises:
            ConfigError: there is no such run.
        """
        places = [Path(given), Path(paths.RESULTS) / given]
        for folder in places:
            if (folder / _CONFIG).is_file():
                return cls(folder, load(folder / _CONFIG))
        found = sorted(file.parent.name for file in Path(paths.RESULTS).glob(f"*/{_CONFIG}"))
        raise ConfigError(
            f"{given!r} is not a run: neither it nor {places[1]} is a folder with a {_CONFIG}; "
            f"give a run's folder, or its name under {paths.RESULTS}/: {', '.join(found) or 'none'}"
        )

    def file(self, template: str, **names: str) -> Path:
        """Return the path of a file of the run from its template in `headroom.paths`."""
        return self.folder / template.removeprefix("results/{run}/").format(**names)

    def of_batch(self, template: str, batch: Batch) -> Path:
        """Return the path of the run's file about one of its batches."""
        return self.file(template, **Store(self.config).keys(**batch.names))


def compare(first: Run, second: Run) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Compare two runs.

    Returns:
        The tables, see `TABLES`, and what has the same name but could not be compared.

    Raises:
        ConfigError: they have nothing in common.
        TableError: a table is missing or damaged.
    """
    runs = (first, second)
    left_out: list[str] = []
    made: list[Path] = []
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    others = {named(batch): batch for batch in batches(second.config)}
    for batch in batches(first.config):
        name = named(batch)
        if name not in others or not all(r.config.decodings[batch.decoding].greedy for r in runs):
            continue  # samples cannot be paired; Pass@N compares them
        both = list(zip(runs, (batch, others[name]), strict=True))
        files = [run.of_batch(paths.ACCURACY, own) for run, own in both]
        missing = [str(file) for file in files if not file.exists()]
        if not _same_split(runs, batch.questions):
            left_out.append(f"{name}: questions of different splits")
        elif missing:
            left_out.append(f"{name}: not graded, {missing[0]} is missing")
        else:
            z = [read_table(file, ACCURACY, exact=False).set_index("question_id") for file in files]
            common = z[0].index[z[0].index.isin(z[1].index)]
            heads = {v for v in others[name].variants if v.kind in ("base", "head")}
            names = [str(v) for v in batch.variants if v in heads]
            if len(common):
                z = [table.loc[common, names] for table in z]
                found["variants"].append(_variants(both, z).assign(of=name)[VARIANTS])
                made = made or files
    for name in sorted(first.config.selectors.keys() & second.config.selectors.keys()):
        curves = [run.file(paths.CURVES, selector=name) for run in runs]
        tests = {run.config.selectors[name].test for run in runs}
        if len(tests) > 1 or not _same_split(runs, tests.pop()):
            left_out.append(f"selector {name}: tested on different questions")
        elif all(file.exists() for file in curves):
            found["pass_at_n"].append(_pass_at_n(*curves).assign(of=name)[PASS_AT_N])
    if not found["variants"] and not found["pass_at_n"]:
        has = [" | ".join([named(b) for b in batches(run.config)][:3]) for run in runs]
        raise ConfigError(
            f"{first.folder} and {second.folder} have nothing to compare: models, decodings and "
            f"question sets are matched by name, the first has {has[0]}, the second {has[1]}"
            + "".join(f"; {text}" for text in left_out[:2])
        )
    found["settings"] = [_settings(runs, made)]
    return {
        name: pd.concat(parts or [pd.DataFrame(columns=TABLES[name])], ignore_index=True)
        for name, parts in found.items()
    }, left_out


def named(batch: Batch) -> str:
    """Return the names of a batch's model, decoding and questions."""
    return f"{batch.model}, {batch.decoding}, {batch.questions}"


def _same_split(runs: tuple[Run, Run], questions: str) -> bool:
    """Return whether equal ids mean the same question in both runs."""
    return len({split_key(run.config, questions) for run in runs}) == 1


def _settings(runs: tuple[Run, Run], graded: list[Path]) -> pd.DataFrame:
    """Return the settings that differ, and versions and commits of what was graded."""
    flat = []
    for place, run in enumerate(runs):
        facts = run.config.model_dump(mode="json", exclude={"run"})
        record = read_record(graded[place]) if graded else {}
        facts |= {key: record[key] for key in ("versions", "git_commit") if key in record}
        row = pd.json_normalize(facts).astype(object).iloc[0]
        flat.append(row.map(partial(json.dumps, ensure_ascii=False)))
    table = pd.concat(flat, axis=1, keys=SETTINGS[1:]).rename_axis(SETTINGS[0]).reset_index()
    return table[table["first"].fillna("") != table["second"].fillna("")]


def _variants(both: list[tuple[Run, Batch]], z: list[pd.DataFrame]) -> pd.DataFrame:
    names, answers = list(z[0]), []
    for run, own in both:
        graded = read_table(run.of_batch(paths.GRADED, own), GRADED).fillna({"answer": ""})
        wide = graded.pivot(index="question_id", columns="variant", values="answer")
        answers.append(wide.loc[z[0].index, names].to_numpy())
    differences = z[1].to_numpy() - z[0].to_numpy()
    low, high = paired_interval(differences)
    p = mcnemar(differences)
    return pd.DataFrame(
        {
            "variant": names,
            "n": len(differences),
            "first": z[0].mean().to_numpy(),
            "second": z[1].mean().to_numpy(),
            "gained": (differences > 0).sum(axis=0),
            "lost": (differences < 0).sum(axis=0),
            "difference": differences.mean(axis=0),
            "low": low,
            "high": high,
            "p": p,
            "q": false_discovery(p),
            "changed": (answers[0] != answers[1]).mean(axis=0),
        }
    )


def _pass_at_n(first: Path, second: Path) -> pd.DataFrame:
    """Return Pass@N of the methods that both runs have, with unpaired intervals."""
    both = read_table(first, CURVES).merge(
        read_table(second, CURVES), on=["method", "n"], suffixes=("_first", "_second")
    )
    (one, *ends), (two, *others) = (
        (both[f"{name}_{run}"].to_numpy() for name in ("pass_at_n", "low", "high"))
        for run in ("first", "second")
    )
    low, high = unpaired_difference(one, (ends[0], ends[1]), two, (others[0], others[1]))
    both = both.rename(columns={"pass_at_n_first": "first", "pass_at_n_second": "second"})
    difference = both["second"] - both["first"]
    return both[["method", "n", "first", "second"]].assign(
        difference=difference, low=low, high=high
    )


_FORMS = {
    **dict.fromkeys(("first", "second", "changed"), "part"),
    **dict.fromkeys(("difference", "low", "high"), "points"),
    **dict.fromkeys(("p", "q"), "p"),
}


def summary(tables: dict[str, pd.DataFrame], left_out: list[str]) -> str:
    """Return the comparison for a terminal: the rows that differ most of each table."""
    lines = []
    for name, table in tables.items():
        differing = table
        if name != "settings":
            moved = table["difference"] != 0
            moved |= table.get("changed", pd.Series(0, table.index)) != 0
            differing = table[moved].sort_values("difference", key=abs, ascending=False)
        apart = (table["q"] < LEVEL).sum() if "q" in table else 0
        told = f"; {apart} shown to (q < {LEVEL})" if apart else ""
        lines += ["", f"{name}: {len(differing)} of {len(table)} rows differ{told}"]
        shown = differing.head(_SHOWN)
        forms = {} if name == "settings" else _FORMS
        texts = {
            column: [FORMS[forms[column]](v) if column in forms else short(str(v), 44) for v in own]
            for column, own in shown.items()
        }
        lines += pd.DataFrame(texts).to_string(index=False).splitlines() if len(shown) else []
    lines += ["", *(f"left out: {text}" for text in left_out)] if left_out else []
    notes = "Second − first, in percent and points, 95%; Pass@N as if independent."
    return "\n".join(["".join(c if c.isprintable() else " " for c in x) for x in [*lines, notes]])


def write(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write the tables as CSV.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        for name, table in tables.items():
            write_csv(folder / f"{name}.csv", table)
    except OSError as error:
        raise ConfigError(
            f"--out {folder} cannot be written ({error.strerror}); name another folder"
        ) from None
