"""`headroom store` and `headroom export`: the files that configs need, and all others.

`show` lists what the store holds and which configs need it, and removes the rest. `export` copies a
run and what it was made from, to archive, share or repeat it, as a dataset in the hub's format:
`datasets.load_dataset(FOLDER, TABLE)` loads a table.
"""

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path

import yaml

from headroom import paths
from headroom.config import Config, load
from headroom.errors import ConfigError, HeadroomError
from headroom.generation.client import status
from headroom.models.source import local_folder
from headroom.planning.batches import batches, encoders, histories, seeded_arms
from headroom.planning.inputs import resolve
from headroom.planning.plan import aligned
from headroom.planning.store import Store
from headroom.tables import QUESTIONS, read_table, write_json, write_table, write_text

STORE = Path(paths.RESULTS, "store")

_LOCKS = Path(".snakemake", "locks")
_KEY = r"[^/]+-[0-9a-f]{8}"
_KINDS = {
    "model": rf"models/({_KEY})/",
    "source": rf"sources/({_KEY})\.parquet",
    "questions": rf"questions/({_KEY})\.parquet",
    "embedder": rf"embedders/({_KEY})\.json",
    "embeddings": rf"embeddings/({_KEY}/{_KEY})\.parquet",
    "activations": rf"activations/({_KEY}/{_KEY}/{_KEY})\.parquet",
    "dataset": rf"problems/({_KEY})\.parquet",
    "encoder": rf"encoders/({_KEY})\.json",
    "solver": rf"solvers/({_KEY}/{_KEY}/\d+)/",
    "arm": rf"compressed/({_KEY}/{_KEY}/{_KEY}/\d+)/",
    "solver, unfinished": rf"\.journal/solvers/({_KEY}/{_KEY}/\d+)\.safetensors",
    "arm, unfinished": rf"\.journal/compressed/({_KEY}/{_KEY}/{_KEY}/\d+)(?:/|$)",
    "answers, unfinished": rf"\.journal/({_KEY}/{_KEY}/{_KEY})/([^/.]+)\.(?:jsonl|parquet)",
    "answers": rf"({_KEY}/{_KEY}/{_KEY})/([^/.]+)\.parquet",
}
"""How the paths of each kind begin, below the store; a record begins like its file."""

_NOT_NEEDED = ("models", "sources", "problems", "encoders", "solvers", ".journal")
"""Folders of the store that no table or figure is made from."""

_CARD = """\
---
{front}---

# {run}

A run of headroom: what {models} answered without each of some attention heads, and in whole. The
tables of `load_dataset(FOLDER, TABLE)`:

| table | what |
| --- | --- |
| `questions-*` | question sets, gold answers included |
| `answers-*` | answers by model, decoding and question set; a split for each variant |
| `accuracy-*` | a row a question, a 0/1 column a variant |
| `embeddings-*` | the questions' embeddings |
| `compression-*` | answers of models without heads, by arm and seed |

Head selectors are in `results/{run}/sprint`. The records beside the files (`*.run.json`) say what
made them. The questions have the licences of their benchmarks.

Grading, tables, figures and the report are made again, without model, GPU or network, by

    snakemake --cores 2 --snakefile HEADROOM/Snakefile --directory . --configfile config.json
"""

_Unit = tuple[str, str, str]  # kind, key, and the variant where there is one
_Held = tuple[str, str, tuple[str, ...]]


def show(configs: Sequence[Path], *, prune: bool, yes: bool) -> None:
    """Print what the store of this folder holds; with `prune`, remove what no config needs."""
    known, unread = _configs(configs)
    if prune:
        _check(known, unread)
    held = contents(known)
    rows = [("kind", "key", "needed by", "files", "MB")]
    for (kind, key, needing), files in held.items():
        by = ", ".join(needing) or ("unknown" if kind == "other" else "none")
        rows.append((kind, key, by, f"{len(files):,}", _megabytes(files)))
    print(aligned(rows, left=3))
    for error in unread:
        print(f"cannot be read, so its files may be listed as needed by none: {error}")
    unneeded = (files for (kind, _, by), files in held.items() if kind != "other" and not by)
    idle = list(chain(*unneeded))
    amount = f"{len(idle)} files, {_megabytes(idle)} MB"
    found = f"no config needs {amount}" if idle else "nothing to prune"
    print(f"{_megabytes(chain(*held.values()))} MB in all; {found}")
    if not prune or not idle:
        return
    if not yes:
        try:
            said = input(f"Remove {amount}? [y/N] ").strip().lower()
        except EOFError:  # no terminal
            said = "no"
        if said not in ("y", "yes"):
            print("nothing is removed")
            return
    _check(known, unread)  # a run may have started since
    _remove(idle)
    print(f"removed: {amount}")


