from pathlib import Path

import pandas as pd
import pytest

from comparing import assert_same
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ANSWERS, GRADED

FILE = Path("results/store/tiny-0/greedy-0/test-0/base.parquet")


def table(rows=20, **changed):
    """Return sound answers; of each column named, one row has another value."""
    of = [(f"q{row}", 0, list(range(row % 7)), f"answer {row}", "eos", 0.5) for row in range(rows)]
    answers = pd.DataFrame(of, columns=ANSWERS.columns)
    for column, (row, value) in changed.items():
        answers.at[row, column] = value
    return answers


def write(folder, answers, *, tokens=3, figure="points"):
    """Write a run: answers, what is graded, a figure."""
    results = folder / "results"
    write_table(folder / FILE, answers, ANSWERS)
    graded = answers[["question_id", "sample", "stop_reason", "margin"]].assign(
        variant="base", answer="1", group=0, correct=True, verdict="judged", tokens=tokens
    )
    write_table(results / "mini/graded.parquet", graded[GRADED.columns], GRADED)
    (results / "mini/points.csv").write_text(figure)
    return results


def test_an_answer_whose_margins_are_sound_is_compared_whole(tmp_path):
    before = write(tmp_path / "a", table())
    for column, value in {"token_ids": [9], "text": "other", "stop_reason": "length"}.items():
        after = write(tmp_path / "b", table(**{column: (3, value)}))
        with pytest.raises(AssertionError, match=r"wrong: .*base\.parquet"):
            assert_same(before, after)


@pytest.mark.parametrize("side", [0, 1])
def test_a_near_tie_in_one_of_the_tables_excuses_an_answer_and_what_follows(side, tmp_path):
    tables = [table(), table(token_ids=(3, [9]), text=(3, "other"))]
    tables[side].loc[3, "margin"] = 9e-4
    before = write(tmp_path / "a", tables[0])
    after = write(tmp_path / "b", tables[1], tokens=1, figure="others")
    found, followed = assert_same(before, after)
    assert found == {"greedy": 20, "sound": 19, "parted": 1}
    assert followed == {"mini/graded.parquet", "mini/points.csv"}
