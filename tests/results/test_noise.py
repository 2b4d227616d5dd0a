"""Worlds in which pruning has no effect satisfy no claim about gains more often than 5%."""

import os

import numpy as np
import pandas as pd
from scipy.stats import binom

from headsweep.results import judges
from headsweep.results.evidence import of_printed, of_sweep
from headsweep.results.excess import PARTICULAR, best, harmless, increased, median, particular
from headsweep.results.facts import read_csv, rows_of
from headsweep.results.judges import JUDGES, Evidence
from headsweep.results.published import EXHIBITS, SIZES
from simulation import PUBLISHED

WORLDS, RESAMPLES = 60 if "HEADSWEEP_NIGHTLY" in os.environ else 30, 79
MOST = binom.isf(1e-2, WORLDS, 0.05)  # 7 of 60, 5 of 30
SUBJECTS = np.repeat(list(SIZES), list(SIZES.values()))
LAYERS, HEADS = 2, 5
NAMES = [[f"L{layer}{{}}{head}" for head in range(HEADS)] for layer in range(LAYERS)]
PRUNED, PLACEBOS = ([[each.format(kind) for each in layer] for layer in NAMES] for kind in "HN")
CLAIMS = {row.claim: row for row in rows_of(read_csv(PUBLISHED / "sprint_claims.csv"))}
OF_GAINS = [claim for claim, row in CLAIMS.items() if row.kind in {*JUDGES} - {"overhead"}]
HARMLESS = "pruning individual heads often does not reduce accuracy"
INCREASED = "pruning individual heads in many cases increases accuracy"
ACCURACY = dict(zip(EXHIBITS, (0.241, 0.738, 0.823, 0.765), strict=True))


def judged(claim, known):
    return JUDGES[CLAIMS[claim].kind](CLAIMS[claim], known)


def coins(draw, accuracy, level):
    """Return base, heads and placebos: the base model with a tenth of answers tossed by coin."""
    base = draw.random((500, 1)) < accuracy + 0.05 * (3 - level)[:, None]
    tossed = draw.random((500, 2 * LAYERS * HEADS)) < 0.1
    return base, np.where(tossed, draw.random(tossed.shape) < 0.5, base)


def flips(draw, accuracy, level):
    """Return the same, a tenth of the answers turned round."""
    base = draw.random((500, 1)) < accuracy + 0.05 * (3 - level)[:, None]
    return base, base ^ (draw.random((500, 2 * LAYERS * HEADS)) < 0.1)


def contested(draw, accuracy, level):
    """Return the same: a fifth of the questions is tossed anew, by the base model, too."""
    base = draw.random((500, 1)) < accuracy + 0.05 * (3 - level)[:, None]
    tossed = draw.random((500, 1)) < 0.2
    answers = draw.random((500, 1 + 2 * LAYERS * HEADS)) < 0.5
    whole = np.where(tossed, answers, base)
    return whole[:, :1], whole[:, 1:]


def unsure(draw, accuracy, level):
    """Return the same: answers to hard questions vary as luck has it, in two fifths of cases."""
    right = np.array([0.9, 0.8, 0.6, 0.4, 0.2])[level - 1]
    chance = draw.beta(2 * right, 2 * (1 - right))[:, None]
    base = draw.random((500, 1)) < chance
    anew = draw.random((500, 2 * LAYERS * HEADS)) < 0.4
    return base, np.where(anew, draw.random(anew.shape) < chance, base)


def evidence_of(draw, world, seed, *, placebos):
    excesses = {}
    level = draw.integers(1, 6, 500)
    for place, (model, accuracy) in enumerate(ACCURACY.items()):
        base, answers = world(draw, accuracy, level)
        z = pd.DataFrame(answers, columns=np.ravel([*PRUNED, *PLACEBOS])).astype("int8")
        z = z.assign(base=base.astype("int8"), subject=SUBJECTS, level=level)
        others = PLACEBOS if placebos else []
        how = {"resamples": RESAMPLES, "seed": 4 * seed + place}
        excesses[model] = of_sweep(z, PRUNED, others, **how)
        if "Math-1.5B" in model:
            excesses[model] |= of_sweep(z, PRUNED[:1], others[:1], figure=True, **how)
    # The best of several heads gains in every pair, as it nearly always does.
    return Evidence(excesses, {"pairs": pd.DataFrame({"gain": [0.02], "gain_high": np.nan})})


