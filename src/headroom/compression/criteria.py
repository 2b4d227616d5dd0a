"""The criteria that heads are ranked by, in `headroom prune` and in compressions.

Each gives a score to each head of a model, and the lowest go first. A criterion of one's own is one
more entry of `CRITERIA`; a config names it once `Importance.criterion` lists it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from headroom.compression.choice import Scores
from headroom.compression.effects import accuracy_drops, loss_rises, random_scores, taylor
from headroom.compression.importance import Calibration, Texts, calibrate, mixed, weight_norms
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.evaluation import evaluating
from headroom.models.geometry import HeadGeometry
from headroom.models.learner import Batch, Example, Learner, move
from headroom.models.load import load_tokenizer
from headroom.tables import ACCURACY, read_table

_TEXT_TOKENS = 512
_BATCH = 16


@dataclass(frozen=True)
class Ranked(ABC):
    """A model whose heads are ranked, and all that a criterion may look at."""

    model: PreTrainedModel
    """In evaluation mode; criteria leave it as it was."""
    geometry: HeadGeometry
    """Its heads as they stand."""
    settings: Importance
    seed: int

    @abstractmethod
    def texts(self) -> Iterator[Texts]:
        """Yield what the model reads, batch by batch."""

    @abstractmethod
    def losses(self) -> tuple[Iterator[Any], Callable[[Any], Tensor]]:
        """Return batches, and what computes the sum of the losses of a batch's rows."""

    @abstractmethod
    def drops(self) -> Scores:
        """Return what is lost without each head, measured."""

    def calibration(self) -> Calibration:
        """Return what the heads do on the texts."""
        return calibrate(self.model, self.geometry, self.texts())


@dataclass(frozen=True)
class Criterion:
    """A way to rank the heads of a model."""

    about: str
    """For the model card; may name `{alpha}` and `{seed}`."""
    scores: Callable[[Ranked], Scores]
    needs: Literal["texts", "accuracy"] | None = None
    """What `headroom prune` has to be given for it."""


def _mixed(of: Ranked) -> Scores:
    settings, found = of.settings, of.calibration()
    by_weights = settings.norm == "weights"
    norm = weight_norms(of.model, of.geometry) if by_weights else found.activation_norms
    entropy = found.raw_entropy if settings.entropy == "raw" else found.entropy
    return mixed(norm, entropy, settings)


CRITERIA = {
    "norm": Criterion(
        "smallest mean absolute weights", lambda of: weight_norms(of.model, of.geometry)
    ),
    "entropy": Criterion(
        "lowest entropy of attention", lambda of: of.calibration().entropy, needs="texts"
    ),
    "mixed": Criterion(
        "lowest mixture of weight norm and attention entropy, alpha {alpha}", _mixed, needs="texts"
    ),
    "attention": Criterion(
        "lowest largest attention weight, mean over queries",
        lambda of: of.calibration().peak,
        needs="texts",
    ),
    "taylor": Criterion(
        "smallest |gradient x mask| of the language modelling loss",
        lambda of: taylor(of.model, of.geometry, *of.losses()),
        needs="texts",
    ),
    "causal": Criterion(
        "smallest loss of accuracy on training questions", lambda of: of.drops(), needs="accuracy"
    ),
    "random": Criterion(
        "random draw with seed {seed}", lambda of: random_scores(of.geometry, of.seed)
    ),
}
"""The criteria by name."""


def find_criterion(name: str) -> Criterion:
    """Return a criterion by name.

    Raises:
        ModelError: there is none of that name.
    """
    if name not in CRITERIA:
        raise ModelError(f"criterion {name!r} is not known; use {', '.join(CRITERIA)}")
    return CRITERIA[name]


