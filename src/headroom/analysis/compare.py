"""Compares two runs: settings, right answers, gains over base, Pass@N.

Runs are matched by the names in their configs: models, decodings, question sets and selectors of
the same name are compared even if their settings differ, since differing settings are what one
wants to compare. Questions are matched by id, within the same split only, and right answers are
compared question by question, with paired intervals and tests.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headroom import paths
from headroom.config import Config, load
from headroom.errors import ConfigError
from headroom.planning.batches import Batch, batches
from headroom.planning.store import Store, split_key
from headroom.record import record_path
from headroom.statistics.bootstrap import Bootstrap, interval_of
from headroom.statistics.paired import false_discovery, mcnemar, paired_interval
from headroom.statistics.proportion import unpaired_difference
from headroom.tables import ACCURACY, CURVES, GRADED, read_table
from headroom.variants import BASE, Variant

_CONFIG = Path(paths.CONFIG).name


RESAMPLES = 2000
"""Bootstrap resamples of the questions behind each interval of a difference of gains."""

SETTINGS = ["setting", "first", "second"]
"""Columns of the settings that differ: values as JSON, null if missing."""

BATCH = ["model", "decoding", "questions"]
"""Columns that name a batch."""

VARIANTS = [*BATCH, "variant", "n", "first", "second", "gained", "lost", "difference"]
VARIANTS += ["low", "high", "p", "q", "changed"]
"""Columns of the variants: accuracy on the common questions, questions that only the second run
(`gained`) or the first (`lost`) has right, the difference with its paired interval and test, the
share of final answers that differ."""

GAINS = [*BATCH, "layer", "heads", "n", "of", "first", "second", "difference", "low", "high"]
"""Columns of the gains over base of each layer's `BEST` and `MEDIAN` head."""

BEST, MEDIAN = "best head", "median head"

PASS_AT_N = ["selector", "method", "n", "first", "second", "difference", "low", "high"]
"""Columns of the Pass@N curves."""


@dataclass(frozen=True)
class Comparison:
    """The four tables, and what has the same name but could not be compared."""

    settings: pd.DataFrame
    variants: pd.DataFrame
    gains: pd.DataFrame
    pass_at_n: pd.DataFrame
    left_out: list[str]


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

    def table(self, template: str, batch: Batch) -> Path:
        """Return the path of the run's file about one of its batches."""
        return self.file(template, **Store(self.config).keys(**batch.names))


class Pair(NamedTuple):
    """The first run and the second; differences are second − first."""

    first: Run
    second: Run

    def batches(self) -> tuple[list[tuple[Batch, Batch]], list[str]]:
        """Return the greedy batches of both runs, and why others of the same name are left out.

        Samples cannot be paired between runs; Pass@N compares them. Batches that neither run has
        graded, such as those of prompt comparisons, are reported only if there are no others.
        """
        others = {named(batch): batch for batch in batches(self.second.config)}
        common, left_out, ungraded = [], [], []
        for batch in batches(self.first.config):
            name = named(batch)
            if name not in others or not all(
                run.config.decodings[batch.decoding].greedy for run in self
            ):
                continue
            both = batch, others[name]
            missing = [
                str(run.folder)
                for run, own in zip(self, both, strict=True)
                if not run.table(paths.ACCURACY, own).exists()
            ]
            if not self._same_split(batch.questions):
                left_out.append(f"{name}: questions of different splits")
            elif len(missing) == 1:
                left_out.append(f"{name}: not graded in {missing[0]}")
            elif missing:
                ungraded.append(f"{name}: graded in neither run")
            else:
                common.append(both)
        return common, left_out if common else left_out + ungraded

    def selectors(self) -> tuple[list[str], list[str]]:
        """Return the selectors that both runs evaluated, and why others are left out."""
        common, left_out = [], []
        for name in self.first.config.selectors.keys() & self.second.config.selectors.keys():
            there = [run.file(paths.CURVES, selector=name).exists() for run in self]
            test, other = (run.config.selectors[name].test for run in self)
            if not all(there):
                left_out += [f"selector {name}: evaluated in one run only"] * any(there)
            elif test != other or not self._same_split(test):
                left_out.append(f"selector {name}: tested on different questions")
            else:
                common.append(name)
        return sorted(common), sorted(left_out)

    def settings(self) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield each setting that differs: dotted name, both values as JSON, None if missing.

        A section that only one run has is one setting. Last come the software versions that graded
        the first batch.
        """
        first, second = (run.config.model_dump(mode="json", exclude={"run"}) for run in self)
        yield from _differing(first, second)
        for both in self.batches()[0][:1]:
            first, second = (
                _environment(run.table(paths.ACCURACY, own))
                for run, own in zip(self, both, strict=True)
            )
            yield from _differing(first, second)

    def _same_split(self, questions: str) -> bool:
        """Return whether equal ids mean the same question in both runs."""
        return split_key(self.first.config, questions) == split_key(self.second.config, questions)


def named(batch: Batch) -> str:
    """Return the names of a batch's model, decoding and questions."""
    return f"{batch.model}, {batch.decoding}, {batch.questions}"


def _environment(file: Path) -> dict[str, Any]:
    record = record_path(file)
    facts = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    return {name: facts[name] for name in ("versions", "git_commit") if name in facts}


def _differing(
    first: Any, second: Any, name: str = ""
) -> Iterator[tuple[str, str | None, str | None]]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}):
            inner = f"{name}.{key}" if name else key
            yield from _differing(first.get(key), second.get(key), inner)
    elif first != second:
        yield name, _shown(first), _shown(second)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    return "(given)" if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)


