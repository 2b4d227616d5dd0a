"""How much of a difference hangs on a selector's seed and on the draw of training questions.

A selector was trained once, on the questions that happened to be drawn. It is trained again from
other seeds, and on subsamples of the training questions. What then varies is added to the
variance over test questions (`headroom.statistics.paired.paired_interval`).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from headroom.sprint.validation import REDRAWN
from headroom.statistics.paired import Component

_OF_DRAWS = REDRAWN / (1 - REDRAWN)
"""Shao and Wu 1989 (A general theory for jackknife variance estimation): results on subsamples of
m of n questions vary (n − m) / m times as much as results on fresh draws of n questions."""


def components(
    whole: Float[np.ndarray, "seeds columns"], redrawn: Sequence[Float[np.ndarray, "seeds columns"]]
) -> tuple[Component | None, Component | None]:
    """Return the variance that the draw and the seeds add to a mean over seeds.

    Args:
        whole: what selectors trained on all training questions reach, one a seed.
        redrawn: the same on each redraw.

    Returns:
        Of the draw, without what the seeds explain, and of the seeds; None where there are fewer
        than two redraws, or than two seeds.
    """
    seeds, columns = whole.shape
    of_seeds, of_draws = None, None
    noise = np.zeros(columns)
    if seeds > 1:
        within = np.mean([part.var(axis=0, ddof=1) for part in (whole, *redrawn)], axis=0)
        noise = within / seeds
        of_seeds = Component(noise, (1 + len(redrawn)) * (seeds - 1))
    if len(redrawn) > 1:
        between = np.var([part.mean(axis=0) for part in redrawn], axis=0, ddof=1)
        of_draws = Component(_OF_DRAWS * np.maximum(between - noise, 0.0), len(redrawn) - 1)
    return of_draws, of_seeds
