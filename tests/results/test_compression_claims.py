"""The second paper's claims: simulated compressions that satisfy, violate and leave them open."""

import re

import numpy as np
import pandas as pd
import pytest

import simulated_studies
import simulation
from headsweep.results import jobs
from headsweep.results.claims import KINDS, UNMEASURED, claims
from headsweep.results.compression_evidence import BASE, MATH, Compressed, of_run
from headsweep.results.facts import read_csv, rows_of
from headsweep.results.judges import OPEN, Evidence
from headsweep.store.layout import Store
from simulation import PUBLISHED

RANDOM = "random / global threshold / attention visualization pruning"
RECURSION = "recursive distillation gain over single-round distillation"
COMPARABLE = "weight norm and entropy contribute comparably"
BETWEEN = "accuracy for alpha between 0.3 and 0.7"
COMPLEX = "simple / complex problems: accuracy drop"
ALIKE = "all pruned variants of Table 4 share speed and memory figures"
MORE = "Math23k, increasing the ratio reduces parameters, memory and computation"
NORM = "pruning only / without norm"
ENTROPY = "removing entropy"
OVERALL = "overall at 25%: accuracy loss / parameters / speed / memory"
AT_25 = "ATHENA-base, Math23k, 25%: accuracy drop / parameters / speed"
LARGE = "ATHENA-large"
RIVALS = ("random", "global", "attention_visualisation")


CLAIMS = {row.claim: row for row in rows_of(read_csv(PUBLISHED / "compression_claims.csv"))}


def judged(claim, *compressions):
    return KINDS[CLAIMS[claim].kind](CLAIMS[claim], Evidence(compressions=compressions))


def numbers(key, values, column, half):
    """Return rows by a key with a number in points, and an interval as far to both sides."""
    table = pd.DataFrame({key: list(values), column: [value / 100 for value in values.values()]})
    ends = {
        f"{column}_low": table[column] - half / 100,
        f"{column}_high": table[column] + half / 100,
    }
    return table.assign(**ends)


def few(values, column):
    """Return numbers of arms from too few examples for an interval."""
    return arms(values, column, half=np.nan)


def arms(values, column="gap", half=0.3):
    return {"table4": numbers("arm", values, column, half)}


def alphas(values, column="gap", half=0.3, *, distilled=True):
    return {"table3a": numbers("alpha", values, column, half).assign(distilled=distilled)}


def ratios(values):
    columns = ["ratio", "parameters_removed", "weight_removed", "flops_removed"]
    return {"table1": pd.DataFrame(values, columns=columns)}


def speeds(*values):
    table = pd.DataFrame({"arm": ["full", "random", "global"][: len(values)], "ratio": 0.25})
    return {"table4": table.assign(faster_large=values, weight_removed=0.1)}


def ablation(change, half, **cuts):
    saved = {"parameters_removed": 0.17, "faster_large": 0.23, "weight_removed": 0.13} | cuts
    table = numbers("arm", {"full": change}, "change", half).assign(ratio=0.25, **saved)
    return {"table4": table, "table1": table}


