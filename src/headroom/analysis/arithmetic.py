"""The second paper's cuts against arithmetic: what pruned heads can remove at most.

Parameters and FLOPs of an encoder of RoBERTa's shape follow from its geometry. The FLOPs of a layer
with h heads on L tokens are 2L(4·d·h·d_h + 2L·h·d_h + 2·d·f); pruning heads leaves the last term.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.analysis.published import COMPRESSION, COMPRESSION_SIZES
from headroom.analysis.sheet import Cell, Sheet, joined, name, number, read_csv, rows_of

_COLUMNS = ["model", "dataset", "pruning_ratio_pct", "param_reduction_pct"]
_POSITIONS = 514
LONGEST = 512
"""Tokens of the longest input, on which attention weighs most."""


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
        """Return the share of all parameters that pruned heads hold."""
        return self.pruned(ratio) * self.head_parameters / self.parameters

    def flops_cut(self, ratio: float, tokens: int) -> float:
        """Return the share of the layers' FLOPs that pruned heads take."""
        attention = 4 * self.width**2 + 2 * tokens * self.width
        share = attention / (attention + 2 * self.width * self.inner)
        return self.pruned(ratio) / (self.layers * self.heads) * share


ENCODERS = {
    "ATHENA-base": Encoder(layers=12, width=768, heads=12, inner=3072),
    "ATHENA-large": Encoder(layers=24, width=1024, heads=16, inner=4096),
}
"""RoBERTa-base and RoBERTa-large, on which the published models are built."""


def arithmetic(folder: Path) -> pd.DataFrame:
    """Return published cuts beside the largest that arithmetic allows, in percent.

    Args:
        folder: where the published tables lie.

    Returns:
        One row a published condition: ``model``, ``dataset``, ``ratio``, ``heads`` (removed, of
        ``of``), ``parameters`` and ``parameters_at_most``, ``flops`` (null where not published)
        and ``flops_at_most``, ``speedup`` and ``speedup_at_most``. Limits are for 512 tokens.
    """
    parts = [read_csv(folder / name, _COLUMNS) for name in (COMPRESSION, COMPRESSION_SIZES)]
    table = pd.concat(parts).drop_duplicates(_COLUMNS[:3])
    rows: list[dict[str, Any]] = []
    for row in rows_of(table[table["pruning_ratio_pct"] > 0]):
        encoder, ratio = ENCODERS[row.model], row.pruning_ratio_pct / 100
        flops = encoder.flops_cut(ratio, LONGEST)
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
                "flops_at_most": 100 * flops,
                "speedup": row.speedup_pct,
                "speedup_at_most": 100 * (1 / (1 - flops) - 1),
            }
        )
    return pd.DataFrame(rows)


def arithmetic_sheet(table: pd.DataFrame) -> Sheet:
    """Return the table as text."""

    def share(column: str) -> Cell:
        return number(column, ".1f")

    columns = (
        ("model", name("model")),
        ("data", name("dataset")),
        ("ratio (%)", number("ratio")),
        ("heads cut", joined(number("heads"), " of ", number("of"))),
        ("parameters cut (%)", share("parameters")),
        ("at most", share("parameters_at_most")),
        ("FLOPs cut (%)", share("flops")),
        ("at most", share("flops_at_most")),
        ("speed-up (%)", share("speedup")),
        ("at most", share("speedup_at_most")),
    )
    return Sheet.of(table, columns, CAPTION, texts=2)


CAPTION = (
    "Published cuts of the second paper (arXiv 2511.17577) against the most that arithmetic "
    "allows when heads are removed from an encoder of RoBERTa's shape: the pruned heads' slices of "
    f"four projections, over all parameters; their share of the layers' FLOPs at {LONGEST} "
    "tokens, the longest input (less on shorter ones); the speed-up of an encoder whose time is "
    "that of these FLOPs, 1 / (1 − cut) − 1. The task head is not counted: with it all shares are "
    "smaller still. A dash: Table 2 of the paper has no FLOPs."
)
"""What the table shows."""