def compare(pair: Pair) -> Comparison:
    """Compare two runs.

    Raises:
        ConfigError: they have nothing in common.
        TableError: a table is missing or damaged.
    """
    common, left_out = pair.batches()
    selectors, untested = pair.selectors()
    left_out += untested
    variants, gains = [], []
    for batch, other in common:
        z = _common_questions(
            *(
                read_table(run.table(paths.ACCURACY, own), ACCURACY, exact=False)
                for run, own in ((pair.first, batch), (pair.second, other))
            )
        )
        label = dict(zip(BATCH, (batch.model, batch.decoding, batch.questions), strict=True))
        if z[0].empty:
            left_out.append(f"{', '.join(label.values())}: no question in common")
            continue
        names = [
            str(v) for v in batch.variants if v in other.variants and v.kind in ("base", "head")
        ]
        variants.append(_variants(pair, batch, other, z, names).assign(**label))
        gains.append(_gains(z, names, pair.second.config.seed).assign(**label))
    if not variants and not selectors:
        raise ConfigError(
            f"{pair.first.folder} and {pair.second.folder} have nothing to compare: models, "
            f"decodings and question sets are matched by name, the first has "
            f"{_described(pair.first)}, the second {_described(pair.second)}"
            + "".join(f"; {text}" for text in left_out[:2])
        )
    settings = list(pair.settings())
    return Comparison(
        settings=pd.DataFrame(settings, columns=SETTINGS, dtype=object),
        variants=_joined(variants, VARIANTS),
        gains=_joined(gains, GAINS),
        pass_at_n=_joined([_pass_at_n(pair, name) for name in selectors], PASS_AT_N),
        left_out=left_out,
    )


def _described(run: Run) -> str:
    """Return the names of a run's first batches."""
    names = [named(batch) for batch in batches(run.config)]
    return " | ".join(names[:3]) + (f" | {len(names) - 3} more" if len(names) > 3 else "")


def _joined(parts: Sequence[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _common_questions(first: pd.DataFrame, second: pd.DataFrame) -> list[pd.DataFrame]:
    """Return both tables' rows of the common questions, in the same order, indexed by question."""
    both = [table.set_index("question_id") for table in (first, second)]
    common = both[0].index[both[0].index.isin(both[1].index)]
    return [table.loc[common] for table in both]


def _variants(
    pair: Pair, batch: Batch, other: Batch, z: Sequence[pd.DataFrame], names: list[str]
) -> pd.DataFrame:
    answers = [
        _answers(read_table(run.table(paths.GRADED, own), GRADED), z[0].index, names)
        for run, own in ((pair.first, batch), (pair.second, other))
    ]
    differences = z[1][names].to_numpy() - z[0][names].to_numpy()
    low, high = paired_interval(differences)
    p = mcnemar(differences)
    return pd.DataFrame(
        {
            "variant": names,
            "n": len(differences),
            "first": z[0][names].mean().to_numpy(),
            "second": z[1][names].mean().to_numpy(),
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


def _answers(graded: pd.DataFrame, questions: pd.Index, names: list[str]) -> np.ndarray:
    """Return the final answers, [questions, variants]; an empty text where none was found."""
    graded = graded.assign(answer=graded["answer"].fillna(""))
    wide = graded.pivot(index="question_id", columns="variant", values="answer")
    return wide.loc[questions, names].to_numpy()


def _gains(z: Sequence[pd.DataFrame], names: list[str], seed: int) -> pd.DataFrame:
    """Return the gains of each layer's best and median head, with a paired bootstrap by question.

    Selection raises the best head's gain in both runs, so it largely cancels in their difference.
    """
    base = names.index(str(BASE))
    layers = np.array([-1 if (v := Variant.parse(n)).layer is None else v.layer for n in names])
    bootstrap = Bootstrap(len(z[0]), RESAMPLES, seed)
    outcomes = [table[names].to_numpy(float) for table in z]
    drawn = [bootstrap.means(outcome) for outcome in outcomes]
    rows = []
    for layer in np.unique(layers[layers >= 0]):
        chosen = layers == layer
        for of, summary in ((BEST, np.max), (MEDIAN, np.median)):
            own = [float(summary(o.mean(axis=0)[chosen]) - o[:, base].mean()) for o in outcomes]
            gains = [summary(means[:, chosen], axis=1) - means[:, base] for means in drawn]
            low, high = interval_of(gains[1] - gains[0])
            size = (int(layer), int(chosen.sum()), len(z[0]))
            rows.append((*size, of, *own, own[1] - own[0], low, high))
    return pd.DataFrame(rows, columns=GAINS[len(BATCH) :])


def _pass_at_n(pair: Pair, selector: str) -> pd.DataFrame:
    """Return Pass@N of the methods that both runs have, with unpaired intervals."""
    first, second = (
        read_table(run.file(paths.CURVES, selector=selector), CURVES)
        for run in (pair.first, pair.second)
    )
    both = first.merge(second, on=["method", "n"], suffixes=("_first", "_second"))
    values = {name: both[name].to_numpy() for name in both.columns}
    low, high = unpaired_difference(
        values["pass_at_n_first"],
        (values["low_first"], values["high_first"]),
        values["pass_at_n_second"],
        (values["low_second"], values["high_second"]),
    )
    return both[["method", "n"]].assign(
        selector=selector,
        first=values["pass_at_n_first"],
        second=values["pass_at_n_second"],
        difference=values["pass_at_n_second"] - values["pass_at_n_first"],
        low=low,
        high=high,
    )
