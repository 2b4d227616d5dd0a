"""Distillation from the learner before pruning to the pruned one: arXiv 2511.17577, eq. 6 and 7.

The loss is l1 (response + beta feature) + l2 task; each kind of learner defines its own response
loss. Teacher and student see the same batch, under teacher forcing where answers are sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from headsweep.config.compression import Distillation
from headsweep.experiments.compression.training import Objective
from headsweep.models.geometry import HeadGeometry, find_heads
from headsweep.models.learner import WHOLE, Batch, Learner, Terms, copied, eager_attention
from headsweep.models.readers import find_readers
from headsweep.models.removal import surviving_heads

Maps = Float[Tensor, "batch heads queries keys"]
"""Attention weights of a layer."""


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
    survivors = surviving_heads(find_heads(teacher.encoder), geometry).values()
    maps = settings.feature != "none"

    def objective(
        learner: Learner, batch: Batch, share: Terms = WHOLE
    ) -> Mapping[str, Float[Tensor, ""]]:
        with ExitStack() as stack:
            if maps:
                stack.enter_context(eager_attention(learner.encoder))
                stack.enter_context(eager_attention(teacher.encoder))
            output = learner.run(batch, attentions=maps)
            stack.enter_context(torch.no_grad())
            taught = teacher.run(batch, attentions=maps)
        task_loss = learner.task_loss(output, batch) * share.judged
        parts = {"task": settings.task_weight * task_loss}
        if settings.response:
            loss = learner.response_loss(output, taught, batch, settings.temperature, share)
            parts["response"] = settings.distill_weight * loss
        if maps:
            valid = batch.inputs["attention_mask"].bool()
            students, teachers = list(output.attentions), list(taught.attentions)
            del output, taught  # a layer's maps are freed when they were compared
            losses = []
            for heads in survivors:
                student_map, teacher_map = students.pop(0), teachers.pop(0)
                losses.append(_feature_loss(student_map, teacher_map, heads, valid, settings))
                del student_map, teacher_map
            part = share.entries if settings.reduction == "literal" else share.queries
            loss = torch.stack(losses).mean() * part
            parts["feature"] = settings.distill_weight * settings.beta * loss
        return parts

    return objective


def _feature_loss(
    student: Maps,
    teacher: Maps,
    survivors: Sequence[int],
    valid: Bool[Tensor, "batch tokens"],
    settings: Distillation,
) -> Float[Tensor, ""]:
    """Return the squared difference of a layer's attention maps (eq. 7).

    The student's heads are the teacher's `survivors`. `keys` sums over keys and takes means over
    heads and `valid` queries; `literal` takes the mean over all entries, which gives long texts
    little weight, and counts padding: it changes a little where a batch is divided.
    """
    if settings.feature == "mean":
        squares = (student.float().mean(1, True) - teacher.float().mean(1, True)).square()
    else:
        squares = (student.float() - teacher[:, list(survivors)].float()).square()
    if settings.reduction == "literal":
        return squares.mean()
    return squares.sum(-1).mean(1)[valid].mean()


@contextmanager
def without_attention_dropout(encoder: PreTrainedModel) -> Iterator[None]:
    """Switch off the dropout of an encoder's attention weights.

    transformers returns attention weights after dropout; the squared noise in the feature loss
    would teach a student to spread its attention.
    """
    dropouts: dict[nn.Dropout, float] = {}
    for projections in find_readers(encoder, find_heads(encoder)).values():
        for name in projections:
            attention = encoder.get_submodule(name.rpartition(".")[0])
            for child in attention.children():
                if isinstance(child, nn.Dropout):
                    dropouts[child] = child.p
    for dropout in dropouts:
        dropout.p = 0.0
    try:
        yield
    finally:
        for dropout, p in dropouts.items():
            dropout.p = p
