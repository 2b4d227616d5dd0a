import pytest

from headroom.figures.listing import listing
from headroom.figures.sheets import read_sheets

CELLS = ("a|b", "**x** _y_", "<b>&amp;", "back\\slash", "`c` #1 $2$ ~ !")


def test_tables_that_this_project_writes_are_read_back(tmp_path):
    rows = [[cell, str(number), f"{number / 7:.3f}"] for number, cell in enumerate(CELLS)]
    file = tmp_path / "table.md"
    written = listing(["name", "n", "share"], rows, "What is | shown.", texts=1)
    file.write_text(written["md"], encoding="utf-8")
    (sheet,) = read_sheets(file)
    assert sheet.header == ["name", "n", "share"]
    assert sheet.numeric == [False, True, True]
    assert sheet.rows == rows
    assert sheet.words == ["What is | shown."]


def test_bold_is_unmarked_and_words_stay_with_their_table(tmp_path):
    file = tmp_path / "two.md"
    file.write_text(
        "## First\n\n| a | b |\n|---|--:|\n| **x** | **1.5** |\n\nBelow the first.\n\n"
        "| c |\n|---|\n| y |\n\nBelow the second.\n",
        encoding="utf-8",
    )
    first, second = read_sheets(file)
    assert first.rows == [["x", "1.5"]]
    assert first.words == ["First", "Below the first."]
    assert second.words == ["Below the second."]


@pytest.mark.parametrize(("text", "sheets"), [("Nothing to tell.\n", 1), ("", 0)])
def test_words_without_a_table_are_kept(tmp_path, text, sheets):
    file = tmp_path / "words.md"
    file.write_text(text, encoding="utf-8")
    found = read_sheets(file)
    assert len(found) == sheets
    assert [sheet.words for sheet in found] == [["Nothing to tell."]] * sheets


def test_a_file_that_is_not_there_has_no_sheets(tmp_path):
    assert read_sheets(tmp_path / "none.md") == []
