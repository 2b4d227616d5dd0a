"""Answers of anyone, compared: every number against another way to compute it."""

import json
import re
import shutil
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import headsweep
from headsweep.cli.compare_answers import ReadingRules, named, read_answers
from headsweep.cli.compare_output import told_of_best, told_of_pairs
from headsweep.cli.main import main
from headsweep.errors import ConfigError, TableError
from headsweep.grading import lm_eval, pool
from headsweep.results.facts import Source
from headsweep.results.systems import of_pairs
from headsweep.statistics.power import smallest_gain
from processes import python

LOGS = Path(__file__).with_name("lm_eval")
QUESTIONS, SAMPLES = 41, 5


@pytest.fixture(autouse=True, scope="module")
def ended():
    yield
    pool.close_kept()


def three(seed=3, questions=QUESTIONS):
    """Return frames of three systems, in different orders; the last gains most."""
    draw = np.random.default_rng(seed)
    ids = np.array([f"{place:03}" for place in range(questions)])
    base = draw.random(questions) < 0.5
    frames = {}
    for name, share in (("old", 0.0), ("new", 0.2), ("best", 0.4)):
        correct = np.where(draw.random(questions) < share, draw.random(questions) < 0.9, base)
        frame = pd.DataFrame({"question_id": ids, "correct": correct})
        frames[name] = frame.sample(frac=1, random_state=len(frames))
    return frames


def several(rate, seed):
    """Return a frame of several graded answers to each question, one of which has no answer."""
    draw = np.random.default_rng(seed)
    rows = [
        {"id": place, "sample": sample, "answer": str(draw.integers(1, 4)), "gold": "7"}
        for place in range(17)
        for sample in range(SAMPLES)
    ]
    frame = pd.DataFrame(rows)
    frame.loc[draw.random(len(frame)) < rate, "answer"] = "7"
    frame.loc[3, "answer"] = None
    return frame


def test_pairs_have_their_differences_intervals_and_exact_tests():
    frames = three()
    tables = headsweep.compare(frames)
    right = {name: each.set_index("question_id")["correct"] for name, each in frames.items()}
    pairs = tables["pairs"]
    assert list(zip(pairs["first"], pairs["second"], strict=True)) == [*combinations(frames, 2)]
    for row in pairs.itertuples():
        change = right[row.second].astype(int) - right[row.first].astype(int)
        gained, lost = (change == 1).sum(), (change == -1).sum()
        assert (row.n, row.gained, row.lost, row.test) == (41, gained, lost, "McNemar")
        assert row.difference == pytest.approx(change.mean())
        assert row.p == pytest.approx(stats.binomtest(gained, gained + lost).pvalue)
        # Bonett and Price 2012, equation 2
        p12, p21 = (lost + 1) / 43, (gained + 1) / 43
        half = stats.norm.ppf(0.975) * np.sqrt((p12 + p21 - (p12 - p21) ** 2) / 43)
        assert [row.low, row.high] == pytest.approx([p21 - p12 - half, p21 - p12 + half])
    smallest, middle, largest = pairs.sort_values("p").itertuples()
    assert smallest.holm == pytest.approx(3 * smallest.p)
    assert middle.holm == pytest.approx(max(smallest.holm, 2 * middle.p))
    assert largest.holm == pytest.approx(max(middle.holm, largest.p))
    for row in tables["systems"].itertuples():
        result = stats.binomtest(int(right[row.system].sum()), 41)
        ends = result.proportion_ci(method="wilson")
        assert [row.accuracy, row.low, row.high] == pytest.approx([result.statistic, *ends])


