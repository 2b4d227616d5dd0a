"""How much of the spread between heads is more than noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from scipy.special import chdtrc


@dataclass(frozen=True)
class HeadVariance:
    """The spread of accuracy between heads, as standard deviations of fractions."""

    spread: float  # observed between heads
    noise: float  # what heads of equal accuracy would show on as many questions
    component: float  # what is left: √max(0, spread² − noise²)
    share: float  # component² / spread², 0 to 1
    p: float  # Cochran's Q test: all heads have equal accuracy


def head_variance(z: Int[np.ndarray, "questions heads"]) -> HeadVariance:
    """Split the variance between heads into noise and a component of its own.

    The two-way layout question × head without replication: what the mean square between heads has
    beyond the mean square of the residual is the heads' own (Searle et al. 1992, chapter 4). All
    heads answer the same questions, so their difficulty does not count as noise. The test is
    Cochran's Q (1950), chi-squared with heads − 1 degrees of freedom.

    Args:
        z: outcomes of pruned heads, 0 or 1; at least two heads and two questions.
    """
    questions, heads = z.shape
    head, question = z.mean(axis=0), z.mean(axis=1)
    between = questions * np.sum((head - head.mean()) ** 2) / (heads - 1)
    total = np.sum((z - head - question[:, np.newaxis] + head.mean()) ** 2)
    residual = total / ((questions - 1) * (heads - 1))
    right = z.sum(axis=1)
    varied = np.sum(right * (heads - right))
    statistic = heads * (heads - 1) * questions**2 * np.sum((head - head.mean()) ** 2)
    component = max(0.0, (between - residual) / questions)
    return HeadVariance(
        spread=float(np.sqrt(between / questions)),
        noise=float(np.sqrt(residual / questions)),
        component=float(np.sqrt(component)),
        share=float(component * questions / between) if between else 0.0,
        p=float(chdtrc(heads - 1, statistic / varied)) if varied else 1.0,
    )
