from typing import get_args

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import example_config
import simulation
from headsweep.config.experiments import changed
from headsweep.config.questions import Published
from headsweep.errors import TableError
from headsweep.results import paper_differences
from headsweep.results.facts import Cell, Source, cells_of, read_csv
from headsweep.results.gains import cells
from headsweep.results.published import EXHIBITS, SIZES, beside
from headsweep.statistics.intervals import wilson
from headsweep.text import plain, points, wrapped
from headsweep.variants import BASE, heads
from simulation import PUBLISHED


def of_shape(layers, query_heads, subjects=simulation.SUBJECTS, n=97, seed=5):
    variants = [BASE, *heads(layers, range(query_heads))]
    names = list(map(str, variants))
    z = simulation.simulated_z(n, names, np.random.default_rng(seed), subjects)
    return cells(z, variants)


def published(source, layers, benchmark="math500", **more):
    """Return cells of a sweep of 12 heads a layer on MATH-500's subjects, published ones beside."""
    questions = {"test": {"benchmark": benchmark, "n": 500}}
    config = example_config.config(models={"big": {"source": source, **more}}, questions=questions)
    subjects = np.repeat(list(SIZES), list(SIZES.values())).tolist()
    return beside(config, "table", of_shape(layers, 12, subjects, 500, seed=7), PUBLISHED)


def test_text_is_put_on_one_line_and_cells_are_written_as_declared_but_for_empty_columns():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert [points(each / 1e4) for each in (-4, 0, 4, -126)] == ["0.0", "0.0", "0.0", "−1.3"]
    table = pd.DataFrame(
        {"of": ["a", "<b>"], "x": [0.12, np.nan], "low": [-0.0001, np.nan], "high": [0.25, np.nan]}
    ).assign(none=np.nan, n=[1234, 5])
    declared = {
        "name": Cell("of"),
        "share": Cell("x", "part"),
        "gain": Cell("x", "points", low="low", high="high"),
        "no": Cell("none", "p"),
        "n": Cell("n", "count"),
        "y": Cell("y", "p"),
    }
    titles, rows = cells_of(Source("a.csv", table), declared)
    assert titles == ["name", "share", "gain", "n"]
    assert [list(map(str, row)) for row in rows] == [
        ["a", "12.0", "+12.0 (0.0 to +25.0)", "1,234"],
        ["<b>", "", "", "5"],
    ]


def test_a_file_without_its_columns_is_refused(tmp_path):
    path = tmp_path / "prompts.csv"
    with pytest.raises(TableError, match="is missing"):
        read_csv(path, ["grading"])
    path.write_text("decoding,n\ngreedy,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"columns .*'grading'.* are missing"):
        read_csv(path, ["grading"])


def test_every_accuracy_has_its_wilson_interval():
    for row in of_shape([2, 4], 3).itertuples():
        ends = stats.binomtest(row.correct, row.n).proportion_ci(method="wilson")
        assert (row.low, row.high) == pytest.approx((ends.low, ends.high), abs=1e-5)


def test_published_cells_stand_beside_the_reproduced_ones():
    found = published("./copies/Qwen2.5-Math-1.5B-Instruct", [0, 1, 15, 21])
    told = found.dropna(subset="published")
    assert sorted(set(told["layer"].dropna())) == [0, 15, 21]  # layer 1 is not in the paper
    by = found.set_index(["layer", "head", "group"])
    cell = by.loc[(15, 0, "Counting & Probability")]
    assert cell[["published_n", "published_correct", "exhibit"]].tolist() == [38, 30, "Table 2"]
    assert cell["difference"] == pytest.approx(cell["accuracy"] - 30 / 38)
    ours, theirs = (wilson(np.array([k]), np.array([38])) for k in (cell["correct"], 30))
    low = cell["difference"] - np.hypot(cell["accuracy"] - ours[0], theirs[1] - 30 / 38)
    assert cell["difference_low"] == pytest.approx(low[0])
    assert set(told.loc[told["layer"] == 21, "exhibit"]) == {"Figure 5"}
    assert (found["difference"].isna() == found["published"].isna()).all()
    assert np.isnan(by.loc[(21, 11, "Overall"), "published"])  # 6 of 7 subjects are legible
    row = told[(told["group"] == "Overall") & told["head"].notna()].iloc[1]
    parts = found[(found["layer"] == row["layer"]) & (found["head"] == row["head"])]
    right = parts.loc[parts["by"] == "subject", "published_correct"]
    assert row["published_correct"] == right.sum()
    base = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5, 15, 27]).query("variant == 'base'")
    told = base.set_index("group")["published_correct"]
    assert (len(told), told["Algebra"]) == (13, round(0.91 * SIZES["Algebra"]))
    assert np.isnan(told["Intermediate Algebra"])  # 0.58 at three layers, 0.57 at layer 27
    for source, layers, benchmark in (  # what the paper has not
        ("Qwen/Qwen2.5-Math-1.5B", [0, 5], "math500"),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", [1, 2], "math500"),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5], "generated_math"),
    ):
        assert published(source, layers, benchmark)["published"].isna().all()


