"""The question browser: base and pruned answers side by side, for the page's script to show.

Answers that pruning changed are embedded, those of the best heads first, until the page's share
for a sweep is full: an answer is what it shares with the base answer, as a length, and the rest.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup

from headroom import paths
from headroom.analysis.gains import read_z
from headroom.analysis.text import plain, visible
from headroom.config import Config
from headroom.planning.batches import find_batch
from headroom.planning.store import Store
from headroom.tables import QUESTIONS, read_table
from headroom.variants import BASE, Variant

_BUDGET = 3_000_000
"""Characters of questions and answers that a page embeds, over all sweeps."""

_LONGEST = 20_000
"""Characters of one text; the rest is cut off."""


@dataclass(frozen=True)
class Browser:
    """The changed answers of a sweep's best heads."""

    model: str
    heads: int  # whose answers are embedded
    of: int
    complete: bool  # whether every changed answer of every head is there
    data: Markup  # JSON, safe inside a script element


class _Shelf:
    """Questions and answers, taken in while there is room for their characters."""

    def __init__(self, questions: Mapping[str, list[Any]], room: int) -> None:
        self._known = questions
        self._room = room
        self.questions: dict[str, list[Any]] = {}
        self.heads: list[dict[str, Any]] = []

    def add(self, head: Mapping[str, Any], changed: Sequence[tuple[Any, ...]]) -> bool:
        """Take in a head's changed answers; return whether all had room.

        Heads are taken whole or not at all; but of the very first what there is room for.
        """
        fresh: dict[str, list[Any]] = {}
        kept = []
        for question, *answer in changed:
            entry = self._known[question]
            if question not in self.questions | fresh:
                self._room -= sum(len(text) for text in entry if isinstance(text, str))
            self._room -= len(answer[1])
            if self._room < 0:
                break
            fresh[question] = entry
            kept.append([question, *answer])
        if self._room >= 0 or not self.heads:
            self.questions |= fresh
            self.heads.append({**head, "changed": len(changed), "answers": kept})
        return self._room >= 0


def browse(config: Config, sweep: str) -> Browser | None:
    """Return the browser of a sweep; None where the store no longer holds its answers.

    Raises:
        TableError: the accuracy matrix or the questions are missing or damaged.
    """
    section = config.sweeps[sweep]
    names = find_batch(config, section.model, section.decoding, section.questions).names
    store = Store(config)
    z, variants = read_z(config, sweep)
    files = {v: store.path(paths.ANSWERS, variant=v, **names) for v in variants}
    file = store.path(paths.QUESTIONS, **names)
    if not all(path.exists() for path in (file, *files.values())):
        return None
    z = z.set_index("question_id")
    asked = read_table(file, QUESTIONS).set_index("question_id").loc[z.index]
    base = _answers(files[BASE], z.index)
    questions = _questions(asked, base, z, variants[1:])
    shelf = _Shelf(questions, _BUDGET // len(config.sweeps))
    complete = True
    for variant in sorted(variants[1:], key=lambda variant: -int(z[str(variant)].sum())):
        gain = float(z[str(variant)].mean() - z[str(BASE)].mean())
        head = {"name": str(variant), "layer": variant.layer, "gain": gain}
        changed = _changed(z, base, _answers(files[variant], z.index), variant)
        complete = shelf.add(head, changed)
        if not complete:
            break
    pool = len(variants) - 1
    data = {"of": pool, "questions": shelf.questions, "heads": shelf.heads}
    return Browser(section.model, len(shelf.heads), pool, complete, _script(data))


def shared_start(first: str, second: str) -> int:
    """Return how many characters two texts share from their start."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))


def _answers(file: Path, order: pd.Index) -> pd.DataFrame:
    """Return text and margin of a variant's answers; token ids stay on disk."""
    table = pq.read_table(file, columns=["question_id", "text", "margin"]).to_pandas()
    return table.set_index("question_id").loc[order]


def _changed(
    z: pd.DataFrame, base: pd.DataFrame, pruned: pd.DataFrame, variant: Variant
) -> list[tuple[str, int, str, int, float | None]]:
    """Return what pruning changed: question, length shared, the rest, right or not, margin.

    Answers whose outcome turned come first. Lengths are in UTF-16 units, as the page's script
    counts them.
    """
    differs = (pruned["text"] != base["text"]).to_numpy()
    right = z[str(variant)].to_numpy()
    texts, before = pruned["text"].tolist(), base["text"].tolist()
    turned = right != z[str(BASE)].to_numpy()
    margins = pruned["margin"].tolist()
    rows = []
    for place in [*np.flatnonzero(differs & turned), *np.flatnonzero(differs & ~turned)]:
        answer = _cut(texts[place])
        shared = shared_start(_cut(before[place]), answer)
        length = len(answer[:shared].encode("utf-16-le")) // 2
        margin = _number(margins[place])
        rows.append((visible(z.index[place]), length, answer[shared:], int(right[place]), margin))
    return rows


def _questions(
    asked: pd.DataFrame, base: pd.DataFrame, z: pd.DataFrame, pruned: Sequence[Variant]
) -> dict[str, list[Any]]:
    """Return subject, level, question, right answer, base answer with margin and verdict, and how
    many pruned models are right, by question.
    """
    solved = z[[str(variant) for variant in pruned]].sum(axis=1)
    columns = [asked[name] for name in ("subject", "level", "question", "answer")]
    columns += [base["text"], base["margin"], z[str(BASE)], solved]
    return {
        visible(name): [
            "" if pd.isna(subject) else plain(subject),
            None if pd.isna(level) else int(level),
            _cut(question),
            _cut(answer),
            _cut(text),
            _number(margin),
            int(right),
            int(count),
        ]
        for name, (subject, level, question, answer, text, margin, right, count) in zip(
            z.index, zip(*columns, strict=True), strict=True
        )
    }


def _number(margin: float) -> float | None:
    """Return a margin for JSON, which knows no infinity."""
    return round(float(margin), 4) if math.isfinite(margin) else None


def _cut(text: str) -> str:
    shown = visible(text[:_LONGEST])
    left_out = len(text) - _LONGEST
    return shown if left_out <= 0 else f"{shown} [… {left_out:,} characters more]"


def _script(data: dict[str, Any]) -> Markup:
    """Return the data as JSON in which nothing can end a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))
