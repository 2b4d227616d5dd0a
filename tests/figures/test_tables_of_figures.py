import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import simulation

from headroom.errors import TableError
from headroom.figures.gains import cells
from headroom.figures.tables import comparison_tables, read_comparison, tables
from headroom.figures.text import latex, markdown, plain, signed, wrapped
from headroom.variants import BASE, heads

HOSTILE = (
    r"\input{/etc/passwd}",
    "<script>alert(1)</script>",
    "a | b\n# c **d** [e](f) $x^2_i$ `g`",
    "100% & more ~ # { } ^ _ \" ' --",
    "Алгебра 数学 é",
)


def of_shape(layers, query_heads, subjects=simulation.SUBJECTS, n=97):
    variants = [BASE, *heads(layers, range(query_heads))]
    names = [str(variant) for variant in variants]
    return cells(simulation.simulated_z(n, names, np.random.default_rng(5), subjects), variants)


def test_markdown_bolds_every_best_value_of_a_column():
    table = of_shape([2, 4, 7], 3)
    block = tables(table, "demo")["md"].split("## Geometry")[1].split("##")[0]
    rows = [line.split("|")[2:-1] for line in block.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 4
    for column in zip(*rows, strict=True):
        values = [float(cell.strip(" *")) for cell in column]
        bold = [cell.strip().startswith("**") for cell in column]
        assert bold == [value == max(values) for value in values]


def test_csv_holds_n_and_counts():
    csv = pd.read_csv(io.StringIO(tables(of_shape([2, 4], 3), "demo")["csv"]))
    assert {"by", "group", "variant", "layer", "head", "n", "correct", "accuracy"} <= set(csv)
    assert np.allclose(csv["accuracy"], csv["correct"] / csv["n"], atol=1e-5)


@pytest.mark.parametrize(("layers", "query_heads"), [(3, 8), (4, 28), (28, 2), (40, 3), (4, 64)])
def test_no_latex_page_has_more_columns_or_rows_than_fit(layers, query_heads):
    text = tables(of_shape(range(layers), query_heads), "demo")["tex"]
    pages = re.findall(r"\\begin\{tabular\}\{l(r+)\}(.*?)\\end\{tabular\}", text, re.S)
    columns = [len(page[0]) for page in pages]
    assert max(columns) <= (16 if query_heads > 40 else 34)
    groups = 8 + len(set(re.findall(r"Level \d", text)))
    assert sum(columns) == layers * groups


@pytest.mark.parametrize(
    ("layers", "query_heads", "subjects"),
    [((0, 5, 15, 31), 32, simulation.SUBJECTS), ((0, 2, 5), 8, HOSTILE)],
    ids=["paper", "hostile"],
)
def test_latex_compiles_and_fits_its_page(tmp_path, layers, query_heads, subjects):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed")
    text = tables(of_shape(layers, query_heads, subjects), subjects[0][:30])["tex"]
    text += comparison_tables(comparison(), "a_b")["tex"]
    document = (
        r"\documentclass[a4paper]{article}\usepackage[margin=2cm]{geometry}"
        r"\usepackage{booktabs,rotating}\begin{document}" + text + r"\end{document}"
    )
    (tmp_path / "table.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="latin-1",
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout
    assert "root:" not in done.stdout


def test_hostile_names_stay_inert_in_markdown():
    text = tables(of_shape([0, 1], 2, HOSTILE), "demo")["md"]
    assert "<script>" not in text
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert len(titles) == 1 + 1 + len(HOSTILE) + len(set(re.findall(r"Level \d", text)))
    assert markdown("a|b*c") == r"a\|b\*c"


def test_text_is_put_on_one_line_and_shortened_by_words():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert latex("λ_1 数") == r"\ensuremath{\lambda}\_1 [U+6570]"


def test_zero_has_no_sign():
    assert [signed(value) for value in (-0.04, 0.0, 0.04, -1.26)] == ["0.0", "0.0", "0.0", "−1.3"]


def comparison():
    frame = pd.DataFrame({"decoding": ["greedy", "authors"], "grading": ["default", "authors"]})
    frame = frame.assign(n=[61, 61], correct=[31, 29], accuracy=[31 / 61, 29 / 61])
    return frame.assign(no_answer=[1, 2], truncated=[3, 4], differ_from_default=[0, 5])


def test_comparison_shows_accuracy_in_percent():
    texts = comparison_tables(comparison(), "prompts")
    assert "| greedy | default | 61 | 31 | 50.8 | 1 | 3 | 0 |" in texts["md"]
    assert r"authors & authors & 61 & 29 & 47.5 & 2 & 4 & 5 \\" in texts["tex"]


def test_a_comparison_without_its_columns_is_refused(tmp_path: Path):
    path = tmp_path / "prompts.csv"
    with pytest.raises(TableError, match="is missing"):
        read_comparison(path)
    path.write_text("decoding,n\ngreedy,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"columns .*'grading'.* are missing"):
        read_comparison(path)
