"""`headsweep export`: a run and what it was made from, to archive, share or repeat it.

It is a dataset in the hub's format: `datasets.load_dataset(FOLDER, TABLE)` loads a table.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from headsweep.cli.store_files import files_of
from headsweep.config import Config, load
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.plain_files import read_plain
from headsweep.files.record import checked_file, record_path, rewrite_checksums
from headsweep.files.safe_files import (
    atomic,
    is_temporary,
    read_metadata,
    read_table,
    unreadable,
    write_json,
    write_table,
    write_text,
)
from headsweep.files.tables import (
    ACCURACY,
    EMBEDDINGS,
    INT8_OUTCOMES,
    OUTCOMES,
    QUESTIONS,
    STUDY_OUTCOMES,
)
from headsweep.models.source import local_folder
from headsweep.results.run import CONFIG, find
from headsweep.store.batches import arm_files, batches, seeded_arms
from headsweep.store.layout import Store, check_version, is_archived, mark_version
from headsweep.store.map_scores import score_files
from headsweep.store.revisions import resolve

_FIRST = {"config.json", paths.STORE_VERSION}
"""Files that an export writes before its README."""

_TITLE = """\
# {run}

A run of headsweep"""

_CARD = """\
---
{{ card_data }}
---

{{ title }}: what {{ models }} answered without each of some attention heads, and in whole. The
tables of `load_dataset(FOLDER, TABLE)`:

| table | what |
| --- | --- |
| `questions-*` | question sets, gold answers included |
| `answers-*` | answers by model, decoding and question set; a split for each variant |
| `accuracy-*` | a row a question, a 0/1 column a variant |
| `embeddings-*` | the questions' embeddings |
| `compression-*` | answers of models without heads, by arm and seed |

Head selectors are in `results/{{ run }}/sprint`. The records beside the files (`*.run.json`) say
what made them. The questions have the licences of their benchmarks.

Grading, tables, figures and the report are made again, without model, GPU or network, by

    headsweep run config.json