OTHERS = {0.0: -1, 0.3: -0.5, 0.5: 0, 0.7: -0.6, 1.0: -9}
CASES = [
    ("best alpha", None, alphas(OTHERS), "holds"),
    ("best alpha", None, alphas(OTHERS | {0.3: 0.5}), "fails"),
    ("best alpha", None, alphas(OTHERS | {0.3: 0}, half=0), "fails"),  # it is as good
    # One of four alphas has to be better by more than a single one would.
    ("best alpha", None, alphas(OTHERS | {0.3: 0.35}), OPEN),
    ("best alpha", None, alphas(OTHERS | {0.3: -0.1}), OPEN),
    ("best alpha", None, alphas({0.5: 0}), None),
    ("alpha = 0 / alpha = 1", None, alphas({0.0: -1, 1.0: -9}, "change"), "holds"),
    ("alpha = 0 / alpha = 1", None, alphas({0.0: -1, 1.0: 9}, "change"), "fails"),
    ("alpha = 0 / alpha = 1", None, alphas({0.0: -1, 1.0: -0.1}, "change"), OPEN),
    # Of the paper's own solver and data the numbers count.
    ("alpha = 0 / alpha = 1", (BASE, MATH), alphas({0.0: -1.2, 1.0: -13.1}, "change"), "holds"),
    ("alpha = 0 / alpha = 1", (BASE, MATH), alphas({0.0: -1.2, 1.0: -9}, "change"), "fails"),
    # The paper's mixtures were distilled.
    ("alpha = 0 / alpha = 1", None, alphas({0.0: -1, 1.0: -9}, "change", distilled=False), None),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: 0}, "change", distilled=False), None),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: -0.4}, "change"), "holds"),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: -2}, "change"), "fails"),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: -1.22}, "change"), OPEN),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: -0.8}, "change"), OPEN),
    (ENTROPY, None, arms({"without_entropy": -5}, "change"), "holds"),
    (ENTROPY, None, arms({"without_entropy": 5}, "change"), "fails"),
    (ENTROPY, None, arms({"without_entropy": -0.1}, "change"), OPEN),
    (ENTROPY, (BASE, MATH), arms({"without_entropy": -5}, "change"), "fails"),
    (RANDOM, None, arms(dict.fromkeys(RIVALS, -1)), "holds"),
    (RANDOM, None, arms(dict.fromkeys(RIVALS, -1) | {"global": 1}), "fails"),
    (RANDOM, None, arms(dict.fromkeys(RIVALS, -1) | {"global": -0.1}), OPEN),
    (RANDOM, None, arms({"random": -1}), OPEN),  # the others are not there
    (
        BETWEEN,
        None,
        alphas({0.3: 0, 0.5: 0, 0.7: -2}, "change"),
        None,
    ),  # 0.9 points are the paper's
    (RECURSION, None, arms({"joint_single_teacher": -0.5}), "holds"),
    (RECURSION, None, arms({"joint_single_teacher": -0.2}, half=0.1), "holds"),
    (RECURSION, (BASE, MATH), arms({"joint_single_teacher": -0.2}, half=0.1), "fails"),
    (RECURSION, None, arms({"joint_single_teacher": -0.2}), OPEN),
    (RECURSION, None, arms({"joint_single_teacher": 0.5}), "fails"),
    (RECURSION, None, arms({"random": 0.5}), None),
    # Too few examples decide nothing.
    (RECURSION, None, few({"joint_single_teacher": -0.5}, "gap"), OPEN),
    (ENTROPY, (BASE, MATH), few({"without_entropy": -13.2}, "change"), OPEN),
    (ENTROPY, None, few({"without_entropy": -5}, "change"), OPEN),
    (NORM, (BASE, MATH), few({"pruning_only": -5, "without_norm": 5}, "gap"), OPEN),
    (COMPARABLE, None, few({"without_norm": -1, "without_entropy": -1}, "change"), OPEN),
    (BETWEEN, (BASE, MATH), alphas({0.3: 0, 0.5: 0, 0.7: -2}, "change", np.nan), OPEN),
    ("best alpha", None, alphas(OTHERS, half=np.nan), OPEN),
    (
        COMPLEX,
        (BASE, MATH),
        {"table3b": numbers("stratum", {"low": -1, "high": -3}, "change", np.nan)},
        OPEN,
    ),
    (OVERALL, (BASE, MATH), ablation(-0.4, np.nan), OPEN),
    (COMPARABLE, None, arms({"without_norm": -1, "without_entropy": -1.1}, "change"), "holds"),
    (COMPARABLE, None, arms({"without_norm": -1, "without_entropy": -13}, "change"), "fails"),
    (COMPARABLE, None, arms({"without_norm": -1, "without_entropy": -2.4}, "change"), OPEN),
    (
        COMPLEX,
        None,
        {"table3b": numbers("stratum", {"low": -1, "high": -3}, "change", 0.5)},
        "holds",
    ),
    (
        COMPLEX,
        None,
        {"table3b": numbers("stratum", {"low": -3, "high": -1}, "change", 0.5)},
        "fails",
    ),
    (COMPLEX, None, {"table3b": numbers("stratum", {"low": -1, "high": -3}, "change", 2)}, OPEN),
    (MORE, None, ratios([(0.2, 0.1, 0.1, 0.1), (0.3, 0.2, 0.2, 0.2)]), "holds"),
    (MORE, None, ratios([(0.2, 0.1, 0.1, 0.1), (0.3, 0.2, 0.1, 0.2)]), "fails"),
    (MORE, None, ratios([(0.2, 0.1, 0.1, 0.1)]), None),
    (ALIKE, None, speeds(0.227, 0.227), "holds"),
    (ALIKE, None, speeds(0.227, 0.2, 0.22), "fails"),
    (ALIKE, None, speeds(0.227), None),
    (OVERALL, (BASE, MATH), ablation(-0.6, 0.4), "holds"),
    (OVERALL, (BASE, MATH), ablation(-0.6, 0.8), OPEN),
    (OVERALL, (BASE, MATH), ablation(-3, 0.4), "fails"),
    (OVERALL, (BASE, MATH), ablation(-0.6, 0.4, parameters_removed=0.06), "fails"),
    (OVERALL, None, ablation(-0.6, 0.4), None),
    (AT_25, (BASE, MATH), ablation(-0.6, 0.4), "holds"),
    (AT_25, (BASE, MATH), ablation(-0.6, 0.4, faster_large=0.05), "fails"),
    (AT_25, (LARGE, MATH), ablation(-0.6, 0.4), None),  # another of the paper's solvers
]


