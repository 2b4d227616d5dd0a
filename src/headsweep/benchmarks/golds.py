"""Gold answers that no answer can match: they are refused before anything is graded."""

import re

_OF_NUMBERS = re.compile(
    r"\\(?:[dtc]?frac|times|cdot|circ|degree|overline|bar)(?![A-Za-z])|(?<=\d)[eE](?=[-+]?\d)"
)
_WORD = re.compile("[A-Za-z]")
_LETTER = re.compile(
    r"\(?[A-Za-z]\)?\.?|\\(?:text|textbf|textrm|mathrm|mathbf)\{\s*\(?[A-Za-z]\)?\s*\}"
)
_MACRO = re.compile(r"\\[A-Za-z]+")
_WORDS = re.compile(r"[A-Za-z]+")
_LONG_WORD = 4  # letters from which on a word is a text's
_LIST = re.compile(r"\s*\[\s*['\"]")


def is_mathematics(gold: str) -> bool:
    """Return whether a gold answer has no longer words than mathematics has: x, 2 cm."""
    return all(len(word) < _LONG_WORD for word in _WORDS.findall(_MACRO.sub("", gold)))


def should_be(gold: str, grader: str | None) -> str | None:
    """Return what a gold answer should be in place of one that nothing can match.

    None if it can be matched. `grader` is one of `choices.GraderName`.
    """
    if not gold.strip():
        return "a text with content"
    if grader == "exact":
        return None
    if "####" in gold:
        return "the final answer alone, as what stands after ####"
    if _LIST.match(gold):
        return "one answer, without the brackets and quotes of a list"
    if grader == "choice" and not _LETTER.fullmatch(gold.strip()):
        return "the letter of a choice alone, as B"
    has_words = _WORD.search(_OF_NUMBERS.sub("", gold))
    if grader == "numeric" and (has_words or not any(map(str.isnumeric, gold))):
        return "a number alone, as the grader numeric compares"
    return None
