"""The verdict on a map, and what it foretells, from the log-probabilities of its texts."""

import numpy as np
import pandas as pd
from scipy.stats import norm, rankdata, spearmanr

from recomputed.chance import LEVEL
from recomputed.run import Fact

_DRAWS = 10_000
_AGAIN = 8  # sets of so many draws of questions, whose spread is the luck of one
_FEWEST = 6  # heads of a sweep that a map can rank


def facts(run, name):
    """Return the numbers of the verdict on a map, by topic and name."""
    section = run.config["maps"][name]
    changes = _changes(run, name)
    lengths = _scores(run, name).groupby(["question_id", "kind"])["tokens"].first()
    outcomes = _outcomes(changes, lengths)
    tested = outcomes["preference" if section["sampling"] else "solutions"]
    heads = [variant for variant in changes if "H" in variant]
    helps, unsure = _lower(-tested)
    asked = helps.index[helps] if helps.any() else heads
    best = tested[asked].mean().idxmax()
    found = {
        "heads": Fact(len(heads)),
        "noise": Fact(tested.filter(regex=f"{best[:3]}N").mean().mean()),
        "best": Fact(tested[best].mean()),
        "questions": Fact(len(tested)),
        **_band(tested[heads], best),
        "shown": Fact(helps.sum(), unsure.sum()),
    }
    if section["sampling"]:
        lower, unsure = _lower(outcomes["likelihood"])
        found["matter"] = Fact(lower.sum(), unsure.sum())
    gains = _gains(run, section)
    for outcome, values in outcomes.items():
        ranking = _foretold(values.mean()[gains.index], gains)
        found[outcome] = Fact(ranking["ρ"])
        for column, value in ranking.items():
            found[f"{outcome}, {column}"] = Fact(value)
    return {("map", named): fact for named, fact in found.items()}


def _outcomes(changes, lengths):
    """Return by how much each outcome of each question changes without each head."""
    of_kind = {kind: part.droplevel("kind") for kind, part in changes.groupby("kind")}
    outcomes = {}
    for outcome, kind in {"likelihood": "right", "solutions": "solution"}.items():
        if kind in of_kind:
            outcomes[outcome] = of_kind[kind].div(lengths.xs(kind, level="kind"), axis=0).dropna()
    if "wrong" in of_kind:
        outcomes["preference"] = (of_kind["right"] - of_kind["wrong"]).dropna()
    return outcomes


def _band(tested, best):
    """Return the ends of a head's interval that holds for all heads together."""
    sets = [_extremes(tested, seed) for seed in range(_AGAIN)]
    down = [np.quantile(largest, 1 - LEVEL / 2) for _, largest in sets]
    up = [-np.quantile(smallest, LEVEL / 2) for smallest, _ in sets]
    mean, error = tested[best].mean(), tested[best].sem()
    low, high = mean - np.mean(down) * error, mean + np.mean(up) * error
    luck = 3 * np.std(down, ddof=1) * error
    return {
        "low": Fact(low, luck),
        "high": Fact(high, 3 * np.std(up, ddof=1) * error),
    }


def _lower(outcome):
    """Return without which heads an outcome is shown to be lower, also than under noise.

    And of which heads luck may decide it.
    """
    heads = outcome.filter(like="H")
    noise = outcome.filter(like="N")
    against = [(heads.mean(), _adjusted(heads))]
    of_layer = {name: noise.filter(like=name[:3]).mean(axis=1) for name in heads}
    beside = pd.DataFrame({name: heads[name] - of_layer[name] for name in heads}).dropna(axis=1)
    if beside.shape[1]:
        p = _adjusted(beside).reindex(heads.columns, fill_value=0.0)
        against.append((beside.mean().reindex(heads.columns, fill_value=-1.0), p))
    shown = pd.Series(data=True, index=heads.columns)
    unsure = ~shown
    for change, p in against:
        # How far a p-value of so many draws is from the truth, at most.
        near = abs(p - LEVEL) < 3 * np.sqrt(LEVEL * (1 - LEVEL) / _DRAWS)
        shown = shown & (change < 0) & (p < LEVEL)
        unsure = unsure | (near & (change < 0))
    return shown, unsure


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


def _extremes(changes, seed):
    """Return the smallest and the largest t over heads of questions drawn anew, without effects."""
    values = (changes - changes.mean()).to_numpy()
    count = len(values)
    drawn = np.random.default_rng(1000 + seed).integers(count, size=(_DRAWS, count))
    times = (drawn[:, :, np.newaxis] == np.arange(count)).sum(axis=1)
    means = times @ values / count
    spread = np.sqrt((times @ values**2 / count - means**2) / (count - 1))
    return (means / spread).min(axis=1), (means / spread).max(axis=1)


def _adjusted(changes):
    """Return each head's p-value over all heads, by name: the mean of several sets of draws."""
    observed = (changes.mean() / changes.sem()).to_numpy()
    found = []
    for seed in range(_AGAIN):
        smallest, largest = _extremes(changes, seed)
        above = (largest >= observed[:, np.newaxis]).sum(axis=1)
        below = (smallest <= observed[:, np.newaxis]).sum(axis=1)
        found.append(np.minimum(1, 2 * (1 + np.minimum(above, below)) / (1 + _DRAWS)))
    return pd.Series(np.mean(found, axis=0), changes.columns)


def _gains(run, section):
    """Return the gains of heads on the first other questions that a sweep asked of the model."""
    sweeps = (
        sweep for sweep in run.config["sweeps"].values() if sweep["model"] == section["model"]
    )
    others = (sweep for sweep in sweeps if sweep["questions"] != section["questions"])
    tested = next(sweep for sweep in others if len(run.pool(sweep)) >= _FEWEST)
    z = run.matrix(tested["model"], tested["decoding"], tested["questions"])
    return z[run.pool(tested)].mean() - z["base"].mean()
