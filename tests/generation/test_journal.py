"""The journal: whatever a crash leaves of it, whole records are read and no others."""

import multiprocessing
import random
from pathlib import Path
from typing import Any

from headroom.generation import journal

RECORDS = [
    {"question_id": f"q{n}", "token_ids": [*range(n)], "text": "\n7 é\u2028" * n, "margin": 0.1 * n}
    for n in range(12)
]


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    assert journal.read(path) == []
    journal.append(path, RECORDS[:5])
    journal.append(path, RECORDS[5:])
    journal.sync(path)
    journal.sync(tmp_path / "absent.jsonl")  # it has become a table
    assert journal.read(path) == RECORDS


def test_a_cut_anywhere_costs_only_the_record_that_it_meets(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    ends = []
    for record in RECORDS[:6]:
        journal.append(path, [record])
        ends.append(path.stat().st_size)
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        finished = sum(end <= length for end in ends)
        assert journal.read(path) == RECORDS[:finished]
        journal.append(path, RECORDS[6:8])
        assert journal.read(path) == [*RECORDS[:finished], *RECORDS[6:8]]


def test_a_changed_byte_costs_at_most_its_own_record_and_a_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    journal.append(path, RECORDS)
    whole = path.read_bytes()
    choose = random.Random(0)
    for _ in range(300):
        place = choose.randrange(1, len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= choose.randrange(1, 256)
        path.write_bytes(damaged)
        found = journal.read(path)
        assert [record for record in RECORDS if record in found] == found
        assert len(RECORDS) - 2 <= len(found) < len(RECORDS)


def _append_many(path: Path, records: list[dict[str, Any]]) -> None:
    for record in records:
        journal.append(path, [record])


def test_several_processes_may_append(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    process = multiprocessing.get_context("spawn").Process
    running = [process(target=_append_many, args=(path, RECORDS[n::3])) for n in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert sorted(journal.read(path), key=lambda record: record["margin"]) == RECORDS