@dataclass(frozen=True)
class Plain(Ranked):
    """A model as `headroom prune` loads it."""

    folder: Path
    """Where its tokenizer lies."""
    lines: Sequence[str]
    """What is looked at; may be empty."""
    accuracy: str | Path | None
    """Accuracy matrix of a sweep, on training questions."""

    def texts(self, rows: int = _BATCH) -> Iterator[Texts]:
        """Yield the lines as the model reads them, so many at a time."""
        tokenizer = load_tokenizer(self.folder)
        tokenizer.padding_side = "left" if self.geometry.keeps_cache else "right"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        for start in range(0, len(self.lines), rows):
            encoded = tokenizer(
                list(self.lines[start : start + rows]),
                padding=True,
                truncation=True,
                max_length=min(_TEXT_TOKENS, tokenizer.model_max_length),
                return_tensors="pt",
            )
            names = ("input_ids", "attention_mask")
            yield {name: encoded[name].to(self.model.device) for name in names}

    def losses(self) -> tuple[Iterator[Texts], Callable[[Texts], Tensor]]:
        """Return the lines one by one, and the language modelling loss.

        Raises:
            ModelError: the model has none.
        """
        if self.model.get_output_embeddings() is None or not self.geometry.keeps_cache:
            raise ModelError(
                f"criterion taylor needs the loss of a language model, and "
                f"{type(self.model).__name__} is none; use norm, entropy or mixed"
            )

        def loss(batch: Texts) -> Float[Tensor, ""]:
            found: Tensor = self.model(**batch, labels=batch["input_ids"]).loss
            return found

        return self.texts(rows=1), loss

    def drops(self) -> Scores:
        """Return the accuracy that a sweep lost without each head."""
        return accuracy_drops(
            read_table(Path(str(self.accuracy)), ACCURACY, exact=False), self.geometry
        )


def head_scores(
    learner: Learner,
    geometry: HeadGeometry,
    examples: Sequence[Example],
    dev: Sequence[Example],
    settings: Importance,
    seed: int,
) -> Scores:
    """Return how important each head of a learner's encoder is, in evaluation mode.

    Args:
        learner: as it stands; it is left as it was.
        geometry: its encoder's heads as they stand.
        examples: the training part, of which the calibration examples are drawn.
        dev: the development part, which `causal` looks at unless the learner's drops are known.
        settings: the criterion.
        seed: of `random`.

    Raises:
        ModelError: the encoder has no eager attention, or `causal` no development part.
    """
    with evaluating(learner.network):
        ranked = _Learning(learner.encoder, geometry, settings, seed, learner, examples, dev)
        return CRITERIA[settings.criterion].scores(ranked)


def calibration(examples: Sequence[Example], settings: Importance) -> list[Example]:
    """Return the training examples that scores are measured on: always the same."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return [examples[index] for index in sorted(order[: settings.calibration].tolist())]


@dataclass(frozen=True)
class _Learning(Ranked):
    """The encoder of a learner under compression."""

    learner: Learner
    examples: Sequence[Example]
    dev: Sequence[Example]

    def texts(self) -> Iterator[Texts]:
        drawn = calibration(self.examples, self.settings)
        return (batch.inputs for batch in self._batches(drawn))

    def losses(self) -> tuple[Iterator[Batch], Callable[[Batch], Tensor]]:
        return self._batches(calibration(self.examples, self.settings)), self._summed_loss

    def drops(self) -> Scores:
        """Return the drops that the learner knows, or how far the loss rises without each head."""
        known = self.learner.known_drops(self.geometry)
        if known is not None:
            return known
        if not self.dev:
            raise ModelError("criterion causal needs a development part; give one, or use mixed")
        batches = list(self._batches(self.dev))
        return loss_rises(self.model, self.geometry, partial(self._mean_loss, batches))

    def _batches(self, examples: Sequence[Example]) -> Iterator[Batch]:
        size = self.learner.at_once
        for start in range(0, len(examples), size):
            yield move(self.learner.collate(examples[start : start + size]), self.model.device)

    def _summed_loss(self, batch: Batch) -> Float[Tensor, ""]:
        return self.learner.task_loss(self.learner.run(batch), batch) * batch.judged

    @torch.no_grad()
    def _mean_loss(self, batches: Sequence[Batch]) -> float:
        total = sum(float(self._summed_loss(batch)) for batch in batches)
        return total / sum(batch.judged for batch in batches)
