"""The verdict on a map, and what it foretells, from the log-probabilities of its texts."""

import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata, spearmanr

from recomputed.chance import LEVEL
from recomputed.run import Fact

_FLIPS = 10_000
_AGAIN = 8  # sets of so many sign patterns, whose spread is the luck of one


def facts(run, name):
    """Return the numbers of the verdict on a map, by topic and name."""
    section = run.config["maps"][name]
    changes = _changes(run, name)
    heads = [variant for variant in changes if "H" in variant]
    by_kind = {kind: part.droplevel("kind") for kind, part in changes[heads].groupby("kind")}
    preference = (by_kind["right"] - by_kind["wrong"]).dropna()
    tokens = _scores(run, name).groupby(["question_id", "kind"])["tokens"].first()
    lengths = tokens.xs("right", level="kind")
    likelihood = by_kind["right"].div(lengths, axis=0).dropna()
    best = preference.mean().idxmax()
    column = heads.index(best)
    mean, error = preference[best].mean(), preference[best].sem()
    around = preference - preference.mean()
    widths = [np.quantile(_largest(around, seed), 1 - LEVEL) for seed in range(_AGAIN)]
    half, luck = np.mean(widths) * error, 3 * np.std(widths, ddof=1) * error
    lower = (likelihood.mean() < 0).to_numpy()
    adjusted = np.mean([_adjusted(likelihood, seed) for seed in range(_AGAIN)], axis=0)[lower]
    # How far a p-value of so many flips is from the truth, at most.
    unsure = abs(adjusted - LEVEL) < 3 * np.sqrt(LEVEL * (1 - LEVEL) / _FLIPS)
    noise = changes.filter(regex=f"{best[:3]}N")
    found = {
        "heads": Fact(len(heads)),
        "noise": Fact(
            (noise.xs("right", level="kind") - noise.xs("wrong", level="kind")).mean().mean()
        ),
        "best": Fact(preference.mean().iloc[column]),
        "low": Fact(mean - half, luck),
        "high": Fact(mean + half, luck),
        "questions": Fact(len(preference)),
        "matter": Fact((adjusted < LEVEL).sum(), unsure.sum()),
        "likelihood": Fact(_ranks(run, section, likelihood.mean())),
    }
    gains = _gains(run, section)
    for estimate, of_texts in {"scored": changes, "first order": _estimates(run, name)}.items():
        right, wrong = (of_texts[heads].xs(kind, level="kind") for kind in ("right", "wrong"))
        means = {
            "likelihood": right.div(lengths, axis=0).mean(),
            "preference": (right - wrong).mean(),
        }
        for outcome, change in means.items():
            for column, value in _foretold(change[gains.index], gains).items():
                found[f"{outcome}, {estimate}, {column}"] = Fact(value)
    return {("map", named): fact for named, fact in found.items()}


def _estimates(run, name):
    """Return each text's estimated change of log-probability, without each head."""
    (file,) = run.folder.parent.glob(f"store/scores/{name}-*/gradients.parquet")
    estimates = pd.read_parquet(file)
    return estimates.pivot(index=["question_id", "kind"], columns="variant", values="change")


def _foretold(change, gains):
    """Return how changes of the same heads rank their gains, by the table's column."""
    top = -(-len(gains) // 4)
    rho = spearmanr(change, gains).statistic
    error = np.sqrt((1 + rho**2 / 2) / (len(gains) - 3))
    low, high = np.tanh(np.arctanh(rho) + norm.ppf([0.025, 0.975]) * error)
    best = _places(change, top)
    return {
        "ρ": rho,
        "low": low,
        "high": high,
        f"of the {top} best": best @ _places(gains, top),
        f"of the {top} worst": _places(-change, top) @ _places(-gains, top),
        "by chance": top**2 / len(gains),
        "gain found": 100 * gains[best > 0].max(),
        "largest gain": 100 * gains.max(),
    }


def _places(values, top):
    """Return with which share each value is among the largest, over all orders of equal values."""
    above = len(values) - rankdata(values, "max")
    tied = np.array([(values == own).sum() for own in values])
    return np.clip((top - above) / tied, 0, 1)


def _scores(run, name):
    files = run.folder.parent.glob(f"store/scores/{name}-*/L*.parquet")
    return pd.concat([pd.read_parquet(file) for file in files])


def _changes(run, name):
    """Return each text's change of log-probability, without each head of each layer."""
    scores = _scores(run, name)
    texts = ["question_id", "kind"]
    table = scores.pivot(index=texts, columns="variant", values="log_probability")
    layers = table.columns.str[:3]
    whole = {layer: table[f"{layer}R00"] for layer in layers.unique()}
    return pd.DataFrame(
        {
            variant: table[variant] - whole[layer]
            for variant, layer in zip(table, layers, strict=True)
        }
    )


def _t(means, squares, count):
    return means / np.sqrt((squares / count - means**2) / (count - 1))


def _largest(changes, seed):
    """Return the largest |t| over heads, where each question's sign is a coin's."""
    values, count = changes.to_numpy(), len(changes)
    signs = np.random.default_rng(1000 + seed).choice([-1.0, 1.0], (_FLIPS, count))
    return np.abs(_t(signs @ values / count, (values**2).sum(axis=0), count)).max(axis=1)


def _adjusted(changes, seed):
    """Return each head's p-value over all heads."""
    values, largest = changes.to_numpy(), _largest(changes, seed)
    observed = np.abs(_t(values.mean(axis=0), (values**2).sum(axis=0), len(values)))
    return np.array([(1 + (largest >= own - 1e-9).sum()) / (1 + _FLIPS) for own in observed])


def _ranks(run, section, change):
    """Return the rank correlation with gains on the first other questions that a sweep asked."""
    gains = _gains(run, section)
    return spearmanr(change[gains.index], gains).statistic


def _gains(run, section):
    """Return the gains of heads on the first other questions that a sweep asked of the model."""
    sweeps = (
        sweep for sweep in run.config["sweeps"].values() if sweep["model"] == section["model"]
    )
    tested = next(sweep for sweep in sweeps if sweep["questions"] != section["questions"])
    z = run.matrix(tested["model"], tested["decoding"], tested["questions"])
    return z[run.pool(tested)].mean() - z["base"].mean()
