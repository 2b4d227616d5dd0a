"""Whether the words of an answer are right, as SQuAD's evaluation has it.

Source: Rajpurkar et al., SQuAD, arXiv 1606.05250, and its script evaluate-v1.1. Case, punctuation,
articles and spaces do not count; of several gold answers the best counts.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Tell whether an answer has the words of a gold one."""
    return any(_words(answer) == _words(one) for one in gold)


def f1(answer: str, gold: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of an answer's words, 0 to 1."""
    return max(_f1(_words(answer), _words(one)) for one in gold)


def _f1(found: list[str], wanted: list[str]) -> float:
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted)) if common else float(found == wanted)


def _words(text: str) -> list[str]:
    plain = text.lower().translate(_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()
