"""The verdict on a map, from the log-probabilities of its texts."""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

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
    likelihood = by_kind["right"].div(tokens.xs("right", level="kind"), axis=0).dropna()
    best = preference.mean().idxmax()
    column = heads.index(best)
    mean, error = preference[best].mean(), preference[best].sem()
    widths = [np.quantile(_largest(preference, seed), 1 - LEVEL) for seed in range(_AGAIN)]
    half, luck = np.mean(widths) * error, 3 * np.std(widths, ddof=1) * error
    lower = likelihood.mean() < 0
    shown = [_adjusted(likelihood, seed) < LEVEL for seed in range(_AGAIN)]
    counts = [int((of_seed & lower).sum()) for of_seed in shown]
    found = {
        "heads": Fact(len(heads)),
        "best": Fact(preference.mean().iloc[column]),
        "low": Fact(mean - half, luck),
        "high": Fact(mean + half, luck),
        "questions": Fact(len(preference)),
        "matter": Fact(counts[0], np.ptp(counts)),
        "likelihood": Fact(_ranks(run, section, likelihood.mean())),
    }
    return {("map", named): fact for named, fact in found.items()}


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
    """Return the rank correlation with gains on the first test questions that a sweep asked."""
    sweeps = [
        sweep for sweep in run.config["sweeps"].values() if sweep["model"] == section["model"]
    ]
    tested = next(
        sweep for sweep in sweeps if run.config["questions"][sweep["questions"]]["split"] == "test"
    )
    z = run.matrix(tested["model"], tested["decoding"], tested["questions"])
    heads = run.pool(tested)
    gains = z[heads].mean() - z["base"].mean()
    return spearmanr(change[heads], gains).statistic
