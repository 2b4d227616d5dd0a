import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import pytest

from example_config import STUDIES, VALUES, changed
from headsweep.cli import main as cli
from headsweep.cli.store_files import STORE, TRASH, contents, files_of
from headsweep.config import parse
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.safe_files import atomic, write_table
from headsweep.files.tables import ANSWERS, OUTCOMES
from headsweep.store.batches import Batch, arm_files, arms
from headsweep.store.keys import split_key
from headsweep.store.layout import Store, check_version, mark_version
from headsweep.store.revisions import resolve


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark_version()


def config(**sections):
    return resolve(parse({**STUDIES, **sections}))


TABLE = {"model": "big", "questions": "test", "layers": [5], "heads": [3, 11]}
SHORT = {
    "run": "short",
    "questions": changed(VALUES["questions"], "train/n", 20),
    "sweeps": {"table": TABLE},
    "selectors": {},
    "comparisons": {},
}


def write(file, size=7):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    return file


def save(saved):
    file = write(Path(paths.CONFIG.format(run=saved.run)))
    file.write_text(json.dumps(saved.model_dump(mode="json")))


def make(made):
    """Write every file that a config may make in the store, with its record; return them."""
    files = [file for file in files_of(Store(made)) if ".journal" not in file.parts]
    files += [Store(made).path(paths.CHECKPOINT, model=n) / "a.safetensors" for n in made.models]
    records = []
    for arm in arms(made, "words"):
        files += [Path(arm.file(OUTCOMES.path, 4)), Path(arm.file(paths.COMPRESSED, 0)) / "a.json"]
    for number, file in enumerate(files):
        write(file, number % 5)
        records.append(write(file.with_name(f"{file.name}.run.json")))
    return {*files, *records}


def there(folder=STORE):
    files = {file for file in folder.rglob("*") if file.is_file()} - {Path(paths.STORE_VERSION)}
    return {file for file in files if folder == TRASH or TRASH not in file.parents}


def run(*arguments):
    return cli.main(["store", *arguments])


def test_what_no_config_asks_for_is_removed_and_nothing_else(capsys):
    long, short = config(), config(**SHORT)
    needed = make(short)
    everything = make(long) | needed
    held = contents({"short": Store(short)})
    assert {*chain(*held.values())} == everything == there()
    assert {*chain(*(held[each] for each in held if each.needed_by == ("short",)))} == needed
    # Unfinished work stays with what it is for, and what is of no known form stays.
    arm = arms(short, "words")[1]
    needed |= {write(file) for file in files_of(Store(short)) if ".jsonl" in file.name}
    alien = {write(Path(arm.file(paths.TEACHER_JOURNAL, 9)))}
    for seed, own in ((4, needed), (9, alien)):
        own.add(write(Path(arm.file(paths.COMPRESSION_JOURNAL, seed)) / "rounds.safetensors"))
    needed |= {write(Path(arm.file(paths.TEACHER_JOURNAL, 0))), write(Path("results/store/n.txt"))}
    needed.add(write(Path("results/store/models/README.md")))
    save(short)
    assert run() == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("no config needs", "short", "unknown"))
    assert there() == everything | needed | alien
    gone = (everything | alien) - needed
    for _ in range(2):
        assert run("--prune", "--yes") == 0
        assert there() == needed
        assert there(TRASH) == {TRASH / file.relative_to(STORE) for file in gone}
    assert not [f for f in STORE.rglob("*") if f.is_dir() and not any(f.iterdir())]
    assert run("--empty-trash", "--yes") == 0
    assert (there(), TRASH.exists()) == (needed, False)


def test_what_a_killed_process_was_writing_is_removed():
    save(config())
    needed = make(config())
    model = Store(config()).path(paths.CHECKPOINT, model="big")
    killed = [atomic(next(iter(needed))), atomic(model, folder=True)]  # never left
    table, folder = (writing.__enter__() for writing in killed)
    assert {write(table), write(folder / "model.safetensors")} == there() - needed
    assert run("--prune", "--yes") == 0
    assert there() == needed


def test_answers_stay_that_a_known_config_could_take_over():
    """As where a question set is enlarged: its old draw's answers are good for the new one."""
    small, large = config(), config(questions=changed(VALUES["questions"], "train/n", 70))
    save(large)
    batch = Batch(Store(small), "big", "greedy", "train")
    split = split_key(large, "train")
    tables = {}
    for variant, of_split in (("base", split), ("L10H03", split), ("L10H05", "another-0")):
        tables[variant] = batch.path(ANSWERS, variant=variant)
        write_table(tables[variant], ANSWERS.schema.empty_table(), ANSWERS, {"split": of_split})
    assert Store(large).key("questions", "train") not in batch.keys
    assert run("--prune", "--yes") == 0
    assert {name for name, file in tables.items() if file.exists()} == {"base", "L10H03"}


