"""A local model with a published name is held against the paper, through the real Snakefile."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mini import REASONER, Snakemake

SUBJECTS = ("Algebra", "Geometry")
NAME = "Qwen2.5-Math-1.5B-Instruct"


def test_published_numbers_stand_beside_those_of_a_local_copy(
    snakemake: Snakemake, miniature: dict[str, Any], checkpoint: Path, tmp_path: Path
) -> None:
    checkpoint.rename(tmp_path / NAME)
    rows = [
        {
            "problem": f"What is {number} + 4?",
            "solution": f"\\boxed{{{number + 4}}}",
            "answer": str(number + 4),
            "subject": SUBJECTS[number % 2],
            "level": 1 + number % 5,
            "unique_id": f"test/{number}.json",
        }
        for number in range(14)
    ]
    file = tmp_path / "math.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    miniature |= {
        "models": {"local": {**REASONER, "source": str(tmp_path / NAME)}},
        "questions": {"math500": {"benchmark": "math500", "split": "test", "file": str(file)}},
        "decodings": {"greedy": {"max_new_tokens": 20}},
        "embedders": {},
        "selectors": {},
        "comparisons": {},
        "sweeps": {
            "s": {"model": "local", "questions": "math500", "layers": [0, 1], "heads": [1, 3]}
        },
    }
    tables = tmp_path / "results/mini/tables"
    made = [str(tables.relative_to(tmp_path) / name) for name in ("s.md", "claims.md")]
    snakemake(miniature, "--cores", "2", *made)
    table = pd.read_csv(tables / "s.csv").set_index(["variant", "group"])
    cell = table.loc[("L00H03", "Geometry")]  # Table 2: 0.07
    assert (cell["published_correct"], cell["published_n"], cell["n"]) == (3, 41, 7)
    assert cell["difference"] == pytest.approx(cell["accuracy"] - 3 / 41, abs=1e-5)
    assert table.loc["L01H03", "published"].isna().all()  # layer 1 is not in the paper
    text = (tables / "s.md").read_text(encoding="utf-8")
    assert "## Layer 0, reproduced − published" in text
    assert "## Layer 1, reproduced − published" not in text
    claims = pd.read_csv(tables / "claims.csv").set_index("claim")
    near_zero = claims.loc[claims.index.str.startswith("removing head 3 of layer 0")].iloc[0]
    own = 100 * table.loc[("L00H03", "Overall"), "accuracy"]
    assert f"{NAME} {own:.1f}%" in near_zero["run_why"]
