"""The optimiser Muon over stacks of matrices: https://kellerjordan.github.io/posts/muon/.

`torch.optim.Muon` turns one matrix after another, always in bfloat16, which a CPU without
instructions for it multiplies ten times slower than float32.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

MOMENTUM = 0.95
WEIGHT_DECAY = 0.1
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, as `torch.optim.Muon` has them.

    Matrices of one shape, or of its transpose, are orthogonalised as one stack.

    Args:
        matrices: parameters with two axes each.
        lr: learning rate; times sqrt(rows / columns) for a matrix with more rows than columns.
        dtype: type of the products.
    """

    def __init__(
        self, matrices: Iterable[torch.nn.Parameter], lr: float, dtype: torch.dtype
    ) -> None:
        stacks: dict[tuple[int, ...], list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            stacks.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)
        super().__init__([{"params": stack} for stack in stacks.values()], {"lr": lr})
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move each matrix by its orthogonalised momentum."""
        for group in self.param_groups:
            gradients = torch.stack([_wide(matrix.grad) for matrix in group["params"]])
            state = self.state[group["params"][0]]
            if not state:
                state["momentum"] = torch.zeros_like(gradients)
            momentum = state["momentum"].lerp_(gradients, 1 - MOMENTUM)
            updates = orthogonal(gradients.lerp(momentum, MOMENTUM).to(self._dtype))
            for matrix, update in zip(group["params"], updates, strict=True):
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * WEIGHT_DECAY)
                rate = group["lr"] * math.sqrt(max(1, rows / columns))
                matrix.add_(update if rows <= columns else update.T, alpha=-rate)


def orthogonal(stack: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, and singular values near 1.

    Five quintic iterations of Newton and Schulz leave singular values between 0.5 and 1.5 or so.

    Args:
        stack: [matrices, rows, columns], no more rows than columns.
    """
    a, b, c = _COEFFICIENTS
    stack = stack / stack.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    for _ in range(_ITERATIONS):
        gram = stack @ stack.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        stack = torch.baddbmm(stack, polynomial, stack, beta=a)
    return stack


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
