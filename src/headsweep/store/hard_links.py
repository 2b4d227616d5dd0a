"""Hard links that keep tables of answers for the time of a run.

Snakemake removes the output of a job before it starts it, and it starts jobs whose model or
question set is made again. The link brings the answers back. It goes when the answers are graded,
or else at the end of a run.
"""

import contextlib
import os
import shutil
from pathlib import Path

from headsweep.files import paths
from headsweep.files.plain_files import refuse_links
from headsweep.files.tables import ANSWERS
from headsweep.store.batches import Batch
from headsweep.variants import BASE


def link(file: Path, name: Path) -> None:
    """Give a file a second name; where the disk knows no hard links, the name is of a copy.

    BeeGFS and AFS know none between two folders.
    """
    refuse_links(file)
    refuse_links(name)
    name.parent.mkdir(parents=True, exist_ok=True)
    temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        with contextlib.suppress(OSError):  # as on a full disk: then there is no second name
            try:
                os.link(file, temporary)
            except OSError:
                shutil.copyfile(file, temporary)
            temporary.replace(name)
    finally:
        temporary.unlink(missing_ok=True)  # rename leaves it where both name one file


def link_finished(table: Path) -> None:
    """Give a table of answers, if it is there, its second name before a run."""
    if table.exists():
        link(table, Path(paths.STORE, ".journal", table.relative_to(paths.STORE)))


def unlink_finished(batch: Batch) -> None:
    """Drop the second names of a batch's tables; the jobs that write them must all have ended."""
    folder = batch.path(paths.FINISHED, variant=BASE).parent
    tables = batch.path(ANSWERS, variant=BASE).parent
    for file in folder.glob("*.parquet"):
        if (tables / file.name).exists():
            with contextlib.suppress(OSError):  # the end of the run tries again
                file.unlink()
    with contextlib.suppress(OSError):  # not there, or not empty: another run is under way
        folder.rmdir()
