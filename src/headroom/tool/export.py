"""`headroom export`: copy a run and what it was made from, to archive, share or repeat it."""

import shutil
from pathlib import Path

from headroom import paths
from headroom.config import load
from headroom.errors import ConfigError
from headroom.planning.batches import batches
from headroom.planning.inputs import resolve
from headroom.planning.store import Store
from headroom.tables import QUESTIONS, read_table, write_json, write_table
from headroom.tool.store import files_of

_MODELS_AND_SOURCES = ("models", "sources", ".journal")


def export(run: Path, folder: Path, without_texts: bool = False) -> list[Path]:
    """Copy what a run's tables and figures are made from, and its config, into a folder.

    ``snakemake --directory FOLDER --configfile FOLDER/config.json`` then grades, computes and draws
    again, without model, benchmark or network. Compressions are left out: they cannot be measured
    without their checkpoints. With `without_texts`, questions and solutions are left out, too; ids,
    gold answers and the model's answers stay.

    Returns:
        The files written, below `folder`, without records.

    Raises:
        ConfigError: the run has no config.json, or answers are missing.
    """
    file = run / "config.json"
    if not file.is_file():
        raise ConfigError(f"{file} is missing; name the folder of a run, as in results/demo")
    config = resolve(load(file)).model_copy(update={"compressions": {}})
    here = run.resolve().parents[1]
    store = Store(config)
    answers = [Path(each) for batch in batches(config) for each in store.answers(batch)]
    missing = [each for each in answers if not (here / each).exists()]
    if missing:
        raise ConfigError(
            f"{missing[0]} and {len(missing) - 1} more files of answers are missing; run "
            f"{config.run!r} to its end first"
        )
    wanted = [
        each
        for each in files_of(config)
        if each.parts[2] not in _MODELS_AND_SOURCES and (here / each).exists()
    ]
    for each in wanted:
        for name in (each, Path(f"{each}.run.json")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(here / name, folder / name)
    if without_texts:
        for questions in config.questions:
            _drop_texts(folder / store.path(paths.QUESTIONS, questions=questions))
    write_json(folder / "config.json", config.model_dump(mode="json"))
    return [folder / each for each in (*wanted, Path("config.json"))]


def _drop_texts(file: Path) -> None:
    table = read_table(file, QUESTIONS)
    write_table(file, table.assign(question="", solution=None), QUESTIONS)
