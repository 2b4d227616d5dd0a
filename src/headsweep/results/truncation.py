"""Answers cut at the limit of new tokens: how many, and which gains and losses they could decide.

An answer that is cut before its box or its final-answer phrase counts as wrong, but might have
become right. If the base model's answer to a question was cut and the head's was not, the question
may count as gained for that reason alone; the other way round, as lost. Tables of heads have their
share as `truncated`.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from headsweep.results.joint_tests import passes, tested
from headsweep.statistics.intervals import paired_interval

NOTABLE_SHARE = 0.02
"""Largest share of cut answers that is not worth a word."""

UNCUT = ["uncut_gain", "uncut_low", "uncut_high", "cut_decides"]
"""Columns: a head's gain without the changed questions whose wrong answer was cut, with its 95%
interval; whether it passes what is corrected over all heads, as a gain or as a loss, only with
those questions (`headsweep.results.joint_tests.passes`)."""


def truncated_answers(
    z: pd.DataFrame, graded: pd.DataFrame, names: Sequence[str]
) -> Bool[np.ndarray, "questions variants"]:
    """Return which answers of variants were cut, in the order of Z's questions.

    Tables are `headsweep.files.tables.ACCURACY` and `headsweep.files.tables.GRADED`.
    """
    cut = graded.assign(cut=graded["stop_reason"] == "length")
    table = cut.pivot(index="question_id", columns="variant", values="cut")
    return table.loc[z["question_id"], list(names)].to_numpy(bool)


def without_truncated(
    differences: Int[np.ndarray, "questions heads"],
    of_base: Bool[np.ndarray, "questions 1"],
    of_heads: Bool[np.ndarray, "questions heads"],
    wider: float,
) -> pd.DataFrame:
    """Return what gains are if cut answers decide no question: columns `UNCUT`, a row a head.

    Args:
        differences: of heads to base.
        of_base: which answers of the base model were cut.
        of_heads: likewise of the heads.
        wider: as of `headsweep.results.joint_tests.tested`.
    """
    gained_by_cut = (differences > 0) & of_base
    lost_by_cut = (differences < 0) & of_heads
    kept = np.where(gained_by_cut | lost_by_cut, 0, differences)
    kept_low, kept_high = paired_interval(kept)
    with_cut, without_cut = (tested(values, wider) for values in (differences, kept))
    decides = np.zeros(kept.shape[1], dtype=bool)
    for sign in (1, -1):
        decides |= (passes(with_cut, sign) & ~passes(without_cut, sign)).to_numpy()
    return pd.DataFrame(
        {
            "uncut_gain": kept.mean(axis=0),
            "uncut_low": kept_low,
            "uncut_high": kept_high,
            "cut_decides": decides,
        }
    )
