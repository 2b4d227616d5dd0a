"""The verdict on a sweep's heads, from its accuracy matrix."""

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from recomputed import published
from recomputed.chance import LEVEL, holm, paired, resampled, smallest_gain
from recomputed.run import Fact

_RESAMPLES = 4000


def facts(run, sweep, topic):
    """Return the numbers of the verdict on a sweep, by topic and name."""
    section = run.config["sweeps"][sweep]
    z = run.matrix(section["model"], section["decoding"], section["questions"])
    heads = run.pool(section)
    changes = z[heads].sub(z["base"], axis=0)
    gained, lost = (changes > 0).sum(), (changes < 0).sum()
    tested = pd.DataFrame({"gained": gained, "lost": lost, "gain": changes.mean()})
    tested["p"] = [
        binomtest(int(row.gained), int(row.gained + row.lost)).pvalue
        if row.gained + row.lost
        else 1
        for row in tested.itertuples()
    ]
    low, high, luck = band(changes)
    # The corrected test and the band that holds for all heads must both say so.
    passed = pd.Series(holm(tested["p"].tolist()), tested.index) < LEVEL
    helps, hurts = tested[passed & (low > 0)], tested[passed & (high < 0)]
    best = (helps if len(helps) else tested)["gain"].idxmax()
    least = [smallest_gain(len(z), share, len(heads)) for share in (gained + lost) / len(z)]
    bound = high.idxmax()
    found = {
        "shown": Fact(len(helps), (passed & (low.abs() < luck)).sum()),
        "heads": Fact(len(heads)),
        "best": Fact(100 * tested["gain"][best]),
        "low": Fact(100 * low[best], 100 * luck[best]),
        "high": Fact(100 * high[best], 100 * luck[best]),
        "questions": Fact(len(z)),
        "hurt": Fact(len(hurts), (passed & (high.abs() < luck)).sum()),
        "bound": Fact(100 * high[bound], 100 * luck[bound]),
        "shows": Fact(100 * np.median(least)),
        "limit": Fact(run.config["decodings"][section["decoding"]]["max_new_tokens"]),
        "uncut": Fact(100 * _uncut_gain(run, section, best)),
    }
    return {(topic, name): fact for name, fact in found.items()}


def _uncut_gain(run, section, head):
    """Return a head's gain without what is gained or lost by an answer that was cut."""
    graded = run.table("graded", section["model"], section["decoding"], section["questions"])
    right = graded.pivot(index="question_id", columns="variant", values="correct")
    stopped = graded.pivot(index="question_id", columns="variant", values="stop_reason")
    gained = right[head].eq(1) & right["base"].eq(0) & stopped["base"].ne("length")
    lost = right[head].eq(0) & right["base"].eq(1) & stopped[head].ne("length")
    return gained.mean() - lost.mean()


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
