"""Distillation from the learner before pruning to the pruned one: arXiv 2511.17577, eq. 6 and 7.

The loss is l1 (response + beta feature) + l2 task; each kind of learner defines its own response
loss. Teacher and student see the same batch, under teacher forcing where answers are sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from headroom.compression.training import Objective
from headroom.config.compression import Distillation
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.learner import Batch, Learner, copied, eager_attention
from headroom.models.removal import find_readers, surviving_heads

Maps = Sequence[Float[Tensor, "batch heads queries keys"]]
"""Attention weights of each layer."""


def frozen(learner: Learner) -> Learner:
    """Return a copy of a learner as a teacher: without gradients and in evaluation mode."""
    teacher = copied(learner)
    teacher.network.requires_grad_(False).eval()
    return teacher


def distilled(teacher: Learner, geometry: HeadGeometry, settings: Distillation) -> Objective:
    """Return a student's training objective: its task loss and the distillation losses.

    It returns the weighted parts `task` and, depending on the settings, `response` and `feature`.
    With `feature`, train under `without_attention_dropout`. The teacher is the student before its
    heads were removed, `frozen`, on the student's device; the geometry has the remaining heads.
    """
    survivors = list(surviving_heads(find_heads(teacher.encoder), geometry).values())
    places = survivors if settings.feature == "matched" else None
    maps = settings.feature != "none"

    def objective(learner: Learner, batch: Batch) -> Mapping[str, Float[Tensor, ""]]:
        with ExitStack() as stack:
            if maps:
                stack.enter_context(eager_attention(learner.encoder))
                stack.enter_context(eager_attention(teacher.encoder))
            output = learner.run(batch, attentions=maps)
            stack.enter_context(torch.no_grad())
            taught = teacher.run(batch, attentions=maps)
        parts = {"task": settings.task_weight * learner.task_loss(output, batch)}
        if settings.response:
            loss = learner.response_loss(output, taught, batch, settings.temperature)
            parts["response"] = settings.distill_weight * loss
        if maps:
            both, valid = (output.attentions, taught.attentions), batch.inputs["attention_mask"]
            loss = feature_loss(*both, valid.bool(), places, settings.reduction)
            parts["feature"] = settings.distill_weight * settings.beta * loss
        return parts

    return objective


def feature_loss(
    student: Maps,
    teacher: Maps,
    valid: Bool[Tensor, "batch tokens"],
    survivors: Sequence[Sequence[int]] | None,
    reduction: Literal["keys", "literal"] = "keys",
) -> Float[Tensor, ""]:
    """Return the squared difference of two learners' attention maps (eq. 7).

    `survivors` are, for each layer, the indices of the student's heads among the teacher's; None
    compares the means over the heads of a layer. `keys` sums over keys and takes means over heads,
    `valid` queries and layers; `literal` takes that over all entries, which gives long texts little
    weight.
    """
    layers = []
    for index, (own, taught) in enumerate(zip(student, teacher, strict=True)):
        if survivors is None:
            squares = (own.float().mean(1, True) - taught.float().mean(1, True)).square()
        else:
            squares = (own.float() - taught[:, list(survivors[index])].float()).square()
        mean = squares.mean() if reduction == "literal" else squares.sum(-1).mean(1)[valid].mean()
        layers.append(mean)
    return torch.stack(layers).mean()


@contextmanager
def without_attention_dropout(encoder: PreTrainedModel) -> Iterator[None]:
    """Switch off the dropout of an encoder's attention weights.

    transformers returns attention weights after dropout; the squared noise in the feature loss
    would teach a student to spread its attention.
    """
    readers = find_readers(encoder, find_heads(encoder))
    attentions = {name.rpartition(".")[0] for names in readers.values() for name in names}
    children = [child for name in attentions for child in encoder.get_submodule(name).children()]
    dropouts = {each: each.p for each in children if isinstance(each, nn.Dropout)}
    for dropout in dropouts:
        dropout.p = 0.0
    try:
        yield
    finally:
        for dropout, p in dropouts.items():
            dropout.p = p
