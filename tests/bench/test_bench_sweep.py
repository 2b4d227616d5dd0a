"""`headroom bench sweep` on a tiny model: every row is there, and all answers are equal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import small_reasoner

from headroom.bench import command
from headroom.bench.measure import Crew
from headroom.bench.rivals import RIVALS, Work, spread
from headroom.cli import main
from headroom.errors import ModelError
from headroom.variants import BASE, Variant, heads


def test_every_row_is_measured_and_no_answer_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, figures = small_reasoner.save(tmp_path / "reasoner"), tmp_path / "bench.json"
    sizes = ["--heads", "4", "--questions", "5", "--max-new-tokens", "7", "--threads", "1"]
    options = ["--json", str(figures), "--vllm-python", sys.executable]  # which has no vLLM
    assert main(["bench", "sweep", "--model", str(folder), *sizes, *options]) == 0
    printed = capsys.readouterr().out
    found = json.loads(figures.read_text())
    rows = found["rows"]
    assert tuple(rows) == command.RIVALS
    failed = rows.pop("vllm")["failure"]
    assert failed.startswith("ModelError: vLLM cannot be imported")
    assert f"not measured: {failed}" in printed
    for key, row in rows.items():
        assert row["name"] == RIVALS[key].name
        assert row["name"] in printed
        assert row["differing"] == 0
        assert row["answers"] == 5 * (3 if key == "generate_batch" else 5)
        assert len(row["all_seconds"]["1x1"]) == 1
        assert row["fed_per_token"] > 1
    assert rows["engine"]["statistics"]["accepted"] > 0
    assert rows["no drafts"]["statistics"]["accepted"] == 0
    assert rows["one variant at a time"]["statistics"]["verify_seconds"] == 0
    assert found["variants"] == ["base", "L00H00", "L00H04", "L01H03", "L02H01"]
    assert 0 < found["unchanged"] < 1, "some answers diverge, some do not"
    assert rows["engine"]["near_ties_differing"] == 0
    assert "near ties" in printed
    assert set(found["added_head"]) == {"published", "engine"}
    assert found["ratio_to_one_process"] > 0
    assert "one more head takes" in printed


@pytest.mark.parametrize("option", ["--threads", "--heads", "--only"])
def test_bad_arguments_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "sweep", option, "0,x"])
    assert option in capsys.readouterr().err


def test_the_command_line_knows_every_rival() -> None:
    assert set(command.RIVALS) == set(RIVALS)


def test_a_worker_answers_an_error_in_one_line_and_goes_on() -> None:
    code = (
        "from headroom.bench.worker import serve; "
        "serve(lambda setup: lambda job: print('noise') or {'found': setup['n'] / job['n']})"
    )
    lines = "".join(json.dumps({"n": n}) + "\n" for n in (6, 0, 2))
    done = subprocess.run(
        [sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True
    )
    _, failed, answered = map(json.loads, done.stdout.splitlines())
    assert failed["error"] == "ZeroDivisionError: division by zero"
    assert answered["found"] == 3


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match="/nowhere/python cannot be run"):
        Crew("torch", (1, 1), {}, "/nowhere/python")


@pytest.mark.parametrize("by", ["questions", "variants"])
def test_shares_make_up_the_whole(by: str) -> None:
    variants = (BASE, *heads([0, 1], range(3)))
    work = Work({f"q{n}": tuple(range(1, n + 2)) for n in range(8)}, variants, 5)
    parts = work.split(by, 3)
    pairs = [(q, v) for part in parts for q in part.prompts for v in part.variants]
    assert sorted(pairs) == sorted((q, v) for q in work.prompts for v in variants)


def test_a_part_of_the_heads_is_spread_over_all_layers() -> None:
    work = Work({"q0": (1,)}, (BASE, *heads(range(6), range(8))), 5)
    assert work.first(variants=7).variants == (BASE, *(Variant(layer, 0) for layer in range(6)))
    assert work.first().variants == work.variants


def test_swept_heads_are_spread_over_all_layers() -> None:
    chosen = spread(heads(range(6), range(8)), 24)
    assert {variant.layer for variant in chosen} == set(range(6))
    assert len(set(chosen)) == 24
    assert spread(heads(range(2), range(3)), 100) == heads(range(2), range(3))
