"""Tables 1-4 of a sweep: published numbers beside, LaTeX that compiles; text that stays text."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex_document import HOSTILE, typeset
from scipy import stats

import simulation
from headroom.analysis import latex
from headroom.analysis.facts import Source, cells_of, columns
from headroom.analysis.files import read_csv
from headroom.analysis.gains import cells
from headroom.analysis.published import SIZES, beside_cells, reproduced
from headroom.analysis.text import plain, short, signed, wrapped
from headroom.config import parse
from headroom.errors import TableError
from headroom.statistics.proportion import wilson
from headroom.variants import BASE, heads

PUBLISHED = Path(__file__).parents[2] / "config" / "published"


def of_shape(layers, query_heads, subjects=simulation.SUBJECTS, n=97):
    variants = [BASE, *heads(layers, range(query_heads))]
    names = [str(variant) for variant in variants]
    return cells(simulation.simulated_z(n, names, np.random.default_rng(5), subjects), variants)


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


def test_text_is_put_on_one_line_and_shortened_by_words():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert latex.latex("λ_1 数") == r"\ensuremath{\lambda}\_1 [U+6570]"
    assert [signed(value) for value in (-0.04, 0.0, 0.04, -1.26)] == ["0.0", "0.0", "0.0", "−1.3"]


def test_cells_are_written_as_declared_and_columns_without_a_value_vanish():
    table = pd.DataFrame(
        {"of": ["a", "<b>"], "x": [0.12, np.nan], "low": [-0.0001, np.nan], "high": [0.25, np.nan]}
    ).assign(none=np.nan, n=[1234, 5])
    declared = columns("name=of, share=x part, gain=x points low high, no=none p, n=n count, y=y p")
    titles, rows = cells_of(Source("a.csv", table), declared)
    assert titles == ["name", "share", "gain", "n"]
    assert [list(map(str, row)) for row in rows] == [
        ["a", "12.0", "+12.0 (0.0 to +25.0)", "1,234"],
        ["<b>", "", "", "5"],
    ]


def test_a_file_without_its_columns_is_refused(tmp_path: Path):
    path = tmp_path / "prompts.csv"
    with pytest.raises(TableError, match="is missing"):
        read_csv(path, ["grading"])
    path.write_text("decoding,n\ngreedy,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"columns .*'grading'.* are missing"):
        read_csv(path, ["grading"])


def test_the_best_of_a_column_is_bold_and_every_accuracy_has_its_wilson_interval():
    table = of_shape([2, 4], 3)
    text = latex.of_sweep(table, "demo", "default", "authors")
    assert "Prompt: default; grading: authors." in text
    block = (
        text.split("layer 4, by subject", 1)[1]
        .split(r"\endlastfoot")[1]
        .split(r"\end{longtable}")[0]
    )
    rows = [line.strip().rstrip("\\ ").split(" & ") for line in block.strip().splitlines()]
    assert [row[0] for row in rows] == ["No Prune", "0", "1", "2"]
    for column in list(zip(*rows, strict=True))[1:]:
        values = [float(re.search(r"[\d.]+", cell)[0]) for cell in column]
        assert [r"\textbf" in cell for cell in column] == [v == max(values) for v in values]
    for row in table.itertuples():
        ends = stats.binomtest(row.correct, row.n).proportion_ci(method="wilson")
        assert (row.low, row.high) == pytest.approx((ends.low, ends.high), abs=1e-5)
        assert f"({100 * ends.low:.1f}--{100 * ends.high:.1f})" in text


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


def test_no_prune_is_published_for_each_layer_and_in_the_csv_where_layers_agree():
    table, found = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 5, 15, 27], 12)
    base = found[found["head"].isna()].set_index(["layer", "group"])["published_correct"]
    assert base[0, "Intermediate Algebra"] != base[27, "Intermediate Algebra"]
    csv = beside_cells(table, found).query("variant == 'base'").set_index("group")
    assert len(csv) == len(set(table["group"]))
    assert np.isnan(csv.loc["Intermediate Algebra", "published"])
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
    assert beside_cells(table, found)["published"].isna().all()


def test_only_what_is_legible_is_published():
    _, found = published("Qwen/Qwen2.5-Math-1.5B-Instruct", [0, 21], 12)
    assert (found["difference"].isna() == found["published"].isna()).all()
    by = found.set_index(["layer", "head", "group"])["published"]
    assert np.isnan(by[21, 11, "Overall"])  # 6 of 7 subjects are legible
    row = found[(found["group"] == "Overall") & found["published"].notna()].iloc[1]
    parts = found[(found["layer"] == row["layer"]) & (found["head"] == row["head"])]
    right = parts.loc[parts["by"] == "subject", "published_correct"]
    assert row["published_correct"] == right.sum()


def test_tables_of_any_shape_compile_with_hostile_text(tmp_path):
    made = [
        latex.of_sweep(of_shape((0, 2), 44, (*HOSTILE, *simulation.SUBJECTS)), HOSTILE[0], "a", "b")
    ]
    for number, count in ((6, 9), (14, 78)):
        rows = [[short(HOSTILE[row % 4], 20), *["+12.3"] * (number - 1)] for row in range(count)]
        titles = ["questions", HOSTILE[2], *(f"c_{column}" for column in range(2, number))]
        made.append(latex.longtable(titles, rows, HOSTILE[1], " ".join(HOSTILE)))
    typeset(tmp_path, *made)
