"""The benchmarks of sweeps, on the demo's model, and of grading: what they print."""

import json
import re

import pytest

from headroom.bench import command
from headroom.bench.grading import _golds, answers, run
from headroom.bench.rivals import RIVALS, Work
from headroom.bench.sweep import report, spread
from headroom.cli import main
from headroom.errors import BenchmarkError
from headroom.grading.graders import canonical
from headroom.variants import BASE, Variant, heads


def test_every_row_is_measured_and_no_answer_differs(tmp_path, capsys):
    figures = tmp_path / "bench.json"
    sizes = ["--heads", "4", "--questions", "5", "--max-new-tokens", "16", "--threads", "1"]
    assert main(["bench", "sweep", *sizes, "--json", str(figures)]) == 0
    printed, found = capsys.readouterr().out, json.loads(figures.read_text())
    rows = found["rows"]
    assert tuple(rows) == command.RIVALS == tuple(RIVALS)
    failed = rows.pop("vllm")["failure"]
    assert failed.startswith("ModelError: vLLM cannot be imported")
    assert f"not measured: {failed}" in printed
    for name, row in rows.items():
        assert name in printed
        assert (row["differing"], row["answers"], row["setting"]) == (0, 5 * 5, [1, 1])
        assert 0 < row["of_floor"] < 1
    assert rows["published"]["ratio"] == 1
    engine = rows["engine"]
    assert 0 < engine["unchanged"] < 1, "some answers diverge, some do not"
    assert engine["near_ties_differing"] == 0
    assert engine["fed_flops"] > 0.5 * engine["floor_flops"] > 0
    assert 0 < engine["product_rate"] < 1e14
    assert engine["outside_seconds"] < engine["cpu_seconds"] * 10
    assert "GFLOP in products" in printed
    alone = {name: value for name, value in engine.items() if name != "ratio"}
    assert "nan" not in report(found | {"rows": {"engine": alone}})
    assert found["variants"] == ["base", "L00H00", "L01H02", "L03H00", "L04H02"]


@pytest.mark.parametrize("option", ["--threads", "--heads", "--only"])
def test_bad_arguments_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "sweep", option, "0,x"])
    assert option in capsys.readouterr().err


def test_shares_make_up_the_whole_and_few_heads_are_all_swept():
    work = Work({f"q{n}": tuple(range(1, n + 2)) for n in range(8)}, (BASE, Variant(0, 1)), 5)
    parts = work.split(3)
    assert sorted(question for part in parts for question in part.prompts) == sorted(work.prompts)
    assert {part.variants for part in parts} == {work.variants}
    assert spread(heads(range(2), range(3)), 100) == heads(range(2), range(3))


def test_half_of_the_pairs_of_math_are_distinct_and_they_follow_from_the_seed(headroom_data):
    pairs = answers(_golds(headroom_data / "math_train.jsonl.gz")[:1500], 33, seed=0)
    assert len({(canonical(answer), canonical(gold)) for answer, gold in pairs}) >= len(pairs) / 2
    golds = ["12", r"\frac{3}{4}", "x+1"]
    assert answers(golds, 5, seed=1) == answers(golds, 5, seed=1) != answers(golds, 5, seed=2)
    assert [gold for _, gold in answers(golds, 2, seed=1)] == golds * 2


def test_the_benchmark_of_grading_prints_both_times_and_compares_the_verdicts(tmp_path, capsys):
    file = tmp_path / "golds.jsonl"
    golds = ("7", r"\frac{1}{2}", "(1,2]", r"2\sqrt{3}", "unused")
    file.write_text("".join(json.dumps({"answer": gold}) + "\n" for gold in golds))
    run(file=file, questions=4, variants=3, baseline=5, workers=1, seed=0)
    first, baseline, graded = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"12 pairs, \d+ distinct, \d+ in canonical form", first)
    assert baseline.endswith("of 5 pairs")
    assert graded.endswith("0 pairs given up; 0 of 5 verdicts differ")
    file.write_text("{}\n")
    with pytest.raises(BenchmarkError, match=r"golds.jsonl cannot be read .*name a file"):
        _golds(file)
