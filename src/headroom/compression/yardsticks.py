"""The criteria of `headroom prune`: a score for each head of a model, and the lowest go first.

A criterion of one's own is one more entry of `CRITERIA`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from headroom.compression.choice import Scores
from headroom.compression.effects import accuracy_drops, random_scores, taylor
from headroom.compression.importance import Calibration, Texts, calibrate, mixed, weight_norms
from headroom.errors import ModelError
from headroom.models.geometry import HeadGeometry
from headroom.models.load import load_tokenizer
from headroom.tables import ACCURACY, read_table

_TEXT_TOKENS = 512
_BATCH = 16


@dataclass(frozen=True)
class Subject:
    """A model, and all that a criterion may look at."""

    model: PreTrainedModel
    geometry: HeadGeometry
    """Its heads."""
    folder: Path
    """Where its tokenizer lies."""
    texts: Sequence[str] = ()
    accuracy: str | Path | None = None
    """Accuracy matrix of a sweep, on training questions."""
    alpha: float = 0.5
    """Weight of the norm in a mixture."""
    seed: int = 0

    def batches(self, rows: int = _BATCH) -> Iterator[Texts]:
        """Yield the texts as the model reads them, so many at a time."""
        tokenizer = load_tokenizer(self.folder)
        tokenizer.padding_side = "left" if self.geometry.keeps_cache else "right"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        for start in range(0, len(self.texts), rows):
            encoded = tokenizer(
                list(self.texts[start : start + rows]),
                padding=True,
                truncation=True,
                max_length=min(_TEXT_TOKENS, tokenizer.model_max_length),
                return_tensors="pt",
            )
            names = ("input_ids", "attention_mask")
            yield {name: encoded[name].to(self.model.device) for name in names}


@dataclass(frozen=True)
class Criterion:
    """A way to rank the heads of a model."""

    about: str
    """For the model card; may name `{alpha}` and `{seed}`."""
    scores: Callable[[Subject], Scores]
    needs: Literal["texts", "accuracy"] | None = None
    """What it cannot do without."""


def find_criterion(name: str) -> Criterion:
    """Return a criterion by name.

    Raises:
        ModelError: there is none of that name.
    """
    if name not in CRITERIA:
        raise ModelError(f"criterion {name!r} is not known; use {', '.join(CRITERIA)}")
    return CRITERIA[name]


def _calibrated(subject: Subject) -> Calibration:
    return calibrate(subject.model, subject.geometry, subject.batches())


def _mixed(subject: Subject) -> Scores:
    norms = weight_norms(subject.model, subject.geometry)
    return mixed(norms, _calibrated(subject).entropy, subject.alpha)


def _causal(subject: Subject) -> Scores:
    matrix = read_table(Path(str(subject.accuracy)), ACCURACY, exact=False)
    return accuracy_drops(matrix, subject.geometry)


def _taylor(subject: Subject) -> Scores:
    model, geometry = subject.model, subject.geometry
    if model.get_output_embeddings() is None or not geometry.keeps_cache:
        raise ModelError(
            f"criterion taylor needs the loss of a language model, and {type(model).__name__} "
            f"is none; use norm, entropy or mixed"
        )

    def loss(batch: Texts) -> Float[Tensor, ""]:
        found: Tensor = model(**batch, labels=batch["input_ids"]).loss
        return found

    return taylor(model, geometry, subject.batches(rows=1), loss)


CRITERIA = {
    "norm": Criterion(
        "smallest mean absolute weights", lambda s: weight_norms(s.model, s.geometry)
    ),
    "entropy": Criterion(
        "lowest entropy of attention", lambda s: _calibrated(s).entropy, needs="texts"
    ),
    "mixed": Criterion(
        "lowest mixture of weight norm and attention entropy, alpha {alpha}", _mixed, needs="texts"
    ),
    "attention": Criterion(
        "lowest largest attention weight, mean over queries",
        lambda s: _calibrated(s).peak,
        needs="texts",
    ),
    "taylor": Criterion(
        "smallest |gradient x mask| of the language modelling loss", _taylor, needs="texts"
    ),
    "causal": Criterion(
        "smallest loss of accuracy on training questions", _causal, needs="accuracy"
    ),
    "random": Criterion(
        "random draw with seed {seed}", lambda s: random_scores(s.geometry, s.seed)
    ),
}
"""The criteria by name."""
