"""The folder of unfinished work: whose it is, who works there, and what is removed of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from headsweep.errors import ModelError
from headsweep.experiments.recovery.work import Unfinished
from headsweep.files.record import Stopwatch

HOLDER = (
    "import sys, pathlib; from headsweep.files.locks import Locks; "
    "locks = Locks(pathlib.Path(sys.argv[1])); print(locks.take('.lock'), flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture
def work(tmp_path):
    return Unfinished(tmp_path / "out", {"source": "a"}, Path("source"), Stopwatch())


def names(folder):
    return {file.name for file in folder.iterdir()}


def test_a_folder_that_no_call_wrote_stays_as_it_is(work, tmp_path):
    work.folder.mkdir()
    (work.folder / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"out.partial is no unfinished work, as it has no call"):
        work.check_call()
    work.remove()
    (work.folder / "call.json").write_text('{"source": "b"}')
    with pytest.raises(ModelError, match="is of a call with other texts or settings"):
        work.check_call()
    work.remove()
    assert names(work.folder) == {"call.json", "notes.txt"}


def test_a_link_is_refused(work, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    work.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match=r"out.partial is a link, .*; remove the link, or name"):
        work.check_call()


def test_one_process_at_a_time_works_there(work):
    with work.taken():
        pass
    command = [sys.executable, "-c", HOLDER, str(work.folder / ".lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "True\n"
        with pytest.raises(ModelError, match=r"another process works in .*out.partial; wait for"):
            work.taken().__enter__()
        other.stdin.close()
    with work.taken():
        pass


def test_what_killed_writes_left_is_removed(work):
    """Also where the first of all files was not written yet."""
    (work.folder / "made" / ".round_1.ab.tmp").mkdir(parents=True)
    (work.folder / ".call.json.ab.tmp").touch()
    (work.folder / "made").rename(work.folder / ".made.tmp")
    work.check_call()
    (work.folder / ".made.tmp").rename(work.folder / "made")
    (work.folder / "call.json").write_text('{"source": "a"}')
    with work.taken():
        assert names(work.folder) == {".lock", "call.json", "call.json.run.json"}
    work.remove()
    assert not work.folder.exists()


def test_a_measurement_is_kept_for_the_way_it_was_made(work):
    counted: list[int] = []

    def measure():
        counted.append(1)
        return {"nats": [0.1, len(counted)]}

    with work.taken():
        found = [work.once("before", measure, {"device": each}) for each in ("cpu", "cpu", "cuda")]
    assert found == [{"nats": [0.1, 1]}, {"nats": [0.1, 1]}, {"nats": [0.1, 2]}]