def test_votes_are_one_whether_answers_are_graded_before_or_here(tmp_path):
    answers = [r"\boxed{1/2}", r"\boxed{0.5}", r"\boxed{3}", r"\boxed{3}", "none", r"\boxed{x}"]
    rows = [
        {"id": place // 3, "sample": place % 3, "answer": answer, "gold": "3"}
        for place, answer in enumerate(answers)
    ]
    file, out = tmp_path / "mine.csv", tmp_path / "graded.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    assert main(["grade", str(file), "--out", str(out)]) == 0
    here, before = (read_answers(str(each), ReadingRules())[0] for each in (file, out))
    pd.testing.assert_frame_equal(here, before)
    assert here["label"].nunique() == 3  # 1/2, 3 and x


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"id": [7, None]}, "mine row 2 has no id; give each question an id"),
        ({"id": [["a"], "b"]}, r"mine row 1: id holds \['a'\]; write one text in each cell"),
        ({"answer": [np.array(["1", "2"]), "1"]}, r"mine row 1: answer holds .*a row for each"),
    ],
)
def test_a_cell_that_is_no_text_is_named(cells, said):
    frame = pd.DataFrame({"id": ["a", "b"], "answer": ["1", "2"], "gold": ["1", "1"]} | cells)
    with pytest.raises(TableError, match=said) as refused:
        headsweep.compare({"mine": frame, "yours": frame})
    assert "\n" not in str(refused.value)


def test_the_best_of_several_is_judged_against_luck_and_on_held_out_halves():
    frames = three(questions=301)
    (row,) = headsweep.compare(frames)["best"].itertuples()
    right = {name: each["correct"].mean() for name, each in frames.items()}
    assert (row.baseline, row.best, row.others) == ("old", "best", 2)
    assert row.gain == pytest.approx(right["best"] - right["old"])
    assert 0 < row.by_chance < row.gain / 2
    assert row.p < 0.01
    assert row.low < row.held_out < row.high
    assert row.held_out == pytest.approx(row.gain, abs=0.02)
    assert "best" not in headsweep.compare({name: frames[name] for name in ("old", "new")})


def frame_of(outcomes):
    return pd.DataFrame({"id": range(len(outcomes)), "correct": outcomes})


def test_where_all_others_clearly_lose_no_luck_is_told():
    frames = {"best": frame_of([1] * 100), "b": frame_of([1] * 70 + [0] * 30)}
    frames["c"] = frame_of([0] * 30 + [1] * 70)
    best = headsweep.compare(frames)["best"]
    assert best["by_chance"].isna().all()
    told = str(told_of_best(Source("best.csv", best)))
    assert "−30.0 points over best, the most of 2. That none of them gains: p = 1.000." in told
    assert "by chance" not in told and "nan" not in told


def test_a_difference_that_the_test_does_not_show_is_told_with_its_p():
    first = [0] * 20 + [1] * 9 + [1] * 71
    second = [1] * 20 + [0] * 9 + [1] * 71
    pairs = headsweep.compare({"a": frame_of(first), "b": frame_of(second)})["pairs"]
    assert pairs["low"].item() > 0 and pairs["p"].item() > 0.05
    told = str(told_of_pairs(Source("pairs.csv", pairs)))
    start = "b and a are not shown to differ: +11.0 (+0.3 to +21.3) points, p = 0.061."
    assert told.startswith(start)
    # The other way round, the interval decides; and of several pairs only those count that pass
    # both.
    several = pd.concat([pairs.assign(p=0.01, holm=0.01, low=low) for low in (-0.01, 0.01, 0.02)])
    source = Source("pairs.csv", several.reset_index(drop=True))
    assert str(told_of_pairs(source)).startswith("2 of 3 differences are more than chance")
    (alone, *_) = source
    assert "p = " not in str(told_of_pairs(alone))
    assert "not shown to differ" in str(told_of_pairs(alone))


def test_a_baseline_without_tokens_has_no_comparison_at_equal_tokens():
    frames = {"one": several(0.4, 1).assign(tokens=0), "two": several(0.6, 2).assign(tokens=5)}
    assert "equal_tokens" not in headsweep.compare(frames, final=True)


def test_several_answers_that_are_all_right_have_wilson_s_interval():
    frames = {
        name: pd.concat([frame_of([1] * 20).assign(sample=sample) for sample in range(4)])
        for name in ("a", "b")
    }
    tables = headsweep.compare(frames)
    low = stats.binomtest(20, 20).proportion_ci(method="wilson").low
    ends = pd.concat([tables["systems"]["low"], tables["samples"]["pass_low"]])
    assert ends.to_numpy() == pytest.approx(low)
    assert (tables["samples"]["pass_high"] == 1).all()


