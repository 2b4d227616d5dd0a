"""What training minimises: named parts of a loss, the solver's own or more of them."""

from collections.abc import Callable, Mapping

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from headroom.athena.batches import Batch
from headroom.athena.networks import Athena, Output

Objective = Callable[[Athena, Batch], Mapping[str, Float[Tensor, ""]]]
"""Returns the parts of the loss on a batch, weighted; their sum is minimised, each is logged."""


def task(athena: Athena, batch: Batch) -> dict[str, Float[Tensor, ""]]:
    """The solver's own objective: to tell right candidates, and the right answer."""
    return {"task": task_loss(athena(batch), batch)}


def task_loss(output: Output, batch: Batch) -> Float[Tensor, ""]:
    """Return the mean binary cross-entropy of a batch's reason and answer logits together."""
    reason = binary_cross_entropy_with_logits(output.reason, batch.targets, reduction="sum")
    answer = binary_cross_entropy_with_logits(output.answer, batch.answers, reduction="sum")
    return (reason + answer) / batch.judged
