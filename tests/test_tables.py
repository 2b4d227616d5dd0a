import json
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headsweep.errors import TableError
from headsweep.files import paths, tables
from headsweep.files.record import (
    Stopwatch,
    checked_file,
    first_damaged_file,
    read_json,
    read_record,
    record_path,
    write_record,
)
from headsweep.files.safe_files import atomic, read_metadata, read_table, write_json, write_table
from headsweep.files.tables import ACCURACY, EMBEDDINGS, QUESTIONS


def questions(n=3):
    return pd.DataFrame(
        {
            "question_id": [f"test/{index}" for index in range(n)],
            "split": "test",
            "subject": "Algebra",
            "level": [1, None, 5][:n],
            "question": "Wie groß?",
            "answer": r"\frac{1}{2}",
            "solution": None,
            "source_row": range(n),
        }
    )


def test_a_table_reads_back_with_what_is_missing_and_with_its_facts(tmp_path):
    file = tmp_path / "folder" / "questions.parquet"
    write_table(file, questions(), QUESTIONS, {"source": "here", "n": 3})
    back, whole = read_table(file, QUESTIONS), questions().dropna(axis=1)
    assert pq.read_schema(file).types == QUESTIONS.schema.types
    pd.testing.assert_frame_equal(back.dropna(axis=1), whole, check_dtype=False)
    assert back["level"].isna().tolist() == [False, True, False]
    assert read_metadata(file) == {"source": "here", "n": 3}


def test_equal_content_gives_equal_bytes_whatever_the_order_of_columns(tmp_path):
    mixed, found = questions()[QUESTIONS.columns[::-1]].set_index(np.array([7, 5, 3])), set()
    said = {"x": 1, "y": 2}
    for data in (questions(), mixed, pa.Table.from_pandas(mixed)):
        said = dict(reversed(said.items()))
        write_table(tmp_path / "table.parquet", data, QUESTIONS, {"settings": said})
        found.add((tmp_path / "table.parquet").read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": [1, 2, 300]}, "300|out of bounds|overflow"),
        ({"answer": ["1", None, "3"]}, "'?answer.* null values"),
        ({"extra": 1}, "columns .*'extra'.* are not those"),
    ],
)
def test_what_does_not_fit_the_schema_is_not_written(tmp_path, change, message):
    file = tmp_path / "questions.parquet"
    table = questions().assign(**change)
    with pytest.raises(TableError, match=message):
        write_table(file, table, QUESTIONS)
    if "answer" in change:
        with pytest.raises(TableError, match="answer"):
            write_table(file, pa.Table.from_pandas(table, preserve_index=False), QUESTIONS)
    assert list(tmp_path.iterdir()) == []


def test_reading_refuses_other_columns_and_types_but_more_in_the_accuracy_matrix(tmp_path):
    file = tmp_path / "table.parquet"
    write_table(file, questions(), QUESTIONS)
    with pytest.raises(TableError, match="column 'vector' is missing"):
        read_table(file, EMBEDDINGS)
    place = QUESTIONS.columns.index("level")
    other = QUESTIONS.schema.set(place, pa.field("level", pa.int64()))
    with pytest.raises(TableError, match="'level' is int8, not int64"):
        read_table(file, replace(QUESTIONS, schema=other))
    z = pd.DataFrame({"question_id": ["a", "b"], "subject": None, "level": None, "L00H01": [1, 0]})
    write_table(file, z, ACCURACY)
    with pytest.raises(TableError, match=r"unknown columns \['L00H01'\]"):
        read_table(file, replace(ACCURACY, cells=None))
    assert read_table(file, ACCURACY)["L00H01"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"L00H01": [0.5, 1.0]}, "truncated"),
        ({"L00H01": [None, 1.0]}, "null"),
        ({"L00H01": [1, 0], "level": [1, 300]}, "300|out of bounds|overflow"),
    ],
)
def test_cells_of_the_accuracy_matrix_are_small_whole_numbers(tmp_path, change, message):
    z = pd.DataFrame({"question_id": ["a", "b"], "subject": None, "level": None})
    with pytest.raises(TableError, match=message):
        write_table(tmp_path / "z.parquet", z.assign(**change), ACCURACY)
    with pytest.raises(TableError, match=r"columns .* are not those"):
        write_table(tmp_path / "z.parquet", z.drop(columns="subject"), ACCURACY)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed_wherever_it_is(tmp_path):
    file = tmp_path / "questions.parquet"
    write_table(file, questions(), QUESTIONS)
    whole, content = read_table(file, QUESTIONS), file.read_bytes()
    for length in (0, 4, 100, -9):
        file.write_bytes(content[:length])
        for read in (lambda file: read_table(file, QUESTIONS), read_metadata):
            with pytest.raises(TableError, match=r"cannot be read .* remove it and run again"):
                read(file)
            with pytest.raises(TableError, match=r"no\.parquet is missing; the rule"):
                read(tmp_path / "no.parquet")
    unnoticed = []
    for place in range(0, len(content), 17):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        try:
            pd.testing.assert_frame_equal(read_table(file, QUESTIONS), whole)
            unnoticed.append(damaged)
        except TableError as error:
            assert "questions.parquet cannot be read" in str(error)
    # All that may go unnoticed is damage to the word that says where the checksum stands.
    assert len(unnoticed) <= len("headsweep.crc32")
    assert not any(b"headsweep.crc32" in damaged for damaged in unnoticed)