def test_the_luck_of_the_best_of_many_equal_systems_is_no_gain():
    draw = np.random.default_rng(8)
    ids = range(61)
    frames = {
        f"try{number}": pd.DataFrame({"id": ids, "correct": draw.random(61) < 0.5})
        for number in range(9)
    }
    (row,) = headsweep.compare(frames)["best"].itertuples()
    assert row.by_chance > 0.05
    assert row.gain < 2 * row.by_chance
    assert row.p > 0.05
    assert row.low < 0


def test_several_answers_have_pass_and_vote_at_k_and_their_paired_differences():
    frames = {"one": several(0.4, 1), "two": several(0.6, 2)}
    tables = headsweep.compare(frames, final=True)
    found = tables["samples"].set_index(["system", "k"])
    assert len(found) == 2 * SAMPLES
    for name, frame in frames.items():
        answers = frame["answer"].to_numpy().reshape(17, SAMPLES)
        right = (answers == "7").sum(axis=1)
        for k in range(1, SAMPLES + 1):
            row = found.loc[name, k]
            solved = [1 - comb(SAMPLES - each, k) / comb(SAMPLES, k) for each in right]
            assert row["pass_at_k"] == pytest.approx(np.mean(solved))
            voted = [np.mean([*map(vote, combinations(own, k))]) for own in answers]
            assert row["vote_at_k"] == pytest.approx(np.mean(voted))
            assert row["pass_low"] <= row["pass_at_k"] <= row["pass_high"]
    (pair,) = tables["pairs"].itertuples()
    assert pair.test == "paired"
    at_one = tables["samples_pairs"].query("k == 1").set_index("of")["difference"]
    assert at_one["pass@k"] == pytest.approx(pair.difference)
    gap = found["vote_at_k"]["two"] - found["vote_at_k"]["one"]
    votes = tables["samples_pairs"].query("of == 'vote@k'").set_index("k")["difference"]
    assert votes.to_numpy() == pytest.approx(gap.to_numpy())


def solved(answers, k):
    """Return the chance that one of k drawn answers is right, for each question."""
    right = (answers == "7").sum(axis=1)
    return np.array([1 - comb(SAMPLES - count, k) / comb(SAMPLES, k) for count in right])


