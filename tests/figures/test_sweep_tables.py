import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex_document import HOSTILE, typeset
from scipy import stats

import simulation
from headroom.analysis.gains import cells
from headroom.analysis.jobs import COMPARISON
from headroom.analysis.published import REPRODUCED, SIZES, reproduced, sweep_csv, sweep_sheets
from headroom.analysis.sheet import Sheet, write_sheets
from headroom.config import parse
from headroom.statistics.proportion import wilson
from headroom.variants import BASE, heads

PUBLISHED = Path(__file__).parents[2] / "config" / "published"
NOTHING = pd.DataFrame(columns=REPRODUCED)
HOW = "default", "default"


def of_shape(layers, query_heads, subjects=simulation.SUBJECTS, n=97):
    variants = [BASE, *heads(layers, range(query_heads))]
    names = [str(variant) for variant in variants]
    return cells(simulation.simulated_z(n, names, np.random.default_rng(5), subjects), variants)


def texts(table, found, sweep, how=HOW):
    return written(sweep_sheets(table, found, sweep, *how))


def written(sheets: dict[str, Sheet]) -> dict[str, str]:
    """Return tables as text, by suffix."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_sheets(f"{folder}/table.{{suffix}}", sheets)
        return {file.suffix[1:]: file.read_text(encoding="utf-8") for file in files}


def published(source, layers, query_heads, benchmark="math500"):
    """Return a config of one sweep, cells on MATH-500's subjects, and what is published of them."""
    shape = {"layers": 40, "heads": query_heads, "kv_heads": 2, "billions": 1.5}
    config = parse(
        {
            "run": "run",
            "models": {"local": {"source": source, **shape}},
            "questions": {"q": {"benchmark": benchmark, "split": "test", "n": 500}},
            "decodings": {"greedy": {}},
            "sweeps": {"s": {"model": "local", "questions": "q", "layers": layers}},
        }
    )
    variants = [BASE, *heads(layers, range(query_heads))]
    names = [str(variant) for variant in variants]
    z = simulation.simulated_z(500, names, np.random.default_rng(7))
    z["subject"] = [subject for subject, size in SIZES.items() for _ in range(size)]
    table = cells(z, variants)
    return table, reproduced(config, "s", table, PUBLISHED)


def test_markdown_bolds_every_best_value_of_a_column():
    table = of_shape([2, 4, 7], 3)
    text = texts(table, NOTHING, "demo")["md"]
    block = text.split("## Layer 4, by subject")[1].split("##")[0]
    rows = [line.split("|")[2:-1] for line in block.splitlines() if line.startswith("| ")]
    assert rows[0][0] == " Overall (n = 97) "
    assert len(rows[1:]) == 4
    for column in zip(*rows[1:], strict=True):
        values = [float(cell.split("(")[0].strip(" *")) for cell in column]
        bold = [cell.strip().startswith("**") for cell in column]
        assert bold == [value == max(values) for value in values]


def test_every_accuracy_has_its_wilson_interval():
    text = texts(of_shape([2, 4], 3), NOTHING, "demo")
    csv = sweep_csv(of_shape([2, 4], 3), NOTHING)
    assert {"by", "group", "variant", "layer", "head", "n", "correct", "accuracy"} <= set(csv)
    assert np.allclose(csv["accuracy"], csv["correct"] / csv["n"], atol=1e-5)
    for row in csv.itertuples():
        ends = stats.binomtest(row.correct, row.n).proportion_ci(method="wilson")
        assert (row.low, row.high) == pytest.approx((ends.low, ends.high), abs=1e-5)
        shown = f"{100 * row.accuracy:.1f}"
        assert f"({100 * ends.low:.1f}–{100 * ends.high:.1f})" in text["md"]
        assert f"({100 * ends.low:.1f}--{100 * ends.high:.1f})" in text["tex"]
        assert shown in text["tex"]


def test_published_cells_stand_beside_the_reproduced_ones():
    source = "./copies/Qwen2.5-Math-1.5B-Instruct"
    table, found = published(source, [0, 1, 15, 21], 12)
    assert sorted(set(found["layer"])) == [0, 15, 21]  # layer 1 is not in the paper
    assert len(found) == 3 * 13 * 8
    cell = found.set_index(["layer", "head", "group"]).loc[(15, 0, "Counting & Probability")]
    assert (cell["published_n"], cell["published_correct"], cell["exhibit"]) == (38, 30, "Table 2")
    own = table.query("variant == 'L15H00' and group == 'Counting & Probability'").iloc[0]
    assert cell["difference"] == pytest.approx(own["accuracy"] - 30 / 38)
    ours, theirs = (wilson(np.array([k]), np.array([38])) for k in (own["correct"], 30))
    low = cell["difference"] - np.hypot(own["accuracy"] - ours[0], theirs[1] - 30 / 38)
    assert cell["difference_low"] == pytest.approx(low[0])
    assert set(found.loc[found["layer"] == 21, "exhibit"].dropna()) == {"Figure 5"}


