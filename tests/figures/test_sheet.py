"""Tables as text: what cells say, and that hostile names stay text in Markdown and LaTeX."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex_document import HOSTILE, typeset

import simulation
from headroom.analysis.jobs import COMPARISON, SELECTOR_TABLES
from headroom.analysis.sheet import Sheet, interval, read_csv, sheet, write_sheets
from headroom.analysis.text import latex, markdown, plain, short, signed, wrapped
from headroom.errors import TableError

NUMBERS = pd.DataFrame(
    {
        "of": ["a|b*c", "<b>&amp;"],
        "part": [0.1234, np.nan],
        "part_low": [-0.0001, np.nan],
        "part_high": [0.25, np.nan],
        "count": [1234, 5],
    }
)
COLUMNS = {
    "name": "{of}",
    "share": "{part:%}",
    "gain": interval("part"),
    "ends": "{part_low:pts} to {part_high:%}",
    "thousands": "{count:k}",
    "n": "{count:int}",
}
BOLD = np.array([[False, True], [False, False]])
TWO = dict(list(COLUMNS.items())[:2])


def test_text_is_put_on_one_line_and_shortened_by_words():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert latex("λ_1 数") == r"\ensuremath{\lambda}\_1 [U+6570]"
    assert [signed(value) for value in (-0.04, 0.0, 0.04, -1.26)] == ["0.0", "0.0", "0.0", "−1.3"]


def test_cells_are_written_as_declared_and_a_dash_stands_for_none():
    assert sheet(NUMBERS, COLUMNS, "What is | shown.").rows == [
        ["a|b*c", "12.3", "+12.3 (0.0 to +25.0)", "0.0 to 25.0", "1", "1234"],
        ["<b>&amp;", "–", "–", "–", "0", "5"],
    ]


def test_markdown_marks_what_is_bold_and_nothing_else():
    text = sheet(NUMBERS, TWO, "What is | shown.")._replace(bold=BOLD).markdown()
    assert text.split("\n\n") == [
        "| name | share |\n|---|--:|\n| a\\|b\\*c | **12.3** |\n| &lt;b&gt;&amp;amp; | – |",
        "What is \\| shown.\n",
    ]
    assert markdown("a|b*c") == r"a\|b\*c"


def test_latex_has_a_row_for_each_row_and_repeats_only_the_first_sentence():
    text = sheet(NUMBERS, TWO, "Shown. And noted.")._replace(bold=BOLD).latex()
    assert r"a\textbar{}b*c & \textbf{12.3} \\" in text
    assert text.count("Shown.") == 2
    assert text.count("And noted.") == 1


def test_headings_stand_above_tables_and_a_table_without_rows_is_its_caption(tmp_path):
    nothing = sheet(NUMBERS.head(0), COLUMNS, "Nothing is there.")
    tables = {"First": nothing, "Sec|ond": sheet(NUMBERS, COLUMNS, "All.")}
    md, tex = write_sheets(str(tmp_path / "t.{suffix}"), tables)
    text = md.read_text(encoding="utf-8")
    assert text.startswith("## First\n\nNothing is there.\n\n## Sec\\|ond\n\n| name |")
    assert "Nothing is there.\n" in tex.read_text(encoding="utf-8")
    assert "longtable" not in nothing.latex()


@pytest.mark.parametrize(
    ("file", "row"),
    [
        (
            "embedding",
            "| SPRINT | test | all heads | greedy cover | 24 | mean | 75.0 | 71.9 |",
        ),
        ("diversity", "| SPRINT | 1 | 70.0 | 1.00 (1.00 to 1.00) | – | 90 | 90 | 1.00 |"),
        ("diversity", "| 1.25 (1.20 to 1.31) | 75.0 (70.0 to 80.0) | 181 | 98 |"),
        (
            "choosing",
            "| SPRINT | verifier | 16 | 76.5 (70.0 to 82.0) | 95.6 (92.0 to 98.0) |",
        ),
    ],
)
def test_a_selector_s_tables_are_read_back_and_written_as_text(tmp_path, file, row):
    (table,) = (table for table in SELECTOR_TABLES if f"/{file}." in table.path)
    path = tmp_path / "table.csv"
    getattr(simulation, f"{file}_table")().to_csv(path, index=False)
    assert row in table.sheet(read_csv(path, table.schema), "math").markdown()


def test_a_comparison_shows_accuracy_in_percent():
    frame = pd.DataFrame({"decoding": ["greedy", "authors"], "grading": ["default", "authors"]})
    frame = frame.assign(n=[61, 61], correct=[31, 29], accuracy=[31 / 61, 29 / 61])
    frame = frame.assign(no_answer=[1, 2], truncated=[3, 4], differ_from_default=[0, 5])
    table = COMPARISON.sheet(frame, "prompts")
    assert "| greedy | default | 61 | 31 | 50.8 | 1 | 3 | 0 |" in table.markdown()
    assert r"authors & authors & 61 & 29 & 47.5 & 2 & 4 & 5 \\" in table.latex()


def test_a_file_without_its_columns_is_refused(tmp_path: Path):
    path = tmp_path / "prompts.csv"
    with pytest.raises(TableError, match="is missing"):
        read_csv(path, COMPARISON.schema)
    path.write_text("decoding,n\ngreedy,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"columns .*'grading'.* are missing"):
        read_csv(path, COMPARISON.schema)


@pytest.mark.parametrize(("columns", "rows"), [(6, 9), (10, 52), (14, 78)])
def test_a_table_of_any_shape_compiles_with_hostile_text(tmp_path, columns, rows):
    names = [short(text, 20) for text in HOSTILE[:4]]
    cells = [[names[row % 4], *["+12.3"] * (columns - 1)] for row in range(rows)]
    titles = ["questions", HOSTILE[2], *(f"c_{column}" for column in range(2, columns))]
    typeset(tmp_path, Sheet(titles, cells, " ".join(HOSTILE)).latex())
