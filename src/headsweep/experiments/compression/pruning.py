"""Pruning a model on disk: choose heads, zero or cut them, and save the result."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from transformers import PreTrainedModel

from headsweep.config.compression import SCORED_AT_ONCE, Importance
from headsweep.errors import ModelError
from headsweep.experiments.compression import criteria, heads_to_remove
from headsweep.experiments.compression.calibration import row_batches
from headsweep.experiments.compression.savings import Size, size
from headsweep.files.record import Stopwatch
from headsweep.files.safe_files import check_writable, read_table
from headsweep.files.tables import ACCURACY
from headsweep.models.checkpoints import check_target, save_pruned
from headsweep.models.geometry import HeadGeometry, find_heads, most_tokens
from headsweep.models.load import load_checkpoint, load_tokenizer
from headsweep.models.model_card import LOADED_BY, Form, Pruning
from headsweep.models.removal import remove_heads, zero_heads
from headsweep.models.source import fetch_model, fingerprint
from headsweep.text import counted
from headsweep.variants import Variant

_MEASURED_TOKENS = 128  # or as many as the model reads
_SCORED_TOKENS = 512  # of a calibration text, at most
_SIZES = {
    "parameters": "parameters",
    "layer_parameters": "parameters of the layers",
    "flops": "operations, {tokens} tokens",
    "weight_bytes": "bytes of weights",
}
_HOW = (
    "After pruning, of the source model's. Operations are computed from the shapes, multiplication "
    "and addition counted separately; nothing was timed, and no questions were answered."
)


@dataclass(frozen=True)
class Pruned:
    """A model that was pruned and saved."""

    folder: Path
    form: Form
    removed: tuple[Variant, ...]  # numbered as in the source
    before: Size
    after: Size

    def __str__(self) -> str:
        gain = "zeroed, sizes unchanged"
        if self.form != "zeroed":
            less = 1 - self.after.parameters / self.before.parameters
            work = 1 - self.after.flops / self.before.flops
            gain = f"{less:.1%} fewer parameters, {work:.1%} less arithmetic"
        removed = counted(len(self.removed), "head")
        return f"{self.folder}: {removed} removed, {gain}; {LOADED_BY[self.form]}"


def prune(
    source: str,
    out: str | Path,
    *,
    heads: Sequence[str] | None = None,
    ratio: float | None = None,
    form: Form = "free",
    criterion: str = "norm",
    texts: Sequence[str] | None = None,
    accuracy: str | Path | None = None,
    alpha: float = 0.5,
    seed: int = 0,
    scope: heads_to_remove.Scope = "all",
    unit: heads_to_remove.Unit = "group",
    revision: str | None = None,
    device: str = "auto",
) -> Pruned:
    """Remove attention heads from a model and save it with its tokenizer and a model card.

    Args:
        source: hub id or local folder.
        out: folder to create.
        heads: names of the heads to remove, such as ``L05H03``; give these or `ratio`.
        ratio: share of all heads to remove, those of lowest score first.
        form: `zeroed` and `uniform` load with plain `from_pretrained`, `free` with
            `headsweep.load_model`.
        criterion: the score, by its name in `headsweep.experiments.compression.criteria.CRITERIA`.
        texts: calibration texts for entropy, mixed and attention.
        accuracy: for causal, the accuracy matrix (Parquet) of a sweep over all heads of some
            layers, on training questions.
        alpha: weight of the norm in mixed.
        seed: seed of random.
        scope: whether all heads are ranked together or those of each layer; with the form
            `uniform`, always those of each layer.
        unit: heads removed together in grouped-query attention; zeroed heads are chosen singly.
        revision: hub: a commit hash. Folder: its expected fingerprint.
        device: auto, cpu, cuda or cuda:N.

    Raises:
        ConfigError: the name of a head cannot be read.
        TableError: the accuracy matrix is missing or damaged.
        ModelError: an argument is not allowed, the model cannot be loaded or pruned as asked, or
            the folder cannot be written.
    """
    stopwatch = Stopwatch()
    out = Path(out)
    check_target(out)
    check_writable("--out", out, "folder")
    _check_choice(heads, ratio, alpha)
    by = criteria.named(criterion)
    _check_data(heads, criterion, texts, accuracy)
    matrix: Any = None if accuracy is None else read_table(Path(accuracy), ACCURACY)
    removed = sorted({Variant.parse(name) for name in heads or ()})
    about = "named by hand"

    folder = fetch_model(source, revision)
    model = load_checkpoint(str(folder), device=device)
    geometry = find_heads(model)
    if ratio is not None:
        if form == "zeroed":
            unit = "head"
        if form == "uniform":
            scope = "layer"
        count = _count(ratio, form, unit, model, geometry)
        longest = _at_most(_SCORED_TOKENS, model)
        rows = partial(_token_ids, folder, texts or (), longest)
        inputs = criteria.RankingInputs(
            model,
            geometry,
            Importance(alpha=alpha),
            seed,
            texts=lambda: row_batches(rows(), SCORED_AT_ONCE, model.device),
            drops=partial(criteria.accuracy_drops, matrix, geometry, geometry),
        )
        removed = heads_to_remove.lowest_heads(
            by.scores(inputs), geometry, count, scope=scope, unit=unit
        )
        if not removed:
            raise ModelError(f"ratio {ratio} removes no head of this model; use a larger one")
        about = by.about.format(alpha=alpha, seed=seed)

    tokens = _at_most(_MEASURED_TOKENS, model)
    before = size(model, geometry, tokens)
    if form == "zeroed":
        zero_heads(model, geometry, removed)
    else:
        geometry = remove_heads(model, geometry, removed)
    after = size(model, geometry, tokens)
    facts = Pruning(
        source, revision_of(folder), removed, about, _told_sizes(before, after, tokens), _HOW
    )
    save_pruned(model, geometry, out, form, facts, folder, stopwatch)
    return Pruned(out, form, tuple(removed), before, after)


def _count(
    ratio: float,
    form: Form,
    unit: heads_to_remove.Unit,
    model: PreTrainedModel,
    geometry: HeadGeometry,
) -> int:
    """Return how many heads a ratio removes where a form decides: in all, or of every layer."""
    if form == "uniform":
        return heads_to_remove.even_count(ratio, geometry, unit, model.config)
    return heads_to_remove.heads_at(ratio, geometry.heads)


def _told_sizes(before: Size, after: Size, tokens: int) -> dict[str, str]:
    """Return what a model card says of a model's size: what is left of what there was."""
    return {
        name.format(tokens=tokens): f"{getattr(after, field):,} of {getattr(before, field):,}"
        for field, name in _SIZES.items()
    }