def contents(configs: Mapping[str, Config]) -> dict[_Held, list[Path]]:
    """Return the files of the store, by kind, key, and the sorted names of configs that need them.

    Kind ``other``, whose key is the path, is of files that some config may need.
    """
    asking: dict[_Unit, set[str]] = defaultdict(set)
    for name, config in configs.items():
        for file in files_of(config):
            asking[_unit(file)].add(name)
    found: dict[_Held, list[Path]] = defaultdict(list)
    for folder, _, names in os.walk(STORE):
        for file in (Path(folder, name) for name in names):
            kind, key, _ = unit = _unit(file)
            found[kind, key, tuple(sorted(asking.get(unit, ())))].append(file)
    order = [*_KINDS, "other"]
    return {
        which: found[which]
        for which in sorted(found, key=lambda which: (order.index(which[0]), *which[1:]))
    }


def files_of(config: Config) -> Iterator[Path]:
    """Yield the files that a config may read or make in the store, without records."""
    path = Store(config).path
    for name in config.models:
        yield path(paths.MODEL, model=name)
    for name in config.questions:
        yield path(paths.SOURCE, source=name)
        yield path(paths.QUESTIONS, questions=name)
    for name in config.embedders:
        yield path(paths.EMBEDDER, embedder=name)
        for questions in config.questions:
            yield path(paths.EMBEDDINGS, embedder=name, questions=questions)
    for batch in batches(config):
        yield path(paths.ACTIVATIONS, **batch.names)
        for variant, template in product(batch.variants, (paths.ANSWERS, paths.JOURNAL)):
            yield path(template, variant=variant, **batch.names)
    for name in config.problems:
        yield path(paths.PROBLEMS, data=name)
    for key in encoders(config):
        yield Path(paths.ENCODER.format(encoder=key))
    for arm, seed in seeded_arms(config):
        templates = [paths.HISTORY, paths.COMPRESSION_JOURNAL]
        if arm.study.solver is not None:
            templates += [paths.TEACHER, paths.TEACHER_JOURNAL]
        for template in templates:
            yield Path(arm.file(template, seed))


def _unit(file: Path) -> _Unit:
    """Return kind, key and variant of a file of the store."""
    path = file.relative_to(STORE).as_posix()
    for kind, form in _KINDS.items():
        if match := re.match(form, path):
            return kind, match[1], match[2] if match.lastindex == 2 else ""
    return "other", path, ""


def _remove(files: Iterable[Path]) -> None:
    """Remove files, and folders that are empty afterwards.

    The file that marks the others as complete is removed first (model.json before its checkpoint, a
    table before its record), so that the rest of an interrupted removal counts as missing.
    """
    for file in sorted(
        files, key=lambda f: (len(f.parts), f.name.endswith(".run.json"), f.suffix != ".json")
    ):
        file.unlink(missing_ok=True)
        for folder in file.parents:
            if folder == STORE or any(folder.iterdir()):
                break
            folder.rmdir()


def _configs(named: Iterable[Path]) -> tuple[dict[str, Config], list[str]]:
    """Return the configs of runs and the named ones, and the errors of runs' unreadable ones."""
    known, unread = {}, []
    for file in sorted(Path(paths.RESULTS).glob("*/config.json")):
        try:
            known[file.parent.name] = resolve(load(file))
        except HeadroomError as error:
            unread.append(f"{file}: {error}")
    return known | {str(file): resolve(load(file)) for file in named}, unread


def _check(known: dict[str, Config], unread: list[str]) -> None:
    """Refuse to remove files while something runs, or while it is unknown what is needed."""
    reason = ""
    if engines := status():
        reason = (
            f"{len(engines)} engines answer here; wait for their run, or end them with "
            f"`headroom engine stop`"
        )
    elif any(_LOCKS.glob("*")):
        reason = (
            f"{_LOCKS} says that a run is under way here; wait for it, or, if it was "
            f"killed, give its snakemake command again with --unlock"
        )
    elif unread:
        reason = (
            f"what a run needs is not known: {unread[0]}; repair its config.json by "
            f"running it again, or remove the run's folder"
        )
    elif not known:
        reason = (
            f"no config is known, so everything would be removed; name configs whose "
            f"files are to stay (runs in {paths.RESULTS}/ count by their config.json)"
        )
    if reason:
        raise ConfigError(f"--prune: {reason}")


