"""The verdict on a sweep's heads, from its accuracy matrix."""

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from recomputed import published
from recomputed.chance import LEVEL, holm, paired, resampled
from recomputed.run import Fact

_RESAMPLES = 4000


def facts(run, sweep, topic):
    """Return the numbers of the verdict on a sweep, by topic and name."""
    section = run.config["sweeps"][sweep]
    z = run.matrix(section["model"], section["decoding"], section["questions"])
    heads = run.pool(section)
    changes = z[heads].sub(z["base"], axis=0)
    low, high, luck = band(changes)
    passed = _passed(changes)
    # What answers that were cut could decide is not shown.
    cut = _cut(run, section)
    without = changes.mask((changes > 0).mul(cut["base"], axis=0) | ((changes < 0) & cut[heads]), 0)
    low_without, high_without, _ = band(without)
    both = passed & _passed(without)
    helps = both & (low > 0) & (low_without > 0)
    hurts = both & (high < 0) & (high_without < 0)
    best = changes.loc[:, helps if helps.any() else heads].mean().idxmax()
    bound = high.idxmax()
    found = {
        "shown": Fact(helps.sum(), (passed & (low.abs() < luck)).sum()),
        "heads": Fact(len(heads)),
        "best": Fact(100 * changes[best].mean()),
        "low": Fact(100 * low[best], 100 * luck[best]),
        "high": Fact(100 * high[best], 100 * luck[best]),
        "questions": Fact(len(z)),
        "hurt": Fact(hurts.sum(), (passed & (high.abs() < luck)).sum()),
        "bound": Fact(100 * high[bound], 100 * luck[bound]),
        "cut": Fact(100 * max(cut["base"].mean(), cut[heads].mean(axis=None))),
    }
    return {(topic, name): fact for name, fact in found.items()}


def _passed(changes):
    """Return which heads the exact test shows after correction for all; the band is apart."""
    gained, lost = (changes > 0).sum(), (changes < 0).sum()
    p = [
        binomtest(int(more), int(more + less)).pvalue if more + less else 1
        for more, less in zip(gained, lost, strict=True)
    ]
    return pd.Series(holm(p), changes.columns) < LEVEL


def _cut(run, section):
    """Return which answers to each question were cut, by variant, in the order of the matrix."""
    names = section["model"], section["decoding"], section["questions"]
    graded = run.table("graded", *names)
    stopped = graded.pivot(index="question_id", columns="variant", values="stop_reason")
    questions = run.matrix(*names).index
    return stopped.eq("length").loc[questions]


def by_subject(run, sweep):
    """Return the percentages of an account's table by subject, from graded answers."""
    section = run.config["sweeps"][sweep]
    names = section["model"], section["decoding"], section["questions"]
    graded = run.table("graded", *names)
    subject = run.matrix(*names)["subject"].astype(str)
    graded["subject"] = graded["question_id"].map(subject)
    layer = f"L{section['layers'][0]:02}"
    kinds = {"a head less": f"{layer}H", "noise": f"{layer}N"}
    found = {}
    for group in [*subject.unique(), "Overall"]:
        asked = graded if group == "Overall" else graded[graded["subject"] == group]
        right = 100 * asked.groupby("variant")["correct"].mean()
        found[group, "whole"] = right["base"]
        found[group, "questions"] = asked["question_id"].nunique()
        for kind, begin in kinds.items():
            shares = right[right.index.str.startswith(begin)]
            if kind == "a head less" and len(shares) == 1:
                found[group, f"without {shares.index[0]}"] = shares.iloc[0]
            found[group, f"{kind}, least"] = shares.min()
            found[group, f"{kind}, most"] = shares.max()
    beside = run.config["models"][section["model"]]["beside"]
    found |= published.by_subject(beside, section["layers"][0])
    return {
        ("subjects", f"{group}, {column}"): Fact(share) for (group, column), share in found.items()
    }


def band(changes):
    """Return the ends of intervals that hold for all heads at once, and their luck.

    The sup-t band of Montiel Olea and Plagborg-Møller 2019: the 95% quantile of the largest
    studentised deviation of resamples takes the place of the normal quantile.
    """
    single = pd.DataFrame([paired([[own]]) for _, own in changes.items()], changes.columns)
    varied = changes.loc[:, changes.std() > 0]
    mean, error = varied.mean().to_numpy(), varied.std(ddof=0).to_numpy() / len(varied) ** 0.5

    def factor(means):
        largest = np.abs((means - mean) / error).max(axis=1)
        return np.quantile(largest, 1 - LEVEL) / norm.isf(LEVEL / 2)

    wider, luck = resampled(varied.to_numpy(), factor, _RESAMPLES)
    middle, half = (single["low"] + single["high"]) / 2, (single["high"] - single["low"]) / 2
    return (middle - half * wider).clip(-1), (middle + half * wider).clip(upper=1), half * luck