def test_tokens_are_told_and_answers_compared_where_they_take_as_many():
    frames = {"cheap": several(0.4, 1), "dear": several(0.6, 2).sample(frac=1, random_state=0)}
    prices = {"cheap": 10, "dear": 20}
    for name, frame in frames.items():
        frame["tokens"] = prices[name]
    tables = headsweep.compare(frames, final=True)
    assert list(tables["systems"]["tokens"]) == [10, 20]
    found = tables["equal_tokens"].set_index(["of", "answers"])
    assert [answers for of, answers in found.index if of == "pass@k"] == [2, 4]
    cheap, dear = (
        frame.sort_values(["id", "sample"])["answer"].to_numpy().reshape(17, SAMPLES)
        for frame in frames.values()
    )
    for budget in (2, 4):
        row = found.loc["pass@k", budget]
        gap = solved(dear, budget // 2) - solved(cheap, budget)
        assert (row["first"], row["second"], row["tokens"]) == ("cheap", "dear", 10 * budget)
        assert row["difference"] == pytest.approx(gap.mean())
        assert row["low"] < gap.mean() < row["high"]
        assert row["p"] == row["holm"]
    assert ("vote@k", 2) in found.index


def test_tokens_that_only_some_tell_are_compared_by_none():
    frames = {"one": several(0.4, 1).assign(tokens=5), "two": several(0.6, 2)}
    tables = headsweep.compare(frames, final=True)
    assert "equal_tokens" not in tables
    assert list(tables["systems"]["tokens"].isna()) == [False, True]
    once = {name: frame.assign(tokens=9) for name, frame in three().items()}
    assert "equal_tokens" not in headsweep.compare(once)  # one answer each: nothing to even out


def vote(answers):
    """Return the chance that 7 wins a vote in which None has none."""
    counts = pd.Series(answers).value_counts()
    leading = counts.index[counts == counts.max()] if len(counts) else []
    return ("7" in leading) / max(1, len(leading))


def test_a_luck_of_shares_is_that_of_counts_and_one_sample_is_no_sample():
    frames = three()
    twice = {
        name: pd.concat([each.assign(sample=sample) for sample in "ab"])
        for name, each in frames.items()
    }
    once, again = headsweep.compare(frames), headsweep.compare(twice)
    pd.testing.assert_frame_equal(once["best"], again["best"])
    columns = ["n", "gained", "lost", "difference", "low", "high"]
    pd.testing.assert_frame_equal(once["pairs"][columns], again["pairs"][columns])
    assert "samples" not in once


def simulated(gain, changed, columns, questions=150):
    draw = np.random.default_rng(5)
    chances = [(changed - gain) / 2, 1 - changed, (changed + gain) / 2]
    return draw.choice([-1, 0, 1], p=chances, size=(questions, columns))


def test_pairing_shows_what_an_unpaired_test_does_not():
    right, changed, columns = 0.6, 0.05, 800
    gain = smallest_gain(150, changed, 1)
    differences = simulated(gain, changed + gain, columns)
    found = of_pairs(differences, [True] * columns)
    # the outcomes that do not change are right by 0.6
    draw = np.random.default_rng(6)
    first = np.where(differences, differences < 0, draw.random(differences.shape) < right)
    second = first + differences
    share = (first.mean(axis=0) + second.mean(axis=0)) / 2
    error = np.sqrt(2 * share * (1 - share) / len(first))
    unpaired = np.abs(second.mean(axis=0) - first.mean(axis=0)) / error > stats.norm.ppf(0.975)
    assert 0.75 < (found["p"] < 0.05).mean() < 0.87
    assert unpaired.mean() < 0.6


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_files_of_each_kind_are_read_as_they_are(suffix, tmp_path):
    frames, files = three(), {}
    for name, frame in frames.items():
        files[name] = tmp_path / f"{name}{suffix}"
        if suffix == ".csv":
            frame.to_csv(files[name], index=False)
        elif suffix == ".jsonl":
            frame.to_json(files[name], orient="records", lines=True)
        else:
            frame.to_parquet(files[name])
    for name, table in headsweep.compare(frames).items():
        pd.testing.assert_frame_equal(table, headsweep.compare(files)[name])


def test_whole_numbers_of_a_parquet_file_stay_whole_where_others_are_missing(tmp_path):
    file = tmp_path / "mine.parquet"
    rows = {"id": [1, 2, 3], "answer": pd.array([12, None, 7], "Int64"), "gold": ["12", "5", "7"]}
    pd.DataFrame(rows).to_parquet(file)
    answers = read_answers(str(file), ReadingRules("exact", final=True)).answers
    assert answers["correct"].tolist() == [True, False, True]


def test_a_single_question_is_told_in_the_singular(tmp_path):
    (tmp_path / "mine.csv").write_text("id,correct\n1,1\n")
    assert (
        "csv, 1 question, right or wrong as given"
        in read_answers(str(tmp_path / "mine.csv"), ReadingRules()).told
    )


@pytest.mark.parametrize("samples", [1000, 1001])
def test_votes_of_a_thousand_answers_are_counted_and_more_are_refused(samples):
    rows = [("1", place, place % 2 == 0, f"{place % 2}") for place in range(samples)]
    names = ["question_id", "sample", "correct", "final_answer"]
    frame = pd.DataFrame(rows, columns=names)
    frames = {"old": frame, "new": frame}
    if samples == 1000:
        assert headsweep.compare(frames)
        return
    with pytest.raises(ConfigError, match="old has 1,001 answers to each question; give 1,000 at"):
        headsweep.compare(frames)


def test_answers_are_graded_where_they_lie():
    golds = [rf"\frac{{{place}}}{{3}}" for place in range(13)]
    answers = [rf"so \boxed{{{place + place % 4 // 3}/3}}" for place in range(13)]
    texts = pd.DataFrame({"doc_id": range(13), "answer": answers, "gold": golds})
    given = pd.DataFrame({"id": range(13), "correct": [place % 4 < 3 for place in range(13)]})
    (row,) = headsweep.compare({"given": given, "graded": texts})["pairs"].itertuples()
    assert (row.n, row.gained, row.lost) == (13, 0, 0)
    assert row.p == 1


def test_questions_that_not_all_have_are_left_out_only_if_that_is_asked_for():
    frames = three()
    frames["new"] = frames["new"][frames["new"]["question_id"] >= "004"]
    with pytest.raises(
        ConfigError, match=r"old has 4 questions .* as 000, 001, 002; give --common"
    ):
        headsweep.compare(frames)
    assert set(headsweep.compare(frames, common=True)["pairs"]["n"]) == {37}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": "yes"}, "two: `correct` holds 'yes'; write true or false"),
        ({"correct": 0.5}, "two: `correct` holds 0.5"),
        ({"tokens": "many"}, "two: `tokens` holds 'many'; write a number"),
        ({"tokens": 1e308}, r"two: `tokens` holds 1e\+308; write a number from 0 to 1e9"),
        ({"tokens": -1}, "two: `tokens` holds -1"),
        ({"id": 1}, "two has question '1' twice; .* a column `sample`"),
        ({"id": ["0", " ", "2"]}, "two row 2 has no id; give each question an id"),
        ({"id": 1, "sample": [0, 1, 0]}, "two has question '1' twice"),
        ({"id": [1, 1, 2], "sample": [0, 1, 0]}, "2 answers to question '1', but 1 to '2'"),
        ({"id": [0, 1, 9]}, "one has 1 questions that not all have, as 2; give --common"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, message):
    frame = pd.DataFrame({"id": range(3), "correct": [1, 0, 1]})
    with pytest.raises((ConfigError, TableError), match=message):
        headsweep.compare({"one": frame, "two": frame.astype(object).assign(**change)})


def test_the_same_id_with_other_gold_answers_is_not_paired():
    one = pd.DataFrame({"id": range(3), "answer": ["1", "2", "3"], "gold": ["1", "2", "4"]})
    two = one.assign(gold=["1", "9", "4"])
    with pytest.raises(ConfigError, match="question '1' has the gold answers '2' and '9'; the"):
        headsweep.compare({"one": one, "two": two}, grader="numeric")
    headsweep.compare({"one": one, "two": one.assign(gold=["1 ", "2", "4"])}, grader="numeric")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--grader numeric --final", "--grader and --final would be ignored: all systems say them"),
        ("--metric acc", "--metric would be ignored: no system is a folder of lm_eval's"),
    ],
)
def test_options_without_effect_are_refused(options, message, tmp_path, capsys):
    files = [str(tmp_path / f"{name}.csv") for name in ("one", "two")]
    for file in files:
        pd.DataFrame({"id": range(3), "correct": [1, 0, 1]}).to_csv(file, index=False)
    assert main(["compare", *files, *options.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_name_loses_only_a_known_suffix():
    given = ["runs/Qwen2.5-0.5B", "a/old.csv", "a/new.jsonl", "b/v1.2.parquet", "c.d/lm.eval"]
    names = ["Qwen2.5-0.5B", "old", "new", "v1.2", "lm.eval"]
    assert named(given) == dict(zip(names, given, strict=True))


def test_columns_that_are_missing_are_named():
    frame = pd.DataFrame({"id": range(3), "correct": [1, 0, 1]})
    with pytest.raises(TableError, match="two has no column question_id or id or doc_id, only key"):
        headsweep.compare({"one": frame, "two": frame.rename(columns={"id": "key"})})
    with pytest.raises(TableError, match="neither `correct` nor `answer` and `gold`, only id, ok"):
        headsweep.compare({"one": frame, "two": frame.rename(columns={"correct": "ok"})})
    with pytest.raises(ConfigError, match="1 system named"):
        headsweep.compare({"one": frame})
    with pytest.raises(ConfigError, match="no question is in all"):
        headsweep.compare({"one": frame, "two": frame.assign(id=[7, 8, 9])})


def test_the_command_says_what_it_read_and_writes_tables(tmp_path, capsys):
    files = []
    for name, frame in three().items():
        files.append(str(tmp_path / f"{name}<b>.csv"))
        frame.to_csv(files[-1], index=False)
    out = tmp_path / "out"
    assert main(["compare", *files, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"csv, 41 questions, right or wrong as given", said)) == 3
    assert "by chance alone" in said
    assert re.search(r"\d of 3 differences are more than chance", said)
    for name, table in headsweep.compare(three()).items():
        found = pd.read_csv(out / f"{name}.csv")
        assert list(found) == list(table)
        assert len(found) == len(table)


def test_bare_answers_are_told_from_wrong_ones(tmp_path, capsys):
    bare = pd.DataFrame({"id": range(7), "answer": list("1234567"), "gold": list("1234789")})
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for file in files:
        bare.to_csv(file, index=False)
    assert main(["compare", *map(str, files)]) == 0
    assert "no answer is found in 7 of 7: if they are bare, --final" in capsys.readouterr().out
    assert main(["compare", "--final", *map(str, files)]) == 0
    said = capsys.readouterr().out
    assert "no answer is found" not in said and "57.1" in said


def test_comparing_loads_no_torch(tmp_path):
    frame = three()["old"]
    for name in "ab":
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    words = ["compare", *(str(tmp_path / f"{name}.csv") for name in "ab"), "--out", str(tmp_path)]
    code = f"import sys; from headsweep.cli.main import main; main({words!r}); print(*sys.modules)"
    found = python("-c", code).split()
    assert "pandas" in found
    assert not {"torch", "transformers", "sklearn"} & {*found}


@pytest.fixture
def logged(tmp_path):
    """Folders of lm_eval 0.4.13: a small real model, without and with worked examples."""
    for name in ("sums0", "sums3"):
        shutil.copytree(LOGS / name, tmp_path / name)
    return [str(tmp_path / name) for name in ("sums0", "sums3")]


def test_logs_of_lm_eval_are_compared_by_the_metric_that_is_named(logged, capsys):
    assert main(["compare", *logged, "--metric", "acc", "--out", logged[0] + "-out"]) == 0
    assert "lm_eval 0.4.13, sums, acc (none), 24 questions" in capsys.readouterr().out
    told = []
    for folder in logged:
        (file,) = Path(folder).rglob("results_*.json")
        told.append(json.loads(file.read_text(encoding="utf-8"))["results"]["sums"]["acc,none"])
    systems = pd.read_csv(Path(logged[0] + "-out") / "systems.csv")
    assert list(systems["accuracy"]) == pytest.approx(told)
    assert main(["compare", *logged]) == 2
    assert "there are 2 metrics in" in capsys.readouterr().err
    assert main(["compare", *logged, "--metric", "f1"]) == 2
    assert "metric 'f1' is not in" in capsys.readouterr().err


@pytest.fixture
def told(tmp_path):
    """Likewise of a `generate_until` task with three filters and three answers to each question."""
    for name in ("told2", "told8"):
        shutil.copytree(LOGS / name, tmp_path / name)
    return [str(tmp_path / name) for name in ("told2", "told8")]


def test_a_filter_of_lm_eval_is_named_where_there_are_several(told, capsys):
    assert main(["compare", *told]) == 2
    assert "name one by --metric-filter: strict, flexible, vote" in capsys.readouterr().err
    for name in ("strict", "vote"):
        assert main(["compare", *told, "--metric-filter", name, "--out", told[0] + "-out"]) == 0
        assert f"exact_match ({name}) of 3 answers each;" in capsys.readouterr().out
        systems = pd.read_csv(Path(told[0] + "-out") / "systems.csv")
        assert list(systems["accuracy"]) == pytest.approx([logged_rate(f, name) for f in told])


def logged_rate(folder, name):
    (file,) = Path(folder).rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))["results"]
    return results["told"][f"exact_match,{name}"]


