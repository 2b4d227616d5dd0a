"""Distillation: what a pruned solver learns from the one it was, arXiv 2511.17577, eq. 6 and 7.

The loss is l1 (response + beta feature) + l2 task. The teacher's logits and attention maps are
computed under the same teacher forcing, so that both judge the same candidates.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div
from transformers import PreTrainedModel

from headroom.athena.batches import Batch
from headroom.athena.networks import Athena, Output
from headroom.athena.objective import Objective, task_loss
from headroom.config.compression import Distillation
from headroom.errors import ModelError
from headroom.models.attention import eager_attention
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.readers import find_readers
from headroom.models.removal import surviving_heads

Maps = Sequence[Float[Tensor, "batch heads queries keys"]]
"""Attention weights of each layer."""


class Teacher(NamedTuple):
    """A solver as it was, which learns no more."""

    athena: Athena
    geometry: HeadGeometry

    @classmethod
    def of(cls, athena: Athena, geometry: HeadGeometry) -> "Teacher":
        """Return a copy of networks, frozen and in evaluation mode."""
        return cls(copy.deepcopy(athena).requires_grad_(False).eval(), geometry)


def distilled(
    teacher: Teacher, student: Athena, geometry: HeadGeometry, settings: Distillation
) -> Objective:
    """Return the objective of a student: its own, and to do as its teacher does.

    Its parts are `task` and, as the settings have it, `response` and `feature`, weighted. Where
    attention maps are compared, train `without_attention_dropout`.

    Args:
        teacher: whom to learn from.
        student: who learns.
        geometry: the student's heads as they stand.
        settings: losses and weights.

    Raises:
        ModelError: the two do not belong together.
    """
    _check_fit(teacher, student, geometry)
    survivors = list(surviving_heads(teacher.geometry, geometry).values())
    return _Distilled(teacher.athena, survivors, settings)


@dataclass(frozen=True)
class _Distilled:
    teacher: Athena
    survivors: Sequence[Sequence[int]]
    settings: Distillation

    def __call__(self, athena: Athena, batch: Batch) -> Mapping[str, Float[Tensor, ""]]:
        settings, maps = self.settings, self.settings.feature != "none"
        teacher = self.teacher.to(batch.targets.device)
        with ExitStack() as stack:
            if maps:
                stack.enter_context(eager_attention(athena.encoder))
                stack.enter_context(eager_attention(teacher.encoder))
            output = athena(batch, attentions=maps)
            stack.enter_context(torch.no_grad())
            taught: Output = teacher(batch, attentions=maps)
        parts = {"task": settings.task_weight * task_loss(output, batch)}
        if settings.response:
            loss = response_loss(output, taught, batch, settings.temperature)
            parts["response"] = settings.distill_weight * loss
        if settings.feature != "none":
            matched = settings.feature == "matched"
            loss = feature_loss(
                output.attentions,
                taught.attentions,
                batch.texts.attention_mask.bool(),
                self.survivors if matched else None,
                settings.reduction,
            )
            parts["feature"] = settings.distill_weight * settings.beta * loss
        return parts


def response_loss(
    student: Output, teacher: Output, batch: Batch, temperature: float
) -> Float[Tensor, ""]:
    """Return how far a student's verdicts are from its teacher's (eq. 6).

    Reason logits are independent of each other, answer logits compete within a problem. So the
    loss is temperature² times the mean over candidates of the divergence KL(teacher || student) of
    two Bernoulli distributions, plus the mean over problems of that of the softmax over a
    problem's thoughts.
    """
    asked, right = (output.reason.float() / temperature for output in (student, teacher))
    shares = right.sigmoid()
    cross_entropy, entropy = (
        binary_cross_entropy_with_logits(logits, shares) for logits in (asked, right)
    )
    said, taught = (
        _log_shares(output.answer.float() / temperature, batch.thought_owners, batch.size)
        for output in (student, teacher)
    )
    answers = kl_div(said, taught, reduction="sum", log_target=True) / batch.size
    return temperature**2 * (cross_entropy - entropy + answers)


def _log_shares(
    logits: Float[Tensor, " thoughts"], owners: Int[Tensor, " thoughts"], problems: int
) -> Float[Tensor, " thoughts"]:
    """Return the logarithm of each thought's share in the softmax over its problem's thoughts."""
    foreign = owners != torch.arange(problems, device=owners.device)[:, None]
    rows = logits.expand(problems, -1).masked_fill(foreign, -torch.inf)
    return rows.log_softmax(-1)[owners, torch.arange(len(owners), device=owners.device)]


def feature_loss(
    student: Maps,
    teacher: Maps,
    valid: Bool[Tensor, "batch tokens"],
    survivors: Sequence[Sequence[int]] | None,
    reduction: Literal["keys", "literal"] = "keys",
) -> Float[Tensor, ""]:
    """Return the squared difference of attention maps (eq. 7).

    Args:
        student: its maps.
        teacher: its maps, of as many layers.
        valid: which tokens are not padding.
        survivors: where the student's heads stand among its teacher's, for each layer; None: the
            means over the heads of a layer are compared.
        reduction: keys: sum over keys, mean over heads and queries that are not padding, mean over
            layers. literal: mean over all entries, so that long texts count little.
    """
    layers = []
    for index, (own, taught) in enumerate(zip(student, teacher, strict=True)):
        if survivors is None:
            squares = (own.float().mean(1, True) - taught.float().mean(1, True)).square()
        else:
            squares = (own.float() - taught[:, list(survivors[index])].float()).square()
        if reduction == "literal":
            layers.append(squares.mean())
        else:
            layers.append(squares.sum(-1).mean(1)[valid].mean())
    return torch.stack(layers).mean()


@contextmanager
def without_attention_dropout(encoder: PreTrainedModel) -> Iterator[None]:
    """Train an encoder without dropout of its attention weights.

    What transformers returns are the weights after their dropout, and the square of that noise
    would teach a student to spread its attention.
    """
    readers = find_readers(encoder, find_heads(encoder))
    attentions = {name.rpartition(".")[0] for names in readers.values() for name in names}
    with ExitStack() as stack:
        for name in attentions:
            for dropout in encoder.get_submodule(name).children():
                if isinstance(dropout, nn.Dropout):
                    stack.callback(setattr, dropout, "p", dropout.p)
                    dropout.p = 0.0
        yield


def _check_fit(teacher: Teacher, student: Athena, geometry: HeadGeometry) -> None:
    """Make sure that a student's heads and words are among its teacher's."""
    words, known = (
        athena.encoder.get_input_embeddings().num_embeddings for athena in (student, teacher.athena)
    )
    constants, counted = (len(athena.head.constants) for athena in (student, teacher.athena))
    own, taught = ({layer.index: layer for layer in g.layers} for g in (geometry, teacher.geometry))
    reason = ""
    if words != known:
        reason = f"the teacher's vocabulary has {known} entries, the student's {words}"
    elif constants != counted:
        reason = f"the teacher has {counted} constants, the student {constants}"
    elif own.keys() != taught.keys():
        reason = f"the teacher has {len(taught)} layers, the student {len(own)}"
    else:
        for index, layer in own.items():
            foreign = set(layer.original_heads) - set(taught[index].original_heads)
            if foreign:
                reason = f"layer {index} of the student has head {min(foreign)}, its teacher's not"
    if reason:
        raise ModelError(f"{reason}; use the solver that the student was pruned from")