@pytest.mark.parametrize(("claim", "condition", "tables", "word"), CASES)
def test_a_compression_satisfies_a_claim_or_violates_it_or_leaves_it_open(
    claim, condition, tables, word
):
    found = judged(claim, Compressed("own", condition, tables))
    assert (found and found.word) == word
    assert not found or not re.search(r"nan|\binf\b", found.why)
    if word and not condition and "direction" in found.why:
        assert "not the paper's solver and data" in found.why


def test_compressions_that_disagree_decide_nothing():
    good, bad, open_ = (
        Compressed(name, None, arms({"joint_single_teacher": gap}))
        for name, gap in (("one", -0.5), ("two", 0.5), ("three", -0.2))
    )
    assert judged(RECURSION, good, open_).word == "holds"
    assert judged(RECURSION, good, bad).word == judged(RECURSION, open_).word == OPEN
    assert "one: " in judged(RECURSION, good, bad).why
    assert "two: " in judged(RECURSION, good, bad).why
    assert judged(RECURSION) is None


def test_a_run_s_own_compressions_are_judged_and_what_it_lacks_is_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gone = {key: {} for key in ("sweeps", "selectors", "frontiers", "comparisons")}
    config = simulation.whole().model_copy(update=gone)
    for each in simulated_studies.all_results():
        simulated_studies.write(Store(config), each)
    jobs.write_compression_tables(Store(config), PUBLISHED)
    # A solver of its own on ASDiv-A is not the paper's.
    assert [each.condition for each in of_run(Store(config))] == [None, None]
    found = claims(Store(config), PUBLISHED).query("paper == 'compression'")
    found = found.drop_duplicates("claim").set_index("claim")
    assert found.loc[MORE, "run"] == "holds"  # its sizes fall with each ratio
    kinds = pd.Series({claim: row.kind for claim, row in CLAIMS.items()})
    decided = found["run_why"].ne(UNMEASURED.why) & kinds[found.index].notna()
    assert decided.sum() >= 10
    absent = found.loc[[OVERALL, AT_25, "Math23k, 30% pruning: accuracy"], "run_why"]
    assert (absent == UNMEASURED.why).all()
    assert "ASDiv-A" in found.loc["best alpha", "run_why"]
