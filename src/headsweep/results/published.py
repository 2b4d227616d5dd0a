"""The papers' numbers (``config/published``) beside chance, arithmetic and a sweep's cells.

The gains of the SPRINT paper's Figure 2 come from its own Tables 1-4 and Figure 5.

Parameters and FLOPs of an encoder of RoBERTa's shape follow from its geometry. The FLOPs of a layer
with h heads on L tokens are 2L(4·d·h·d_h + 2L·h·d_h + 2·d·f); pruning heads leaves the last term.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from headsweep.config import Config, Model
from headsweep.results.facts import read_csv
from headsweep.results.gains import OVERALL
from headsweep.statistics import LEVEL, TAILS
from headsweep.statistics.intervals import unpaired_difference, wilson
from headsweep.statistics.luck import of_table
from headsweep.statistics.published_luck import gains_by_chance

HEAD_PRUNING = "sprint_head_pruning.csv"
FIGURE_5 = "sprint_figure5.csv"
CONDITIONS = tuple(f"compression_table{number}.csv" for number in (1, 2, 3, 4))
CLAIM_FILES = {"SPRINT": "sprint_claims.csv", "compression": "compression_claims.csv"}
"""File of the claims of each paper."""
FILES = (HEAD_PRUNING, FIGURE_5, *CONDITIONS, *CLAIM_FILES.values())
"""The files of published numbers that are read."""

EXHIBITS = {
    "Meta-Llama-3-8B-Instruct": "Table 1",
    "Qwen2.5-Math-1.5B-Instruct": "Table 2",
    "Qwen2.5-Math-7B-Instruct": "Table 3",
    "Qwen2.5-7B-Instruct": "Table 4",
}
"""The table of each model in the SPRINT paper, by the model's name on the hub."""

LAYERS = dict.fromkeys(EXHIBITS, (0, 5, 15, 27)) | {"Meta-Llama-3-8B-Instruct": (5, 10, 15, 31)}
"""The layers of each model in these tables."""

FIGURE_MODEL, FIGURE_LAYER = "Qwen2.5-Math-1.5B-Instruct", 21
"""The model and the layer of Figure 5."""

SIZES = {
    "Algebra": 124,
    "Counting & Probability": 38,
    "Geometry": 41,
    "Intermediate Algebra": 97,
    "Number Theory": 62,
    "Prealgebra": 82,
    "Precalculus": 56,
}
"""Questions of MATH-500 by subject; every published accuracy is a count over these."""

DATA = {"math23k": "Math23k", "asdiv_a": "ASDiv-A"}
"""The second paper's names of its data."""

ENCODER_NAMES = {
    "roberta-base": "ATHENA-base",
    "chinese-roberta-wwm-ext": "ATHENA-base",
    "roberta-large": "ATHENA-large",
    "chinese-roberta-wwm-ext-large": "ATHENA-large",
}
"""Encoders of the published solvers, by the last part of their name on the hub."""


def published_solver(encoder: str | None) -> str | None:
    """Return the published solver that has an encoder, by hub id or folder, if there is one."""
    return ENCODER_NAMES.get(Path(encoder).name) if encoder else None


LEGIBLE = 0.5
"""Smallest share of legible heads for a (subject, layer) pair to count."""

_RESAMPLES = 4000
_TOLERANCE = 1e-9  # of gains, which are quotients of whole numbers

_PUBLISHED = ["published_n", "published_correct", "published", "exhibit"]
_NUMBERS = {
    "baseline_accuracy_pct": "published_baseline",
    "accuracy_pct": "published_accuracy",
    "param_reduction_pct": "published_parameters",
    "flops_reduction_pct": "published_flops",
    "speedup_pct": "published_speedup",
    "memory_reduction_pct": "published_memory",
}


def content(folder: Path) -> str:
    """Return a digest of the files of published numbers: what is made from them depends on it."""
    files = b"\0".join((folder / name).read_bytes() for name in FILES)
    return hashlib.sha256(files).hexdigest()[:16]