def test_a_store_that_folders_share_is_pruned_only_with_the_runs_of_all(
    tmp_path, capsys, monkeypatch
):
    owner, sharer = tmp_path / "owner", tmp_path / "sharer"
    for folder in (owner, sharer):
        (folder / "results").mkdir(parents=True)
    (sharer / "results/store").symlink_to(owner / "results/store")
    monkeypatch.chdir(owner)
    mark_version()
    save(config())
    unneeded, others = write(OLD), make(config(**SHORT))
    monkeypatch.chdir(sharer)
    mark_version()
    save(config(**SHORT))
    for here, there_ in ((owner, sharer), (sharer, owner)):
        monkeypatch.chdir(here)
        assert run("--prune", "--yes") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{there_}/results uses this store, too" in line
        assert unneeded.exists()
    (run_of_owner,) = owner.glob("results/*/config.json")
    assert str(run_of_owner) in line
    assert run("--prune", "--yes", str(run_of_owner)) == 0
    assert not unneeded.exists()
    assert all(file.exists() for file in others)
    # A folder that shares it no more counts no more.
    (sharer / "results/store").unlink()
    monkeypatch.chdir(owner)
    assert run("--prune", "--yes") == 0


@pytest.mark.parametrize("version", [1, 7])
def test_a_store_of_another_version_is_refused(version):
    check_version()
    mark_version()
    check_version()
    Path(paths.STORE_VERSION).write_text(f"{version}\n")
    with pytest.raises(ConfigError, match=rf"is of version {version}; .* reads 2; install the"):
        check_version()
    with pytest.raises(ConfigError, match=rf"is of version {version}"):
        mark_version()
    assert Path(paths.STORE_VERSION).read_text() == f"{version}\n"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"two"])
def test_a_damaged_version_of_a_store_is_named(content):
    mark_version()
    Path(paths.STORE_VERSION).write_bytes(content)
    with pytest.raises(ConfigError, match=r"version cannot be read: .*; write 2 into it, or"):
        check_version()


def test_equal_arms_of_two_compressions_are_needed_with_all_their_seeds():
    both = {name: {**STUDIES["compressions"]["words"], "seeds": seeds} for name, seeds in SEEDS}
    made = config(compressions=both)
    needed = {file for name, _ in SEEDS for file in arm_files(made, name)}
    needed |= {file for name, _ in SEEDS for file in arm_files(made, name, paths.TEACHER)}
    assert needed < set(map(str, files_of(Store(made))))
    assert len(needed) == 5 * (4 + 1)  # seeds; arms, and the solver that they start from


SEEDS = [("words", [4, 0]), ("again", [0, 1, 2, 9])]
OLD = Path("results/store/questions/old-01234567.parquet")


def test_it_asks_before_it_removes(monkeypatch, capsys):
    save(config())
    monkeypatch.setattr("builtins.input", asked := Mock(side_effect=[EOFError, "no", "", "y"]))
    write(OLD)
    for stays in (True, True, True, False):
        assert run("--prune") == 0
        assert OLD.exists() == stays
        assert ("nothing is moved" in capsys.readouterr().out) == stays
    asked.assert_called_with("Move 1 file, 0.0 MB to results/store/.trash? [y/N] ")


def test_files_stay_while_a_map_or_sweep_without_snakemake_is_under_way(capsys):
    write(OLD)
    save(config())
    begun = f"""
from pathlib import Path
from headsweep.files.locks import Locks
locks = Locks(Path({paths.RUN_LOCK!r}))
print(locks.take("map"), flush=True)
input()
"""
    command = [sys.executable, "-c", begun]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"True\n"
        assert run("--prune", "--yes") == 2
        assert "a run is under way here; wait for its end" in capsys.readouterr().err
        assert OLD.exists()
    assert run("--prune", "--yes") == 0
    assert not OLD.exists()


def test_what_a_run_has_come_to_need_since_the_question_stays(monkeypatch):
    save(config())
    write(OLD)

    def agreed(_):
        (Path("results/short")).mkdir()
        save(config(**SHORT))
        write(OLD.with_name("older-01234567.parquet"))
        return "y"

    monkeypatch.setattr("builtins.input", agreed)
    assert run("--prune") == 2
    assert OLD.exists()


LOCK = Path(".snakemake/locks/0.output.lock")
DAMAGED = Path("results/damaged/config.json")
ENGINES = "headsweep.cli.store.status"


def _late(question):
    write(LOCK)
    return "y"


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (lambda _: write(LOCK), ["--yes"], "--unlock"),
        (
            lambda p: p.setattr(ENGINES, lambda: [{"process": 7}]),
            ["--yes"],
            "headsweep engine stop",
        ),
        (lambda p: p.setattr("builtins.input", _late), [], "a run is under way"),
        (lambda _: write(DAMAGED), ["--yes"], "results/damaged/config.json"),
        (lambda _: Path("results/mini/config.json").unlink(), ["--yes"], "no config is known"),
    ],
    ids=["a lock", "an engine", "a run that begins", "a damaged config", "no config"],
)
def test_nothing_goes_while_nobody_can_tell_what_is_needed(
    change, options, reason, monkeypatch, capsys
):
    write(OLD)
    save(config())
    change(monkeypatch)
    assert run("--prune", *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert OLD.exists()
    assert run() == 0  # to look is no harm
    assert ("its files may be listed" in capsys.readouterr().out) == DAMAGED.exists()
