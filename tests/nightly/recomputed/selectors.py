"""Pass@N of a selector's methods, and the verdicts on selectors, from matrices and rankings."""

from math import comb

import numpy as np
import pandas as pd

from recomputed.chance import LEVEL, holm, jointly, paired, sign
from recomputed.run import Fact

SPRINT = "SPRINT"


def facts(run, of):
    """Return the numbers of a selector's Pass@N, and of the verdicts on all, by topic and name."""
    found = {
        ("Pass@N", f"{method}, {n}"): Fact(100 * value)
        for (method, n), value in Selector(run, of).curves().items()
    }
    selectors = [Selector(run, name) for name in run.config["selectors"]]
    return found | _sampling(selectors) | _question(selectors)


def _sampling(selectors):
    """Return the numbers of the verdict on whether choosing heads beats sampling."""
    rivals = [own.rival() for own in selectors]
    leads = [
        paired(own.passed(own.most), [[own.sampled(rival, own.most)]])
        for own, rival in zip(selectors, rivals, strict=True)
    ]
    # A rival that the test questions pick counts as often as there were samplings to pick from.
    counts = [1 if own.section["versus"] else len(own.section["sampling"]) for own in selectors]
    reported, told = _together("sampling", leads, counts)
    own = selectors[reported]
    return told | {
        ("sampling", "answers"): Fact(own.most),
        ("sampling", "temperature"): Fact(own.temperature(rivals[reported])),
        ("sampling", "samplings"): Fact(len(own.section["sampling"])),
        ("sampling", "questions"): Fact(len(own.z)),
    }


def _question(selectors):
    """Return the numbers of the verdict on whether the question matters."""
    leads = [paired(own.passed(), own.shuffled()) for own in selectors]
    reported, told = _together("question", leads, [1] * len(leads))
    own = selectors[reported]
    fixed = jointly(paired(own.passed(), own.covered()), len(leads))
    return told | {("question", "fixed"): Fact(sign(fixed))}


def _together(topic, leads, counts):
    """Return which lead a verdict on several reports, and its numbers by topic and name.

    A lead counts where Holm's correction over all leaves it: the surest is reported, or else the
    first. Its ends hold for all at once; power is that of the corrected test of the one. Each lead
    stands for a count of tests, all with its p-value.
    """
    every = [own.p for own, count in zip(leads, counts, strict=True) for _ in range(count)]
    corrected = holm(every)
    adjusted = [corrected[every.index(own.p)] for own in leads]
    signs = [sign(own) if p < LEVEL else 0 for own, p in zip(leads, adjusted, strict=True)]
    reported = int(np.argmin([own.p for own in leads])) if any(signs) else 0
    lead = leads[reported]
    joint = jointly(lead, len(every))
    found = {
        "difference": 100 * lead.mean,
        "low": 100 * joint.low,
        "high": 100 * joint.high,
        "p": adjusted[reported],
        "sign": signs[reported],
        "many": len([own for own in signs if own]),
        "entries": len(leads),
    }
    return reported, {(topic, name): Fact(value) for name, value in found.items()}