def test_all_answers_of_lm_eval_s_repeats_are_graded_here(told):
    tables = headsweep.compare(dict(zip("ab", told, strict=True)), metric="resps", grader="numeric")
    assert list(tables["systems"]["samples"]) == [3, 3]
    for folder, accuracy in zip(told, tables["systems"]["accuracy"], strict=True):
        (file,) = Path(folder).rglob("samples_*.jsonl")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        right = [
            re.findall(r"\d+", answer)[-1:] == [row["target"]]
            for row in rows
            if row["filter"] == "vote"
            for answer in row["resps"][0]
        ]
        assert len(right) == 66
        assert accuracy == pytest.approx(np.mean(right))
    assert {"samples", "samples_pairs"} <= {*tables}


def test_a_target_of_gsm8k_is_the_number_behind_its_solution(told):
    (file,) = Path(told[1]).rglob("samples_*.jsonl")
    text = file.read_text(encoding="utf-8")
    before = headsweep.compare(dict(zip("ab", told, strict=True)), metric="resps", grader="gsm8k")
    file.write_text(text.replace('"target": "', '"target": "12 + 1 = 13\\n#### '), encoding="utf-8")
    after = headsweep.compare(dict(zip("ab", told, strict=True)), metric="resps", grader="gsm8k")
    pd.testing.assert_frame_equal(before["systems"], after["systems"])


