"""Generated questions: sound, distinct, and those that every store holds answers to."""

import hashlib

import pandas as pd
import pytest

from headroom.benchmarks import generated
from headroom.errors import BenchmarkError


@pytest.fixture(scope="module")
def math():
    return generated.generate("generated_math", "test", 350, seed=3)


@pytest.fixture(scope="module")
def gsm8k():
    return generated.generate("generated_gsm8k", "train", 210, seed=3)


def test_questions_and_answers_are_those_that_stores_hold(math, gsm8k):
    """Each template was once held against answers worked out from the text by other means.

    Of these very texts every equation was found to hold, and every answer to be in lowest terms.
    """
    for table, frozen in ((math, "c06acec84155ae3a"), (gsm8k, "a3cd7ca89b13d417")):
        text = table[["question", "solution", "answer"]].to_json()
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == frozen


def test_subjects_and_levels_take_turns_and_growing_n_keeps_earlier_questions(math, gsm8k):
    cells = math.groupby(["subject", "level"]).size()
    assert len(cells) == 7 * 5 and set(cells) == {10}
    fewer = generated.generate("generated_gsm8k", "train", 17, seed=3)
    pd.testing.assert_frame_equal(fewer, gsm8k.head(17))


@pytest.mark.parametrize("benchmark", ["generated_math", "generated_gsm8k"])
def test_texts_are_distinct_inside_and_across_splits(benchmark):
    test = generated.generate(benchmark, "test", 700, seed=0)
    train = generated.generate(benchmark, "train", 600, seed=1)
    assert len({*test.question, *train.question}) == 1300


def test_the_corpus_mixes_both_benchmarks_and_holds_no_question_of_a_split(math, gsm8k):
    questions = [document.question for document in generated.corpus(5000, seed=3)]
    assert len(questions) == 5000
    assert not set(questions) & {*math.question, *gsm8k.question}
    word_problems = sum(question.endswith("?") and "$" not in question for question in questions)
    assert 0.2 < word_problems / 5000 < 0.5


def test_more_questions_than_the_templates_can_make_are_refused():
    with pytest.raises(BenchmarkError, match=r"n: 90000 .* ask for at most \d+"):
        generated.generate("generated_math", "train", 90_000, seed=0)
