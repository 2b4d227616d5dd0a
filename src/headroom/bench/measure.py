"""Measures every rival at every thread setting, side by side on the same work."""

import logging
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from headroom.bench.channel import Job
from headroom.bench.crew import Crew, Run
from headroom.bench.floor import Costs, floor
from headroom.bench.rivals import RIVALS
from headroom.bench.work import Key, Work
from headroom.errors import ModelError
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)

TORCH, VLLM = "headroom.bench.worker", "headroom.bench.vllm_worker"
REFERENCE = "published"
VLLM_NAME = "vLLM, one pruned model at a time"

Setting = tuple[int, int]
"""Processes, and threads of each."""


@dataclass
class Row:
    """What was measured of one rival."""

    key: str
    name: str
    work: Work
    runs: dict[Setting, list[Run]] = field(default_factory=dict)
    failure: str | None = None

    def seconds(self, setting: Setting) -> float:
        """Return the median time at a setting."""
        return statistics.median(run.seconds for run in self.runs[setting])

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return min(self.runs, key=self.seconds)

    @property
    def choices(self) -> dict[Key, list[int]]:
        """Tokens chosen, by question and variant."""
        return self.runs[self.best][0].choices

    @property
    def tokens(self) -> int:
        """Number of tokens chosen, ends of sequence included."""
        return sum(map(len, self.choices.values()))

    @property
    def rate(self) -> float:
        """Tokens a second at the fastest setting."""
        return self.tokens / self.seconds(self.best)

    @property
    def cpu_rate(self) -> float:
        """Tokens a second of processor time: what other work on the machine disturbs least."""
        return self.tokens / statistics.median(run.cpu_seconds for run in self.runs[self.best])


@dataclass
class Measurements:
    """All rows, and what this machine can do."""

    rows: list[Row]
    costs: Costs
    peaks: dict[int, float]
    """Floating-point operations a second, by number of threads in all."""

    def row(self, key: str) -> Row | None:
        """Return a rival's row, if it was measured."""
        return next((row for row in self.rows if row.key == key and row.runs), None)

    def differing(self, row: Row, *, near_ties: bool = False) -> int | None:
        """Return how many of a rival's answers differ from the published way's.

        Args:
            row: of the rival.
            near_ties: count among its near ties only.
        """
        reference = self.row(REFERENCE)
        if reference is None:
            return None
        expected, found = reference.choices, row.choices
        compared = row.runs[row.best][0].near_ties if near_ties else found
        return sum(expected[key] != found[key] for key in compared)

    @property
    def alone(self) -> float | None:
        """Return how many times the engine is faster than one process of the published way.

        That is how it is published; a process for each half of the heads is faster on two cores.
        """
        reference, engine = self.row(REFERENCE), self.row("engine")
        if reference is None or engine is None:
            return None
        single = min(reference.seconds(each) for each in reference.runs if each[0] == 1)
        return single / engine.seconds(engine.best)

    def floor_seconds(self, row: Row) -> float | None:
        """Return the least time for a rival's answers at the machine's measured peak."""
        if any((question, str(BASE)) not in row.choices for question in row.work.prompts):
            return None
        processes, threads = row.best
        return floor(row.work, row.choices, self.costs) / self.peaks[processes * threads]

    @property
    def unchanged(self) -> float | None:
        """Share of pruned models' answers that equal the base model's."""
        row = next((row for row in self.rows if row.runs), None)
        return None if row is None else unchanged(row.choices)


def unchanged(choices: Mapping[Key, Sequence[int]]) -> float | None:
    """Return the share of pruned models' answers that equal the base model's."""
    pruned = [(q, v) for q, v in choices if v != str(BASE)]
    same = sum(choices[q, v] == choices[q, str(BASE)] for q, v in pruned)
    return same / len(pruned) if pruned else None


def settings_of(threads: Sequence[int], *, processes: bool) -> list[Setting]:
    """Return the settings with these numbers of threads: in one process, or a process each."""
    settings = [(1, count) for count in threads]
    if processes:
        settings += [(count, 1) for count in threads if count > 1]
    return settings


