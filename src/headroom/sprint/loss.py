r"""The SPRINT loss (arXiv 2506.03978, section 4).

With q_i = θ(φ(x_i)) for question i, one vector v_j for each head j, M⁺_i = {j : z_ij = 1} and
s_jk = mean_i 1[z_ij = z_ik]:

.. math::

    L = \mathrm{mean}_i -\log \frac{\sum_{j \in M^+_i} e^{-\lVert q_i - v_j \rVert^2}}
                                   {\sum_j e^{-\lVert q_i - v_j \rVert^2}}
        - \lambda \sum_{j<k} s_{jk} \lVert v_j - v_k \rVert^2

The first term draws a question to the heads that solve it. The second, subtracted with the sign
that the paper prints, rewards distance between heads that agree: the N nearest heads then tend to
differ in what they solve.

What the formula leaves open is settled here and in `headroom.sprint.model`:

- A question that no head solves has an empty M⁺_i and an infinite loss. It is left out of the
  first term, and of its mean; s_jk counts it. A question that all heads solve stays: its loss is 0.
- The second term has no lower bound while points may lie anywhere: for every λ > 0 the minimum is
  at infinity. The geometry `literal` keeps it so. `sphere` and `ball` keep all points within
  distance 2 of each other.
- A sum over pairs grows with the square of the pool, the first term does not. In the bounded
  geometries the sum is a mean over pairs, so that one λ means the same for pools of any size.

Several selectors may learn side by side: what is theirs has a leading axis.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def alignment(
    distances: Float[Tensor, "*selectors questions pool"], correct: Bool[Tensor, "questions pool"]
) -> Float[Tensor, "*selectors"]:
    """Return the first term of the loss.

    Args:
        distances: ‖q_i − v_j‖², divided by the temperature if there is one.
        correct: Z; every row has a head that solves it.
    """
    solving = torch.logsumexp(-distances.masked_fill(~correct, torch.inf), dim=-1)
    return (torch.logsumexp(-distances, dim=-1) - solving).mean(dim=-1)


def solvable(correct: Bool[Tensor, "questions pool"]) -> Bool[Tensor, " questions"]:
    """Tell which questions have a head that solves them: those in the alignment term."""
    return correct.any(dim=1)


def agreement(correct: Bool[Tensor, "questions pool"]) -> Float[Tensor, "pool pool"]:
    """Return s_jk, the share of questions on which two heads are both right or both wrong."""
    right, wrong = correct.float(), (~correct).float()
    return (right.T @ right + wrong.T @ wrong) / len(correct)


def separation(
    heads: Float[Tensor, "*selectors pool dimension"], weights: Float[Tensor, "pool pool"]
) -> Float[Tensor, "*selectors"]:
    """Return Σ_{j<k} w_jk ‖v_j − v_k‖² for symmetric weights.

    With w = s it is the sum of the second term; with w = 2 s / (P (P − 1)) its mean over the pairs
    of a pool of P heads.
    """
    return (weights * squared_distances(heads, heads)).sum(dim=(-2, -1)) / 2


def squared_distances(
    left: Float[Tensor, "*selectors left dimension"],
    right: Float[Tensor, "*selectors right dimension"],
) -> Float[Tensor, "*selectors left right"]:
    """Return ‖a − b‖² of every pair, by one matrix product."""
    squares = left.square().sum(dim=-1)[..., :, None] + right.square().sum(dim=-1)[..., None, :]
    return squares - 2 * left @ right.mT
