import pandas as pd
import pytest
import simulation

from headroom.analysis import selectors
from headroom.analysis.sheet import read_csv
from headroom.sprint import choosing, evaluation, matching


def test_every_rule_has_a_name() -> None:
    assert list(selectors.RULES) == [
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
    said = selectors.choosing_sentence(simulation.choosing_table(over, low, high))
    assert said.startswith("Without an oracle, the majority of the 8 nearest heads answers 75.2%")
    assert "(69.0% to 81.0%), 94.0% of Pass@8, the nearest head alone 70.0%" in said
    assert said.endswith(f": {verdict}.")


def test_the_table_is_read_back_and_written_as_text(tmp_path) -> None:
    file = tmp_path / "choosing.csv"
    simulation.choosing_table().to_csv(file, index=False)
    written = selectors.choosing_sheet(read_csv(file, choosing.COLUMNS), "math")
    row = "| verifier | 16 | 76.5 | 70.0 to 82.0 | 95.6 | 92.0 to 98.0 | +1.3 | −1.0 to +3.4 |"
    assert f"| SPRINT {row}" in written.markdown()
    assert written.markdown().startswith("Without an oracle")
    assert written.latex().count(r"\\" + "\n") >= 15


def test_one_sentence_says_whether_the_embedding_matters():
    said = selectors.embedding_sentence(simulation.embedding_table())
    assert "by +3.1 points (95% interval +1.2 to +5.0), permutation p = 0.002" in said
    assert "the question embedding matters; against the same heads" in said
    assert said.endswith(
        "among the 17 heads that are as accurate as base the embedding changes "
        "+3.1 points (95% interval +1.2 to +5.0), p = 0.002."
    )


def test_simpler_methods_are_told_beside():
    table = simulation.embedding_table()
    simpler = table[table["pool"] == "all heads"].assign(method="nearest questions", sprint=0.8)
    said = selectors.embedding_sentence(pd.concat([table, simpler]))
    assert said.endswith(
        "Means of Pass@N: SPRINT 75.0% (+3.1 over shuffled questions, p = 0.002); nearest "
        "questions 80.0% (+3.1 over shuffled questions, p = 0.002)."
    )


@pytest.mark.parametrize("values", [{"p": 0.2}, {"low": -0.01}, {"p": 0.2, "low": -0.01}])
def test_an_effect_is_claimed_only_with_test_and_interval(values):
    assert "no effect of it is shown" in selectors.embedding_sentence(
        simulation.embedding_table(**values)
    )


def test_a_pool_without_heads_as_accurate_as_base_is_not_spoken_of():
    table = simulation.embedding_table()
    said = selectors.embedding_sentence(table[table["pool"] == "all heads"])
    assert "as accurate as base" not in said
    assert said.endswith(".")


def test_the_tables_are_read_back_and_written_as_text(tmp_path):
    file = tmp_path / "embedding.csv"
    simulation.embedding_table().to_csv(file, index=False)
    sheet = selectors.embedding_sheet(read_csv(file, matching.COLUMNS), "math")
    row = "| SPRINT | test | all heads | greedy cover | 24 | mean | 75.0 | 71.9 | +3.1 "
    assert row in sheet.markdown()
    file = tmp_path / "diversity.csv"
    simulation.diversity_table().to_csv(file, index=False)
    sheet = selectors.diversity_sheet(read_csv(file, evaluation.DIVERSITY), "math")
    assert "| SPRINT | 1 | 70.0 | 1.00 | 1.00 to 1.00 | – | – | 90 | 90 |" in sheet.markdown()
    assert "| 1.25 | 1.20 to 1.31 | 75.0 | 70.0 to 80.0 | 181 | 98 |" in sheet.markdown()


def test_what_choosing_costs_is_told_where_it_was_measured():
    facts = {"test_questions": 200, "embedding_seconds": 1.5, "embedding_bytes": 2.5e8}
    assert selectors.overhead_sentence(facts) == ""
    said = selectors.overhead_sentence(facts | {"selection_seconds": 0.004, "selection_bytes": 0})
    assert "took 1.50 s" in said
    assert "(7.5 ms a question), and 250 MB more memory" in said
    assert "0.0040 s (0.020 ms a question) and 0 MB" in said
