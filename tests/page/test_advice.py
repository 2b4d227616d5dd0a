"""What a comparison of families with sampling recommends, from tables in closed form."""

import math
import re

import pandas as pd
import pytest
from scipy.stats import norm

import simulation
from headsweep.config import parse
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_csv
from headsweep.page.blocks import Section
from headsweep.page.sections import families
from headsweep.results.advice import of_frontier
from headsweep.results.verdicts import verdicts
from headsweep.store.layout import Store

BASE_TOKENS, BUDGET = 50, 4
# Tokens of an answer, and how many answers the curve has; the nearest to 200 tokens are
# 6, 4 and 3 answers: 198, 188 and 183 tokens.
OF_FAMILY = {"head": (33, 8), "weights": (47, 5), "sampling": (61, 7)}
TITLES = {"head": "heads", "weights": "noisy weights", "sampling": "sampling"}
SCALES = {"head": None, "weights": "20", "sampling": "T0.6"}
TESTS = 4  # two families, by any answer and by vote


def wanted(*, at, of):
    """Return what an independent reading of the curves gives: answers and their tokens."""
    each, most = OF_FAMILY[of]
    answers = min(range(1, most + 1), key=lambda n: abs(n * each - at))
    return f"{answers} answers, {answers * each} tokens"


def corrected(low, high, *, tests):
    """Return an interval that holds for so many tests at once, in points."""
    middle, half = (low + high) / 2, (high - low) / 2
    half *= norm.ppf(1 - 0.025 / tests) / norm.ppf(0.975)
    return f"({100 * (middle - half):+.1f} to {100 * (middle + half):+.1f})".replace("-", "−")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frontier = {"model": "reasoner", "train": "math_train", "test": "math_test"}
    frontier |= {"families": ["head", "weights"], "sampling": ["T0.6"], "members": 8}
    one = parse(simulation.DEMO | {"frontiers": {"one": frontier}})
    own = [
        {"family": name, "title": TITLES[name], "scale": SCALES[name], "members": 8}
        for name in OF_FAMILY
    ]
    write(one, "families", pd.DataFrame(own))
    curves = []
    for family, (each, most) in OF_FAMILY.items():
        for n in range(1, most + 1):
            # Drawn members are never asked for: theirs are other numbers.
            for order, more in (("drawn", 3), ("ordered", 0)):
                tokens = n * (each + more)
                row = {"family": family, "order": order, "n": n, "tokens": tokens}
                row |= {"answers": tokens / BASE_TOKENS, "pass": 0.5, "majority": 0.4}
                curves.append(row)
    write(one, "curves", pd.DataFrame(curves))
    return one.model_copy(update={"sweeps": {}, "selectors": {}, "comparisons": {}})


def file_of(config, table):
    return Store(config).path(paths.FRONTIER, frontier="one", table=table)


def read(config, table):
    return pd.read_csv(file_of(config, table))


def write(config, table, rows):
    file = file_of(config, table)
    write_csv(file, rows)
    write_record(file, Stopwatch(), {"primary_budget": BUDGET})


def compared(config, *, head, weights):
    """Write differences from sampling: (difference, low, high, adjusted) by any answer, where
    those of votes, of fewer tokens and of drawn members say the reverse.
    """
    rows = []
    for family, (difference, low, high, adjusted) in (("head", head), ("weights", weights)):
        told = {"family": family, "versus": "sampling", "family_title": TITLES[family]}
        told |= {"versus_title": "sampling", "outcome": "pass", "order": "ordered"}
        told |= {"budget": BUDGET, "value": 0.6 + difference, "difference": difference}
        told |= {"low": low, "high": high, "adjusted": adjusted}
        error = (high - low) / 2 / norm.ppf(0.975)
        told |= {"p": 2 * norm.sf(abs(low + high) / 2 / error)}
        reverse = {"difference": -difference, "low": -0.9, "high": 0.8, "value": 0.6 - difference}
        reverse |= {"p": 0.9}
        rows += [told, told | reverse | {"outcome": "majority"}]
        rows += [told | reverse | {"budget": 2, "adjusted": math.nan}]
        rows += [told | reverse | {"order": "drawn"}]
    # Another list, corrected for itself.
    other = {"versus": "weights", "versus_title": "noisy weights"}
    write(config, "paired", pd.DataFrame([*rows, rows[0] | other]))


CASES = {
    "one of two leads": (
        (0.03, -0.02, 0.08, 0.3),
        (0.05, 0.015, 0.085, 0.03),
        f"noisy weights, scale 20, {wanted(at=200, of='weights')}. "
        f"+5.0 {corrected(0.015, 0.085, tests=4)} points over sampling with as many; 95% certain, "
        "after Holm's correction.",
    ),
    "the one that solves most of two that lead": (
        (0.07, 0.03, 0.11, 0.02),
        (0.05, 0.025, 0.075, 0.01),
        f"heads, {wanted(at=200, of='head')}. +7.0 {corrected(0.03, 0.11, tests=3)} points over "
        "sampling with as many; 95% certain, after Holm's correction.",
    ),
    "an interval beyond zero is not enough": (
        (0.03, 0.01, 0.05, 0.06),
        (0.05, 0.002, 0.098, 0.06),
        f"sampling T = 0.6, {wanted(at=200, of='sampling')}. No family's lead is shown.",
    ),
    "what is shown to be worse leaves nothing open": (
        (-0.01, -0.04, 0.02, 0.5),
        (-0.3, -0.5, -0.1, 0.01),
        f"sampling T = 0.6, {wanted(at=200, of='sampling')}. No family's lead is shown.",
    ),
    "all are worse": (
        (-0.1, -0.15, -0.05, 0.01),
        (-0.3, -0.5, -0.1, 0.01),
        f"sampling T = 0.6, {wanted(at=200, of='sampling')}. Every family solves less; 95% "
        "certain, after Holm's correction.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_families_end_in_which_one_at_how_many_tokens_and_how_sure(run, case):
    head, weights, said = CASES[case]
    compared(run, head=head, weights=weights)
    told = str(of_frontier(Store(run), "one"))
    assert told == f"MATH-like, what to do where answers can be checked: {said}"
    assert len(re.findall(r"\w\S*", told)) <= 32
    families(Store(run), section := Section("families", ""))
    assert str(section.lead[-1]) == told


def test_the_verdict_has_the_interval_of_all_tests_together(run):
    compared(run, head=(0.01, -0.05, 0.07, 1.0), weights=(-0.01, -0.04, 0.02, 1.0))
    audit = pd.DataFrame({"pairs": [100], "beyond": 5, "luck": 2.7, "luck_high": 7, "p": 0.2})
    write_csv(file := Store(run).path(paths.AUDIT_TABLE, paper="total"), audit)
    write_record(file, Stopwatch(), {})
    (verdict,) = (each for each in verdicts(Store(run)) if each.section == "families")
    assert f": +1.0 {corrected(-0.05, 0.07, tests=TESTS)} points." in str(verdict)


def test_nothing_is_advised_without_a_number_of_tokens_or_without_samples(run):
    compared(run, head=(0.1, 0.05, 0.15, math.nan), weights=(0.2, 0.1, 0.3, math.nan))
    write(run, "paired", read(run, "paired").query("adjusted != adjusted"))
    said = "MATH-like, what to do: raise max_n, as no number of tokens is reached by all."
    assert str(of_frontier(Store(run), "one")) == said
    for table in ("families", "curves"):
        write(run, table, read(run, table).query("family != 'sampling'"))
    assert of_frontier(Store(run), "one") is None
    families(Store(run), section := Section("families", ""))
    assert "what to do" not in str(section.lead[-1])