def test_a_folder_of_lm_eval_with_several_models_is_no_system(logged, capsys):
    both = Path(logged[0]).with_name("both")
    for number, folder in enumerate(logged):
        shutil.copytree(folder, both / f"model-{number}")
    assert main(["compare", str(both), logged[0], "--metric", "acc"]) == 2
    told = capsys.readouterr().err
    assert "both has results of several models; name a folder of one, such as" in told


def test_folders_of_lm_eval_that_were_asked_other_questions_are_refused(logged, capsys):
    (file,) = Path(logged[1]).rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    ids = [row["doc_id"] for row in rows]
    for row, other in zip(rows, reversed(ids), strict=True):
        row["doc_id"] = other
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["compare", *logged, "--metric", "acc"]) == 2
    told = capsys.readouterr().err
    assert "question 'sums/" in told and "let lm_eval answer the same questions" in told


def test_each_task_of_lm_eval_is_compared_by_the_first_metric_named_that_it_has(logged, told):
    for folder, other in zip(logged, told, strict=True):
        for pattern in ("samples_*.jsonl", "results_*.json"):
            (file,) = Path(other).rglob(pattern)
            shutil.copy(file, folder)
    rules = {"metric": "exact_match,acc", "metric_filter": "vote,none"}
    tables = headsweep.compare(dict(zip("ab", logged, strict=True)), **rules)
    assert list(tables["systems"]["n"]) == [24 + 22, 24 + 22]


