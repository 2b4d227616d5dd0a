from dataclasses import replace

import pandas as pd
import pytest
import simulated_trials

from conftest import PUBLISHED
from headroom.figures.compression import claims_method
from headroom.figures.compression.claims import JUDGES, judge
from headroom.figures.published import COMPRESSION_CLAIMS

LARGER = "larger models contain more redundant heads, making the optimization more effective"
RECURSION = "recursive distillation gain over single-round distillation"
CUT = "Math23k, 30% pruning: parameter reduction"
LOSS = "Math23k, 30% pruning: accuracy"
SAME_SPEED = "all pruned variants of Table 4 share speed and memory figures"
NORM_AND_ENTROPY = "weight norm and entropy contribute comparably"
RISING = "Math23k, increasing the ratio reduces parameters, memory and computation"


@pytest.fixture(scope="module")
def stated():
    table = pd.read_csv(PUBLISHED / COMPRESSION_CLAIMS).drop_duplicates("claim")
    return table.set_index("claim")["value"].astype(str)


def shares(values, *, examples=120, seeds=(2, 5), **facts):
    """Return a trial whose arms solve exactly a share of the examples, under every seed."""
    variations = {name: simulated_trials.VARIATIONS[name] for name in values if "_" in name
                  and name in simulated_trials.VARIATIONS}  # fmt: skip
    arms = [name for name in values if name not in variations]
    own = simulated_trials.study(arms=arms, variations=variations, seeds=list(seeds), int8=[])
    found = simulated_trials.trial(own, examples=examples, **facts)
    number = found.outcomes["example_id"].str[-3:].astype(int)
    share = found.outcomes["arm"].map(values)
    return replace(found, outcomes=found.outcomes.assign(strict=number < examples * share))


def test_every_judge_has_its_claim_and_every_claim_a_judgement(stated):
    assert set(JUDGES) <= set(stated.index)
    trial = simulated_trials.trial()
    for claim, value in stated.items():
        found = judge(claim, value, [trial])
        assert len(found.why) > 10
        if claim not in JUDGES:
            assert found.word == "cannot be judged"
        assert judge(claim, value, []).why == "the run has no compressed model"


def test_other_solvers_do_not_judge_claims_on_the_paper_s(stated):
    found = judge(CUT, stated[CUT], [simulated_trials.trial()])
    assert found.word == "cannot be judged"
    assert "no ATHENA-base on Math23k at 30%; measured on tiny on asdiv_a: 9.6%" in found.why


def test_the_paper_s_solver_judges_its_cuts(stated):
    papers = {"papers_model": "ATHENA-base", "papers_data": "Math23k"}
    own = shares({"baseline": 0.5, "full": 0.5, "ratio_30": 0.5}, **papers)
    assert judge(CUT, stated[CUT], [own]).word == "fails"  # 9.6% is not 18.7%
    table = own.measurements
    pruned = table["arm"] == "ratio_30"
    base = simulated_trials.PARAMETERS
    cut = replace(own, measurements=table.assign(parameters=base - 0.187 * base * pruned))
    assert judge(CUT, stated[CUT], [cut]).word == "holds"
    unmeasured = replace(own, measurements=table[~pruned])
    assert judge(CUT, stated[CUT], [unmeasured]).word == "cannot be judged"


@pytest.mark.parametrize(
    ("left", "word"), [(0.5, "fails"), (0.493, "holds"), (0.44, "fails")]
)  # stated: −0.7
def test_a_stated_loss_is_held_against_the_interval(stated, left, word):
    papers = {"papers_model": "ATHENA-base", "papers_data": "Math23k"}
    own = shares({"baseline": 0.5, "ratio_30": left, "full": 0.5}, examples=1000, **papers)
    assert judge(LOSS, stated[LOSS], [own]).word == word


