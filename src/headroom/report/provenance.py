"""How a run was made: counts of answers and verdicts, times, versions and commits."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headroom import paths
from headroom.config import Config
from headroom.planning.arms import arms
from headroom.planning.batches import batches, find_batch
from headroom.planning.store import Store
from headroom.record import record_path


@dataclass(frozen=True)
class Stage:
    """The files of one stage, and the time that their records add up to."""

    name: str
    files: int
    seconds: float


@dataclass(frozen=True)
class Provenance:
    """What the report says about the making of a run."""

    verdicts: list[dict[str, Any]]  # one row a batch
    costs: list[dict[str, Any]]  # one row a batch, from the records of its answers
    stages: list[Stage]
    versions: dict[str, str]  # all that were used, where records differ
    commits: list[str]
    revisions: list[tuple[str, str, str, str]]  # kind, name, source, revision


def provenance(config: Config) -> Provenance:
    """Gather verdicts from the graded tables, and everything else from records."""
    stages: dict[str, list[float]] = defaultdict(list)
    versions: dict[str, set[str]] = defaultdict(set)
    commits: set[str] = set()
    for stage, path in _files(config):
        record = record_path(path)
        if not record.exists():
            continue
        facts = json.loads(record.read_text(encoding="utf-8"))
        stages[stage].append(float(facts["seconds"]))
        for library, version in facts["versions"].items():
            versions[library].add(version)
        commits.add(facts["git_commit"] or "no git")
    return Provenance(
        verdicts=_verdicts(config),
        costs=_costs(config),
        stages=[Stage(name, len(times), sum(times)) for name, times in stages.items()],
        versions={name: ", ".join(sorted(found)) for name, found in versions.items()},
        commits=sorted(commits),
        revisions=_revisions(config),
    )


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield every file with a record, with its stage, in the order of the work."""
    store = Store(config)
    for file in dict.fromkeys(store.path(paths.SOURCE, source=name) for name in config.questions):
        yield "benchmarks", file
    for name in config.questions:
        yield "benchmarks", store.path(paths.QUESTIONS, questions=name)
    for name in config.models:
        yield "models", store.path(paths.MODEL, model=name)
    for batch in batches(config):
        yield from (("answers", Path(file)) for file in store.answers(batch))
    yield from (("grading", path) for path, *_ in _graded(config))
    for name in config.selectors:
        for template in (paths.SELECTOR, paths.RANKING, paths.CURVES):
            yield "SPRINT", store.path(template, selector=name)
    yield from dict.fromkeys(_compressed(config))


def _compressed(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the files of compressions: data, trained solvers, arms, what was measured of them."""
    store = Store(config)
    for name in config.problems:
        yield "problems", store.path(paths.PROBLEMS, data=name)
    for name, study in config.compressions.items():
        for arm in arms(config, name):
            for seed in study.seeds:
                if study.solver is not None:
                    yield "solvers", Path(arm.file(paths.TEACHER, seed))
                yield "compression", Path(arm.file(paths.HISTORY, seed))
                if arm.name in study.int8:
                    yield "eight bits", Path(arm.file(paths.INT8_OUTCOMES, seed))
        yield "measurement", store.path(paths.MEASUREMENTS, compression=name)


def _graded(config: Config) -> Iterator[tuple[Path, dict[str, str], str]]:
    """Yield each file of graded answers, the names of its batch, and the rules that graded it."""
    store = Store(config)
    for batch in batches(config):
        yield store.path(paths.GRADED, **batch.names), batch.names, config.grading
    regraded = {}
    for name, sweep in config.sweeps.items():
        grading = config.grading_of(name)
        if grading != config.grading:
            batch = find_batch(config, sweep.model, sweep.decoding, sweep.questions)
            regraded[store.of_sweep(name, paths.GRADED)] = batch.names, grading
    yield from ((path, *facts) for path, facts in regraded.items())


def _verdicts(config: Config) -> list[dict[str, Any]]:
    rows = []
    for path, names, grading in _graded(config):
        if not path.exists():
            continue
        graded = pq.read_table(path, columns=["verdict", "stop_reason"]).to_pandas()
        counts = graded["verdict"].value_counts()
        rows.append(
            {
                **names,
                "grading": grading,
                "answers": len(graded),
                "truncated": int((graded["stop_reason"] == "length").sum()),
                **{
                    verdict: int(counts.get(verdict, 0))
                    for verdict in ("judged", "no_answer", "timeout", "memory", "error")
                },
            }
        )
    return rows


def _costs(config: Config) -> list[dict[str, Any]]:
    """Add up what the records say of each batch's jobs; what has no record is not counted."""
    rows = []
    for batch in batches(config):
        files = (record_path(Path(file)) for file in Store(config).answers(batch))
        records = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        rows.append(
            {
                "model": batch.model,
                "decoding": batch.decoding,
                "questions": batch.questions,
                "jobs": len(records),
                "of": len(batch.variants),
                **{
                    fact: sum(record.get(fact, 0) for record in records)
                    for fact in ("answers", "reused", "new_tokens", "seconds")
                },
            }
        )
    return rows


def _revisions(config: Config) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, model in config.models.items():
        rows.append(("model", name, model.source or "trained here", model.revision or "none"))
    for name, questions in config.questions.items():
        source = questions.file or questions.benchmark
        rows.append(
            ("questions", name, f"{source}, {questions.split}", questions.revision or "none")
        )
    for name, problems in config.problems.items():
        source = problems.file or problems.dataset
        rows.append(("problems", name, source, problems.revision or "none"))
    for name, solver in config.solvers.items():
        source = solver.encoder.source or "trained here"
        rows.append(("solver", name, source, solver.encoder.revision or "none"))
    for name, embedder in config.embedders.items():
        source = embedder.source or f"model {embedder.model}"
        rows.append(("embedder", name, source, embedder.revision or "none"))
    return rows