def test_a_cell_that_could_not_be_read_is_empty_with_its_reason():
    _, found = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 21], 12)
    assert (found["note"].notna() == found["published"].isna()).all()
    assert (found["difference"].isna() == found["published"].isna()).all()
    by = found.set_index(["layer", "head", "group"])["note"]
    assert by[21, 11, "Counting & Probability"] == "cell blank in the text"
    assert by[21, 11, "Overall"] == "6 of 7 subjects legible"
    whole = found[(found["group"] == "Overall") & found["published"].notna()]
    row = whole[whole["layer"] == 21].iloc[1]
    parts = found[(found["layer"] == 21) & (found["head"] == row["head"])]
    assert (
        row["published_correct"] == parts.loc[parts["by"] == "subject", "published_correct"].sum()
    )


def test_no_prune_is_published_for_each_layer_and_in_the_csv_where_layers_agree():
    table, found = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5, 15, 27], 12)
    base = found[found["head"].isna()].set_index(["layer", "group"])["published_correct"]
    assert base[0, "Intermediate Algebra"] != base[27, "Intermediate Algebra"]
    csv = sweep_csv(table, found).query("variant == 'base'").set_index("group")
    assert len(csv) == len(set(table["group"]))
    assert csv.loc["Intermediate Algebra", "note"] == "the paper prints several values"
    assert csv.loc["Algebra", "published_correct"] == base[0, "Algebra"]
    assert csv.loc["Algebra", "difference"] == pytest.approx(
        csv.loc["Algebra", "accuracy"] - csv.loc["Algebra", "published"], abs=1e-5
    )


@pytest.mark.parametrize(
    ("source", "layers", "benchmark"),
    [
        ("Qwen/Qwen2.5-Math-1.5B", [0, 5], "math500"),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", [1, 2], "math500"),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5], "generated_math"),
    ],
)
def test_nothing_stands_beside_what_the_paper_has_not(source, layers, benchmark):
    table, found = published(source, layers, 12, benchmark)
    assert found.empty
    text = texts(table, found, "s")
    assert "ublished" not in text["md"] + text["tex"]
    assert sweep_csv(table, found)["published"].isna().all()


def test_a_difference_is_bold_where_its_interval_leaves_out_zero():
    table, found = published("meta-llama/Meta-Llama-3-8B-Instruct", [5], 32)
    text = texts(table, found, "s")["md"]
    cell = r"\| (\*\*)?[\d.]+ − [\d.]+ = [+−]?[\d.]+ \(([+−]?[\d.]+) to ([+−]?[\d.]+)\)"
    shown = re.findall(cell, text)
    assert len(shown) == found["published"].notna().sum() > 200
    for bold, low, high in shown:
        low, high = (float(end.replace("−", "-")) for end in (low, high))
        assert bool(bold) == (low > 0 or high < 0) or 0.0 in (low, high)
    apart = ((found["difference_low"] > 0) | (found["difference_high"] < 0)).sum()
    assert f"{apart} of {len(shown)} differences" in text


@pytest.mark.parametrize("how", [("default", "default"), ("authors", "default")])
def test_a_difference_is_called_real_under_the_paper_s_rules_only(how):
    table, found = published("meta-llama/Meta-Llama-3-8B-Instruct", [5], 32)
    real = "a difference beyond its interval is real"
    for prompt, grading in (how, ("authors", "authors")):
        text = texts(table, found, "s", (prompt, grading))["md"]
        assert (real in text) == (prompt == grading == "authors")
        assert f"Prompt: {prompt}; grading: {grading}." in text


def test_the_paper_s_tables_fit_their_pages(tmp_path):
    table, found = published("meta-llama/Meta-Llama-3-8B-Instruct", [5, 10, 15, 31], 32)
    log = typeset(tmp_path, texts(table, found, "table1-llama")["tex"])
    assert "Output written" in log


def test_hostile_names_compile_to_text(tmp_path):
    comparison = pd.DataFrame({"decoding": ["T0.6_x"], "grading": ["authors"]})
    comparison = comparison.assign(n=61, correct=31, accuracy=31 / 61, no_answer=1, truncated=3)
    other = COMPARISON.sheet(comparison.assign(differ_from_default=0), "a_b").latex()
    table = of_shape((0, 2), 44, (*HOSTILE, *simulation.SUBJECTS))
    typeset(tmp_path, texts(table, NOTHING, HOSTILE[0])["tex"], other)


def test_hostile_names_stay_inert_in_markdown():
    text = texts(of_shape([0, 1], 2, HOSTILE), NOTHING, HOSTILE[2])["md"]
    assert "<script>" not in text
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert len(titles) == 2 * 2
