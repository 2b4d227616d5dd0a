"""Audit of the published numbers against chance and arithmetic.

For the SPRINT paper: the gains of Figure 2, computed from its own Tables 1-4 and Figure 5, beside
what chance gives. For the second paper: its cuts beside the largest possible by removing heads.
Parameters and FLOPs of an encoder of RoBERTa's shape follow from its geometry. The FLOPs of a layer
with h heads on L tokens are 2L(4·d·h·d_h + 2L·h·d_h + 2·d·f); pruning heads leaves the last term.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.files import read_csv, rows_of
from headroom.analysis.published import CONDITIONS, SIZES
from headroom.statistics.selection import Contested, contested, gains_by_chance

_RESAMPLES = 4000
_LEGIBLE = 0.5  # smallest share of a pair's heads that must be legible


def audit(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare the published gains of each table, and of Figure 5, with those by chance.

    Outcomes of single questions are not published: base model and heads are taken to agree on all
    questions but some contested ones, which each answers like a fair coin, as many as explain the
    spread between the heads of a layer. What heads keep from subject to subject is not counted as
    noise and heads that clearly hurt are left out; an effect of one head on one subject alone looks
    like noise, so chance is an upper bound.

    Args:
        table: as returned by `headroom.analysis.published.head_pruning`.
        seed: decides the simulation.

    Returns:
        One row per (exhibit, subject, layer) pair, and one per exhibit and model.
    """
    pairs, summary = [], []
    for (exhibit, model), part in table.groupby(["exhibit", "model"], sort=False):
        read, layers = _pairs(part)
        best, mean = gains_by_chance(
            read["n"].to_numpy(),
            read["contested"].to_numpy(),
            read["ordinary"].to_numpy(),
            pd.factorize(read["subject"])[0],
            _RESAMPLES,
            seed,
        )
        beyond = read["gain"] > np.quantile(best, 0.95, axis=0) + 1e-9
        pairs.append(read.assign(exhibit=str(exhibit), model=str(model), beyond=beyond))
        found = _summary(pairs[-1], best, mean, layers)
        summary.append({"exhibit": exhibit, "model": model, **found})
    return pd.concat(pairs, ignore_index=True), pd.DataFrame(summary)


def _pairs(part: pd.DataFrame) -> tuple[pd.DataFrame, list[Contested]]:
    """Return the pairs of a model that are legible enough, and the spread of each layer."""
    base = part[part["head"].isna()].set_index(["layer", "subject"])["accuracy"]
    pruned = part[part["head"].notna()]
    all_heads = pruned["head"].max() + 1
    rows, layers = [], []
    for layer, cells in pruned.groupby("layer"):
        grid = cells.pivot(index="head", columns="subject", values="accuracy")
        found = contested(grid.to_numpy(float), grid.columns.map(SIZES).to_numpy())
        layers.append(found)
        for subject in grid.columns.astype(str):
            legible = grid[subject].dropna()
            if len(legible) < _LEGIBLE * all_heads or (layer, subject) not in base.index:
                continue
            ordinary = grid[subject][found.ordinary].dropna()
            own, mean = base.loc[(layer, subject)], ordinary.mean()
            rows.append(
                {
                    "layer": layer,
                    "subject": subject,
                    "n": SIZES[subject],
                    "heads": len(legible),
                    "missing": int(all_heads - len(legible)),
                    "ordinary": len(ordinary),
                    "base": own,
                    "accuracy": mean,
                    "gain": legible.max() - own,
                    "over_mean": legible.max() - mean,
                    "mean_gain": mean - own,
                    "contested": 4 * mean * (1 - mean) * found.noise * SIZES[subject],
                }
            )
    return pd.DataFrame(rows), layers


def _summary(
    read: pd.DataFrame, best: np.ndarray, mean: np.ndarray, layers: Sequence[Contested]
) -> dict[str, Any]:
    medians = np.median(best, axis=1)
    weights = read["n"].to_numpy() / read["n"].sum()
    own = float(read["mean_gain"].to_numpy() @ weights)
    mean_low, mean_high = own - np.quantile(mean @ weights, [0.975, 0.025])
    chance_low, chance_high = np.quantile(medians, [0.025, 0.975])
    return {
        "pairs": len(read),
        "complete": int((read["missing"] == 0).sum()),
        "gain": read["gain"].median(),
        "by_chance": medians.mean(),
        "chance_low": chance_low,
        "chance_high": chance_high,
        "beyond": int(read["beyond"].sum()),
        "over_mean": read["over_mean"].mean(),
        "over_mean_by_chance": (best - mean).mean(),
        "mean_gain": own,
        "mean_low": mean_low,
        "mean_high": mean_high,
        "hurt": int(sum((~layer.ordinary).sum() for layer in layers)),
        "contested": read["contested"].sum() / read["n"].sum(),
        "common": sum(layer.common for layer in layers) / sum(layer.spread for layer in layers),
    }


