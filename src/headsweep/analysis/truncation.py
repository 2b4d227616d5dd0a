"""Answers cut at the limit of new tokens: how many, and which gains they could decide.

An answer that is cut counts as wrong, but might have become right. If the base model's answer to a
question was cut and the head's was not, the question may count as gained for that reason alone.
Counts come from `truncated_answers`; `truncated` in tables of heads is their share.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from headsweep.analysis.joint_tests import passes, tested
from headsweep.statistics.intervals import paired_interval
from headsweep.text import percent
from headsweep.variants import BASE

NOTABLE_SHARE = 0.02
"""Largest share of cut answers that a table does not mention."""

UNCUT = ["uncut_gain", "uncut_low", "uncut_high", "cut_decides"]
"""Columns: a head's gain without the changed questions whose wrong answer was cut, with its 95%
interval; whether only those questions keep its interval above zero, or let it pass what is
corrected over all heads (`headsweep.analysis.joint_tests.passes`)."""


def truncated_answers(
    z: pd.DataFrame, graded: pd.DataFrame, names: Sequence[str]
) -> Bool[np.ndarray, "questions variants"]:
    """Return which answers of variants were cut, in the order of Z's questions.

    Tables are `headsweep.tables.ACCURACY` and `headsweep.tables.GRADED`.
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
        wider: as of `headsweep.analysis.joint_tests.tested`.
    """
    gained_by_cut = (differences > 0) & of_base
    lost_by_cut = (differences < 0) & of_heads
    kept = np.where(gained_by_cut | lost_by_cut, 0, differences)
    low, _ = paired_interval(differences)
    kept_low, kept_high = paired_interval(kept)
    covers_zero = (low > 0) & (kept_low <= 0)
    fails_test = passes(tested(differences, wider), 1) & ~passes(tested(kept, wider), 1)
    return pd.DataFrame(
        {
            "uncut_gain": kept.mean(axis=0),
            "uncut_low": kept_low,
            "uncut_high": kept_high,
            "cut_decides": covers_zero | fails_test,
        }
    )


def note(cells: pd.DataFrame) -> str:
    """Say how many answers of base and heads were cut, given `headsweep.analysis.gains.cells` with
    the column ``cut``; nothing if no more than `NOTABLE_SHARE` of both.
    """
    overall = cells[cells["by"] == "overall"]
    is_base = overall["variant"] == str(BASE)
    counts = overall.groupby(is_base)[["cut", "n"]].sum()
    shares = counts["cut"] / counts["n"]
    if not (shares > NOTABLE_SHARE).any():
        return ""
    of_base, of_heads = (percent(shares.get(key, np.nan)) for key in (True, False))
    return (
        f"Cut at the limit of tokens, and counted as wrong: {of_base} of the base model's answers, "
        f"{of_heads} of those without a head."
    )
