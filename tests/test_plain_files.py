"""What strangers put into a folder: links, pipes and files that are larger than they look."""

import gzip
import json
import logging
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from example_config import VALUES
from headsweep.answers import prepare
from headsweep.benchmarks import row_files
from headsweep.benchmarks.sources import file_rows
from headsweep.cli.main import main
from headsweep.cli.store import move_to_trash
from headsweep.config import load, parse
from headsweep.errors import BenchmarkError, ConfigError, HeadsweepError, TableError
from headsweep.files.locks import Locks
from headsweep.files.plain_files import expanded, open_to_write
from headsweep.files.record import read_bytes, read_facts, read_tensors
from headsweep.files.safe_files import atomic, read_table, remove_folder, write_text
from headsweep.files.tables import QUESTIONS
from headsweep.grading import foreign_answers
from headsweep.models.source import BUILTIN, fingerprint
from headsweep.store import journal
from headsweep.store.hard_links import link
from headsweep.store.layout import Store, write_config

FOLDER = Path("results/demo/logs")


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Return a folder of the user's, outside of where a run is at work."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    (mine / "file").write_text("mine")
    (mine / "file").chmod(0o644)
    return mine


def state(folder):
    """Return names, modes, contents and times of files in a folder, and of itself."""
    files = [folder, *sorted(folder.rglob("*"))]
    return [
        (file.name, file.stat().st_mode, file.is_file() and file.read_bytes()) for file in files
    ]


def appended(folder):
    with os.fdopen(open_to_write(folder / "file"), "ab") as stream:
        stream.write(b"not mine")


def copied(folder):
    (folder / "new").write_text("")
    prepare._copy(BUILTIN["builtin:reasoner"], folder)


WRITERS = {
    "a file": lambda folder: write_text(folder / "file", "not mine"),
    "a new file": lambda folder: write_text(folder / "below/new", "not mine"),
    "a log": lambda folder: main(
        ["job", "source", "--config", "none", "--source", "x", "--log", f"{folder}/file"]
    ),
    "appending": appended,
    "a journal": lambda folder: journal.append(folder / "variant.jsonl", [{"question_id": "a"}]),
    "locks": lambda folder: Locks(folder / "locks"),
    "a hard link": lambda folder: link(Path("results/own"), folder / "name"),
    "a hard link to it": lambda folder: link(folder / "file", Path("results/name")),
    "a checkpoint": lambda folder: prepare._copy(BUILTIN["builtin:reasoner"], folder),
    "removal": remove_folder,
    "pruning": lambda folder: move_to_trash([folder / "file"]),
    "a run's config": lambda folder: write_config(Store(parse(VALUES | {"run": "demo"}))),
}


@pytest.mark.parametrize("what", WRITERS)
def test_nothing_is_written_changed_or_removed_through_a_link_to_a_folder(
    what, outside, monkeypatch
):
    for name, value in (("handlers", []), ("propagate", True)):
        monkeypatch.setattr(logging.getLogger("headsweep"), name, value)
    Path("results").mkdir()
    Path("results/own").write_text("")
    folder = Path("results/store/logs") if what == "pruning" else FOLDER
    if what == "a run's config":
        folder = folder.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(outside)
    before = state(outside)
    if what == "a log":
        assert WRITERS[what](folder) == 2
    else:
        with pytest.raises(ConfigError, match=rf"^{folder} is a link; below results only results/"):
            WRITERS[what](folder)
    assert state(outside) == before


@pytest.mark.parametrize("opened", [appended, lambda folder: Locks(folder / "file")])
def test_nothing_is_appended_to_a_file_through_a_link(opened, outside):
    FOLDER.mkdir(parents=True)
    (FOLDER / "file").symlink_to(outside / "file")
    before = state(outside)
    with pytest.raises(ConfigError, match="file is a link"):
        opened(FOLDER)
    assert state(outside) == before
    elsewhere = Path("elsewhere")  # not below results, but where anybody may put a link
    elsewhere.mkdir()
    (elsewhere / "file").symlink_to(outside / "file")
    with pytest.raises((OSError, HeadsweepError)):
        opened(elsewhere)
    assert state(outside) == before


def test_a_copied_checkpoint_with_a_link_in_it_is_replaced_and_its_target_stays(outside):
    folder = Path("results/store/models/tiny/checkpoint")
    folder.mkdir(parents=True)
    (folder / "file").symlink_to(outside / "file")
    (folder / "folder").symlink_to(outside)
    (outside / "file").chmod(0o400)
    folder.chmod(0o500)
    before = state(outside)
    prepare._copy(BUILTIN["builtin:reasoner"], folder)
    assert state(outside) == before
    assert fingerprint(folder) == fingerprint(BUILTIN["builtin:reasoner"])