def test_several_right_answers_of_lm_eval_are_not_graded_here(told, capsys):
    (file,) = Path(told[1]).rglob("samples_*.jsonl")
    text = re.sub(r'"target": ("[^"]*")', r'"target": [\1, "six"]', file.read_text("utf-8"))
    file.write_text(text, encoding="utf-8")
    assert main(["compare", *told, "--metric", "resps", "--grader", "numeric"]) == 2
    assert "question 0 has several right answers" in capsys.readouterr().err


def test_a_multiple_choice_has_no_answers_to_grade(logged, capsys):
    assert main(["compare", *logged, "--metric", "resps"]) == 2
    assert "lacks ['resps'], which has the answers" in capsys.readouterr().err
    (file,) = Path(logged[0]).rglob("samples_*.jsonl")
    scores = ', "resps": [[[-1.5, "False"]], [[-2.5, "False"]]]}\n'
    text = file.read_text(encoding="utf-8").replace("}\n", scores)
    file.write_text(text, encoding="utf-8")
    assert main(["compare", *logged, "--metric", "resps"]) == 2
    assert "the answers to question 0 are no texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.unlink(), "cannot be read .* keep it beside samples_sums"),
        (lambda file: file.write_text("{}"), "is of lm_eval None; 0.4 is read"),
    ],
)
def test_logs_of_an_unknown_version_are_refused(change, message, logged, capsys):
    change(next(Path(logged[1]).rglob("results_*.json")))
    assert main(["compare", *logged, "--metric", "acc"]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": None}, r"jsonl row 2 has the filter 'none' and the metrics None; give a CSV"),
        ({"metrics": ...}, r"jsonl row 2 has the filter 'none' and the metrics nan; give a CSV"),
        ({"filter": ["none"]}, r"jsonl row 2 has the filter \['none'\] and the metrics \['acc'\]"),
        ({"acc": ...}, r"jsonl has no value of its metric 'acc'; give a CSV instead"),
    ],
)
def test_rows_that_do_not_say_their_metric_are_refused(change, message, tmp_path):
    time = "2026-01-01T00-00-00.000000"
    row = {"doc_id": 0, "filter": "none", "metrics": ["acc"], "acc": 1.0}
    changed = {name: value for name, value in (row | change).items() if value is not ...}
    rows = [row, changed] if "acc" not in change else [changed]
    lines = "".join(json.dumps(each) + "\n" for each in rows)
    (tmp_path / f"samples_sums_{time}.jsonl").write_text(lines)
    (tmp_path / f"results_{time}.json").write_text('{"lm_eval_version": "0.4.9"}')
    with pytest.raises(TableError, match=message):
        read_answers(str(tmp_path), ReadingRules())