def _megabytes(files: Iterable[Path]) -> str:
    return f"{sum(file.lstat().st_size for file in files) / 1e6:,.1f}"


def export(run: Path, folder: Path, without_texts: bool = False) -> list[Path]:
    """Copy what a run's tables and figures are made from, and its config, into a folder.

    ``snakemake --directory FOLDER --configfile FOLDER/config.json`` then grades, computes and draws
    again, without model, benchmark or network. Accuracy matrices and selectors are copied for
    whoever reads them, and are made again, too. Trained weights are left out, so the times of
    compressed models are copied. With `without_texts`, questions and solutions are left out; ids,
    gold answers and the model's answers stay.

    Returns:
        The files written, below `folder`, without records.

    Raises:
        ConfigError: the run has no config.json, or answers or outcomes of arms are missing.
    """
    file = run / "config.json"
    if not file.is_file():
        raise ConfigError(f"{file} is missing; name the folder of a run, as in results/demo")
    config = resolve(load(file))
    here = run.resolve().parents[1]
    store = Store(config)
    needed = [each for batch in batches(config) for each in store.answers(batch)]
    needed += [each for name in config.compressions for each in histories(config, name)]
    missing = [each for each in needed if not (here / each).exists()]
    if missing:
        raise ConfigError(
            f"{missing[0]} and {len(missing) - 1} more files of answers are missing; run "
            f"{config.run!r} to its end first"
        )
    tables = _tables(config)
    stored = [each for each in files_of(config) if each.parts[2] not in _NOT_NEEDED]
    listed = [file for files in tables.values() for file in files.values()]
    every = dict.fromkeys([*stored, *listed, *_of_run(config)])
    wanted = [each for each in every if (here / each).exists()]
    for each in wanted:
        for name in (each, Path(f"{each}.run.json")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(here / name, folder / name)
    for questions in config.questions if without_texts else ():
        kept = folder / store.path(paths.QUESTIONS, questions=questions)
        table = read_table(kept, QUESTIONS).assign(question="", solution=None)
        write_table(kept, table, QUESTIONS)
    write_json(folder / "config.json", config.model_dump(mode="json"))
    write_text(folder / "README.md", _card(config, tables, folder))
    return [folder / each for each in (*wanted, Path("config.json"), Path("README.md"))]


def _tables(config: Config) -> dict[str, dict[str, Path]]:
    """Return the tables of the dataset: files by split, by the table's name."""
    store, found = Store(config), dict[str, dict[str, Path]]()
    path = store.path
    part = {name: questions.split for name, questions in config.questions.items()}
    for name, split in part.items():
        found[f"questions-{name}"] = {split: path(paths.QUESTIONS, questions=name)}
        for each in config.embedders:
            file = path(paths.EMBEDDINGS, embedder=each, questions=name)
            found[f"embeddings-{each}-{name}"] = {split: file}
    for batch in batches(config):
        files = map(Path, store.answers(batch))
        which = "-".join(batch.names.values())
        found[f"answers-{which}"] = dict(zip(map(str, batch.variants), files, strict=True))
        found[f"accuracy-{which}"] = {part[batch.questions]: path(paths.ACCURACY, **batch.names)}
    for name, sweep in config.sweeps.items():
        if config.grading_of(name) != config.grading:
            found[f"accuracy-{name}"] = {part[sweep.questions]: store.of_sweep(name)}
    for name in config.compressions:
        found[f"compression-{name}"] = {"test": path(paths.STUDY_OUTCOMES, compression=name)}
    return found


def _of_run(config: Config) -> Iterator[Path]:
    """Yield files of a run, and of its trained arms, that are worth keeping beside the store's."""
    store = Store(config)
    for selector, template in product(config.selectors, (paths.SELECTOR, paths.SELECTOR_CARD)):
        yield store.path(template, selector=selector)
    for name in config.compressions:
        yield store.path(paths.MEASUREMENTS, compression=name)
    for arm, seed in seeded_arms(config):
        yield from (Path(arm.file(each, seed)) for each in (paths.OUTCOMES, paths.INT8_OUTCOMES))


def _card(config: Config, tables: dict[str, dict[str, Path]], folder: Path) -> str:
    """Return the dataset's card, in the hub's format; it names the tables that are there."""
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
    front = yaml.safe_dump({"configs": entries}, sort_keys=False)
    return _CARD.format(front=front, run=config.run, models=", ".join(models or config.solvers))
