"""The jobs that write a run's tables, with published numbers, and a record; none imports torch."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep.engine.requests import NEAR_TIE
from headsweep.files import paths
from headsweep.files.record import Stopwatch, read_json, write_record
from headsweep.files.safe_files import read_table, write_csv, write_json, write_table
from headsweep.files.tables import (
    ACTIVATIONS,
    ANSWERS,
    GRADED,
    INT8_OUTCOMES,
    OUTCOMES,
    STUDY_OUTCOMES,
)
from headsweep.results import paper_differences
from headsweep.results.changes import changes, failures
from headsweep.results.claims import claims
from headsweep.results.compression_arms import read_results
from headsweep.results.compression_tables import tables
from headsweep.results.exhibits import RunFiles
from headsweep.results.facts import record
from headsweep.results.gains import cells, controls, read_z
from headsweep.results.published import audit, beside, conditions, cuts, head_pruning
from headsweep.store.batches import arms, placebos
from headsweep.store.chosen_heads import BASIS, basis
from headsweep.store.layout import Store


def write_tables(store: Store, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject, layer and head, and by level, as CSV."""
    stopwatch = Stopwatch()
    config = store.config
    accuracy = store.of_sweep(sweep)
    reproduced = cells(*read_z(store, sweep))
    prompt = config.decodings[config.sweeps[sweep].decoding].prompt
    grading = config.grading_of(sweep)
    table = beside(config, sweep, reproduced, published).assign(prompt=prompt, grading=grading)
    table["unlike"] = paper_differences.of_sweep(config, sweep)
    csv = write_csv(store.path(paths.TABLE, sweep=sweep, suffix="csv"), table, 6)
    record([csv], stopwatch, [accuracy])


def write_controls(store: Store, sweep: str) -> None:
    """Write the controls of a sweep: gains, heads, spread, placebos and failures."""
    stopwatch = Stopwatch()
    config = store.config
    section = config.sweeps[sweep]
    of_sweep = partial(store.of_sweep, sweep)
    sources = [of_sweep(), of_sweep(GRADED), of_sweep(ACTIVATIONS)]
    z, variants = read_z(store, sweep)
    graded = read_table(of_sweep(GRADED), GRADED)
    activations = read_table(of_sweep(ACTIVATIONS), ACTIVATIONS)
    placebo_variants = placebos(config, section)
    noise = NEAR_TIE[config.models[section.model].dtype]
    answers = {
        str(variant): of_sweep(ANSWERS, variant=variant)
        for variant in (*variants, *placebo_variants)
    }

    by_name = controls(z, graded, variants, placebo_variants, noise, config.seed)
    changed = [*variants[1:], *placebo_variants]
    by_name["placebos"] = changes(graded, changed, answers, activations)
    by_name["failures"] = failures(by_name["heads"], graded, answers, activations)
    written = [
        write_csv(store.path(paths.CONTROLS, sweep=sweep, table=name), table)
        for name, table in by_name.items()
    ]
    record(written, stopwatch, sources, **{BASIS: basis(config, "sweeps", sweep)})


def write_audit(store: Store, published: Path) -> None:
    """Write the published tables of a folder held against chance and arithmetic."""
    stopwatch = Stopwatch()
    tables_of_paper = audit(head_pruning(published), store.config.seed)
    tables_of_paper["compression"] = cuts(conditions(published))
    path = partial(store.path, paths.AUDIT_TABLE)
    made = [write_csv(path(paper=name), table, 6) for name, table in tables_of_paper.items()]
    record(made, stopwatch, [published.name])


def write_claims(store: Store, published: Path) -> None:
    """Write which of the papers' claims hold in the published tables and in this run."""
    stopwatch = Stopwatch()
    made = write_csv(store.path(paths.CLAIMS), claims(store, published), 6)
    record([made], stopwatch, [published.name, *RunFiles(store).judged()])


def write_compression_tables(store: Store, published: Path) -> None:
    """Write Tables 1-4 of the second paper, knee, quantisation and cost as CSV."""
    stopwatch = Stopwatch()
    made = []
    studies = [read_results(store, name) for name in store.config.compressions]
    for name, table in tables(studies, conditions(published)).items():
        file = store.path(paths.COMPRESSION_TABLE, exhibit=name, suffix="csv")
        made.append(write_csv(file, table, 6))
    record(made, stopwatch, RunFiles(store).studied())


def gather(store: Store, compression: str) -> None:
    """Collect the outcomes and histories of all arms and seeds, in the order of the config."""
    stopwatch = Stopwatch()
    study = store.config.compressions[compression]
    outcomes: list[pd.DataFrame] = []
    histories: dict[str, dict[str, Any]] = {}
    for arm in arms(store.config, compression):
        for seed in study.seeds:
            kinds = [OUTCOMES]
            if arm.name in study.int8:
                kinds.append(INT8_OUTCOMES)
            for kind in kinds:
                rows = read_table(Path(arm.file(kind.path, seed)), kind)
                outcomes.append(rows.assign(arm=arm.name, seed=seed))
            history = read_json(Path(arm.file(paths.HISTORY, seed)))
            histories.setdefault(arm.name, {})[str(seed)] = history
    facts = {"compression": compression, "settings": study.model_dump(mode="json")}
    output = store.path(STUDY_OUTCOMES, compression=compression)
    write_table(output, pd.concat(outcomes), STUDY_OUTCOMES)
    write_record(output, stopwatch, facts)
    output = store.path(paths.HISTORIES, compression=compression)
    write_json(output, histories)
    write_record(output, stopwatch, facts)