def test_an_interrupted_write_leaves_the_older_file_and_nothing_else(tmp_path):
    file = tmp_path / "value.json"
    write_json(file, {"old": "größer"})
    with pytest.raises(KeyboardInterrupt), atomic(file) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text(encoding="utf-8") == '{\n  "old": "größer"\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


def test_a_record_holds_facts_and_digests_and_damage_is_named(tmp_path):
    made, weights = tmp_path / "model.json", tmp_path / "checkpoint/part/weights.safetensors"
    write_json(made, {"folder": "checkpoint"})
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"0123456789")
    write_record(weights, Stopwatch(), {})  # a record is not a part
    write_record(made, Stopwatch(), {"seed": 3}, tmp_path / "checkpoint")
    facts = read_record(made)
    assert facts["seed"] == 3
    assert facts["sha256"].keys() == {"model.json", "checkpoint/part/weights.safetensors"}
    assert {"versions", "git_commit", "started", "host"} <= facts.keys()
    assert read_json(made) == {"folder": "checkpoint"}
    weights.write_bytes(b"0123456798")
    with pytest.raises(TableError, match=rf"^{weights} cannot .*; remove {made} and run again$"):
        checked_file(made)
    weights.write_bytes(b"0123456789")
    made.write_text(made.read_text().replace("k", "j"))
    with pytest.raises(TableError) as error:
        read_json(made)
    assert str(error.value) == (
        f"{made} cannot be read (it is damaged: its checksum differs); remove it and run again"
    )
    record_path(made).unlink()
    assert read_json(made) == {"folder": "checjpoint"}
    made.write_text(json.dumps([1])[:-1])
    with pytest.raises(TableError, match=r"model.json cannot be read .*; remove it and run again"):
        read_json(made)
    made.unlink()
    with pytest.raises(TableError, match="is missing; the rule that makes it has not run"):
        read_json(made)


def test_of_results_made_together_the_damaged_one_is_made_again(tmp_path):
    first, last = tmp_path / "heads.json", tmp_path / "foretold.json"
    for file in (first, last):
        write_json(file, {})
    write_record(last, Stopwatch(), {}, together=[first])
    first.write_text("{ }")
    with pytest.raises(TableError, match=rf"^{first} cannot be read .*; remove it and run again$"):
        read_json(first)


def test_a_forged_record_leads_nowhere(tmp_path):
    made = tmp_path / "model.json"
    write_json(made, {})
    for name in ("/dev/zero", "../other.json"):
        write_record(made, Stopwatch(), {})
        record = json.loads(record_path(made).read_text())
        del record["crc32"]
        record["sha256"] = {name: "0" * 64}
        write_json(record_path(made), record)
        assert first_damaged_file(made) == record_path(made)


def test_a_file_s_own_record_that_is_no_record_is_refused(tmp_path):
    made = tmp_path / "model.json"
    write_json(made, {})
    record_path(made).write_text("[1]")
    with pytest.raises(TableError, match="holds no object"):
        read_json(made)


def test_a_stopwatch_goes_on_where_the_clock_is_set_back(monkeypatch):
    stopwatch = Stopwatch()
    monkeypatch.setattr(time, "time", lambda: stopwatch.started - 3600)
    assert 0 <= stopwatch.seconds < 600


def test_a_parquet_file_is_declared_once_with_its_path_and_its_columns():
    declared = [value.path for value in vars(tables).values() if isinstance(value, tables.Table)]
    assert len(declared) == len(set(declared)) > 15
    assert all(path.endswith(".parquet") for path in declared)
    journals = {paths.FINISHED}  # second names of tables, which the store links to
    assert {value for value in vars(paths).values() if str(value).endswith(".parquet")} == journals
