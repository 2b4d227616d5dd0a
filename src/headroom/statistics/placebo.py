"""The best of many heads against the best of as many placebos, question by question."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

_BLOCK = 1000  # resamples at once: bounds the memory


@dataclass(frozen=True)
class PlaceboGain:
    """The best placebo's gain, and whether the best head gains more."""

    gain: float
    p: float


def against_placebos(
    heads: Int[np.ndarray, "questions variants"],
    placebos: Int[np.ndarray, "questions variants"],
    resamples: int,
    seed: int,
) -> PlaceboGain:
    """Test whether the best head gains more than the best of as many placebos.

    Under the null, what all heads do to a question and what all placebos do to it could as well be
    swapped. The statistic is the best head's gain minus the best placebo's; its null distribution
    comes from swapping both sides of each question by a fair coin. All variants of a question are
    swapped together: what they share, the question's fragility above all, stays shared. One-sided;
    unlike with sign flips, what any perturbation of that size does on average is no effect.

    Args:
        heads: z_ih − z_i,base of pruned heads.
        placebos: the same of their placebos, as many.
        resamples: how many patterns of swaps are drawn.
        seed: decides the patterns.
    """
    if heads.shape != placebos.shape:
        raise ValueError(f"{heads.shape} outcomes of heads, {placebos.shape} of placebos")
    # Sums of what is swapped are half integers, exact in float32.
    shared = (heads.sum(axis=0) + placebos.sum(axis=0)).astype(np.float32) / 2
    apart = (heads - placebos).astype(np.float32) / 2
    varied = apart[apart.any(axis=1)]
    observed = heads.sum(axis=0).max() - placebos.sum(axis=0).max()
    draw = np.random.default_rng(seed)
    beyond = 0
    for start in range(0, resamples, _BLOCK):
        shape = (min(_BLOCK, resamples - start), len(varied))
        swapped = (draw.integers(0, 2, shape, dtype=np.int8) * 2 - 1).astype(np.float32) @ varied
        gap = (shared + swapped).max(axis=1) - (shared - swapped).max(axis=1)
        beyond += int((gap >= observed).sum())
    p = (1 + beyond) / (1 + resamples)
    return PlaceboGain(gain=float(placebos.mean(axis=0).max()), p=p)
