import pandas as pd
import pytest

from headroom.errors import TableError
from headroom.figures import selectors
from headroom.sprint import evaluation, matching


def embedding_table(difference=0.031, low=0.012, high=0.05, p=0.002):
    rows = []
    for questions in ("training, held out", "test"):
        for pool, heads in (("all heads", 24), ("heads as accurate as base", 17)):
            for against in ("shuffled questions", "greedy cover", "heads drawn from the pool"):
                own = p if against == "shuffled questions" else None
                for n in ("1", "2", "mean"):
                    row = ("SPRINT", questions, pool, heads, against, n, 0.75, 0.719)
                    rows.append((*row, difference, low, high, own))
    return pd.DataFrame(rows, columns=selectors.EMBEDDING)


def test_columns_are_those_that_are_written():
    assert selectors.EMBEDDING == matching.COLUMNS
    assert selectors.DIVERSITY == evaluation.DIVERSITY


def test_one_sentence_says_whether_the_embedding_matters():
    said = selectors.embedding_sentence(embedding_table())
    assert "by +3.1 points (95% interval +1.2 to +5.0), permutation p = 0.002" in said
    assert "the question embedding matters; against the same heads" in said
    assert said.endswith(
        "among the 17 heads that are as accurate as base the embedding changes "
        "+3.1 points (95% interval +1.2 to +5.0), p = 0.002."
    )


def test_simpler_methods_are_told_beside():
    table = embedding_table()
    simpler = table[table["pool"] == "all heads"].assign(method="nearest questions", sprint=0.8)
    said = selectors.embedding_sentence(pd.concat([table, simpler]))
    assert said.endswith(
        "Means of Pass@N: SPRINT 75.0% (+3.1 over shuffled questions, p = 0.002); nearest "
        "questions 80.0% (+3.1 over shuffled questions, p = 0.002)."
    )


@pytest.mark.parametrize("values", [{"p": 0.2}, {"low": -0.01}, {"p": 0.2, "low": -0.01}])
def test_an_effect_is_claimed_only_with_test_and_interval(values):
    assert "no effect of it is shown" in selectors.embedding_sentence(embedding_table(**values))


def test_a_pool_without_heads_as_accurate_as_base_is_not_spoken_of():
    table = embedding_table()
    said = selectors.embedding_sentence(table[table["pool"] == "all heads"])
    assert "as accurate as base" not in said
    assert said.endswith(".")


def test_the_tables_are_read_back_and_written_as_text(tmp_path):
    file = tmp_path / "embedding.csv"
    embedding_table().to_csv(file, index=False)
    texts = selectors.embedding_text(selectors.read_embedding(file), "math")
    row = "| SPRINT | test | all heads | greedy cover | 24 | mean | 75.0 | 71.9 | +3.1 "
    assert row in texts["md"]
    assert texts["tex"].count(r"\\") == 1 + 36
    row = ("SPRINT", 2, 0.8, 1.25, 1.2, 1.31, 0.75, 0.7, 0.8, 181.2, 97.6)
    one = ("SPRINT", 1, 0.7, 1.0, 1.0, 1.0, None, None, None, 90.4, 90.4)
    file = tmp_path / "diversity.csv"
    pd.DataFrame([one, row], columns=selectors.DIVERSITY).to_csv(file, index=False)
    texts = selectors.diversity_text(selectors.read_diversity(file), "math")
    assert "| SPRINT | 1 | 70.0 | 1.00 | 1.00 to 1.00 | – | – | 90 | 90 |" in texts["md"]
    assert "| 1.25 | 1.20 to 1.31 | 75.0 | 70.0 to 80.0 | 181 | 98 |" in texts["md"]


def test_a_file_with_other_columns_is_refused(tmp_path):
    file = tmp_path / "diversity.csv"
    pd.DataFrame({"method": ["SPRINT"]}).to_csv(file, index=False)
    with pytest.raises(TableError, match="are missing; remove the file"):
        selectors.read_diversity(file)
