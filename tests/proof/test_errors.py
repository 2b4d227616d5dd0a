"""How often a verdict is wrong, counted over drawn worlds: some without an effect, some with one.

Nightly, a thousand worlds of each kind are drawn; else so many as take seconds.
"""

import os

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import simulation
from benchmarks.proof.worlds import coins, experts
from headsweep.experiments.sprint import evaluation
from headsweep.experiments.sprint.evaluation import MEAN, SHUFFLED
from headsweep.experiments.sprint.methods import COVER, SPRINT
from headsweep.experiments.sprint.rankers import greedy_cover
from headsweep.results.gains import head_tests, shown
from headsweep.statistics.answers import pass_at_n_ordered
from headsweep.variants import BASE, heads
from simulation import gaining

NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
DRAWS, FEW = (1000, 1000) if NIGHTLY else (10, 8)
AT_MOST = 0.07
"""The most that the upper end of the 95% interval of a share of errors may be, nightly."""
POOL = heads(range(3), range(4))
SUBJECTS = ("a", "b", "c", "d")
KNOWS = {"a": 3, "b": 7, "c": 10, "d": 0}
SAMPLING, MAX_N, SEEDS = "sampling T=0.6", 4, 3


def assert_rare(wrong):
    """Assert that a share of errors is small; with few draws, that it may be."""
    few, draws = sum(wrong), len(wrong)
    if NIGHTLY:  # Clopper and Pearson 1934
        assert few < draws and beta.ppf(0.975, few + 1, draws - few) <= AT_MOST, f"{few} of {draws}"
    else:  # seeds are fixed; where 2% are wrong, other seeds give more once in sixty times
        assert few <= 1, f"{few} of {draws}"


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr("headsweep.results.gains._BOOTSTRAP", 400)


def helping(outcomes):
    """Return the heads that are shown to help when lost, as a run's verdict has them."""
    names = [str(BASE), *map(str, POOL)]
    z = pd.DataFrame(outcomes.astype(int), columns=names).assign(subject=None, level=None)
    z["question_id"] = z.index
    none_cut = simulation.graded(z, names)
    return shown(head_tests(z, none_cut, [BASE, *POOL], seed=0), 1)["variant"].tolist()


@pytest.mark.parametrize("flipped", [0.1, 0.3])
def test_heads_that_toss_coins_are_seldom_said_to_help(flipped):
    draw = np.random.default_rng(1)
    assert_rare([bool(helping(coins(draw, 200, len(POOL), flipped))) for _ in range(DRAWS)])


def test_eight_points_at_500_questions_are_found_and_little_else():
    draw = np.random.default_rng(2)
    found = [helping(gaining(draw, 500, len(POOL), 0.2, 0.08)) for _ in range(DRAWS)]
    # Where 0.867 are found, ten draws have fewer than 0.7 once in thirty times.
    assert np.mean([str(POOL[0]) in named for named in found]) >= (0.8 if NIGHTLY else 0.7)
    assert_rare([bool({*named} - {str(POOL[0])}) for named in found])


def lower_ends(draw, knows, questions=200):
    """Return the lower end of SPRINT minus sampling, and minus what ignores the question.

    Rankings put first the head that knows the question's subject, if there is one, and are random
    otherwise. Samples differ from the base model as often as heads do.
    """
    subjects = [SUBJECTS[number % len(SUBJECTS)] for number in range(questions)]
    pool = len(POOL)
    asked, known = (experts(draw, subjects, 2 * pool, knows)[:, 1:] for _ in range(2))
    heads_alone, samples = asked[:, :pool], asked[:, pool : pool + MAX_N]
    orders = []
    for _ in range(SEEDS):
        chance = draw.random((questions, pool))
        for row, subject in enumerate(subjects):
            if subject in knows:
                chance[row, knows[subject]] = -1
        orders.append(np.argsort(chance, axis=1))
    in_turn = [np.take_along_axis(heads_alone, order, axis=1) for order in orders]
    covering = heads_alone[:, greedy_cover(known[:, :pool])]
    passed = {
        SPRINT: [[pass_at_n_ordered(own, MAX_N) for own in in_turn]],
        SAMPLING: [[pass_at_n_ordered(samples, MAX_N)]],
        COVER: [[pass_at_n_ordered(covering, MAX_N)]],
        SHUFFLED: [[evaluation.shuffle(heads_alone, order, MAX_N) for order in orders]],
    }
    tested = evaluation.compared({SPRINT: passed}).set_index(["against", "n"])["low"]
    beats, matters, cover = tested[SAMPLING, MAX_N], tested[SHUFFLED, MEAN], tested[COVER, MEAN]
    return {"beats": beats, "matters": matters, "cover": cover}


def test_where_heads_know_nothing_sprint_is_seldom_said_to_beat_or_the_question_to_matter():
    draw = np.random.default_rng(3)
    ends = pd.DataFrame([lower_ends(draw, {}) for _ in range(FEW)])
    for verdict in ("beats", "matters"):
        assert_rare((ends[verdict] > 0).tolist())


def test_where_heads_know_a_subject_each_all_of_it_is_found():
    draw = np.random.default_rng(4)
    ends = pd.DataFrame([lower_ends(draw, KNOWS) for _ in range(FEW)])
    assert (ends > 0).mean().min() >= 0.8