_POSITIONS = 514
LONGEST = 512
"""Tokens of the longest input, where attention's share of the FLOPs is largest."""


@dataclass(frozen=True)
class Encoder:
    """The geometry of an encoder with learned positions."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int = 50265

    @property
    def parameters(self) -> int:
        """All parameters: embeddings and layers, no pooler, no task head."""
        embeddings = (self.vocabulary + _POSITIONS + 1 + 2) * self.width
        attention = self.heads * self.head_parameters + self.width
        feed_forward = 2 * self.width * self.inner + self.inner + self.width
        return embeddings + self.layers * (attention + feed_forward + 4 * self.width)

    @property
    def head_parameters(self) -> int:
        """Parameters of one head: its slices of four projections, and three biases."""
        head_dim = self.width // self.heads
        return 4 * self.width * head_dim + 3 * head_dim

    def pruned(self, ratio: float) -> int:
        """Return how many heads a pruning ratio removes from the whole model."""
        return int(ratio * self.layers * self.heads + 1e-9)

    def parameter_cut(self, ratio: float) -> float:
        """Return the pruned heads' share of all parameters."""
        return self.pruned(ratio) * self.head_parameters / self.parameters

    def flops_cut(self, ratio: float, tokens: int = LONGEST) -> float:
        """Return the pruned heads' share of the layers' FLOPs."""
        attention = 4 * self.width**2 + 2 * tokens * self.width
        share = attention / (attention + 2 * self.width * self.inner)
        return self.pruned(ratio) / (self.layers * self.heads) * share

    def speed_up(self, ratio: float) -> float:
        """Return t0 / t1 - 1 of an encoder whose time is proportional to its layers' FLOPs."""
        return 1 / (1 - self.flops_cut(ratio)) - 1


ENCODERS = {
    "ATHENA-base": Encoder(layers=12, width=768, heads=12, inner=3072),
    "ATHENA-large": Encoder(layers=24, width=1024, heads=16, inner=4096),
}
"""RoBERTa-base and RoBERTa-large, the encoders of the published models."""


def arithmetic(folder: Path) -> pd.DataFrame:
    """Return published cuts beside the largest that arithmetic allows, in percent.

    Args:
        folder: folder of the published tables.

    Returns:
        One row per published condition: ``model``, ``dataset``, ``ratio``, ``heads`` (removed, of
        ``of``), ``parameters`` and ``parameters_at_most``, ``flops`` (null where not published)
        and ``flops_at_most``, ``speedup`` and ``speedup_at_most``. Limits are for 512 tokens.
    """
    keys = ["model", "dataset", "pruning_ratio_pct"]
    table = pd.concat([read_csv(folder / name, keys) for name in CONDITIONS[:2]])
    table = (
        table.drop_duplicates(keys)
        .query("pruning_ratio_pct > 0")
        .rename(
            columns={
                "pruning_ratio_pct": "ratio",
                "param_reduction_pct": "parameters",
                "flops_reduction_pct": "flops",
                "speedup_pct": "speedup",
            }
        )
    )
    shape = [(ENCODERS[row.model], row.ratio / 100) for row in rows_of(table)]
    most: dict[str, Any] = {
        "heads": [encoder.pruned(ratio) for encoder, ratio in shape],
        "of": [encoder.layers * encoder.heads for encoder, _ in shape],
        "parameters_at_most": [100 * encoder.parameter_cut(ratio) for encoder, ratio in shape],
        "flops_at_most": [100 * encoder.flops_cut(ratio) for encoder, ratio in shape],
        "speedup_at_most": [100 * encoder.speed_up(ratio) for encoder, ratio in shape],
    }
    columns = ["model", "dataset", "ratio", "heads", "of", "parameters", "parameters_at_most"]
    columns += ["flops", "flops_at_most", "speedup", "speedup_at_most"]
    return table.assign(**most)[columns].reset_index(drop=True)
