from pathlib import Path

import pandas as pd
import pytest
from latex_document import HOSTILE, typeset

from headroom.errors import TableError
from headroom.figures.listing import listing
from headroom.figures.tables import comparison_tables, read_comparison
from headroom.figures.text import latex, markdown, plain, short, signed, wrapped


def test_text_is_put_on_one_line_and_shortened_by_words():
    assert plain("a\x00b\u2028c\n d") == "a b c d"
    assert wrapped("Counting & Probability", 13) == "Counting &\nProbability"
    assert latex("λ_1 数") == r"\ensuremath{\lambda}\_1 [U+6570]"


def test_markup_in_a_cell_stays_text():
    assert markdown("a|b*c") == r"a\|b\*c"


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


@pytest.mark.parametrize(("columns", "rows"), [(6, 9), (10, 52), (14, 78)])
def test_a_listing_of_any_shape_compiles_with_hostile_text(tmp_path, columns, rows):
    names = [short(name, 20) for name in HOSTILE[:4]]
    cells = [[names[row % 4], *["+12.3"] * (columns - 1)] for row in range(rows)]
    header = ["questions", *(f"c_{column}" for column in range(1, columns))]
    typeset(tmp_path, listing(header, cells, " ".join(HOSTILE), texts=1)["tex"])
