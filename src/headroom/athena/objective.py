"""What an ATHENA solver learns: from the gold equation, and from a solver that knows better."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div

from headroom.athena.batches import Batch
from headroom.athena.networks import Output


def task_loss(output: Output, batch: Batch) -> Float[Tensor, ""]:
    """Return the mean binary cross-entropy of a batch's reason and answer logits together."""
    reason = binary_cross_entropy_with_logits(output.reason, batch.targets, reduction="sum")
    answer = binary_cross_entropy_with_logits(output.answer, batch.answers, reduction="sum")
    return (reason + answer) / batch.judged


def response_loss(
    student: Output, teacher: Output, batch: Batch, temperature: float
) -> Float[Tensor, ""]:
    """Return how far a student's verdicts are from its teacher's (arXiv 2511.17577, eq. 6).

    Both judge the same candidates, under teacher forcing. Reason logits are independent of each
    other, answer logits compete within a problem. So the loss is temperature² times the mean over
    candidates of the divergence KL(teacher || student) of two Bernoulli distributions, plus the
    mean over problems of that of the softmax over a problem's thoughts.
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
