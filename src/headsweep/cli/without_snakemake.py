"""A run's jobs without Snakemake, one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.plain_files import expanded, read_plain
from headsweep.telling import told

if TYPE_CHECKING:
    from headsweep.config import Config
    from headsweep.store.batches import Batch
    from headsweep.store.layout import Store

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def begun(config: "Config", out: str | Path) -> Iterator["Store"]:
    """Enter the folder of results; yield the store of the config, resolved, checked, written there.

    Its models are fetched and its questions drawn. If what follows fails, the config of a run that
    was there before is put back: that run is still whole.

    Raises:
        HeadsweepError: the config asks for what is not there, or another process works there.
    """
    from headsweep.answers import client
    from headsweep.files.locks import Locks
    from headsweep.files.record import record_path
    from headsweep.files.safe_files import atomic
    from headsweep.store.layout import Store, write_config
    from headsweep.store.revisions import resolve
    from headsweep.workflow.preflight import check_devices, preflight

    with _made(out) as folder, contextlib.chdir(folder):
        with told("looking at models and questions"):
            store = Store(resolve(config))
            preflight(store)
            check_devices(store)
        locks = Locks(Path(paths.RUN_LOCK))
        if not locks.take(config.run):
            raise ConfigError(
                f"--out {out}: run {config.run!r} is under way there; wait for its end, or name "
                f"another folder"
            )
        # A run that was here keeps its config until the models and questions of this one are there.
        prepared(store)
        file = Path(paths.CONFIG.format(run=config.run))
        beside = (file, Path(paths.MODEL_SECTIONS.format(run=config.run)), record_path(file))
        former = {file: read_plain(file) for file in beside if file.exists()}
        write_config(store)
        client.begin_run()
        try:
            yield store
        except Exception:  # a run that is interrupted is meant to go on
            for file, content in former.items():
                with atomic(file) as temporary:
                    temporary.write_bytes(content)
            raise
        finally:
            del locks  # an error's traceback would keep the file open, and its lock held


@contextlib.contextmanager
def _made(out: str | Path) -> Iterator[Path]:
    """Yield the folder of results, made if need be; what was made and is empty at last goes again.

    Raises:
        ConfigError: no such folder can be made.
    """
    folder = expanded(out).absolute()
    lacking = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--out {out}: no such folder can be made ({error.strerror}); name another"
            ) from None
        yield folder
    finally:
        with contextlib.suppress(OSError):  # a folder with something in it stays
            for each in lacking:
                each.rmdir()


def answer(
    store: "Store", cores: int | None = None, planned: "Collection[Batch] | None" = None
) -> None:
    """Run the workflow's jobs up to the answers of a resolved config, on all cores by default.

    How many answers are there is told at first, and at last, also if it is interrupted. Without
    `planned` batches all of the config's are answered.
    """
    from headsweep.answers import client
    from headsweep.machine.host import host_cores
    from headsweep.store.batches import batches
    from headsweep.store.hard_links import unlink_finished

    prepared(store)
    planned = planned or batches(store).values()
    unanswered = [
        (batch, variant)
        for batch in planned
        for variant, file in zip(batch.variants, batch.answers, strict=True)
        if not _is_made(Path(file))
    ]
    _tell_answers(planned)
    try:
        usable = min(cores or host_cores(), host_cores())  # more would only take memory
        for batch, variant in unanswered:
            client.run(batch, variant, usable)
    finally:
        # Nothing here removes a job's output, as Snakemake may: one name of a table is enough.
        for batch in planned:
            unlink_finished(batch)
        client.end_run()
        if unanswered:
            _tell_answers(planned)


def _tell_answers(planned: "Collection[Batch]") -> None:
    """Say how many of the answers of each batch are there."""
    with told("counting answers"):
        from headsweep.answers.work import Work  # slow to import

        works = [Work(batch) for batch in planned]
    for work in works:
        there, total = work.counted
        _LOG.info("%s: %d of %d answers are there", work.told, there, total)


@contextlib.contextmanager
def limited_to(cores: int | None) -> Iterator[None]:
    """Let what this process computes take so many cores; by default as many as torch takes."""
    import torch

    from headsweep.machine.host import host_cores

    if cores is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(min(cores, host_cores()))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepared(store: "Store") -> None:
    """Fetch the models of a resolved config and draw its questions, where the store lacks them."""
    from headsweep.answers import prepare
    from headsweep.config.titles import title
    from headsweep.files import tables
    from headsweep.store.layout import mark_version

    config = store.config
    mark_version()
    for name in config.models:
        with told(f"making {title(config, 'models', name)} ready, once"):
            once(store.path(paths.MODEL, model=name), prepare.prepare_model, store, name)
    for name, questions in config.questions.items():
        with told(f"drawing questions from {questions.origin}"):
            once(store.path(tables.SOURCE, source=name), prepare.store_split, store, name)
            once(store.path(tables.QUESTIONS, questions=name), prepare.draw_questions, store, name)


def once(path: Path, make: Callable[..., object], *arguments: object) -> None:
    """Make a file unless it is made already; the path says the content."""
    if not _is_made(path):
        make(*arguments)


def _is_made(path: Path) -> bool:
    """Tell whether a file exists with its record, which is written last."""
    from headsweep.files.record import record_path

    return path.exists() and record_path(path).exists()