in this folder. `snakemake` itself would take a profile from it first, and a profile can hold code.
"""


def export(run: Path, folder: Path, without_texts: bool = False) -> list[Path]:
    """Copy what a run's tables and figures are made from, and its config, into a folder.

    ``headsweep run FOLDER/config.json --directory FOLDER`` then grades, computes and draws again,
    without model, benchmark or network. Accuracy matrices and selectors are copied for
    whoever reads them, and are made again, too. Trained weights are left out, so the times of
    compressed models are copied. With `without_texts`, questions and solutions are left out; ids,
    gold answers and the model's answers stay.

    Returns:
        The files written, below `folder`, without records.

    Raises:
        ConfigError: the run has no config.json, answers, outcomes of arms or scores of maps are
            missing, or the folder holds anything but an earlier export of the run.
        TableError: a file is damaged.
    """
    run = find(str(run))
    config = resolve(load(run / CONFIG))
    _check_target(folder, config.run)
    here = run.absolute().parents[1]  # the store is found by the names above a run, even a link
    check_version(here)
    store = Store(config)
    planned = batches(store).values()
    needed = [path for batch in planned for path in batch.answers]
    needed += [path for name in config.compressions for path in arm_files(config, name)]
    needed += [path for name in config.maps for path in score_files(config, name)]
    needed += dict.fromkeys(str(batch.path(QUESTIONS)) for batch in planned)
    missing = [path for path in needed if not (here / path).exists()]
    if missing:
        raise ConfigError(
            f"{missing[0]} and {len(missing) - 1} more files are missing; run "
            f"{config.run!r} to its end first"
        )
    tables = _tables(store)
    # First: an export that is killed is known as one, and goes on.
    write_json(folder / "config.json", config.model_dump(mode="json"))
    mark_version(folder)
    write_text(folder / "README.md", _card(config, tables, folder))
    stored = [path for path in files_of(store) if is_archived(path)]
    listed = [file for files in tables.values() for file in files.values()]
    every = dict.fromkeys([*stored, *listed, *_of_run(store)])
    wanted = [path for path in every if (here / path).exists()]
    without = set[Path]()
    if without_texts:
        without.update(store.path(QUESTIONS, questions=name) for name in config.questions)
        _remove_questions(folder)
    homes = [(here / paths.STORE).resolve(), (here / paths.RESULTS / config.run).resolve()]
    for path in wanted:
        if not any((here / path).resolve().is_relative_to(home) for home in homes):
            raise ConfigError(f"{here / path} leads out of the run and its store; remove that link")
        checked_file(here / path)
        if path in without:
            _copy_without_texts(here / path, folder / path)
            continue
        for source in (here / path, record_path(here / path)):
            if source.exists():
                _copy(source, folder / source.relative_to(here))
    write_text(folder / "README.md", _card(config, tables, folder))
    return [folder / path for path in (*wanted, Path("config.json"), Path("README.md"))]


def _copy(source: Path, target: Path) -> None:
    """Copy a file and its times; not its mode: a store may be read-only, its copy is not."""
    try:
        content = read_plain(source)
        times = source.stat()
    except OSError as error:  # not the fault of where it is copied to
        raise unreadable(source, error) from error
    with atomic(target) as temporary:
        temporary.write_bytes(content)
        os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))


def _remove_questions(folder: Path) -> None:
    """Remove the question sets of an earlier export, which may have texts."""
    questions = folder / Path(QUESTIONS.path).parent
    if questions.exists():
        shutil.rmtree(questions)


def _copy_without_texts(source: Path, target: Path) -> None:
    """Copy a question set without questions and solutions, and its record, which fits the copy."""
    table = read_table(source, QUESTIONS).assign(question="", solution=None)
    write_table(target, table, QUESTIONS, read_metadata(source))
    if record_path(source).exists():
        _copy(record_path(source), record_path(target))
        rewrite_checksums(target)


def _check_target(folder: Path, run: str) -> None:
    """Raise a ConfigError unless a folder is missing, empty or an earlier export of a run.

    One that was killed at once may have no README yet, and then has no more than `_FIRST`.
    """
    if not folder.exists():
        return
    try:
        held = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if _kept(file)}
        if not held:
            return
        if load(folder / "config.json").run == run:
            if held <= _FIRST:
                return
            if _TITLE.format(run=run) in (folder / "README.md").read_text(encoding="utf-8"):
                return
    except (OSError, ValueError, ConfigError):  # no export's
        pass
    raise ConfigError(
        f"{folder} holds other files than an earlier export of {run!r}; name a new folder"
    )


def _kept(file: Path) -> bool:
    return not file.is_dir() and not is_temporary(file.name)


def _tables(store: Store) -> dict[str, dict[str, Path]]:
    """Return the tables of the dataset: files by split, by the table's name."""
    config = store.config
    tables = dict[str, dict[str, Path]]()
    path = store.path
    part = {name: questions.split for name, questions in config.questions.items()}
    for name, split in part.items():
        tables[f"questions-{name}"] = {split: path(QUESTIONS, questions=name)}
        for embedder in config.embedders:
            file = path(EMBEDDINGS, embedder=embedder, questions=name)
            tables[f"embeddings-{embedder}--{name}"] = {split: file}
    for batch in batches(store).values():
        files = map(Path, batch.answers)
        which = "--".join(batch.names)  # a name may have a single one
        tables[f"answers-{which}"] = dict(zip(map(str, batch.variants), files, strict=True))
        tables[f"accuracy-{which}"] = {part[batch.questions]: batch.path(ACCURACY)}
    for name, sweep in config.sweeps.items():
        if config.grading_of(name) != config.grading:
            tables[f"accuracy-{name}"] = {part[sweep.questions]: store.of_sweep(name)}
    for name in config.compressions:
        tables[f"compression-{name}"] = {"test": path(STUDY_OUTCOMES, compression=name)}
    return tables


def _of_run(store: Store) -> Iterator[Path]:
    """Yield files of a run, and of its trained arms, that are worth keeping beside the store's."""
    config = store.config
    for selector, template in product(config.selectors, (paths.SELECTOR, paths.SELECTOR_CARD)):
        yield store.path(template, selector=selector)
    for name in config.compressions:
        yield store.path(paths.MEASUREMENTS, compression=name)
    for arm, seed in seeded_arms(config):
        yield from (Path(arm.file(kind.path, seed)) for kind in (OUTCOMES, INT8_OUTCOMES))


def _card(config: Config, tables: dict[str, dict[str, Path]], folder: Path) -> str:
    """Return the dataset's card, in the hub's format; it names the tables that are there."""
    from huggingface_hub import DatasetCard, DatasetCardData  # slow to import

    entries = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": str(file)} for split, file in files.items()],
        }
        for name, files in tables.items()
        if all((folder / file).exists() for file in files.values())
    ]
    named = config.models.items()
    models = [name if local_folder(model.source) else model.source for name, model in named]
    card = DatasetCard.from_template(
        DatasetCardData(configs=entries),
        template_str=_CARD,
        title=_TITLE.format(run=config.run),
        run=config.run,
        models=", ".join(models or config.solvers),
    )
    return f"{card}\n"
