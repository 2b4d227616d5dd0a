"""Labelled texts come back from their table as they were divided."""

from pathlib import Path

import pytest

from headroom.config.texts import Texts
from headroom.tables import TEXTS, write_table
from headroom.texts.rows import read
from headroom.texts.storage import read_parts, table


@pytest.mark.parametrize("task", ["classification", "question_answering"])
def test_parts_come_back(task: str, tmp_path: Path) -> None:
    parts = read(Texts.model_validate({"task": task, "dataset": "generated", "n": 50})).parts
    write_table(tmp_path / "made.parquet", table(parts), TEXTS)
    found = read_parts(tmp_path / "made.parquet")
    assert found == parts
    assert all(len(part) > 0 for part in found)
    strata = table(parts)["stratum"].tolist()
    assert strata == [text.stratum for part in parts for text in part]
