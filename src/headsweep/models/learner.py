"""The interface through which training, compression and distillation use models.

There are two kinds: solvers of word problems, and decoders.
"""

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import kl_div
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from headsweep.config.solvers import Training
from headsweep.errors import ModelError
from headsweep.models.geometry import HeadGeometry

_T = TypeVar("_T")
_L = TypeVar("_L", bound="Learner")
_M = TypeVar("_M", bound=nn.Module)


class JudgedAnswer(NamedTuple):
    """A learner's answer to an example, and whether it is right."""

    example_id: str
    stratum: str  # the group of examples whose accuracy is reported separately
    answer: str | None  # None if the learner gives no answer
    strict: bool
    lenient: bool  # right by a less strict rule; each learner documents its own


Example = Any
"""A training or test example in the learner's input format: `example_id`, unique within a dataset,
and `input_ids`, int [tokens]."""

Batch = Any
"""A batch of examples, a dataclass, so that `move` finds its tensors: `inputs`, the encoder's
[batch, tokens] by name, with `attention_mask`, `judged`, the number of terms that the task loss
averages, and `terms`, those of all losses."""

Output = Any
"""A network's output for a batch: `attentions`, if requested, are each layer's weights
[batch, heads, queries, keys]."""


class Terms(NamedTuple):
    """How many terms each loss of a batch is a mean over; or which shares of a step's terms.

    A step that is divided into pieces weighs each piece's losses by its shares.
    """

    judged: float = 1.0  # of the task loss
    candidates: float = 1.0  # of the response loss
    problems: float = 1.0  # of the part of a solver's response loss that is about answers
    queries: float = 1.0  # tokens, of the feature loss that sums over keys
    entries: float = 1.0  # of each attention map, of the literal feature loss


WHOLE = Terms()
"""The shares of a batch that is not divided."""


def shares(pieces: Sequence[Batch]) -> list[Terms]:
    """Return each piece's shares of the terms of all."""
    counts = np.array([piece.terms for piece in pieces], float)
    return [Terms(*row) for row in (counts / counts.sum(axis=0)).tolist()]


class Learner(Protocol):
    """A network with all that training, evaluation and saving need."""

    @property
    def network(self) -> nn.Module:
        """The module that is trained."""

    @property
    def encoder(self) -> PreTrainedModel:
        """The network, or the part of it, whose heads are removed."""

    @property
    def at_once(self) -> int:
        """Largest batch size when no gradient is kept."""

    def prepare(self, rows: Sequence[Any]) -> Sequence[Example]:
        """Convert a dataset's rows to examples."""

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Join examples to a batch, on the CPU."""

    def run(self, batch: Any, *, attentions: bool = False) -> Output:
        """Pass a batch through the network, whose training or evaluation mode is not changed."""

    def task_loss(self, output: Any, batch: Any) -> Float[Tensor, ""]:
        """Return the learner's own loss, a mean over `batch.judged` terms."""

    def response_loss(
        self, student: Any, teacher: Any, batch: Any, temperature: float, share: Terms = WHOLE
    ) -> Float[Tensor, ""]:
        """Return the distance of a student's output from its teacher's.

        Each mean in it is multiplied by the batch's share of its terms.
        """

    def known_drops(self, geometry: HeadGeometry) -> Mapping[int, Float[Tensor, " heads"]] | None:
        """Return the accuracy lost without each head, by layer, if a sweep has measured it.

        If None, the rise of the loss without each head is measured instead.
        """

    def answers(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Answer examples in evaluation mode, in order, without judging the answers."""

    def verdicts(self, examples: Sequence[Any]) -> list[JudgedAnswer]:
        """Answer examples in evaluation mode, in order, and judge the answers."""

    def with_network(self, network: Any) -> Self:
        """Return the learner with another network."""

    def untrained(self, seed: int) -> tuple[Self, Training]:
        """Return the learner with random weights and all heads, and the recipe to train it."""

    def finished(self) -> Self:
        """Return the learner in the type that it is tested, timed and saved in.

        It is trained in float32. Its network is changed, not copied.
        """

    def save(self, folder: Path) -> None:
        """Write the learner; a pruned encoder's config lists the heads it kept."""


def copied(learner: _L) -> _L:
    """Return a learner with a copy of the network."""
    return learner.with_network(copy.deepcopy(learner.network))


def accuracy(learner: Learner, examples: Sequence[Example]) -> float | None:
    """Return the share of examples answered right, strictly; None without examples."""
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
    predicted, target = (
        (logits.float() / temperature).log_softmax(-1) for logits in (student, teacher)
    )
    return temperature**2 * kl_div(predicted, target, reduction="batchmean", log_target=True)


@contextmanager
def eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model to eager attention, which returns its weights, and back at the end.

    Raises:
        ModelError: the model has no eager attention, or must be loaded with it.
    """
    before = model.config._attn_implementation
    with suppress(ValueError, ImportError):
        model.set_attn_implementation("eager")
    if model.config._attn_implementation != "eager":  # Falcon warns, and stays as it was
        raise no_weights(model)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention_maps(model: PreTrainedModel, maps: Any) -> list[Tensor]:
    """Return the attention weights in a model's output, layer by layer, or raise a ModelError."""
    weights = [attention for attention in maps or () if attention is not None]
    if not weights:
        raise no_weights(model)
    return weights


def no_weights(model: PreTrainedModel) -> ModelError:
    """Return the error for a model whose attention weights cannot be read."""
    return ModelError(
        f"{type(model).__name__} has no eager attention whose weights can be read; use another "
        f"model, or a criterion without attention weights, such as norm"
    )


def padded(rows: Sequence[Int[np.ndarray, " tokens"]], fill: int = 0) -> dict[str, Tensor]:
    """Return token ids as a model's inputs, padded on the right, so that no token sees padding."""
    ids = [torch.from_numpy(row) for row in rows]
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    whole = pad_sequence(ids, batch_first=True, padding_value=fill)
    return {"input_ids": whole, "attention_mask": mask}


def map_terms(mask: Int[Tensor, "batch tokens"]) -> tuple[int, int]:
    """Return how many queries and entries a layer's attention maps of a batch have."""
    batch, tokens = mask.shape
    return int(mask.sum()), batch * tokens * tokens


def move(value: _T, device: torch.device) -> _T:
    """Return a batch, or a part of one, on a device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(move(part, device) for part in value)  # type: ignore[return-value]
    if isinstance(value, dict):
        return {name: move(part, device) for name, part in value.items()}  # type: ignore
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: move(getattr(value, field.name), device) for field in fields(value)}
        return replace(value, **parts)
    return value


def quantised(model: _M) -> _M:
    """Return a float32 copy of a model on the CPU whose `nn.Linear` layers have 8-bit weights.

    Weights are quantised once, with a scale for each tensor, activations at every pass. The copy
    can be evaluated, timed and sized, but not trained or pruned.

    Raises:
        ModelError: this PyTorch cannot quantise.
    """
    with warnings.catch_warnings():
        # Deprecated in favour of torchao, a separate package; torch itself has no replacement.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        try:
            from torch.ao.quantization import quantize_dynamic

            whole = copy.deepcopy(model).to("cpu").float().eval()
            return quantize_dynamic(whole, {nn.Linear}, dtype=torch.qint8, inplace=True)
        except (ImportError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"this PyTorch cannot quantise weights ({reason}); use a build that can, such as "
                f"PyTorch's own for x86, or name no arms in `int8`"
            ) from error
