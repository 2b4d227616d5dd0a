"""What a pilot found of each model, told as a table and as a bundle for a report of a fault."""

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from headsweep import paths
from headsweep.planning.cards import output_of
from headsweep.planning.detectable_gain import Rates
from headsweep.record import versions
from headsweep.safe_files import write_json
from headsweep.text import aligned, duration
from headsweep.tool.trial import Trial

QUESTIONS = 20
"""At most so many are answered, by the base model and by `HEADS` heads."""
HEADS = 2
PLAIN, CAPTURED = "flash", "flash in graphs"
"""How the engine says that it decodes on a GPU: step by step, or by captured steps."""

_TITLES = ("answers", "tokens", "cut", "rows", "prefill/s", "decoded/s", "GB", "whole config")


class Answered(NamedTuple):
    """A model's answers to a pilot's questions."""

    tables: list[list[dict[str, Any]]]
    """Rows as in `tables.ANSWERS`: the base model's, then each head's."""
    record: dict[str, Any]
    gigabytes: float
    """In use while they were made."""
    rates: Rates


class Tried(NamedTuple):
    """What was found of one model."""

    trials: dict[str, Trial]
    """Of software that works, by its name."""
    dropped: dict[str, str]
    """Causes, by the name of software that does not; of captured steps by "graphs"."""
    hours: dict[str, float]
    """That the whole config would take, by software."""
    answered: Answered

    @property
    def backend(self) -> str:
        """The software that answers soonest."""
        return min(self.hours, key=lambda name: self.hours[name])

    @property
    def decided(self) -> dict[str, str]:
        """What goes into the run's settings: see `planning.pilot_settings.DECIDED`."""
        captured = self.trials[self.backend].facts.get("path") == CAPTURED
        return {"backend": self.backend, "graphs": "auto" if captured else "off"}

    @property
    def cells(self) -> list[str]:
        """A row of the table, below `_TITLES`."""
        software = self.trials[self.backend].software
        rows = [row for table in self.answered.tables for row in table]
        tokens = sum(len(row["token_ids"]) for row in rows)
        cut = sum(row["stop_reason"] == "length" for row in rows)
        return [
            f"{len(rows)}",
            f"{tokens:,}",
            f"{cut}",
            f"{software.speed.rows}",
            f"{software.workers * software.speed.prefill:,.0f}",
            f"{software.workers * software.speed.decode:,.0f}",
            f"{self.answered.gigabytes:.1f}",
            duration(self.hours[self.backend]),
        ]


def print_table(tried: Mapping[str, Tried]) -> None:
    """Print a row a model, and what the whole config would take."""
    rows = [["model", *_TITLES], *([name, *model.cells] for name, model in tried.items())]
    asked = f"base and {HEADS} heads of each model on up to {QUESTIONS} questions"
    print(f"{asked}, by the run's own engine")
    print("prefill and decoding at full width are timed apart: tokens a second of all workers")
    print(aligned(rows, left=1))
    hours = sum(model.hours[model.backend] for model in tried.values())
    print(f"answers and maps of {', '.join(tried)} in the whole config: about {duration(hours)}")


def remarks(name: str, model: Tried) -> list[str]:
    """Say what a model's engine is like, and what else was tried."""
    facts = model.trials[model.backend].facts
    checks = [f"{key} {facts[key]}" for key in ("path", "check", "falls") if facts.get(key)]
    lines = [f"{name}: {model.backend} ran on {', '.join([facts['device'], *checks])}"]
    if len(model.hours) > 1:
        compared = (f"{backend} {duration(hours)}" for backend, hours in model.hours.items())
        lines.append(f"{name}: the whole config by {', by '.join(compared)}")
    lines += [f"{name}: {other} is left out: {why}" for other, why in model.dropped.items()]
    return lines


def write_bundle(
    tried: Mapping[str, Tried], failed: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Path:
    """Write what a report of a fault needs: cards, versions, checks and rates; return the file.

    `failed` has the causes by software of each model that nothing answers for.
    """
    file = Path(paths.RESULTS, "pilot", "bundle.json")
    told = ("device", "backend", "path", "batch_size", "check", "falls")
    cards = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv")
    trials = {}
    for name, model in tried.items():
        trials[name] = {
            backend: {**facts, "workers": software.workers, **software.speed._asdict()}
            for backend, (software, facts) in model.trials.items()
        }
    write_json(
        file,
        {
            "cards": cards.splitlines(),
            "versions": versions() | _vllm_version(),
            "trials": trials,
            "dropped": {**failed, **{name: model.dropped for name, model in tried.items()}},
            "engines": {
                name: {
                    key: model.answered.record[key] for key in told if key in model.answered.record
                }
                for name, model in tried.items()
            },
            "rates": {
                name: dict(zip(_TITLES, model.cells, strict=True)) for name, model in tried.items()
            },
        },
    )
    return file


def _vllm_version() -> dict[str, str]:
    """Return vLLM's version by its name, if it is installed."""
    with suppress(PackageNotFoundError):
        return {"vllm": version("vllm")}
    return {}