@dataclass(frozen=True)
class EncoderShape:
    """The geometry of an encoder with learned positions."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int = 50265

    @property
    def head_parameters(self) -> int:
        """Parameters of one head: its slices of four projections, and three biases."""
        head_dim = self.width // self.heads
        return 4 * self.width * head_dim + 3 * head_dim

    @property
    def parameters(self) -> int:
        """All parameters: embeddings of tokens, 514 positions and types; layers; no task head."""
        embeddings = (self.vocabulary + 514 + 1 + 2) * self.width
        attention = self.heads * self.head_parameters + self.width
        feed_forward = 2 * self.width * self.inner + self.inner + self.width
        return embeddings + self.layers * (attention + feed_forward + 4 * self.width)

    def cut(self, ratio: float, tokens: int = 512) -> tuple[int, float, float]:
        """Return the heads that a pruning ratio removes, their shares of parameters and of FLOPs.

        The default length is the longest input, where attention's share is largest.
        """
        removed = int(ratio * self.layers * self.heads + 1e-9)
        attention = 4 * self.width**2 + 2 * tokens * self.width
        share = attention / (attention + 2 * self.width * self.inner)
        flops = removed / (self.layers * self.heads) * share
        return removed, removed * self.head_parameters / self.parameters, flops


ENCODERS = {
    "ATHENA-base": EncoderShape(layers=12, width=768, heads=12, inner=3072),
    "ATHENA-large": EncoderShape(layers=24, width=1024, heads=16, inner=4096),
}
"""RoBERTa-base and RoBERTa-large, the encoders of the published solvers."""


def head_pruning(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 and Figure 5 of the SPRINT paper from a folder, one row per legible cell.

    Columns ``exhibit`` (such as "Table 2"), ``model``, ``layer``, ``head`` (null for No Prune),
    ``subject``, ``n``, ``correct`` and ``accuracy`` = correct / n. Above 100 questions two counts
    may be printed alike; the nearest is taken.

    Raises:
        TableError: a file is missing or damaged.
    """
    keys = ["exhibit", "model", "layer", "head", "subject"]
    tables, figure = (read_csv(folder / name, keys[1:]) for name in (HEAD_PRUNING, FIGURE_5))
    tables = tables.assign(exhibit=tables["model"].map(EXHIBITS))
    table = pd.concat([tables, figure.assign(exhibit="Figure 5")]).dropna(subset="accuracy")
    n = table["subject"].map(SIZES)
    correct = (table["accuracy"] * n).round().astype(int)
    head = pd.to_numeric(table["head"].replace("none", pd.NA)).astype("Int64")
    table = table.assign(head=head, n=n, correct=correct, accuracy=correct / n)
    return table.reset_index(drop=True)[[*keys, "n", "correct", "accuracy"]]


