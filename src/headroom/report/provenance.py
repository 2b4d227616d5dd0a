"""How a run was made: counts of answers and verdicts, times, versions and commits."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from headroom import paths
from headroom.analysis.sheet import Sheet, joined, name, number
from headroom.config import Config
from headroom.planning.batches import Batch, arms, batches, find_batch
from headroom.planning.store import Store
from headroom.record import record_path

_BATCH = [(column, name(column)) for column in ("model", "decoding", "questions")]
_VERDICTS = ["judged", "no_answer", "timeout", "memory", "error"]


def provenance(config: Config) -> dict[str, Sheet]:
    """Return tables of how a run was made, by title, from its records and graded answers."""
    stages: dict[str, list[float]] = defaultdict(list)
    versions: dict[str, set[str]] = defaultdict(set)
    for stage, path in _files(config):
        for facts in _records([path]):
            stages[stage].append(float(facts["seconds"]))
            for library, version in facts["versions"].items():
                versions[library].add(version)
            versions["git commit"].add(facts["git_commit"] or "no git")
    commits = ", ".join(sorted(versions.pop("git commit", {"not recorded"})))
    used = [(library, ", ".join(sorted(found))) for library, found in versions.items()]
    times = [(name, f"{len(found)}", f"{sum(found):,.1f}") for name, found in stages.items()]
    together = "Sum over jobs; jobs may have run side by side."
    where = ["kind", "name", "source", "revision"]
    return {
        "Answers and verdicts": _verdicts(config),
        "Time": Sheet(["stage", "files", "time (s)"], times, together),
        "Versions": Sheet(["library", "version"], [*used, ("git commit", commits)], "", texts=2),
        "Models and data": Sheet(where, list(_revisions(config)), "", texts=4),
    }


def costs(config: Config) -> Sheet:
    """Add up what the records say of each batch's jobs; what has no record is not counted."""
    facts = ("answers", "reused", "new_tokens", "seconds")
    rows = []
    for batch in batches(config):
        found = list(_records(map(Path, Store(config).answers(batch))))
        sums = [sum(record.get(fact, 0) for record in found) for fact in facts]
        speed = sums[2] / sums[3] if sums[3] else None
        rows.append((*_named(batch), len(found), len(batch.variants), *sums, speed))
    columns = (
        *_BATCH,
        ("jobs", joined(number("jobs"), " of ", number("of"))),
        *((fact, number(fact, ",.0f")) for fact in ("answers", "reused")),
        ("tokens", number("new_tokens", ",.0f")),
        ("time (s)", number("seconds", ",.1f")),
        ("tokens a second", number("speed", ",.0f")),
    )
    table = pd.DataFrame(
        rows, columns=["model", "decoding", "questions", "jobs", "of", *facts, "speed"]
    )
    return Sheet.of(table, columns, _COSTS, texts=3)


_COSTS = (
    "From the records of the jobs that this store still has. Reused: answers taken over from a "
    "smaller question set. Time is what the jobs took together; where one engine answers for all "
    "jobs, most of a job is waiting for it."
)


def _named(batch: Batch) -> tuple[str, str, str]:
    return batch.model, batch.decoding, batch.questions


def _records(files: Iterable[Path]) -> Iterator[Any]:
    """Yield the records that lie beside some files."""
    for record in map(record_path, files):
        if record.exists():
            yield json.loads(record.read_text(encoding="utf-8"))


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield every file with a record, with its stage, in the order of the work."""
    store = Store(config)
    for file in dict.fromkeys(store.path(paths.SOURCE, source=each) for each in config.questions):
        yield "benchmarks", file
    for each in config.questions:
        yield "benchmarks", store.path(paths.QUESTIONS, questions=each)
    for each in config.models:
        yield "models", store.path(paths.MODEL, model=each)
    for batch in batches(config):
        yield from (("answers", Path(file)) for file in store.answers(batch))
    yield from (("grading", path) for path, *_ in _graded(config))
    for each in config.selectors:
        for template in (paths.SELECTOR, paths.RANKING, paths.CURVES):
            yield "SPRINT", store.path(template, selector=each)
    yield from dict.fromkeys(_compressed(config))


def _compressed(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the files of compressions: data, trained solvers, arms, what was measured of them."""
    store = Store(config)
    for each in config.problems:
        yield "problems", store.path(paths.PROBLEMS, data=each)
    for each, study in config.compressions.items():
        for arm in arms(config, each):
            for seed in study.seeds:
                if study.solver is not None:
                    yield "solvers", Path(arm.file(paths.TEACHER, seed))
                yield "compression", Path(arm.file(paths.HISTORY, seed))
                if arm.name in study.int8:
                    yield "eight bits", Path(arm.file(paths.INT8_OUTCOMES, seed))
        yield "measurement", store.path(paths.MEASUREMENTS, compression=each)


def _graded(config: Config) -> Iterator[tuple[Path, Batch, str]]:
    """Yield each file of graded answers, once, with its batch and the rules that graded it."""
    store = Store(config)
    found = {
        store.path(paths.GRADED, **batch.names): (batch, config.grading)
        for batch in batches(config)
    }
    for each, sweep in config.sweeps.items():
        batch = find_batch(config, sweep.model, sweep.decoding, sweep.questions)
        found[store.of_sweep(each, paths.GRADED)] = batch, config.grading_of(each)
    for path, (batch, grading) in found.items():
        yield path, batch, grading


def _verdicts(config: Config) -> Sheet:
    rows = []
    for path, batch, grading in _graded(config):
        if path.exists():
            graded = pq.read_table(path, columns=["verdict", "stop_reason"]).to_pandas()
            counts = graded["verdict"].value_counts()
            truncated = (graded["stop_reason"] == "length").sum()
            verdicts = [counts.get(verdict, 0) for verdict in _VERDICTS]
            rows.append((*_named(batch), grading, len(graded), truncated, *verdicts))
    counted = ["answers", "truncated", *_VERDICTS]
    columns = (
        *_BATCH,
        ("grading", name("grading")),
        *((column.replace("_", " "), number(column)) for column in counted),
    )
    caption = (
        "Truncated answers met the token limit. Timeout, memory and error are answers whose "
        "grading had to be stopped; they count as wrong."
    )
    table = pd.DataFrame(rows, columns=["model", "decoding", "questions", "grading", *counted])
    return Sheet.of(table, columns, caption, texts=4)


def _revisions(config: Config) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, name, source and revision of models and data."""
    for each, model in config.models.items():
        yield "model", each, model.source or "trained here", model.revision or "none"
    for each, asked in config.questions.items():
        source = asked.file or asked.benchmark
        yield "questions", each, f"{source}, {asked.split}", asked.revision or "none"
    for each, problems in config.problems.items():
        yield "problems", each, problems.file or problems.dataset, problems.revision or "none"
    for each, solver in config.solvers.items():
        encoder = solver.encoder
        yield "solver", each, encoder.source or "trained here", encoder.revision or "none"
    for each, embedder in config.embedders.items():
        source = embedder.source or f"model {embedder.model}"
        yield "embedder", each, source, embedder.revision or "none"