class Bench:
    """The workers of a benchmark, started once for all that is measured.

    Args:
        setup: first job of the workers.
        vllm: first job of vLLM's workers and the Python that runs them, where there is one.
        settings: processes and threads.
    """

    def __init__(
        self,
        setup: Job,
        settings: Sequence[Setting],
        vllm: tuple[Job, str] | None = None,
    ) -> None:
        self._setup, self._vllm = setup, vllm
        self._settings = list(settings)
        self._stack = ExitStack()
        self._crews: dict[tuple[str, Setting], Crew] = {}

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    def crew(self, module: str, setting: Setting) -> Crew:
        """Return the workers of a setting; the first call starts them."""
        if (module, setting) not in self._crews:
            if module == TORCH:
                crew = Crew(TORCH, *setting, self._setup)
            else:
                assert self._vllm is not None
                crew = Crew(VLLM, *setting, *self._vllm)
            self._crews[module, setting] = self._stack.enter_context(crew)
        return self._crews[module, setting]

    def measure(self, keys: Sequence[str], work: Work, repeat: int) -> Measurements:
        """Measure rivals in turn, round after round, after a small part of the work to warm up.

        Args:
            keys: of `RIVALS`, and `vllm`.
            work: what to answer; some rivals get the first variants only.
            repeat: rounds; medians of their times count.
        """
        rows = [self._row(key, work) for key in keys]
        crew = self.crew(TORCH, self._settings[0])
        costs = Costs(**crew.ask([{"task": "costs"}])[0]["costs"])
        peaks = {count: self._peak(count) for count in self._threads()}
        for number in range(repeat):
            for row in rows:
                for setting in self._settings:
                    if row.failure is None:
                        self._run(row, setting, warm=number > 0)
        peaks = {count: max(peak, self._peak(count)) for count, peak in peaks.items()}
        return Measurements(rows, costs, peaks)

    def _threads(self) -> list[int]:
        return [threads for processes, threads in self._settings if processes == 1]

    def _peak(self, threads: int) -> float:
        return float(self.crew(TORCH, (1, threads)).ask([{"task": "peak"}])[0]["peak"])

    def _row(self, key: str, work: Work) -> Row:
        if key == "vllm":
            return Row(key, VLLM_NAME, work)
        rival = RIVALS[key]
        return Row(key, rival.name, work.first(variants=rival.variants))

    def _run(self, row: Row, setting: Setting, *, warm: bool) -> None:
        by_vllm = row.key == "vllm"
        module, split = (VLLM, "variants") if by_vllm else (TORCH, RIVALS[row.key].split)
        try:
            crew = self.crew(module, setting)
            if not warm:
                crew.measure(row.key, row.work.first(questions=2 * setting[0], variants=2), split)
            run = crew.measure(row.key, row.work, split)
        except ModelError as error:
            row.failure = str(error)
            row.runs.clear()
            _LOG.warning("%s is not measured: %s", row.name, error)
            return
        row.runs.setdefault(setting, []).append(run)
        _LOG.info("%s, %d × %d threads: %.2f s", row.name, *setting, run.seconds)

    def added_head(self, found: Measurements, work: Work) -> dict[str, float] | None:
        """Return the seconds that one head more costs the published way and the engine.

        The published way's is its time over the number of variants; the engine's is how much
        longer all heads take than half of them.
        """
        reference, engine = found.row(REFERENCE), found.row("engine")
        half = len(work.variants) // 2
        if reference is None or engine is None or not half:
            return None
        part = work.first(variants=len(work.variants) - half)
        crew, split = self.crew(TORCH, engine.best), RIVALS["engine"].split
        seconds = statistics.median(
            crew.measure("engine", part, split).seconds for _ in engine.runs[engine.best]
        )
        return {
            REFERENCE: reference.seconds(reference.best) / len(work.variants),
            "engine": (engine.seconds(engine.best) - seconds) / half,
        }

    def idle(self, work: Work) -> float:
        """Return the share of the engine's time, on one thread, with no operator running."""
        crew = self.crew(TORCH, self._settings[0])
        job = {
            "task": "profile",
            "rival": "engine",
            "prompts": work.prompts,
            "variants": [str(variant) for variant in work.variants],
            "max_new_tokens": work.max_new_tokens,
        }
        return float(crew.ask([job])[0]["idle"])
