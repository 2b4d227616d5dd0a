"""Two runs side by side: where they lie, what they share, how their settings differ.

Runs are matched by the names in their configs: a model, decoding, question set or selector of the
same name is compared whatever its settings, for those are what one wants to compare.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headroom import paths
from headroom.config import Config, load
from headroom.errors import ConfigError
from headroom.planning.batches import Batch, batches
from headroom.planning.store import Store, split_key
from headroom.record import record_path

_CONFIG = Path(paths.CONFIG).name


class Run(NamedTuple):
    """A run's folder, wherever it has been put, and the config that it was made with."""

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
        """Return one of the run's files from its template in `headroom.paths`."""
        return self.folder / template.removeprefix("results/{run}/").format(**names)

    def table(self, template: str, batch: Batch) -> Path:
        """Return the run's file about a batch of its own."""
        return self.file(template, **Store(self.config).keys(**batch.names))


class Pair(NamedTuple):
    """The first run and the second; differences are second − first."""

    first: Run
    second: Run

    def batches(self) -> tuple[list[tuple[Batch, Batch]], list[str]]:
        """Return the greedy batches of both runs, and why others of the same name are left out.

        Samples have no fellow in the other run: they are left to Pass@N. Batches that neither run
        has graded, as those of prompt comparisons, are passed over if there are others.
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
        """Return the selectors of both runs whose Pass@N is there, and why others are left out."""
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
        """Yield each setting that differs: dotted name, both values as JSON, None for none.

        A section that one run lacks is one setting. Then come versions that graded the first batch.
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
        """Tell whether questions of one id are the same question in both runs."""
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