def test_versions_0_4_of_lm_eval_are_read_with_their_patches_and_what_git_adds():
    known = ["0.4.9", "0.4.10", "0.4.9.1", "0.4.10.dev0", "0.4.9.dev0+g1a2b3c4"]
    others = ["0.5.0", "1.0.0", "0.4.9+", "1.0.4.9", "0.4.9 or so"]
    assert [version for version in known + others if lm_eval._KNOWN.fullmatch(version)] == known


def test_a_folder_without_logs_and_one_of_two_runs_are_refused(logged, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["compare", str(tmp_path / "empty"), logged[0]]) == 2
    assert "neither a run of headsweep nor a folder of lm_eval" in capsys.readouterr().err
    (file,) = Path(logged[0]).rglob("samples_*.jsonl")
    shutil.copy(file, file.with_name(re.sub(r"_\d{4}-", "_2001-", file.name)))
    assert main(["compare", *logged, "--metric", "acc"]) == 2
    assert "has task sums of several runs" in capsys.readouterr().err


def test_logs_of_lm_eval_have_the_names_of_its_output_path_and_of_any_second(logged, capsys):
    """Of ``--output_path x.json``, at a time without microseconds, by a version from git."""
    version = "0.4.9.dev0+g1a2b3c4"
    assert main(["compare", *logged, "--metric", "acc", "--out", logged[0] + "-out"]) == 0
    before = Path(logged[0] + "-out", "systems.csv").read_bytes()
    for folder in map(Path, logged):
        for file in folder.iterdir():
            name = re.sub(r"\.\d{6}\.json", ".json", file.name).replace("results_", "x_")
            text = re.sub(r'("lm_eval_version": )"[^"]*"', rf'\1"{version}"', file.read_text())
            file.rename(folder / name).write_text(text, encoding="utf-8")
    assert main(["compare", *logged, "--metric", "acc", "--out", logged[0] + "-out"]) == 0
    assert f"lm_eval {version}, sums, acc (none), 24 questions" in capsys.readouterr().out
    assert Path(logged[0] + "-out", "systems.csv").read_bytes() == before


def test_the_hash_of_lm_eval_s_documents_tells_other_questions_of_equal_answers(logged, capsys):
    (file,) = Path(logged[1]).rglob("samples_*.jsonl")
    text = file.read_text(encoding="utf-8")
    changed = re.sub(r'"doc_hash": "\w{4}', '"doc_hash": "0000', text, count=1)
    file.write_text(changed, encoding="utf-8")
    assert main(["compare", *logged, "--metric", "acc"]) == 2
    assert "has the hashes of lm_eval's (doc_hash) '" in capsys.readouterr().err
    file.write_text(re.sub(r'"doc_hash": "\w*", ', "", text), encoding="utf-8")
    assert main(["compare", *logged, "--metric", "acc", "--out", logged[0] + "-out"]) == 0


def test_whole_numbers_are_ids_with_and_without_a_decimal_point():
    one = pd.DataFrame({"id": [0.0, 1.0, 12.0], "correct": [1, 0, 1]})
    two = pd.DataFrame({"id": ["12", "0", "1"], "correct": [1, 1, 0]})
    tables = headsweep.compare({"one": one, "two": two})
    assert list(tables["systems"]["n"]) == [3, 3]
    assert list(tables["pairs"]["difference"]) == [0.0]
    with pytest.raises(ConfigError, match="no question is in all"):
        headsweep.compare({"one": one.assign(id=["0.0", "1.0", "1.5"]), "two": two})
