"""The outcomes of a map, paired over questions, with tests over all of its heads.

**Likelihood**: by how much the log-probability of right samples, or of reference solutions, changes
without a head, in nats a token. Texts that the model drew itself become less likely under
nearly any change: for them it says how much a head matters, not whether its loss helps.

**Preference**: the change of a right sample minus that of a wrong one of the same question, in
nats. Both were drawn alike, so what a change does to both alike cancels. A change may lower
unlikely answers more than likely ones, and wrong ones are the less likely.

Noise in the place of heads tells what any change as strong does, and heads are tested against it,
too: each against noise in its own place where every head of its layer has a placebo, and otherwise
against the mean of the placebos that the layer has, which are as strong as the heads in whose place
they are.
"""

from collections import defaultdict
from collections.abc import Hashable

import numpy as np
import pandas as pd
from jaxtyping import Float

from headsweep.statistics import SIGNIFICANCE
from headsweep.statistics.maxima import FEWEST, joint_means, mean_interval
from headsweep.statistics.selection import RESAMPLES
from headsweep.variants import Variant

RIGHT, WRONG, SOLUTION = "right", "wrong", "solution"
"""Kinds of texts."""

LIKELIHOOD, PREFERENCE, SOLUTIONS = "likelihood", "preference", "solutions"
TITLE_OF_OUTCOME = {
    LIKELIHOOD: "right samples (nats a token)",
    PREFERENCE: "right minus wrong (nats)",
    SOLUTIONS: "reference solutions (nats a token)",
}
"""What each outcome is of, with its unit."""
UNIT_OF_OUTCOME = {LIKELIHOOD: "nats a token", PREFERENCE: "nats", SOLUTIONS: "nats a token"}

_KINDS_OF_OUTCOME = {
    LIKELIHOOD: (RIGHT,),
    PREFERENCE: (RIGHT, WRONG),
    SOLUTIONS: (SOLUTION,),
}

HEADS = ["variant", "layer", "head", "kind", "outcome", "n", "change", "low", "high"]
HEADS += ["band_low", "band_high", "t", "adjusted", "shown"]
"""Columns of the table of heads. `kind` is head or noise; `n` counts questions; the bands and
`adjusted` are corrected over all heads of the map, and empty for noise; `shown` is `HIGHER` or
`LOWER` where a test shows the change."""

HIGHER, LOWER = "higher", "lower"

LAYERS = ["layer", "outcome", "n", "heads", "shown", "lowest", "highest", "noise"]
LAYERS += ["noise_low", "noise_high"]

_TEXT = ["question_id", "kind"]


