"""In what order requests are answered: what is decoded first, and what is verified afterwards."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headsweep.engine.in_progress import RowsInProgress
from headsweep.engine.requests import Drafted, Prompt, Request, Row
from headsweep.variants import BASE, Variant


class Plan(NamedTuple):
    """How requests are to be answered."""

    groups: deque[list[Request]]
    """Decoded, longest first: requests of one prompt and variant, or one that has tokens already.
    """
    drafted: deque[Drafted]
    """Verified: the base answer is known."""
    waiting: dict[Prompt, list[Row]]
    """Verified as soon as the base answer is decoded, which is among the groups."""


def planned(
    requests: Iterable[Request],
    in_progress: RowsInProgress,
    drafts: Mapping[Prompt, Sequence[int]] | None,
    placebo: int,
    size: int,
) -> Plan:
    """Plan requests, in groups of `size` rows at most.

    Args:
        requests: of one numeric placebo or of none.
        in_progress: what of them has begun, and makes their rows.
        drafts: answers of the base model, as far as they are known; None: nothing is verified.
        placebo: its number, which shuffles the groups; 0: none.
        size: most rows of a group.
    """
    questions: dict[Prompt, dict[Variant, list[Request]]] = defaultdict(dict)
    for request in requests:
        questions[request.prompt].setdefault(request.variant, []).append(request)
    groups: list[list[Request]] = []
    drafted: list[Drafted] = []
    waiting: dict[Prompt, list[Row]] = {}
    for prompt, variants in sorted(questions.items(), key=lambda item: -len(item[0])):
        base = variants.pop(BASE, [])
        if drafts is not None and _verifies(prompt, base, variants, drafts):
            pruned = [request for group in variants.values() for request in group]
            begun = [[request] for request in pruned if in_progress.is_waiting(request)]
            new = [request for request in pruned if not in_progress.is_waiting(request)]
            rows = [in_progress.take(request) for request in new]
            if rows and prompt in drafts:
                drafted.append(Drafted(drafts[prompt], rows))
            elif rows:
                waiting[prompt] = rows
                base = base or [Request(rows[0].request.question_id, prompt)]
            variants = {}
            groups += begun
        groups += [group for group in (base, *variants.values()) if group]
    # Drafts of like length are verified together.
    drafted.sort(key=lambda question: -len(question.text))
    if placebo:
        order = np.random.default_rng(placebo).permutation(len(groups))
        groups = [groups[place] for place in order]
    return Plan(_divided(groups, in_progress, size), deque(drafted), waiting)


def _verifies(
    prompt: Prompt,
    base: Sequence[Request],
    pruned: Collection[Variant],
    drafts: Mapping[Prompt, Sequence[int]],
) -> bool:
    """Tell whether verification pays: the base answer is known or asked for, or serves two."""
    if not pruned:
        return False
    return prompt in drafts or len(base) > 0 or len(pruned) > 1


def _divided(
    groups: Iterable[list[Request]], in_progress: RowsInProgress, size: int
) -> deque[list[Request]]:
    """Return groups of `size` rows at most; one that has tokens already has its own group."""
    parts: deque[list[Request]] = deque()
    for group in groups:
        parts += [[request] for request in group if in_progress.is_waiting(request)]
        new = [request for request in group if not in_progress.is_waiting(request)]
        parts += [new[start : start + size] for start in range(0, len(new), size)]
    return parts
