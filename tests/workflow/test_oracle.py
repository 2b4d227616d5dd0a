"""The miniature's numbers, frozen: a redesign must give the same.

``python tests/workflow/test_oracle.py FOLDER`` writes the table anew, from a folder in which the
miniature has run. A change is right only where something is meant to differ.
"""

import json
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

TABLE = Path(__file__).parents[1] / "golden" / "miniature.json"
MARGIN = 1e-3
"""Tokens are told up to an answer's first margin below this; see the promises of the engine."""
TABLES = ("controls/math/heads.csv", "controls/math/gains.csv", "controls/math/spread.csv")
"""Tables in which all follows from the accuracy matrix, or from answers."""


def frozen(folder):
    """Return a finished miniature's greedy answers that hang on no near-tie, and its tables."""
    found = {"answers": {}, "outcomes": {}, "tables": {}}
    for file in sorted((folder / "results/store").glob("tiny-*/[ga]*/*/*.parquet")):
        table = pd.read_parquet(file)
        sound = table[table["margin"] >= MARGIN]
        found["answers"][_name(*file.parts[-3:-1], file.stem)] = {
            row.question_id: zlib.crc32(np.asarray(row.token_ids, np.int32).tobytes())
            for row in sound.itertuples()
        }
    run = folder / "results/mini"
    for file in sorted((run / "accuracy").glob("tiny-*/greedy-*/*.parquet")):
        z = pd.read_parquet(file)
        variants = [name for name in z if name == "base" or name[:1] == "L"]
        found["outcomes"][_name(file.stem)] = {name: z[name].tolist() for name in variants}
    for name in TABLES:
        table = pd.read_csv(run / name)
        found["tables"][name] = {
            each: json.loads(table[each].to_json(orient="values")) for each in table
        }
    return found


def test_the_miniature_gives_the_frozen_numbers(finished):
    now, before = frozen(finished[0]), json.loads(TABLE.read_text(encoding="utf-8"))
    compared = 0
    for name, answers in before["answers"].items():
        new = now["answers"][name]
        both = answers.keys() & new.keys()  # a margin at the limit falls either way
        assert {each: answers[each] for each in both} == {each: new[each] for each in both}, name
        compared += len(both)
    assert compared >= 0.9 * sum(map(len, before["answers"].values()))
    assert now["outcomes"] == before["outcomes"]
    for name, columns in before["tables"].items():
        for column, values in columns.items():
            new = now["tables"][name][column]
            numbers = all(isinstance(value, int | float | None) for value in values)
            expected = pytest.approx(values, abs=1e-5) if numbers else values
            assert new == expected, f"{name}: {column}"


def _name(*keys):
    return "/".join(re.sub("-[0-9a-f]{8}$", "", key) for key in keys)


if __name__ == "__main__":
    TABLE.write_text(json.dumps(frozen(Path(sys.argv[1]))) + "\n", encoding="utf-8")