def heads_table(scores: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return columns `HEADS`, a row for each outcome and variant of a map.

    Args:
        scores: `headsweep.files.tables.SCORES` of all layers.
        seed: of the draws of questions.
    """
    changes = _changes(scores)
    lengths = scores.groupby(_TEXT)["tokens"].first()
    parts = []
    for outcome in TITLE_OF_OUTCOME:
        values = _paired(changes, lengths, outcome)
        if len(values) < FEWEST:
            continue
        tested = _tested(values, outcome, seed)
        tested["shown"] = _shown(tested, _against_noise(values, seed))
        parts.append(tested)
    return pd.concat(parts, ignore_index=True)[HEADS] if parts else pd.DataFrame(columns=HEADS)


def _changes(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the change of each text's log-probability without each head: a column a variant.

    A layer's variants are held against the unchanged model, scored in the same passes.
    """
    parts = []
    parsed = {name: Variant.parse(name) for name in scores["variant"].unique()}
    layers = scores["variant"].map(lambda name: parsed[name].layer)
    for _, of_layer in scores.groupby(layers):
        table = of_layer.pivot(index=_TEXT, columns="variant", values="log_probability")
        base = next(name for name in table if parsed[str(name)].kind == "replay")
        parts.append(table.drop(columns=base).sub(table[base], axis=0))
    return pd.concat(parts, axis=1)


def _paired(changes: pd.DataFrame, lengths: pd.Series, outcome: str) -> pd.DataFrame:
    """Return an outcome of each question, a row, for each variant, a column."""
    kinds = _KINDS_OF_OUTCOME[outcome]
    if not {*kinds} <= {*changes.index.unique("kind")}:
        return pd.DataFrame()
    if outcome == PREFERENCE:
        right = changes.xs(RIGHT, level="kind")
        return pd.DataFrame(right - changes.xs(WRONG, level="kind")).dropna()
    (kind,) = kinds
    of_texts = changes.xs(kind, level="kind")
    return pd.DataFrame(of_texts.div(lengths.xs(kind, level="kind"), axis=0)).dropna()


def _tested(changes: pd.DataFrame, outcome: str, seed: int) -> pd.DataFrame:
    """Return an outcome's rows: heads tested together, noise placebos each alone."""
    variants = sorted(map(Variant.parse, changes.columns))
    heads = [variant for variant in variants if variant.kind == "head"]
    noise = [variant for variant in variants if variant.kind == "noise"]
    parts = []
    for members in (heads, noise):
        if not members:
            continue
        values: Float[np.ndarray, "questions variants"]
        values = changes[[str(variant) for variant in members]].to_numpy(float)
        about = pd.DataFrame(
            {
                "variant": [str(variant) for variant in members],
                "layer": [variant.layer for variant in members],
                "head": [variant.head for variant in members],
                "kind": [variant.kind for variant in members],
            }
        )
        table = about.join(joint_means(values, RESAMPLES, seed))
        if members is noise:
            table[["band_low", "band_high", "adjusted"]] = np.nan
        parts.append(table)
    return pd.concat(parts, ignore_index=True).assign(outcome=outcome, n=len(changes))


def _against_noise(changes: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the test of each head's change minus that of noise, paired, by name.

    It is corrected over all heads of layers that have noise; other heads have no row.
    """
    heads: dict[int | None, dict[int | None, str]] = defaultdict(dict)
    noise: dict[int | None, dict[int | None, str]] = defaultdict(dict)
    for name in map(str, changes):
        variant = Variant.parse(name)
        if variant.kind in ("head", "noise"):
            of_kind = heads if variant.kind == "head" else noise
            of_kind[variant.layer][variant.head] = name
    columns = {}
    for layer, placebos in noise.items():
        mean = changes[list(placebos.values())].mean(axis=1)
        each_has_one = heads[layer].keys() <= placebos.keys()
        for head, name in heads[layer].items():
            beside = changes[placebos[head]] if each_has_one else mean
            columns[name] = changes[name] - beside
    differences = pd.DataFrame(columns)
    if differences.empty:
        return differences
    tested = joint_means(differences.to_numpy(float), RESAMPLES, seed)
    return tested.set_index(differences.columns)


def _shown(tested: pd.DataFrame, against_noise: pd.DataFrame) -> pd.Series:
    """Return `HIGHER` or `LOWER` for the heads whose change is shown, None for all others.

    What changes a model at all lowers its own answers, and may lower wrong ones more than right
    ones. So a change is shown where it differs both from zero and from that of noise.
    """
    sign = np.sign(tested["change"]).where(tested["adjusted"] < SIGNIFICANCE, 0)
    if len(against_noise):
        differs = against_noise["adjusted"] < SIGNIFICANCE
        beyond = np.sign(against_noise["change"]).where(differs, 0)
        sign = sign.where(sign == tested["variant"].map(beyond).fillna(sign), 0)
    return sign.map({1: HIGHER, -1: LOWER}).astype(object).where(sign != 0, None)


def layers_table(heads: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return columns `LAYERS`: what a layer's heads do beside noise as strong, by outcome.

    Args:
        heads: as `heads_table` returns it.
        scores: `headsweep.files.tables.SCORES` of all layers.
    """
    noise = _noise(scores)
    rows = []
    for (outcome, layer), of_layer in heads.groupby(["outcome", "layer"], sort=False):
        of_heads = of_layer[of_layer["kind"] == "head"]
        rows.append(
            {
                "layer": layer,
                "outcome": outcome,
                "n": of_layer["n"].iloc[0],
                "heads": len(of_heads),
                "shown": int(of_heads["shown"].notna().sum()),
                "lowest": of_heads["change"].min(),
                "highest": of_heads["change"].max(),
                **noise.get((outcome, layer), {}),
            }
        )
    return pd.DataFrame(rows, columns=LAYERS)


def _noise(scores: pd.DataFrame) -> dict[tuple[Hashable, Hashable], dict[str, float]]:
    """Return what the noise placebos of a layer change on average, by outcome and layer.

    They are averaged question by question, so that the interval is that of their mean.
    """
    parsed = {name: Variant.parse(name) for name in scores["variant"].unique()}
    without_heads = [name for name, variant in parsed.items() if variant.kind != "head"]
    of_noise = scores[scores["variant"].isin(without_heads)]
    changes = _changes(of_noise)
    lengths = of_noise.groupby(_TEXT)["tokens"].first()
    found: dict[tuple[Hashable, Hashable], dict[str, float]] = {}
    for outcome in TITLE_OF_OUTCOME:
        values = _paired(changes, lengths, outcome)
        if len(values) < FEWEST:
            continue
        for layer in {parsed[str(name)].layer for name in values}:
            members = [name for name in values if parsed[str(name)].layer == layer]
            mean = values[members].mean(axis=1).to_numpy(float)
            low, high = mean_interval(mean)
            ends = {"noise_low": float(low), "noise_high": float(high)}
            found[outcome, layer] = {"noise": float(mean.mean()), **ends}
    return found
