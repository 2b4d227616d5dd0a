"""Exports into folders that are taken, and exports that are killed."""

from contextlib import chdir
from itertools import count
from pathlib import Path

import pytest

import simulation
from headsweep.cli import export as tool
from headsweep.cli.main import main
from headsweep.config import parse
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.record import RECORD, Stopwatch, checked_file, write_record
from headsweep.files.safe_files import read_table, write_json
from headsweep.files.tables import QUESTIONS
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A simulated run, made once: its folder, in a folder of its own."""
    with chdir(folder := tmp_path_factory.mktemp("filled")):
        config = resolve(simulation.demo())
        config = config.model_copy(update={"selectors": {}, "comparisons": {}})
        simulation.fill(config)
        write_json(Path(paths.CONFIG.format(run=config.run)), config.model_dump(mode="json"))
        for file in Path("results/store").rglob("base.parquet"):  # others have lost their records
            write_record(file, Stopwatch(), {})
    return folder, Path("results", config.run)


@pytest.fixture
def run(filled, enter_copy):
    """The folder of a simulated run, whose store may not be written."""
    folder, name = filled
    enter_copy(folder)
    for file in Path("results/store").rglob("*.parquet"):
        file.chmod(0o444)
    return name


@pytest.mark.parametrize(
    "own",
    [{"README.md": "mine"}, {"README.md": "mine", "config.json": "{}"}, {"notes": ""}],
    ids=str,
)
def test_files_of_ones_own_are_not_overwritten(run, own):
    folder = Path("taken")
    folder.mkdir()
    for name, text in own.items():
        (folder / name).write_text(text)
    with pytest.raises(ConfigError, match=r"^taken holds other files .*; name a new folder$"):
        tool.export(run, folder)
    assert {file.name: file.read_text() for file in folder.iterdir()} == own


def test_a_run_that_is_a_link_is_exported(run):
    run.rename("elsewhere")
    run.symlink_to(Path("elsewhere").absolute())
    assert Path("copy/config.json") in tool.export(run, Path("copy"))


def test_tables_of_names_with_hyphens_are_told_apart():
    embedders = {name: {"source": "some/model"} for name in ("a", "a-b")}
    questions = {
        name: {"benchmark": "generated_math", "split": "test", "n": 3} for name in ("c", "b-c")
    }
    tables = tool._tables(
        Store(parse({"run": "mine", "embedders": embedders, "questions": questions}))
    )
    assert sum(name.startswith("embeddings-") for name in tables) == 4


def test_a_folder_that_cannot_be_made_is_one_line(run, capsys):
    Path("file").touch()
    assert main(["export", str(run), "file/handed-on"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "FOLDER file/handed-on cannot be written (Not a directory); name another folder" in line


def test_an_export_that_is_killed_before_its_readme_goes_on(run, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    for function in ("mark_version", "_card"):
        with monkeypatch.context() as patch:
            patch.setattr(tool, function, killed)
            with pytest.raises(KeyboardInterrupt):
                tool.export(run, Path("begun"))
        Path("begun/.config.json.0123456789ab.tmp").touch()
    assert tool.export(run, Path("begun"))
    Path("begun/README.md").unlink()
    with pytest.raises(ConfigError, match="holds other files"):
        tool.export(run, Path("begun"))


def test_a_killed_export_goes_on_and_a_read_only_store_gives_files_that_may_be_replaced(
    run, monkeypatch
):
    copied, copy = count(), tool._copy

    def killed(source, target):
        if next(copied) == 7:
            raise KeyboardInterrupt
        copy(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(tool, "_copy", killed)
        with pytest.raises(KeyboardInterrupt):
            tool.export(run, Path("shared"))
    for _ in range(2):  # and over a finished one
        files = tool.export(run, Path("shared"))
    assert len(files) > 50
    for file in files[:-2]:
        source = file.relative_to("shared")
        assert file.read_bytes() == source.read_bytes()
        assert file.stat().st_mtime_ns == source.stat().st_mtime_ns
        assert file.stat().st_mode & 0o200
    records = [file.relative_to("shared") for file in Path("shared").rglob(f"*{RECORD}")]
    assert sorted(records) == sorted(Path("results/store").rglob(f"*{RECORD}"))
    assert records


def test_no_text_of_a_question_is_in_an_export_without_even_where_it_is_killed(run, monkeypatch):
    stored = Path("results/store/questions").glob("*.parquet")
    texts = {path: read_table(path, QUESTIONS) for path in stored}
    assert all((table["question"] != "").all() for table in texts.values())
    tool.export(run, Path("shared"))
    former = Path("shared/results/store/questions/former-0.parquet")
    former.write_bytes(next(iter(texts)).read_bytes())  # of another key

    def killed(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tool, "_copy", killed)
        with pytest.raises(KeyboardInterrupt):
            tool.export(run, Path("shared"), without_texts=True)
    for _ in range(2):
        left = [*Path("shared/results/store/questions").glob("*.parquet")]
        assert all((read_table(file, QUESTIONS)["question"] == "").all() for file in left)
        tool.export(run, Path("shared"), without_texts=True)
    assert len(left) == len(texts)
    for file in left:
        table = texts[file.relative_to("shared")]
        assert read_table(checked_file(file), QUESTIONS)["answer"].equals(table["answer"])


def test_a_source_that_cannot_be_read_is_blamed_and_not_the_destination(run, capsys):
    lost = next(Path("results/store").rglob("L00H00.parquet"))
    lost.unlink()
    lost.mkdir()
    assert main(["export", str(run), "shared"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: {lost}" in line.replace(f"{Path.cwd()}/", "")
    assert "FOLDER" not in line
    lost.rmdir()


def test_an_export_without_a_question_set_is_none(run):
    lost = next(Path("results/store/questions").glob("*.parquet"))
    lost.unlink()
    with pytest.raises(ConfigError, match=rf"^{lost} and 0 more files are missing; run "):
        tool.export(run, Path("shared"))


def test_no_file_from_elsewhere_is_exported_through_a_link(run, tmp_path):
    moved = next(Path("results/store").rglob("L00H00.parquet"))
    moved.replace(tmp_path / "moved")
    moved.symlink_to(tmp_path / "moved")
    with pytest.raises(ConfigError, match="leads out of the run and its store; remove that link"):
        tool.export(run, Path("shared"))