def test_heads_that_are_noise_satisfy_no_claim_about_gains():
    draw, words = np.random.default_rng(17), []
    for seed in range(WORLDS):
        world = (coins, flips, contested)[seed % 3]
        known = evidence_of(draw, world, seed, placebos=seed % 2 == 0)
        words.append({claim: judged(claim, known).word for claim in OF_GAINS})
    assert len(OF_GAINS) == 7
    assert ((pd.DataFrame(words) == "holds").sum() <= MOST).all()


def test_heads_that_are_noise_refute_no_difference_between_easy_and_hard_questions():
    """Without placebos either model of chance may be true, and one reaches above such heads."""
    draw, words = np.random.default_rng(23), []
    (claim,) = (claim for claim in OF_GAINS if claim.startswith("gains arise particularly"))
    for seed in range(WORLDS):
        known = evidence_of(draw, unsure, seed, placebos=False)
        words.append(judged(claim, known).word)
    assert words.count("holds") + words.count("fails") <= MOST


def test_a_planted_gain_satisfies_them_and_a_planted_loss_refutes_them():
    draw, words = np.random.default_rng(3), {}
    level = np.repeat([1, 2, 3, 4, 5], 100)
    for placebos in (True, False):
        for change in (0.15, -0.15):
            excesses = {}
            for model in EXHIBITS:
                base, answers = contested(draw, 0.5, level)
                # Math models gain more, and so do hard questions, and those of two subjects.
                subjects = draw.permutation(SUBJECTS)
                share = abs(change) * (2 if "Math" in model else 1) * (0.4 + 0.3 * (level > 3))
                share = np.where(np.isin(subjects, PARTICULAR), 2 * share, share)
                turned = draw.random((500, LAYERS * HEADS)) < share[:, None]
                heads = answers[:, : LAYERS * HEADS]
                answers[:, : LAYERS * HEADS] = np.where(turned, change > 0, heads)
                z = pd.DataFrame(answers, columns=np.ravel([*PRUNED, *PLACEBOS])).astype("int8")
                z = z.assign(base=base.astype("int8"), level=level)
                z["subject"] = subjects
                others = PLACEBOS if placebos else []
                excesses[model] = of_sweep(z, PRUNED, others, 5, resamples=400)
                excesses[model] |= of_sweep(z, PRUNED, others, 5, figure=True, resamples=400)
            pairs = pd.DataFrame({"gain": [0.1 if change > 0 else 0.0], "gain_high": np.nan})
            known = Evidence(excesses, {"pairs": pairs})
            words[placebos, change] = {claim: judged(claim, known).word for claim in OF_GAINS}
    assert set(words[True, 0.15].values()) == {"holds"}, words
    for placebos in (True, False):
        for claim in (HARMLESS, INCREASED):  # others take more against mere chance
            assert words[placebos, 0.15][claim] == "holds"
        refuted = words[placebos, -0.15]
        assert "holds" not in refuted.values(), words
        assert refuted[HARMLESS] == refuted[INCREASED] == "fails"


def test_printed_tables_of_noise_satisfy_no_claim_either():
    draw = np.random.default_rng(5)
    held = dict.fromkeys(OF_GAINS, 0)
    counted = [harmless, increased, best, median, particular]
    names = [judges.HARMLESS, judges.INCREASED, judges.BEST, judges.MEDIAN, judges.SUBJECTS]
    for seed in range(WORLDS):
        excesses = {}
        for place, (model, accuracy) in enumerate(ACCURACY.items()):
            rows = []
            for subject, n in list(SIZES.items())[:3]:
                sure = draw.binomial(n - n // 5, accuracy)
                tossed = draw.binomial(n // 5, 0.5, 1 + HEADS)
                right = sure + tossed
                named = zip([None, *range(HEADS)], right, strict=True)
                rows += [(0, head, subject, n, count) for head, count in named]
            part = pd.DataFrame(rows, columns=["layer", "head", "subject", "n", "correct"])
            part = part.assign(accuracy=part["correct"] / part["n"]).astype({"head": "Int64"})
            found = of_printed(part, counted, 4 * seed + place, RESAMPLES)
            excesses[model] = dict(zip(names, found, strict=True))
            if "Math-1.5B" in model:
                excesses[model][judges.FIGURE] = excesses[model][judges.INCREASED]
        tables = {"pairs": pd.DataFrame({"gain": [0.02], "gain_high": np.nan})}
        for claim in OF_GAINS:
            judgement = judged(claim, Evidence(excesses, tables, printed=True))
            held[claim] += judgement is not None and judgement.word == "holds"
    assert max(held.values()) <= MOST, held
