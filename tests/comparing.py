"""Two runs held against each other, as far as the promise goes.

In fp32 the tokens of two runs are equal up to an answer's first margin below 1e-3, and a table
states the smallest margin of each answer: a greedy answer is compared whole if that exceeds 1e-3 in
both tables, and not at all otherwise. Sampled tokens change where a random number lies at the edge
of a token's interval; rounding moves edges by about 1e-6, so that one answer in a hundred (at least
one) is borne with. Files that follow from answers are equal byte for byte where all answers are.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from headsweep.files.tables import ANSWERS, GRADED

NEAR_TIE = 1e-3
"""Gap of two logits from which on rounding does not choose between them (fp32)."""
LEAST_SOUND = 0.9
"""Share of the greedy answers that a test has to compare whole, or it shows too little."""
FOLLOWS_FROM_NONE = (
    *("models", "sources", "questions", "embedders", "embeddings"),
    *("problems", "encoders", "solvers"),
)
"""Folders of the store that hold nothing which answers decide."""


def assert_same(before, after, besides=frozenset()):
    """Hold the data files of a folder against those of another; files in `besides` may differ.

    Return the numbers of greedy answers, of those compared whole (``sound``) and of those that
    differ in a near-tie (``parted``), and the files that differ because some answer does.
    """
    left, right = contents(before), contents(after)
    assert not (alone := left.keys() ^ right.keys()), f"in one of two: {sorted(alone)}"
    found, wrong, other, followed = Counter(), set(), set(), set()
    for name, content in right.items():
        mine, theirs = before / name, after / name
        if _columns(theirs) == ANSWERS.columns:
            if not same_answers(pd.read_parquet(mine), pd.read_parquet(theirs), found):
                wrong.add(name)
        elif left[name] != content and not _same_but_margins(mine, theirs):
            other.add(name)
    if found["parted"] or found["sampled_parted"]:
        followed = {name for name in other if _may_follow(after.name, name)}
    wrong = (wrong | other - followed) - besides
    assert not wrong, f"wrong: {sorted(wrong)}"
    check(found)
    print(f"{dict(found)}; {len(followed)} files differ")
    return found, followed


def same_answers(before, after, found):
    """Count the answers of two tables; tell whether they are equal as far as is promised."""
    keys = ["question_id", "sample"]
    if not before[keys].equals(after[keys]):
        return False
    texts = [
        table[["text", "stop_reason"]].assign(token_ids=table["token_ids"].map(tuple))
        for table in (before, after)
    ]
    same = texts[0].eq(texts[1]).all(axis=1).to_numpy()
    if before["sample"].any():
        found.update(sampled=len(same), sampled_parted=int((~same).sum()))
        return True
    sound = [(one["margin"] > NEAR_TIE).to_numpy() for one in (before, after)]  # not NaN
    both = sound[0] & sound[1]
    # A margin that is sound in one table only changes what follows, too.
    parted = (~same & ~both) | (sound[0] != sound[1])
    found.update(greedy=len(same), sound=int(both.sum()), parted=int(parted.sum()))
    apart = np.abs(before["margin"].to_numpy() - after["margin"].to_numpy())
    return bool(same[both].all() and (apart[both] < NEAR_TIE).all())


def check(found):
    """Fail if too many samples differ, or too few greedy answers could be compared."""
    few = max(1, found["sampled"] // 100)
    assert found["sampled_parted"] <= few, f"{found['sampled_parted']} samples differ"
    assert found["sound"] >= LEAST_SOUND * found["greedy"], f"too few could be compared: {found}"


def contents(folder):
    """Return the data files of a run by name, without records, logs and hidden files."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and not file.name.endswith(".run.json")
        and not {"logs", ".snakemake"} & set(file.parts)
        and not file.name.startswith(".")
    }


def _columns(file):
    return pq.read_schema(file).names if file.suffix == ".parquet" else []


def _same_but_margins(before, after):
    if _columns(before) != GRADED.columns or _columns(after) != GRADED.columns:
        return False
    left, right = pd.read_parquet(before), pd.read_parquet(after)
    margins = left.pop("margin"), right.pop("margin")
    return left.equals(right) and bool((margins[0] - margins[1]).abs().max() < NEAR_TIE)


def _may_follow(root, name):
    """Tell whether a file below `root` may depend on answers."""
    parts = (root, *Path(name).parts)
    return "store" not in parts[:2] or parts[parts.index("store") + 1] not in FOLLOWS_FROM_NONE