@pytest.mark.parametrize(
    ("small", "large", "word"),
    [(0.3, 0.5, "holds"), (0.5, 0.3, "fails"), (0.42, 0.42, "cannot be judged")],
)
def test_two_sizes_say_whether_larger_ones_lose_less(stated, small, large, word):
    both = [
        shares({"baseline": 0.5, "full": left}, subject=name, name=name)
        for name, left in (("tiny", small), ("wide", large))
    ]
    for history in both[1].histories["baseline"].values():
        history["parameters"] *= 2
    assert judge(LARGER, stated[LARGER], both).word == word
    assert judge(LARGER, stated[LARGER], both[:1]).word == "cannot be judged"


@pytest.mark.parametrize(
    ("alone", "word"),
    [
        ({"alpha_0": 0.3, "alpha_1": 0.2}, "holds"),
        ({"alpha_0": 0.7, "alpha_1": 0.2}, "fails"),
        ({"alpha_0": 0.5, "alpha_1": 0.2}, "cannot be judged"),
    ],
)
def test_the_best_alpha_must_be_shown_to_be_best(stated, alone, word):
    own = shares({"baseline": 0.6, "full": 0.5, **alone})
    assert judge("best alpha", stated["best alpha"], [own]).word == word


@pytest.mark.parametrize(
    ("alone", "word"),
    [
        ({"alpha_0": 0.3, "alpha_1": 0.3}, "holds"),
        ({"alpha_0": 0.45, "alpha_1": 0.1}, "fails"),
        ({"alpha_0": 0.3, "alpha_1": 0.2}, "holds"),  # they lose 20 and 30 points
    ],
)
def test_norm_and_entropy_are_comparable_within_a_factor(stated, alone, word):
    own = shares({"baseline": 0.6, "full": 0.5, **alone})
    assert judge(NORM_AND_ENTROPY, stated[NORM_AND_ENTROPY], [own]).word == word


@pytest.mark.parametrize(
    ("single", "word"), [(0.3, "holds"), (0.7, "fails"), (0.5, "fails"), (None, "cannot be judged")]
)
def test_recursion_gains_where_its_interval_says_so(stated, single, word):
    arms = {} if single is None else {"joint_single_teacher": single}
    own = shares({"baseline": 0.6, "full": 0.5, **arms})
    found = judge(RECURSION, stated[RECURSION], [own])
    assert found.word == word
    assert ("recursive against the first teacher" in found.why) == bool(arms)


def test_noise_leaves_recursion_open(stated):
    own = simulated_trials.trial(effects=dict.fromkeys(simulated_trials.EFFECTS, 0.0))
    assert judge(RECURSION, stated[RECURSION], [own]).word == "cannot be judged"


def test_speed_and_memory_are_shared_only_if_they_are(stated):
    own = simulated_trials.trial()
    assert judge(SAME_SPEED, stated[SAME_SPEED], [own]).word == "holds"
    slower = own.measurements.assign(
        seconds=own.measurements["seconds"] * (1 + 0.03 * (own.measurements["arm"] == "global"))
    )
    assert (
        judge(SAME_SPEED, stated[SAME_SPEED], [replace(own, measurements=slower)]).word == "fails"
    )


def test_higher_ratios_must_save_more(stated):
    own = simulated_trials.trial()
    assert judge(RISING, stated[RISING], [own]).word == "holds"
    stuck = own.measurements.assign(weight_bytes=7)
    assert judge(RISING, stated[RISING], [replace(own, measurements=stuck)]).word == "fails"


def test_one_seed_decides_nothing_about_training(stated):
    own = shares({"baseline": 0.6, "full": 0.5, "joint_single_teacher": 0.3}, seeds=(2,))
    found = judge(RECURSION, stated[RECURSION], [own])
    assert found.word == "cannot be judged"
    assert found.why.endswith("; of one seed")


def test_trials_that_disagree_leave_a_claim_open():
    def says(trial, value):
        return claims_method.holds_if(trial == "yes", f"{trial} says {value}")

    found = claims_method.each(says, "sayer", trained=False)
    assert found(["yes", "yes"], "it").word == "holds"
    assert found(["yes", "no"], "it").word == "cannot be judged"
    assert found(["yes", "no"], "it").why == "yes says it; no says it"
    assert found([], "it").why == "the run has no sayer"
