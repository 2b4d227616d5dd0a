from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex_document import HOSTILE, typeset

from headroom.analysis.prompts import comparison_sheet, read_comparison
from headroom.analysis.sheet import (
    Sheet,
    in_percent,
    in_points,
    interval,
    joined,
    name,
    number,
    written,
)
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
COLUMNS = (
    ("name", name("of")),
    ("share", in_percent("part")),
    ("gain", interval("part")),
    ("ends", joined(in_points("part_low"), " to ", in_percent("part_high"))),
    ("thousands", number("count", ",.2f", 1e3)),
    ("n", number("count")),
)


def test_text_is_put_on_one_line_and_shortened_by_words():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert latex("λ_1 数") == r"\ensuremath{\lambda}\_1 [U+6570]"


def test_zero_has_no_sign():
    assert [signed(value) for value in (-0.04, 0.0, 0.04, -1.26)] == ["0.0", "0.0", "0.0", "−1.3"]


def test_cells_are_written_as_declared_and_a_dash_stands_for_none():
    sheet = Sheet.of(NUMBERS, COLUMNS, "What is | shown.")
    assert sheet.rows == [
        ["a|b*c", "12.3", "+12.3 (0.0 to +25.0)", "0.0 to 25.0", "1.23", "1234"],
        ["<b>&amp;", "–", "–", "–", "0.01", "5"],
    ]


def test_markdown_marks_what_is_bold_and_nothing_else():
    bold = np.array([[False, True], [False, False]])
    sheet = Sheet.of(NUMBERS, COLUMNS[:2], "What is | shown.", bold=bold, lead="First.")
    assert sheet.markdown().split("\n\n") == [
        "First.",
        "| name | share |\n|---|--:|\n| a\\|b\\*c | **12.3** |\n| &lt;b&gt;&amp;amp; | – |",
        "What is \\| shown.\n",
    ]
    assert markdown("a|b*c") == r"a\|b\*c"


def test_latex_has_a_row_for_each_row_and_repeats_only_the_first_sentence():
    bold = np.array([[False, True], [False, False]])
    text = Sheet.of(NUMBERS, COLUMNS[:2], "Shown. And noted.", bold=bold).latex()
    assert r"a\textbar{}b*c & \textbf{12.3} \\" in text
    assert text.count("Shown.") == 2
    assert text.count("And noted.") == 1


def test_headings_stand_above_tables_and_a_table_without_rows_is_its_caption():
    sheet = Sheet.of(NUMBERS.head(0), COLUMNS, "Nothing is there.")
    texts = written({"First": sheet, "Sec|ond": Sheet.of(NUMBERS, COLUMNS, "All.")})
    assert texts["md"].startswith("## First\n\nNothing is there.\n\n## Sec\\|ond\n\n| name |")
    assert "Nothing is there.\n" in texts["tex"]
    assert "longtable" not in sheet.latex()


def comparison():
    frame = pd.DataFrame({"decoding": ["greedy", "authors"], "grading": ["default", "authors"]})
    frame = frame.assign(n=[61, 61], correct=[31, 29], accuracy=[31 / 61, 29 / 61])
    return frame.assign(no_answer=[1, 2], truncated=[3, 4], differ_from_default=[0, 5])


def test_a_comparison_shows_accuracy_in_percent():
    texts = written([comparison_sheet(comparison(), "prompts")])
    assert "| greedy | default | 61 | 31 | 50.8 | 1 | 3 | 0 |" in texts["md"]
    assert r"authors & authors & 61 & 29 & 47.5 & 2 & 4 & 5 \\" in texts["tex"]


def test_a_comparison_without_its_columns_is_refused(tmp_path: Path):
    path = tmp_path / "prompts.csv"
    with pytest.raises(TableError, match="is missing"):
        read_comparison(path)
    path.write_text("decoding,n\ngreedy,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"columns .*'grading'.* are missing"):
        read_comparison(path)


@pytest.mark.parametrize(("columns", "rows"), [(6, 9), (10, 52), (14, 78)])
def test_a_table_of_any_shape_compiles_with_hostile_text(tmp_path, columns, rows):
    names = [short(text, 20) for text in HOSTILE[:4]]
    cells = [[names[row % 4], *["+12.3"] * (columns - 1)] for row in range(rows)]
    titles = ["questions", HOSTILE[2], *(f"c_{column}" for column in range(2, columns))]
    typeset(tmp_path, Sheet(titles, cells, " ".join(HOSTILE)).latex())