def test_results_and_the_store_may_be_links(outside):
    (outside / "store").mkdir()
    Path("results").symlink_to(outside)
    write_text(FOLDER / "new", "")
    shutil.rmtree(outside / "store")
    (outside / "store").symlink_to(outside / "demo")
    write_text(Path("results/store/models/new"), "")
    assert (outside / "demo/models/new").exists()


def test_who_may_read_what_a_library_wrote_the_mask_says(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic(tmp_path / "model", folder=True) as made:
            (made / "below").mkdir()
            for file in (made / "config.json", made / "below/weights"):
                file.touch(mode=0o600)
        with atomic(tmp_path / "weights") as made:
            made.unlink()
            made.touch(mode=0o600)  # as safetensors does
    finally:
        os.umask(before)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [oct(file.stat().st_mode & 0o777) for file in files] == ["0o640"] * 3


READERS = {
    "a table": lambda file: read_table(file, QUESTIONS),
    "facts": read_facts,
    "bytes": read_bytes,
    "tensors": read_tensors,
    "a benchmark": lambda file: [*file_rows(file.rename("q.csv"), None)],
    "answers": lambda file: foreign_answers.read_file(file.rename("a.parquet")),
}


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_at_once(what, plant, outside):
    file = Path("file")
    plant(file)
    signal.alarm(300)  # a reader that waits for the pipe's other end waits for ever
    try:
        with pytest.raises(HeadsweepError) as error:
            READERS[what](file)
    finally:
        signal.alarm(0)
    assert "\n" not in str(error.value)


def test_a_path_with_a_nul_and_a_home_of_nobody_are_refused_in_one_line(tmp_path):
    with pytest.raises(BenchmarkError, match=r"q.*\.csv is missing|NUL"):
        [*file_rows(Path("q\0.csv"), None)]
    with pytest.raises(ConfigError, match=r"^'~nosuchuser/q.csv' begins with the name of no user;"):
        expanded("~nosuchuser/q.csv")


@pytest.mark.parametrize("name", ["q.jsonl.gz", "q.csv.gz"])
@pytest.mark.parametrize("line", [b"a" * 1000, b'{"a": 1}\n' * 1000], ids=["a line", "lines"])
def test_a_small_packed_file_of_much_text_is_refused(name, line, tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "_LONGEST_LINE", 100)
    monkeypatch.setattr(row_files, "MOST_BYTES", 5000)
    with gzip.open(tmp_path / name, "wb") as stream:
        stream.write(line)
    with pytest.raises(BenchmarkError, match=r"has more than .* MiB .*; split it$"):
        [*file_rows(tmp_path / name, None)]


def test_a_line_without_an_end_is_not_read_whole(tmp_path):
    file = tmp_path / "q.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        for _ in range(3):
            stream.write(bytes(row_files._LONGEST_LINE // 2))
    with pytest.raises(BenchmarkError, match=r"has more than 64 MiB in line 1"):
        [*file_rows(file, None)]


def test_a_table_of_many_columns_is_read_in_linear_time(tmp_path):
    file = tmp_path / "a.csv"
    names = [f"c{number}" for number in range(60_000)]
    file.write_text(f"{','.join(names)}\n{','.join(names)}\n")
    begun = time.process_time()
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, 20)  # of CPU: each column sought among all takes minutes
    try:
        assert [*foreign_answers.read_file(file).columns] == names
    except KeyboardInterrupt:
        pytest.fail(f"{time.process_time() - begun:.0f} s for {len(names)} columns")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def test_a_text_that_many_cells_of_a_small_parquet_share_is_not_multiplied(tmp_path, monkeypatch):
    file = tmp_path / "a.parquet"
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), ["a" * 100_000])
    pq.write_table(pa.table({"answer": cells.cast(pa.string())}), file, compression="zstd")
    assert file.stat().st_size < 85_000
    monkeypatch.setattr(foreign_answers, "MOST_BYTES", 50_000_000)
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    try:
        with pytest.raises(TableError, match=r"a.parquet cannot be read \(its cells take more tha"):
            foreign_answers.read_file(file)
    finally:
        pa.set_memory_pool(before)
    assert 50_000_000 < counting.max_memory() < 150_000_000


def test_a_parquet_in_several_groups_is_read_whole(tmp_path):
    file = tmp_path / "a.parquet"
    table = pa.table({"answer": [f"a{number}" for number in range(70_000)], "n": [*range(70_000)]})
    pq.write_table(table, file, row_group_size=9_999)
    read = foreign_answers.read_file(file)
    assert read["answer"].tolist() == table.column("answer").to_pylist()
    assert read["n"].tolist() == [*range(70_000)]


def test_the_config_of_a_run_is_json_all_the_same(outside):
    config = parse(VALUES)
    write_config(Store(config))
    file = Path("results") / config.run / "config.json"
    assert load(file) == config
    assert json.loads(file.read_text())["run"] == config.run