def _at_most(tokens: int, model: PreTrainedModel) -> int:
    """Return so many tokens, or as many as a model reads, if these are fewer."""
    return min(tokens, most_tokens(model.config) or tokens)


def _check_choice(heads: Sequence[str] | None, ratio: float | None, alpha: float) -> None:
    """Refuse arguments of `prune` that do not say which heads are to go."""
    if (heads is None) == (ratio is None):
        raise ModelError("say which heads are to go, by `heads` or by `ratio`, not by both")
    if heads is not None and not heads:
        raise ModelError("`heads` is empty; name some, such as L05H03, or give a `ratio`")
    if ratio is not None and not 0 < ratio < 1:
        raise ModelError(f"ratio {ratio} is not between 0 and 1; a quarter of all heads is 0.25")
    if not 0 <= alpha <= 1:
        raise ModelError(f"alpha {alpha} is not between 0 and 1; 0.5 weighs norm and entropy alike")


def _check_data(
    heads: Sequence[str] | None, name: str, texts: Sequence[str] | None, accuracy: str | Path | None
) -> None:
    """Refuse a criterion without the data that it ranks heads by, and data that nothing reads."""
    needs = None if heads is not None else criteria.named(name).needs
    if needs == "texts" and not texts:
        raise ModelError(f"criterion {name} looks at texts; give some, or use norm")
    if needs == "accuracy" and accuracy is None:
        raise ModelError(f"criterion {name} reads the accuracy matrix of a sweep; name its file")
    for data, given in (("texts", texts), ("accuracy", accuracy)):
        if given and data != needs:
            why = f"criterion {name} reads none" if heads is None else "heads are named"
            reading = ", ".join(key for key, by in criteria.CRITERIA.items() if by.needs == data)
            to_train = "; texts to train on take --recover" if data == "texts" else ""
            raise ModelError(
                f"{data} would be ignored, as {why}; leave it out, or give a ratio with a "
                f"criterion that reads {data} ({reading}){to_train}"
            )


def _token_ids(
    folder: Path, texts: Sequence[str], longest: int
) -> list[Int[np.ndarray, " tokens"]]:
    """Return the token ids of texts, each cut after its `longest`, or as many as the tokenizer
    allows.
    """
    tokenizer = load_tokenizer(folder)
    length = min(longest, tokenizer.model_max_length)
    encoded = tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    return [np.array(ids) for ids in encoded]


def revision_of(folder: Path) -> str:
    """Return the commit of a model from the hub, or the fingerprint of a local folder."""
    hub = folder.parent.name == "snapshots" and re.fullmatch(r"[0-9a-f]{40}", folder.name)
    return folder.name if hub else fingerprint(folder)
