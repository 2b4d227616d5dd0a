"""The jobs that write a run's tables.

Names are config names; paths follow from the config. A record is written beside the tables.
"""

from pathlib import Path

from headroom import paths
from headroom.analysis import latex
from headroom.analysis.answers import changes, failures
from headroom.analysis.audit import arithmetic, audit
from headroom.analysis.claims import claims
from headroom.analysis.compression.tables import printed, tables
from headroom.analysis.compression.trial import read_trial, sources
from headroom.analysis.controls import NOISE, controls
from headroom.analysis.files import record, write_csv
from headroom.analysis.gains import accuracy_paths, cells, read_z
from headroom.analysis.published import beside_cells, head_pruning, reproduced
from headroom.config import Config
from headroom.planning.batches import find_batch, placebos
from headroom.planning.exhibits import PRINTED_TABLES
from headroom.planning.store import Store
from headroom.record import Stopwatch
from headroom.tables import ACTIVATIONS, GRADED, read_table, write_text


def write_tables(config: Config, sweep: str, published: Path) -> None:
    """Write Pass@1 by subject, layer and head, and by level, as CSV and LaTeX (Tables 1-4).

    Numbers from the folder of published tables are beside the run's.
    """
    stopwatch = Stopwatch()
    own = cells(*read_z(config, sweep))
    how = config.decodings[config.sweeps[sweep].decoding].prompt, config.grading_of(sweep)
    beside = reproduced(config, sweep, own, published)
    csv, tex = (
        Path(paths.TABLE.format(run=config.run, sweep=sweep, suffix=suffix))
        for suffix in ("csv", "tex")
    )
    table = beside_cells(own, beside).assign(prompt=how[0], grading=how[1])
    write_text(tex, latex.of_sweep(own, sweep, *how))
    record([tex, write_csv(csv, table, 6)], stopwatch, [Store(config).of_sweep(sweep)])


def write_controls(config: Config, sweep: str) -> None:
    """Write the controls of a sweep: gains, heads, spread, placebos and failures."""
    stopwatch = Stopwatch()
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    z, variants = read_z(config, sweep)
    store = Store(config)
    source = store.of_sweep(sweep, paths.GRADED)
    noise = NOISE[config.models[section.model].dtype]
    graded, others = read_table(source, GRADED), placebos(config, section)
    found = controls(z, graded, variants, others, noise, config.seed)
    answers = dict(zip(map(str, batch.variants), map(Path, store.answers(batch)), strict=True))
    measured = store.path(paths.ACTIVATIONS, **batch.names)
    activations = read_table(measured, ACTIVATIONS)
    found["placebos"] = changes(graded, [*variants[1:], *others], answers, activations)
    found["failures"] = failures(found["heads"], graded, answers, activations)
    made = [
        write_csv(Path(paths.CONTROLS.format(run=config.run, sweep=sweep, table=name)), table)
        for name, table in found.items()
    ]
    record(made, stopwatch, [store.of_sweep(sweep), source, measured])


def write_audit(config: Config, published: Path) -> None:
    """Write the published tables of a folder held against chance and arithmetic."""
    stopwatch = Stopwatch()
    pairs, summary = audit(head_pruning(published), config.seed)
    found = {"pairs": pairs, "sprint": summary, "compression": arithmetic(published)}
    made = [
        write_csv(Path(paths.AUDIT_TABLE.format(run=config.run, paper=name)), table, 6)
        for name, table in found.items()
    ]
    record(made, stopwatch, [published.name])


def write_claims(config: Config, published: Path) -> None:
    """Write which of the papers' claims hold in the published tables and in this run."""
    stopwatch = Stopwatch()
    made = write_csv(Path(paths.CLAIMS.format(run=config.run)), claims(config, published), 6)
    record([made], stopwatch, [published.name, *accuracy_paths(config)])


def write_compression_tables(config: Config, published: Path) -> None:
    """Write Tables 1-4 of the second paper as CSV and LaTeX; knee, quantisation and cost as CSV.

    Numbers from the folder of published tables are beside the run's.
    """
    stopwatch = Stopwatch()
    trials = [read_trial(config, name) for name in config.compressions]
    made = []
    for name, table in tables(trials, printed(published)).items():
        csv, tex = (
            Path(paths.COMPRESSION_TABLE.format(run=config.run, exhibit=name, suffix=suffix))
            for suffix in ("csv", "tex")
        )
        if name in PRINTED_TABLES:
            write_text(tex, latex.of_study(name, table))
            made.append(tex)
        made.append(write_csv(csv, table, 6))
    record(
        made, stopwatch, [file for name in config.compressions for file in sources(config, name)]
    )
