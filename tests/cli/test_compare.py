import json
import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import simulation
from headsweep.cli.compare import compare
from headsweep.cli.main import main
from headsweep.config import parse
from headsweep.files import paths
from headsweep.files.safe_files import read_table, write_json, write_table
from headsweep.files.tables import GRADED
from headsweep.results.run import find

POOL = {"layers": [2, 5], "heads": [0, 3, 5]}
TEST = "reasoner, greedy, math_test"
SMALL = {
    **simulation.DEMO,
    "questions": {
        name: {**simulation.DEMO["questions"][name], "n": n}
        for name, n in (("math_test", 90), ("math_train", 40))
    },
    "sweeps": {"demo": {**simulation.DEMO["sweeps"]["demo"], **POOL}},
    "selectors": {"math": {**simulation.DEMO["selectors"]["math"], **POOL}},
    "comparisons": {},
}


def made(run, **changes):
    """Fill a simulated run; changes replace whole sections of the config."""
    config = parse({**SMALL, "run": run, **changes})
    simulation.fill(config)
    write_json(Path(paths.CONFIG.format(run=run)), config.model_dump(mode="json"))


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder of two runs, which are filled once for all tests."""
    with chdir(folder := tmp_path_factory.mktemp("pair")):
        fill_pair()
    return folder


@pytest.fixture
def pair(once, enter_copy):
    """Two runs with layer 2 in common and a setting of the model not; L02H05 lost 30 answers."""
    enter_copy(once)
    return find("one"), find("results/two")


def fill_pair():
    made("one")
    model = {**simulation.DEMO["models"]["reasoner"], "dtype": "float32"}
    pools = {
        kind: {name: {**SMALL[kind][name], "layers": [2, 4]}}
        for kind, name in (("sweeps", "demo"), ("selectors", "math"))
    }
    made("two", models={"reasoner": model}, **pools)
    file, graded = graded_of("two")
    solved = (graded["variant"] == "L02H05") & graded["correct"]
    graded.loc[graded.index[solved][:30], ["correct", "answer"]] = [False, "8"]
    graded = graded[::-1]  # other order, fewer questions
    write_table(file, graded[graded["question_id"] < "test/083"], GRADED)


def graded_of(run):
    (file,) = Path(f"results/{run}/graded").rglob("greedy*/math_test*.parquet")
    return file, read_table(file, GRADED)


def test_variants_settings_and_pass_at_n_are_compared(pair):
    tables = compare(*pair)[0]
    found = tables["variants"]
    keys = {"index": "question_id", "columns": "variant", "values": "correct"}
    z, other = (graded_of(run)[1].pivot(**keys).astype(int) for run in ("one", "two"))
    both = z.merge(other, on="question_id", suffixes=("_a", "_b"))
    assert set(found["of"]) == {TEST, TEST.replace("test", "train")}
    test = found[found["of"] == TEST]
    assert list(test["variant"]) == ["base", "L02H00", "L02H03", "L02H05"]
    for row in test.itertuples():
        first, second = both[f"{row.variant}_a"], both[f"{row.variant}_b"]
        gained, lost = int((second > first).sum()), int((second < first).sum())
        assert (row.n, row.gained, row.lost) == (83, gained, lost)
        assert row.difference == pytest.approx(second.mean() - first.mean())
        p = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert row.p == pytest.approx(p)
    planted = test.set_index("variant").loc["L02H05"]
    assert planted["lost"] >= 23
    assert planted["changed"] == pytest.approx(planted["lost"] / 83)
    assert planted["high"] < 0
    assert planted["q"] < 0.001

    settings = tables["settings"].set_index("setting")
    assert list(settings.loc["models.reasoner.dtype"]) == ['"bfloat16"', '"float32"']
    assert "run" not in settings.index
    found = tables["pass_at_n"]
    assert set(found["method"]) == set(simulation.METHODS)
    assert (found["difference"] == 0).all()
    assert (found["low"] < 0).all()


def test_the_command_prints_little_and_writes_all_of_runs_wherever_they_lie(pair, capsys):
    folder = Path("one\x1b[31m")  # stays on its line
    Path("results/one").rename(folder)
    assert main(["compare", str(folder), str(folder)]) == 0
    assert len(re.findall(r": 0 of \d+ rows differ", capsys.readouterr().out)) == 3
    assert main(["compare", str(folder), "two", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) < 60
    assert max(map(len, said.splitlines())) < 150
    assert re.search(r"math_test +L02H05", said)
    assert "dtype" in said
    assert "\x1b" not in said
    names = {file.name for file in Path("out").iterdir()}
    assert names == {"settings.csv", "variants.csv", "pass_at_n.csv"}
    assert len(pd.read_csv("out/variants.csv")) == 2 * 4


def test_a_sweep_by_hand_and_a_run_of_a_config_meet(pair, capsys):
    """They have the same model, decoding and questions under other names, and other sizes."""
    by_hand = SMALL["sweeps"]["demo"] | {"model": "model", "questions": "questions"}
    with chdir(Path("by-hand").mkdir() or "by-hand"):
        made(
            "sweep",
            models={"model": SMALL["models"]["reasoner"]},
            questions={"questions": {**SMALL["questions"]["math_test"], "n": 70}},
            embedders={},
            selectors={},
            sweeps={"heads": {**by_hand, "layers": [0, 5]}},
        )
    tables, left_out = compare(find("one"), find("by-hand"))
    assert left_out == []
    (of,) = set(tables["variants"]["of"])
    assert of == f"{TEST} = model, greedy, questions"
    assert set(tables["variants"]["n"]) == {70}
    assert list(tables["variants"]["variant"]) == ["base", "L05H00", "L05H03", "L05H05"]
    settings = tables["settings"].set_index("setting")
    assert list(settings.loc["questions.math_test.n"]) == ["90", "70"]
    assert not [name for name in settings.index if name.startswith(("models.", "decodings.greedy"))]
    assert main(["compare", "one", "by-hand"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("first: results/one; second: by-hand/results/sweep\n")
    assert "more; --out FOLDER writes all rows" in said


def test_a_folder_that_holds_a_run_is_taken_for_it_and_one_of_several_is_not(pair, capsys):
    outside = Path("moved").resolve()
    Path("moved").mkdir()
    with chdir("moved"):
        made("only", selectors={})
    Path("moved/config.json").write_bytes(Path("moved/results/only/config.json").read_bytes())
    for given in ("moved", "moved/results", str(outside), "moved/results/only"):
        assert find(given).resolve() == outside / "results/only"
    with chdir("moved/results"):
        assert find(".").name == "only"
    assert main(["compare", ".", "moved"]) == 2
    said = capsys.readouterr().err
    assert "'.' holds several runs; name one: results/one, results/two" in said


def test_what_only_a_comparison_of_prompts_has_graded_is_not_said_to_be_missing(pair):
    for run in pair:
        values = json.loads((run / "config.json").read_text())
        comparisons = simulation.DEMO["comparisons"]
        write_json(run / "config.json", {**values, "comparisons": comparisons})
    assert compare(*pair)[1] == []


def test_runs_without_a_common_question_are_left_out_with_the_reason(pair, capsys):
    file, graded = graded_of("two")
    write_table(file, graded.assign(question_id="other/" + graded["question_id"]), GRADED)
    tables, left_out = compare(*pair)
    assert set(tables["variants"]["of"]) == {TEST.replace("test", "train")}
    assert left_out == [f"{TEST}: no question is in both"]
    assert main(["compare", "one", "two"]) == 0
    said = capsys.readouterr().out
    assert f"left out: {TEST}: no question is in both" in said
    assert "of 0 rows" not in said


def test_a_run_s_base_is_compared_with_a_file_of_anyone_s(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made("alone", questions={"math_test": SMALL["questions"]["math_test"]}, selectors={})
    _, graded = graded_of("alone")
    base = graded[graded["variant"] == "base"].set_index("question_id")
    draw = np.random.default_rng(2)
    foreign = base["correct"] ^ (draw.random(len(base)) < 0.2)
    rows = pd.DataFrame({"id": base.index, "correct": foreign, "tokens": 7})
    rows.sample(frac=1, random_state=1).to_csv("theirs.csv", index=False)
    assert main(["compare", "alone", "theirs.csv", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert (
        "alone: run of headsweep in results/alone, reasoner, greedy, math_test, base, 90 questions"
        in said
    )
    (row,) = pd.read_csv("out/pairs.csv").itertuples()
    gained, lost = (foreign & ~base["correct"]).sum(), (base["correct"] & ~foreign).sum()
    assert (row.n, row.gained, row.lost) == (90, gained, lost)
    assert row.p == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
    tokens = pd.read_csv("out/systems.csv")["tokens"]
    assert list(tokens) == pytest.approx([base["tokens"].mean(), 7], abs=1e-6)


def test_a_run_of_several_batches_says_which_it_has(pair, capsys):
    pd.DataFrame({"id": ["a"], "correct": [True]}).to_csv("theirs.csv", index=False)
    assert main(["compare", "one", "theirs.csv"]) == 2
    said = capsys.readouterr().err
    assert "has 2 batches of greedy answers (reasoner, greedy, math_t" in said
    assert "compare two runs alone, or write one batch as CSV" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["one", "nine"],
            r"'nine' is not a run: .*; name one: results/apart, results/one,",
        ),
        (["one", "two", "--out", "one.txt/x"], "one.txt/x cannot be written"),
        (["one", "apart"], "nothing to compare: results/one has .*; results/apart has toy"),
        (["one", "reseeded"], "math_test: questions of different splits"),
        (["other", "other"], "toy, greedy, math_test: results/other/graded/.* is missing; run it"),
        (["one", "other"], "reasoner, greedy, math_test: results/other/graded/.* is missing"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(pair, arguments, message, capsys):
    Path("one.txt").touch()
    for run, text, change in (
        ("other", '"reasoner"', '"toy"'),
        ("reseeded", '"seed": 0', '"seed": 9'),
    ):
        values = (pair[0] / "config.json").read_text(encoding="utf-8").replace(text, change)
        write_json(Path(paths.CONFIG.format(run=run)), json.loads(values))
    apart = values.replace('"reasoner"', '"toy"').replace("builtin:reasoner", "owner/toy")
    write_json(Path(paths.CONFIG.format(run="apart")), json.loads(apart))
    assert main(["compare", *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)
