import shutil

import pytest
from filelock import FileLock

from mini import MINIATURE, Snakemake


@pytest.fixture(scope="session")
def finished(shared):
    """A folder in which the miniature has run once, and what Snakemake printed.

    All workers share it: it is not to be changed. Temporary files have gone to the folder
    `elsewhere` beside it.
    """
    folder, elsewhere, said = shared / "finished", shared / "elsewhere", shared / "said.txt"
    with FileLock(shared / "finished.lock"):
        if not said.exists():
            for made in (folder, elsewhere):
                shutil.rmtree(made, ignore_errors=True)  # of a worker whose run failed
                made.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(elsewhere))
                done = Snakemake(folder)(MINIATURE)
            said.write_text(done.stdout + done.stderr, encoding="utf-8")
    return folder, said.read_text(encoding="utf-8")


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "copy")
