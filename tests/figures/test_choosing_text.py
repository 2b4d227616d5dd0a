import pandas as pd
import pytest

from headroom.figures import choosing as texts
from headroom.sprint import choosing


def table(over: float = 0.013, low: float = -0.01, high: float = 0.034) -> pd.DataFrame:
    rows = []
    for n, ceiling in ((1, 0.7), (8, 0.8), (16, 0.85)):
        rows += [
            ("SPRINT", "oracle", n, ceiling, ceiling - 0.05, ceiling + 0.05, 1, 1, 1, 0, 0, 0),
            ("SPRINT", "first", n, 0.7, 0.64, 0.76, 0.7 / ceiling, 0.8, 0.95, -0.05, -0.09, -0.01),
            ("SPRINT", "majority", n, 0.752, 0.69, 0.81, 0.94, 0.9, 0.97, 0, 0, 0),
            ("SPRINT", "agreement", n, 0.752, 0.69, 0.81, 0.94, 0.9, 0.97, 0, 0, 0),
            ("SPRINT", "verifier", n, 0.765, 0.7, 0.82, 0.956, 0.92, 0.98, over, low, high),
        ]
    return pd.DataFrame(rows, columns=texts.COLUMNS)


def test_columns_and_rules_are_those_that_are_written() -> None:
    assert texts.COLUMNS == choosing.COLUMNS
    assert list(texts.RULES) == [
        *(choosing.ORACLE, choosing.FIRST, choosing.MAJORITY),
        *(choosing.AGREEMENT, choosing.VERIFIER),
    ]


@pytest.mark.parametrize(
    ("over", "low", "high", "verdict"),
    [
        (0.013, -0.01, 0.034, "no difference is shown"),
        (0.03, 0.01, 0.05, "better"),
        (-0.03, -0.05, -0.01, "worse"),
    ],
)
def test_the_verifier_is_better_only_where_the_interval_says_so(
    over: float, low: float, high: float, verdict: str
) -> None:
    said = texts.choosing_sentence(table(over, low, high))
    assert said.startswith("Without an oracle, the majority of the 8 nearest heads answers 75.2%")
    assert "(69.0% to 81.0%), 94.0% of Pass@8, the nearest head alone 70.0%" in said
    assert said.endswith(f": {verdict}.")


def test_the_table_is_read_back_and_written_as_text(tmp_path) -> None:
    file = tmp_path / "choosing.csv"
    table().to_csv(file, index=False)
    written = texts.choosing_text(texts.read_choosing(file), "math")
    row = "| verifier | 16 | 76.5 | 70.0 to 82.0 | 95.6 | 92.0 to 98.0 | +1.3 | −1.0 to +3.4 |"
    assert f"| SPRINT {row}" in written["md"]
    assert written["md"].startswith("Without an oracle")
    assert written["tex"].count(r"\\") == 1 + 15
