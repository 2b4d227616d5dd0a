"""What can be trained, lose heads and be taught: solvers of word problems, and decoders.

Training, compression and distillation know their models by this protocol only.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import kl_div
from transformers import PreTrainedModel

from headroom.config.compression import Training
from headroom.errors import ModelError
from headroom.models.geometry import HeadGeometry

_T = TypeVar("_T")
_L = TypeVar("_L", bound="Learner")
_M = TypeVar("_M", bound=nn.Module)


class Verdict(NamedTuple):
    """What a learner answers to an example, and whether it is right."""

    example_id: str
    stratum: str
    """What accuracy is split by."""
    answer: str | None
    """None where there is none."""
    strict: bool
    lenient: bool
    """By a rule that lets more pass; each learner says which."""


class Example(Protocol):
    """What is learned from, as the learner reads it."""

    @property
    def example_id(self) -> str:
        """Unlike for every example of a dataset."""

    @property
    def input_ids(self) -> Int[np.ndarray, " tokens"]:
        """The tokens that are read."""


class Batch(Protocol):
    """Examples side by side; a dataclass, whose tensors `move` finds."""

    @property
    def inputs(self) -> Mapping[str, Int[Tensor, "batch tokens"]]:
        """What the encoder reads, `attention_mask` among it."""

    @property
    def judged(self) -> int:
        """How many terms the task's loss is the mean of."""


class Output(Protocol):
    """What a network makes of a batch."""

    @property
    def attentions(self) -> Sequence[Float[Tensor, "batch heads queries keys"]]:
        """Attention weights of each layer, if asked for."""


class Learner(Protocol):
    """A network with all that is needed to teach it, to examine it and to keep it."""

    @property
    def network(self) -> nn.Module:
        """What is trained."""

    @property
    def encoder(self) -> PreTrainedModel:
        """The network, or the part of it, whose heads are cut."""

    @property
    def at_once(self) -> int:
        """How many examples may lie side by side where no gradient is kept."""

    @property
    def recipe(self) -> Training | None:
        """How the learner is trained from scratch; None where that is done elsewhere."""

    def prepare(self, rows: Sequence[Any]) -> Sequence[Example]:
        """Return a dataset's rows as the learner reads them."""

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Join examples to a batch, on the CPU."""

    def run(self, batch: Any, *, attentions: bool = False) -> Output:
        """Pass a batch through the network, in whatever mode that is."""

    def task_loss(self, output: Any, batch: Any) -> Float[Tensor, ""]:
        """Return the learner's own loss, a mean over `batch.judged` terms."""

    def response_loss(
        self, student: Any, teacher: Any, batch: Any, temperature: float
    ) -> Float[Tensor, ""]:
        """Return how far the output of a student is from its teacher's."""

    def known_drops(self, geometry: HeadGeometry) -> Mapping[int, Float[Tensor, " heads"]] | None:
        """Return what accuracy each head is worth, by layer, where a sweep has measured it.

        None: the rise of the loss without each head is measured instead.
        """

    def answers(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Answer examples in evaluation mode, in their order; nothing is judged."""

    def verdicts(self, examples: Sequence[Any]) -> list[Verdict]:
        """Answer examples in evaluation mode and judge the answers, in their order."""

    def with_network(self, network: Any) -> Self:
        """Return the learner with another network."""

    def untrained(self, seed: int) -> Self:
        """Return the learner with a network of random weights, and with all heads."""

    def quantised(self) -> Self:
        """Return a copy with weights of eight bits, which can be examined only."""

    def save(self, folder: Path) -> None:
        """Write the learner; a pruned encoder's config says which heads it kept."""


def copied(learner: _L) -> _L:
    """Return a learner with a network of its own."""
    return learner.with_network(copy.deepcopy(learner.network))


def accuracy(learner: Learner, examples: Sequence[Example]) -> float | None:
    """Return the share of examples that a learner gets right, strictly; None if there are none."""
    if not examples:
        return None
    return sum(verdict.strict for verdict in learner.verdicts(examples)) / len(examples)


def divergence(
    student: Float[Tensor, "choices options"],
    teacher: Float[Tensor, "choices options"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Return temperature² KL(teacher || student) of the softmax, mean over choices.

    The factor keeps the gradient's size when the temperature changes (Hinton et al., 2015).
    """
    said, taught = ((logits.float() / temperature).log_softmax(-1) for logits in (student, teacher))
    return temperature**2 * kl_div(said, taught, reduction="batchmean", log_target=True)


def move(value: _T, device: torch.device) -> _T:
    """Return a batch, or a part of one, on a device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(move(part, device) for part in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: move(getattr(value, field.name), device) for field in fields(value)}
        return replace(value, **parts)
    return value


def quantised(model: _M) -> _M:
    """Return a copy of a model whose linear layers have weights of eight bits, for the CPU.

    Quantisation is dynamic: weights once, by tensor; activations at every pass. Embeddings, norms
    and what is no plain linear layer (GPT-2's projections) stay as they are. The copy computes
    as any model, and can be evaluated, timed and sized; it cannot be trained or cut.

    Raises:
        ModelError: the model is not on the CPU in float32, or this PyTorch cannot quantise.
    """
    weights = next(model.parameters())
    if weights.device.type != "cpu" or weights.dtype != torch.float32:
        raise ModelError(
            f"dynamic quantisation takes a float32 model on the CPU, not {weights.dtype} on "
            f"{weights.device}; load it so"
        )
    with warnings.catch_warnings():
        # To move to torchao, which is a package of its own; until then nothing replaces it.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        try:
            from torch.ao.quantization import quantize_dynamic

            return quantize_dynamic(copy.deepcopy(model).eval(), {nn.Linear}, dtype=torch.qint8)
        except (ImportError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"this PyTorch cannot quantise weights ({reason})") from error