def audit(table: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
    """Compare the published gains of each table, and of Figure 5, with those by chance.

    Outcomes of single questions are not published: base model and heads are taken to agree on all
    questions but some contested ones, which each answers like a fair coin, as many as explain the
    spread between the heads of a layer. What heads keep from subject to subject is not counted as
    noise and heads that clearly hurt are left out; an effect of one head on one subject alone looks
    like noise, so chance is an upper bound. The table is that of `head_pruning`.

    Gains are counts of questions, so fewer than 5% of those by chance exceed the ``most`` of their
    pair: how many pairs do by luck, on average and in 95% of draws, is counted in resamples, in
    which the pairs of a model and subject share the base model's answers.

    Returns:
        ``pairs``: one row per (exhibit, subject, layer): the gain of the best and of the median
        head, what luck alone gives the best on average (``by_chance``) and in at least 95% of draws
        at most (``most``), the chance ``p`` of the best one's gain, and whether it is ``beyond``
        the most. ``sprint``: one per exhibit and model: the ``pairs``, their median ``gain``, what
        chance gives with its 95% range, how many are ``beyond``, how many luck alone gives, on
        average (``luck``) and up to (``luck_high``) in 95% of draws, and the mean gain of the
        ``median_head``, which is free of selection; ``p`` is the share with as many of the draws
        and the table itself.
        ``total``: one row, likewise of all.
    """
    parts = []
    rows = []
    total = np.zeros(_RESAMPLES)
    for place, (model, of_model) in enumerate(table.groupby("model", sort=False)):
        exhibits = of_model.groupby("exhibit", sort=False)
        pairs = pd.concat([pairs_of(part).assign(exhibit=str(name)) for name, part in exhibits])
        best = gains_by_chance(pairs, _RESAMPLES, seed + place)
        pairs = pairs.drop(columns=["contested", "ordinary"])
        most = pairs["most"].to_numpy() + _TOLERANCE
        pairs = pairs.assign(model=str(model), beyond=pairs["gain"] > most)
        parts.append(pairs)
        total += (best > most).sum(axis=1)
        for exhibit, of_exhibit in pairs.groupby("exhibit", sort=False):
            within = (pairs["exhibit"] == exhibit).to_numpy()
            medians = np.median(best[:, within], axis=1)
            lucky = (best > most)[:, within]
            low, high = np.quantile(medians, TAILS)
            row = {
                "exhibit": exhibit,
                "model": model,
                "pairs": len(of_exhibit),
                "gain": of_exhibit["gain"].median(),
                "by_chance": medians.mean(),
                "chance_low": low,
                "chance_high": high,
                **_counted(of_exhibit["beyond"].sum(), lucky.sum(axis=1)),
                "median_head": of_exhibit["median_head"].mean(),
            }
            rows.append(row)
    all_pairs = pd.concat(parts, ignore_index=True)
    whole = {"pairs": len(all_pairs), **_counted(all_pairs["beyond"].sum(), total)}
    return {"pairs": all_pairs, "sprint": pd.DataFrame(rows), "total": pd.DataFrame([whole])}


def _counted(beyond: float, lucky: np.ndarray) -> dict[str, float]:
    """Return how many gains are beyond chance, and how many resamples without an effect have."""
    return {
        "beyond": beyond,
        "luck": lucky.mean(),
        "p": (1 + (lucky >= beyond).sum()) / (1 + len(lucky)),
        "luck_high": np.quantile(lucky, LEVEL, method="higher"),
    }


def pairs_of(part: pd.DataFrame) -> pd.DataFrame:
    """Return the (subject, layer) pairs of a model's `head_pruning` that are legible enough.

    Beside each gain stand the number of ``ordinary`` heads, which do not clearly hurt, how many
    questions are ``contested``, and what luck alone would give, as
    `headsweep.statistics.luck.of_table` says.
    """
    base = part[part["head"].isna()].set_index(["layer", "subject"])["accuracy"]
    pruned = part.dropna(subset="head")
    all_heads = pruned["head"].max() + 1
    parts = []
    for layer, cells in pruned.groupby("layer"):
        grid = cells.pivot(index="head", columns="subject", values="accuracy")
        subjects = grid.columns.astype(str)
        unpruned = base.reindex([(layer, subject) for subject in subjects])
        sizes = subjects.map(SIZES).to_numpy()
        measured = of_table(grid.to_numpy(float), unpruned.to_numpy(float), sizes)
        parts.append(measured.assign(layer=layer, subject=subjects))
    pairs = pd.concat(parts, ignore_index=True)
    pairs = pairs[(pairs["tries"] >= LEGIBLE * all_heads) & pairs["base"].notna()]
    pairs = pairs.rename(columns={"tries": "heads", "median_try": "median_head"})
    columns = ["layer", "subject", "n", "heads", "base", "gain", "median_head", "ordinary"]
    return pairs[[*columns, "contested", "by_chance", "most", "p"]].reset_index(drop=True)


def conditions(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 of the second paper from a folder, one row per condition, as fractions.

    ``of`` (ratio, arm, alpha or stratum) and ``key`` (the model for a ratio, our name for an arm or
    stratum, alpha) identify the condition. Columns that end in ``_at_most`` are what arithmetic
    allows for the removed ``heads``.

    Raises:
        TableError: a table is missing or damaged.
    """
    read = [read_csv(folder / name, ["of", "key"]).astype({"key": str}) for name in CONDITIONS]
    same = ["of", "key", "dataset", "pruning_ratio_pct"]
    table = pd.concat(read, ignore_index=True).drop_duplicates(same)
    table = table.rename(columns=_NUMBERS)
    table[list(_NUMBERS.values())] /= 100
    ratio = table["pruning_ratio_pct"] / 100
    most = [
        ENCODERS[model].cut(removed_share)
        for model, removed_share in zip(table["model"], ratio, strict=True)
    ]
    heads, parameters, flops = map(np.array, zip(*most, strict=True))
    return table.rename(columns={"model": "published_model", "dataset": "data"}).assign(
        ratio=ratio,
        heads=heads,
        published_change=(table["published_accuracy"] - table["published_baseline"]).round(9),
        published_parameters_at_most=parameters,
        published_flops_at_most=flops,
    )


def cuts(conditions: pd.DataFrame) -> pd.DataFrame:
    """Return the published cuts of `conditions` beside the largest that arithmetic allows."""
    quantities = ("parameters", "flops")  # time may fall by more than FLOPs do
    pairs = [f"published_{name}{end}" for name in quantities for end in ("", "_at_most")]
    columns = ["published_model", "data", "ratio", "heads", *pairs]
    return conditions.query("of == 'ratio' and ratio > 0")[columns]


def published_name(model: Model) -> str | None:
    """Return a model's name in the SPRINT paper, the last part of its hub id or folder; or None."""
    name = Path(model.source).name
    return name if name in EXHIBITS else None


def model_beside(model: Model) -> str | None:
    """Return the paper's model whose numbers stand beside a model's, if there is one."""
    return published_name(model) or model.beside


def beside(config: Config, sweep: str, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return a sweep's `headsweep.results.gains.cells` with published numbers.

    Columns are added that are null where no number is legible: questions, right answers, accuracy
    and place as published; and the measured accuracy minus the published one, with its interval.

    The paper prints No Prune for each layer; its number is given only if all layers agree.

    Raises:
        TableError: a published table in the folder is missing or damaged.
    """
    section = config.sweeps[sweep]
    keys = ["layer", "head", "group"]
    same = config.questions[section.questions].benchmark == "math500"
    table = head_pruning(folder).rename(columns={"subject": "group"}).astype({"layer": "Int64"})
    of_model = table["model"].eq(model_beside(config.models[section.model]) or "") & same
    table = table[of_model & table["layer"].isin(cells["layer"].dropna())]
    total = table.groupby(["exhibit", *keys[:2]], dropna=False)
    whole = total[["n", "correct"]].sum()[total.size() == len(SIZES)].reset_index()
    table = pd.concat([table, whole.assign(group=OVERALL, accuracy=whole["correct"] / whole["n"])])
    names = {"n": "published_n", "correct": "published_correct", "accuracy": "published"}
    table = table.rename(columns=names)
    base = table[table["head"].isna()].assign(layer=None).astype({"layer": "Int64"})
    base = base[base.groupby("group")["published"].transform("nunique") == 1]
    table = pd.concat([table.dropna(subset="head"), base.drop_duplicates("group")])
    joined = cells.merge(table[[*keys, *_PUBLISHED]], on=keys, how="left", validate="one_to_one")

    def numbers(column: str) -> np.ndarray:
        return joined[column].to_numpy(float, na_value=np.nan)

    printed = numbers("published")
    measured = numbers("accuracy")
    with np.errstate(invalid="ignore"):
        printed_ends = wilson(numbers("published_correct"), numbers("published_n"))
        measured_ends = wilson(numbers("correct"), numbers("n"))
        low, high = unpaired_difference(printed, printed_ends, measured, measured_ends)
    return joined.assign(difference=measured - printed, difference_low=low, difference_high=high)