class Selector:
    """A selector's test questions, the outcomes of its heads on them, and its rankings."""

    def __init__(self, run, name):
        self.run, self.section = run, run.config["selectors"][name]
        self.folder, self.heads = run.folder / "sprint" / name, run.pool(self.section)
        model, decoding = self.section["model"], self.section["decoding"]
        whole, known = (
            run.matrix(model, decoding, self.section[questions]) for questions in ("test", "train")
        )
        self.base, self.z, self.known = whole["base"], whole[self.heads], known[self.heads]
        self.most = min(self.section["max_n"], len(self.heads))
        self.draws = ["all", *(f"redraw {place}" for place in range(self.section["redraws"]))]
        self.rankings = pd.read_parquet(self.folder / "trainings.parquet")

    def orders(self, method, draw):
        """Return a method's rankings, a row of places of heads for each question, by seed."""
        own = self.rankings.query("method == @method and training == @draw")
        by_seed = (part.set_index("question_id")["heads"] for _, part in own.groupby("seed"))
        return [np.stack(part[self.z.index].tolist()) for part in by_seed]

    def passed(self, n=None, method=SPRINT):
        """Return Pass@N of a method on each question by draw and seed; without n, its mean over N.

        One of the first N heads of the question's own ranking is right.
        """
        z = self.z.to_numpy()
        return [
            [
                _at(np.maximum.accumulate(np.take_along_axis(z, order, 1), axis=1), n, self.most)
                for order in self.orders(method, draw)
            ]
            for draw in self.draws
        ]

    def shuffled(self):
        """Return the mean over N of SPRINT's Pass@N with other questions' rankings.

        Of outcomes v_ij of question i under the ranking of question j, a question has
        v_i. + v_.i - v_.. (Hoeffding's projection).
        """
        z = self.z.to_numpy(bool)

        def projected(order):
            columns, solved = [], np.zeros((len(z), len(z)), bool)
            for n in range(self.most):
                solved = solved | z[:, order[:, n]]
                columns.append(solved.mean(axis=1) + solved.mean(axis=0) - solved.mean())
            return np.mean(columns, axis=0)

        return [[projected(order) for order in self.orders(SPRINT, draw)] for draw in self.draws]

    def covered(self):
        """Return the mean over N of Pass@N of heads that are the same for all questions."""
        found = []
        for known in self.redrawn():
            z = self.z[cover(known)].to_numpy()
            found.append([_at(np.maximum.accumulate(z, axis=1), None, self.most)])
        return found

    def redrawn(self):
        """Yield the matrix of the training questions, then of redraws of two thirds of them.

        No file names the questions of a redraw: its number and theirs seed a generator.
        """
        yield self.known
        count = len(self.known)
        for place in range(self.section["redraws"]):
            draw = np.random.default_rng([place, count])
            rows = draw.choice(count, max(2, round(count * 2 / 3)), replace=False)
            yield self.known.iloc[np.sort(rows)]

    def sampled(self, decoding, n):
        """Return the chance, for each question, that one of n samples is right."""
        names = self.section["model"], decoding, self.section["test"]
        graded = self.run.table("graded", *names).groupby("question_id")["correct"]
        right, total = graded.sum()[self.z.index], int(graded.size().iloc[0])
        return np.array([drawn(count, total, n) for count in right])

    def temperature(self, decoding):
        return self.run.config["decodings"][decoding]["temperature"]

    def rival(self):
        """Return the sampling that SPRINT is held against: the best at the largest N."""
        if self.section["versus"]:
            return self.section["versus"]
        return max(self.section["sampling"], key=lambda name: self.sampled(name, self.most).mean())

    def curves(self):
        """Return Pass@N by method and N."""
        sizes = range(1, self.most + 1)
        found = {"base greedy": dict.fromkeys(sizes, self.base.mean())}
        found["all heads (oracle)"] = dict.fromkeys(sizes, self.z.max(axis=1).mean())
        fixed = cover(self.known)
        found["greedy cover"] = {n: self.z[fixed[:n]].max(axis=1).mean() for n in sizes}
        for method in (SPRINT, "nearest questions"):
            found[method] = {n: np.mean(self.passed(n, method)[0]) for n in sizes}
        short = self.shortlist()
        right, most = self.z[short].sum(axis=1), len(short)
        found["random heads"] = {
            n: np.mean([drawn(count, most, min(n, most)) for count in right]) for n in sizes
        }
        for name in self.section["sampling"]:
            method = f"sampling T={self.temperature(name):g}"
            found[method] = {n: self.sampled(name, n).mean() for n in sizes}
        return {(method, n): value for method, own in found.items() for n, value in own.items()}

    def shortlist(self):
        """Return the heads of the shortlist that the run chose."""
        chosen = pd.read_csv(self.folder / "sensitivity.csv").query("chosen").iloc[0]
        by_accuracy = sorted(self.heads, key=lambda head: -self.known[head].sum())
        ranked = cover(self.known) if chosen["criterion"] == "joint cover" else by_accuracy
        return ranked[: chosen["k"]]


def _at(passed, n, most):
    return passed[:, n - 1].astype(float) if n else passed[:, :most].mean(axis=1)


def cover(z):
    """Return heads by how many questions they add to those solved; ties by all they solve."""
    left, open_, order = list(z.columns), z.astype(bool), []
    while left:
        best = max(left, key=lambda head: (open_[head].sum(), z[head].sum()))
        open_ = open_[~open_[best]]
        order.append(best)
        left.remove(best)
    return order


def drawn(right, total, n):
    """Return the chance that one of n drawn answers is right (Chen et al. 2021)."""
    return 1 - comb(total - right, n) / comb(total, n)
