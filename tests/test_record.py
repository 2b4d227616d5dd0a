"""Records: how a file was made, and whether it is still the same."""

import json
from pathlib import Path

import pytest

from headroom.errors import TableError
from headroom.record import Stopwatch, intact, read_json, read_record, record_path, write_record
from headroom.tables import write_json


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A JSON file about the weights beside it."""
    file = tmp_path / "model.json"
    write_json(file, {"folder": "checkpoint"})
    weights = tmp_path / "checkpoint" / "part" / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"0123456789")
    write_record(weights, Stopwatch(), {})  # a record is not a part
    write_record(file, Stopwatch(), {"seed": 3}, tmp_path / "checkpoint")
    return file


def test_a_record_holds_facts_and_digests(made: Path) -> None:
    facts = read_record(made)
    assert facts["seed"] == 3
    assert facts["sha256"].keys() == {"model.json", "checkpoint/part/weights.safetensors"}
    assert {"versions", "git_commit", "started", "host"} <= facts.keys()


def test_a_whole_file_is_read(made: Path) -> None:
    assert read_json(made) == {"folder": "checkpoint"}
    record_path(made).unlink()
    made.write_text("[7]")
    assert read_json(made) == [7]  # nothing says otherwise


def test_a_damaged_file_is_named(made: Path) -> None:
    made.write_text(made.read_text().replace("k", "j"))
    with pytest.raises(TableError) as error:
        read_json(made)
    assert str(error.value) == (
        f"{made} cannot be read (it is damaged: its checksum differs); remove it and run again"
    )


def test_a_damaged_part_is_named_with_what_makes_it_anew(made: Path) -> None:
    weights = made.parent / "checkpoint/part/weights.safetensors"
    weights.write_bytes(b"0123456798")
    with pytest.raises(TableError, match=rf"^{weights} cannot .*; remove {made} and run again$"):
        intact(made)


def test_a_missing_file_and_one_that_is_no_json_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is missing; the rule that makes it has not run"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text(json.dumps([1])[:-1])
    with pytest.raises(TableError, match=r"bad.json cannot be read .*; remove it and run again"):
        read_json(tmp_path / "bad.json")
