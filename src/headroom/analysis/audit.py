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

from headroom.analysis.published import COMPRESSION, COMPRESSION_SIZES, SIZES
from headroom.analysis.sheet import Columns, interval, read_csv, rows_of
from headroom.statistics.selection import Contested, contested, gains_by_chance

_RESAMPLES = 4000
_LEGIBLE = 0.5  # smallest share of a pair's heads that must be legible


@dataclass(frozen=True)
class Audit:
    """Published gains beside those expected by chance."""

    pairs: pd.DataFrame  # one row per (exhibit, subject, layer) pair
    summary: pd.DataFrame  # one row per exhibit (a table or figure of the paper) and model


def audit(table: pd.DataFrame, seed: int) -> Audit:
    """Compare the published gains of each table, and of Figure 5, with those by chance.

    Args:
        table: as returned by `headroom.analysis.published.head_pruning`.
        seed: decides the simulation.
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
        read = read.assign(
            exhibit=str(exhibit),
            model=str(model),
            by_chance=best.mean(axis=0),
            quantile=np.quantile(best, 0.95, axis=0),
            over_mean_by_chance=(best - mean).mean(axis=0),
        )
        read["beyond"] = read["gain"] > read["quantile"] + 1e-9
        pairs.append(read)
        summary.append({"exhibit": exhibit, "model": model, **_summary(read, best, mean, layers)})
    return Audit(pd.concat(pairs, ignore_index=True), pd.DataFrame(summary))


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
    weights = read["n"] / read["n"].sum()
    own = float(np.dot(read["mean_gain"], weights))
    low, high = own - np.quantile(mean @ weights.to_numpy(), [0.975, 0.025])
    chance_low, chance_high = np.quantile(medians, [0.025, 0.975])
    shared = sum(layer.common for layer in layers) / sum(layer.spread for layer in layers)
    return {
        "pairs": len(read),
        "complete": int((read["missing"] == 0).sum()),
        "gain": read["gain"].median(),
        "by_chance": medians.mean(),
        "chance_low": chance_low,
        "chance_high": chance_high,
        "beyond": int(read["beyond"].sum()),
        "over_mean": read["over_mean"].mean(),
        "over_mean_by_chance": read["over_mean_by_chance"].mean(),
        "mean_gain": own,
        "mean_low": low,
        "mean_high": high,
        "hurt": int(sum((~layer.ordinary).sum() for layer in layers)),
        "contested": read["contested"].sum() / read["n"].sum(),
        "common": float(shared),
    }


AUDIT_COLUMNS: Columns = {
    "exhibit": "{exhibit}",
    "model": "{model}",
    "pairs": "{pairs}",
    "complete": "{complete}",
    "median gain": "{gain:pts}",
    "gain by chance": interval("by_chance", ends="chance"),
    "beyond 95%": "{beyond} of {pairs}",
    "best − mean": "{over_mean:pts}",
    "best − mean by chance": "{over_mean_by_chance:pts}",
    "mean − base": interval("mean_gain", ends="mean"),
    "hurt": "{hurt}",
    "contested (%)": "{contested:%}",
    "repeats (%)": "{common:%}",
}
AUDIT_CAPTION = (
    "The published gains of the best head against chance, in percentage points; brackets are 95% "
    "intervals. Pairs: (subject, layer) pairs with half of their heads legible; complete: with "
    "all. Beyond 95%: pairs whose gain exceeds the 95% quantile of chance; 5% would. Mean: of the "
    "heads that do not clearly hurt, of which hurt is the number. Contested: share of questions "
    "that base and heads answer by a coin; repeats: share of the spread between heads that is "
    "alike from subject to subject. By chance: outcomes of single questions are not published, so "
    "base model and heads are taken to agree on all questions but some contested ones, which each "
    "answers like a fair coin, as many as explain the spread between the heads of a layer (4,000 "
    "simulations; No Prune is one model for all layers). What heads keep from subject to subject "
    "is not counted as noise, heads that clearly hurt are left out; an effect of one head on one "
    "subject alone looks like noise, so chance is an upper bound. Where cells are missing the "
    "published maximum is a lower bound, and chance is taken over as many heads as are legible."
)

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
    columns = [*keys, "param_reduction_pct"]
    table = pd.concat(
        [read_csv(folder / name, columns) for name in (COMPRESSION, COMPRESSION_SIZES)]
    )
    rows: list[dict[str, Any]] = []
    for row in rows_of(table.drop_duplicates(keys).query("pruning_ratio_pct > 0")):
        encoder, ratio = ENCODERS[row.model], row.pruning_ratio_pct / 100
        rows.append(
            {
                "model": row.model,
                "dataset": row.dataset,
                "ratio": row.pruning_ratio_pct,
                "heads": encoder.pruned(ratio),
                "of": encoder.layers * encoder.heads,
                "parameters": row.param_reduction_pct,
                "parameters_at_most": 100 * encoder.parameter_cut(ratio),
                "flops": row.flops_reduction_pct,
                "flops_at_most": 100 * encoder.flops_cut(ratio),
                "speedup": row.speedup_pct,
                "speedup_at_most": 100 * encoder.speed_up(ratio),
            }
        )
    return pd.DataFrame(rows)


CUT_COLUMNS: Columns = {
    "model": "{model}",
    "data": "{dataset}",
    "ratio (%)": "{ratio}",
    "heads cut": "{heads} of {of}",
    "parameters cut (%)": "{parameters:.1f}",
    "parameters at most": "{parameters_at_most:.1f}",
    "FLOPs cut (%)": "{flops:.1f}",
    "FLOPs at most": "{flops_at_most:.1f}",
    "speed-up (%)": "{speedup:.1f}",
    "speed-up at most": "{speedup_at_most:.1f}",
}
CUT_CAPTION = (
    "Published cuts of the second paper (arXiv 2511.17577) against the most that arithmetic "
    "allows when heads are removed from an encoder of RoBERTa's shape: the pruned heads' slices of "
    f"four projections, over all parameters; their share of the layers' FLOPs at {LONGEST} "
    "tokens, the longest input (less on shorter ones); the speed-up of an encoder whose time is "
    "that of these FLOPs, 1 / (1 − cut) − 1. The task head is not counted: with it all shares are "
    "smaller still. A dash: Table 2 of the paper has no FLOPs."
)
