"""`headroom bench sweep` on a tiny model: every row is there, and all answers are equal."""

import json
from pathlib import Path

import pytest
import small_reasoner

from headroom.bench import command
from headroom.bench.rivals import RIVALS, Work
from headroom.bench.sweep import spread
from headroom.cli import main
from headroom.variants import BASE, Variant, heads


def test_every_row_is_measured_and_no_answer_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, figures = small_reasoner.save(tmp_path / "reasoner"), tmp_path / "bench.json"
    sizes = ["--heads", "4", "--questions", "5", "--max-new-tokens", "7", "--threads", "1"]
    assert main(["bench", "sweep", "--model", str(folder), *sizes, "--json", str(figures)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(figures.read_text())
    rows = found["rows"]
    assert tuple(rows) == command.RIVALS == tuple(RIVALS)
    failed = rows.pop("vllm")["failure"]
    assert failed.startswith("ModelError: vLLM cannot be imported")
    assert f"not measured: {failed}" in printed
    for name, row in rows.items():
        assert name in printed
        assert (row["differing"], row["answers"]) == (0, 5 * 5)
        assert row["setting"] == [1, 1]
        assert 0 < row["of_floor"] < 1
    assert rows["published"]["ratio"] == 1
    engine = rows["engine"]
    assert 0 < engine["unchanged"] < 1, "some answers diverge, some do not"
    assert engine["near_ties_differing"] == 0
    assert engine["fed_flops"] > 0.5 * engine["floor_flops"] > 0
    assert 0 < engine["product_rate"] < 1e14
    assert engine["outside_seconds"] < engine["cpu_seconds"] * 10
    assert "GFLOP in products" in printed
    assert found["variants"] == ["base", "L00H00", "L00H04", "L01H03", "L02H01"]


@pytest.mark.parametrize("option", ["--threads", "--heads", "--only"])
def test_bad_arguments_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "sweep", option, "0,x"])
    assert option in capsys.readouterr().err


def test_shares_make_up_the_whole() -> None:
    work = Work({f"q{n}": tuple(range(1, n + 2)) for n in range(8)}, (BASE, Variant(0, 1)), 5)
    parts = work.split(3)
    assert sorted(question for part in parts for question in part.prompts) == sorted(work.prompts)
    assert {part.variants for part in parts} == {work.variants}


def test_swept_heads_are_spread_over_all_layers() -> None:
    chosen = spread(heads(range(6), range(8)), 24)
    assert {variant.layer for variant in chosen} == set(range(6))
    assert len(set(chosen)) == 24
    assert spread(heads(range(2), range(3)), 100) == heads(range(2), range(3))
