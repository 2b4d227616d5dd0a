"""The paper's own gains against luck, from config/published; and look-alikes among questions."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binom

from recomputed.chance import repeated
from recomputed.run import Fact

FOLDER = Path(__file__).parents[3] / "config/published"
SIZES = {
    "Algebra": 124,
    "Counting & Probability": 38,
    "Geometry": 41,
    "Intermediate Algebra": 97,
    "Number Theory": 62,
    "Prealgebra": 82,
    "Precalculus": 56,
}
"""Questions of MATH-500 by subject."""
_RESAMPLES = 4000
_HURTS = -3.5  # standard deviations, over all subjects
_GRAM = 8  # words


def facts():
    """Return the numbers of the verdict on published gains, by topic and name."""
    pairs = [*_pairs()]
    draw = np.random.default_rng(1)

    def drawn():
        gains = _by_chance(pairs, draw)
        most = np.quantile(gains, 0.95, axis=1) + 1e-9
        lucky = (gains > most[:, np.newaxis]).sum(axis=0)
        beyond = sum(pair["gain"] > limit for pair, limit in zip(pairs, most, strict=True))
        return beyond, lucky.mean(), np.quantile(lucky, 0.95, method="higher")

    values, luck = repeated(drawn, step=[1, 0, 1])  # two are counts
    found = {"pairs": Fact(len(pairs))}
    for place, name in enumerate(("beyond", "luck", "luck_high")):
        found[name] = Fact(values[place], luck[place])
    return {("published", name): fact for name, fact in found.items()}


def by_subject(model, layer):
    """Return the percentages printed of a model at a layer, by subject and an account's column.

    Overall are those of heads with every subject.
    """
    table = pd.read_csv(FOLDER / "sprint_head_pruning.csv").query("model == @model")
    grid = table.pivot(index=["layer", "head"], columns="subject", values="accuracy")
    size = pd.Series(SIZES)
    counts = (grid * size).round()
    overall = counts.sum(axis=1, skipna=False) / size.sum()
    shares = 100 * (counts / size).assign(Overall=overall)
    base = shares.loc[layer, "none"]
    heads = shares.loc[layer].drop("none")
    found = {}
    for group in shares:
        found[group, "printed, a head less, least"] = heads[group].min()
        found[group, "printed, a head less, most"] = heads[group].max()
        found[group, "printed, whole"] = base[group]
    return found


def _pairs():
    """Yield each layer and subject of which half of the heads are legible."""
    files = "sprint_head_pruning.csv", "sprint_figure5.csv"
    table = pd.concat([pd.read_csv(FOLDER / name).assign(exhibit=name) for name in files])
    table = table.dropna(subset="accuracy")
    n = table["subject"].map(SIZES)
    table["accuracy"] = (table["accuracy"] * n).round() / n  # printed are two digits of a count
    for (model, _), own in table.groupby(["model", "exhibit"], sort=False):
        pruned = own[own["head"] != "none"].astype({"head": int})
        base = own[own["head"] == "none"].set_index(["layer", "subject"])["accuracy"]
        for layer, cells in pruned.groupby("layer"):
            grid = cells.pivot(index="head", columns="subject", values="accuracy")
            kept, noise = _noise(grid)
            for subject, accuracy in grid.items():
                legible = accuracy.notna().sum() >= (pruned["head"].max() + 1) / 2
                if not legible or (layer, subject) not in base.index:
                    continue
                ordinary, size = accuracy[kept].dropna(), SIZES[subject]
                yield {
                    "group": (model, subject),
                    "n": size,
                    "gain": accuracy.max() - base[layer, subject],
                    "heads": len(ordinary),
                    "contested": 4 * ordinary.mean() * (1 - ordinary.mean()) * noise * size,
                }


def _noise(grid):
    """Return which heads do not clearly hurt, and which share of binomial variance is noise.

    A head's deviations in two subjects have the noise of different questions: the mean of their
    product is an effect of the head, and what the variance has beyond it is noise.
    """
    n = grid.columns.map(SIZES).to_numpy()
    middle = grid.median()
    scale = np.sqrt(np.maximum(middle * (1 - middle) / n, 0.25 / n**2))
    below = ((grid - middle) * n).sum(axis=1)
    kept = below > _HURTS * np.sqrt((grid.notna() * (scale * n) ** 2).sum(axis=1))
    ordinary = grid[kept]
    deviations = (ordinary - ordinary.mean()) / scale
    spread = (deviations**2).sum().sum() / (deviations.count() - 1).clip(lower=0).sum()
    subjects = deviations.count(axis=1)
    products = (deviations.sum(axis=1) ** 2 - (deviations**2).sum(axis=1)).sum()
    common = products / (subjects * (subjects - 1)).sum()
    return kept, np.clip(spread - max(common, 0), 0, 1)


def _by_chance(pairs, draw):
    """Return the best head's gain in each pair and resample, if no head has an effect.

    Models agree on all but the contested questions, which each answers by a fair coin. Of a model
    and subject, the base model answers a question once, whatever the layer.
    """
    gains = np.zeros((len(pairs), _RESAMPLES))
    for group in dict.fromkeys(pair["group"] for pair in pairs):
        places = [place for place, pair in enumerate(pairs) if pair["group"] == group]
        rounding = draw.random(_RESAMPLES)
        base, asked = np.zeros(_RESAMPLES, int), np.zeros(_RESAMPLES, int)
        for place in sorted(places, key=lambda place: pairs[place]["contested"]):
            pair = pairs[place]
            contested = (pair["contested"] + rounding).astype(int)
            base += draw.binomial(contested - asked, 0.5)
            asked = contested
            best = np.zeros(_RESAMPLES, int)
            for number in np.unique(contested):
                same = contested == number
                # The best of so many has the power of one's distribution.
                chances = binom.cdf(np.arange(number + 1), number, 0.5) ** pair["heads"]
                best[same] = np.searchsorted(chances, draw.random(same.sum()))
            gains[place] = (best - base) / pair["n"]
    return gains


def likeness(run, selector):
    """Return how many test questions resemble a training question, by topic and name."""
    section = run.config["selectors"][selector]
    train, test = (run.questions(section[questions]) for questions in ("train", "test"))
    if (test["question"] == "").any() or (train["question"] == "").any():
        return {}
    masked = {_masked(text) for text in train["question"]}
    known = [_grams(text) for text in train["question"]]
    equal = test["question"].map(_masked).isin(masked) | test["question_id"].isin(
        train["question_id"]
    )
    alike = test["question"].map(lambda text: _contained(_grams(text), known))
    found = {"questions": Fact(len(test)), "equal": Fact(100 * equal.mean())}
    found["alike"] = Fact(100 * (equal | alike).mean())
    return {("likeness", name): fact for name, fact in found.items()}


def _contained(grams, known):
    """Return whether one question has at least half of these sequences of words."""
    return bool(grams) and max(len(grams & each) for each in known) >= len(grams) / 2


def _grams(text):
    words = re.findall(r"\w+|[^\w\s]", _folded(text))
    return {tuple(words[place : place + _GRAM]) for place in range(len(words) - _GRAM + 1)}


def _masked(text):
    return re.sub(r"\d+(?:[.,]\d+)*", "#", _folded(text))


def _folded(text):
    return " ".join(text.casefold().split())