def test_beside_published_numbers_stands_what_differs_here():
    own = "./models/Qwen2.5-Math-1.5B-Instruct"
    shape = {"layers": 28, "heads": 12, "kv_heads": 2, "billions": 1.5}
    sweep = {"model": "big", "questions": "test", "layers": [0, 21], "heads": "all"}

    def told(model, decoding, n, **more):
        return paper_differences.of_sweep(
            example_config.config(
                models={"big": {"source": own, **shape, **model}},
                decodings={"greedy": decoding},
                questions={"test": {"benchmark": "math500", "n": n}},
                sweeps={"table": {**sweep, **more}},
            ),
            "table",
        )

    like = {"dtype": "float16", "attention": "flash_attention_2"}
    assert told(like, {"prompt": "authors"}, None, grading="authors") == "Settings are the paper's."
    found = told({"dtype": "float32"}, {}, 40, layers=[0, 3, 4])
    assert found == (
        "No replication: prompt default, not authors; grading default, not authors; precision "
        "float32, not float16; attention sdpa, not flash_attention_2; layers 3, 4 are not printed; "
        "40 of its 500 questions."
    )
    exact = {"prompt": "authors"}
    some = told(like, exact, 500, grading="authors", heads=[2])
    assert some == "No replication: 2 of 24 heads."
    training = told(like, exact, None, grading="authors", questions="train")
    assert training == "No replication: questions are MATH."
    other = told({"source": "./models/own"}, {}, None)
    assert other == "big is no model of the paper."
    beside_it = {"source": "./models/own", "beside": "Qwen2.5-Math-1.5B-Instruct"}
    found = told(beside_it, {"prompt": "authors"}, None)
    assert found.startswith(
        "No replication: the model is big, not Qwen2.5-Math-1.5B-Instruct; grading default, "
    )


def test_a_model_takes_the_printed_numbers_of_the_one_it_is_to_stand_beside():
    assert set(get_args(Published)) == set(EXHIBITS)
    own = published("./own", [0, 5, 15, 27], beside="Qwen2.5-Math-1.5B-Instruct")
    theirs = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5, 15, 27])
    assert own["published"].notna().sum() > 150
    pd.testing.assert_frame_equal(own, theirs)


def test_a_solver_of_one_s_own_beside_the_paper_s_numbers_is_called_no_replication():
    config = simulation.whole()
    table = pd.DataFrame({"compression": ["asdiv", "lone"], "published_accuracy": [0.859, np.nan]})
    told = paper_differences.of_table(config, table)
    assert told.startswith("No replication: ASDiv-A has an encoder of 3 layers, trained here, for")
    assert paper_differences.of_table(config, table.assign(published_accuracy=np.nan)) == ""
    assert "norm and entropy are scaled to [0, 1]" in told and "summed over keys" in told
    assert "scored on 512 problems" in told
    literal = {"entropy": "raw", "scale": "raw", "calibration": None}
    printed = {"importance": literal, "distillation": {"reduction": "literal"}}
    printed["training"] = {"patience": 5}
    study = config.compressions["asdiv"]
    method = changed(study.method, printed)
    study = study.model_copy(update={"method": method})
    config = config.model_copy(update={"compressions": {"asdiv": study}})
    told = paper_differences.of_compression(config, "asdiv")
    assert told.endswith("decoder, training and division of the data are this project's.")
