from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import simulated_trials
from headroom.analysis.claims import judge
from headroom.analysis.compression.claims import measured, printed
from headroom.analysis.compression.published import Published
from headroom.analysis.published import COMPRESSION_CLAIMS
from simulation import PUBLISHED

LARGER = "larger models contain more redundant heads, making the optimization more effective"
CUT = "Math23k, 30% pruning: parameter reduction"
LOSS = "Math23k, 30% pruning: accuracy"
PAPERS = {"papers_model": "ATHENA-base", "papers_data": "Math23k"}
GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts.csv"


@pytest.fixture(scope="module")
def verdicts():
    """Return a function that judges all claims by some trials."""
    table = pd.read_csv(PUBLISHED / COMPRESSION_CLAIMS).drop_duplicates("claim")
    paper = printed(Published.read(PUBLISHED))

    def of(*trials):
        tables = measured(trials, paper["ratios"])
        nothing = pd.DataFrame({"of": []})
        found = {}
        for claim in table.dropna(subset="kind").itertuples():
            query = "index == index" if pd.isna(claim.filter) else claim.filter
            rows = tables.get(claim.table, nothing)
            rows = rows if rows.empty else rows.query(query)
            found[claim.claim] = judge(claim, rows, paper[claim.table].query(query), "the run has")
        return found

    return of


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


def cut(trial, share):
    """Return a trial whose arm of 30% has lost a share of its parameters."""
    table, base = trial.measurements, simulated_trials.PARAMETERS
    pruned = table["arm"] == "ratio_30"
    return replace(trial, measurements=table.assign(parameters=base - share * base * pruned))


def trials():
    """Return trials of the paper's solver, by the column of the golden verdicts."""
    same = shares({"baseline": 0.5, "full": 0.5, "ratio_30": 0.5}, **PAPERS)
    loss = {"baseline": 0.5, "ratio_30": 0.493, "full": 0.5}
    alphas = {"baseline": 0.844, "full": 0.84, "alpha_0": 0.831, "alpha_1": 0.712}
    return {
        "papers": simulated_trials.trial(**PAPERS),
        "loss": shares(loss, examples=1000, **PAPERS),
        "alphas": shares(alphas, examples=1000, **PAPERS),
        "cut": cut(same, 0.187),
    }


def test_verdicts_are_those_of_the_judges_that_were_written_out_one_by_one(verdicts):
    golden = pd.read_csv(GOLDEN).set_index("claim")
    for name, trial in trials().items():
        found = {claim: word for claim, (word, _) in verdicts(trial).items()}
        assert found == dict(golden[name].dropna())
    assert golden["cut"][CUT] == "holds"
    assert golden["papers"][CUT] == "fails"


def test_other_solvers_do_not_judge_claims_on_the_paper_s(verdicts):
    found = verdicts(simulated_trials.trial())
    assert found[CUT] == ("cannot be judged", "the run has no ATHENA-base on Math23k at 30%")
    assert {word for word, _ in found.values()} == {"cannot be judged"}


def test_a_cut_that_was_not_measured_leaves_its_claim_open(verdicts):
    own = trials()["cut"]
    assert verdicts(own)[CUT][0] == "holds"
    table = own.measurements
    unmeasured = replace(own, measurements=table[table["arm"] != "ratio_30"])
    assert verdicts(unmeasured)[CUT][0] == "cannot be judged"


@pytest.mark.parametrize(
    ("left", "word"), [(0.5, "fails"), (0.493, "holds"), (0.44, "fails")]
)  # stated: −0.7
def test_a_stated_loss_is_held_against_the_interval(verdicts, left, word):
    own = shares({"baseline": 0.5, "ratio_30": left, "full": 0.5}, examples=1000, **PAPERS)
    assert verdicts(own)[LOSS][0] == word


@pytest.mark.parametrize(
    ("small", "large", "seeds", "word"),
    [
        (0.3, 0.5, (2, 5), "holds"),
        (0.5, 0.3, (2, 5), "fails"),
        (0.42, 0.42, (2, 5), "cannot be judged"),
        (0.3, 0.5, (2,), "cannot be judged"),
    ],
)
def test_two_sizes_say_whether_larger_ones_lose_less(verdicts, small, large, seeds, word):
    both = [
        shares({"baseline": 0.5, "full": left}, subject=name, name=name, seeds=seeds)
        for name, left in (("tiny", small), ("wide", large))
    ]
    for history in both[1].histories["baseline"].values():
        history["parameters"] *= 2
    assert verdicts(*both)[LARGER][0] == word
    assert verdicts(both[0])[LARGER][0] == "cannot be judged"
