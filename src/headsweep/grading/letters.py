r"""Letters of multiple-choice questions: which one a text gives as its answer."""

import re

from headsweep.grading.extraction import last_boxed, last_match, tagged

_LETTER = re.compile(r"\A\W*+(?:(?<=\\)text\s*+\{\W*+)?+([A-Za-z])\W*+\Z")
_BOXED_LETTER = re.compile(
    r"""\A (?: [\s{($*\[] | \\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\s*+\{ )*+
    ([A-Za-z])
    (?: [\s})$*\].,]*+ \Z | [\s$*\]]*+ [.):}] (?!\W*+(?:(?:and|or)\b|[A-Z][.):}])) )
    """,
    re.VERBOSE,
)
_STATED = re.compile(
    r"""
    (?: (?P<answer> \banswer | \b(?:correct|right|best) \s++ (?:option|choice) )
        | \b(?:option|choice) ) \b [\s*_]*+
    (?:(?:is|(?:must|should|would|will|can\ only|has\ to)\ be)\b)?+
    [\s*_]*+ (?:(?:therefore|thus|hence|then|clearly|indeed|so)\b)?+ [\s:*_$]*+
    (?:\\(?:text|textbf|mathrm)\{)?+ \(?+
    # "the answer is I believe (C)"
    (?! I (?: ['\u2019] | \s++ (?:believe|think|guess|suppose|am|get|got|chose|would|will) \b ) )
    (?P<letter>
        (?-i:[A-Z]) (?![^\W_])
        # "the answer is a prime": a small letter may be a word, unless its clause ends with it.
        | [a-z] (?= [*_$}).,;]++ (?:\s|\Z) | [^\S\n]*+ (?:\n|\Z) )
    )
    # "option A is wrong" states none.
    (?! [*_$})]*+ \s++ (?: (?:is|are)\s++ (?:not|wrong|incorrect|false|invalid) | isn't | cannot
        | can't | can\s++be\s++(?:eliminated|excluded|ruled) ) \b )
    # "A or B" and "A, B and C" are no choice; "B, and A is wrong" is one.
    (?! [*_$})]*+ (?: \s*+,\s*+ \(?(?-i:[A-Z])\)?(?![^\W_]) )*+
        \s*+ (?:,\s*+)?+ (?:/|(?:and|or)\b) \s*+ \(?+ (?-i:[A-HJ-Z]) (?![^\W_]) \)?+
        (?! \s++ (?:is|are|was|were|cannot|can't|isn't)\b ) )
    (?: (?= [*_$})]*+ \s++ is \s++ (?:the\s++)?+ (?:correct|right|best|answer) \b )
        (?P<correct>) )?+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CALLED = re.compile(
    r"""(?<![^\W_]) \(?+ (?P<called>[A-Z]) \)?+ \s++ (?:is|must\ be|would\ be)
            \s++ (?:the\s++)?+ (?:correct|right|best|answer)\b
        | \b[Ii]t (?:\s++(?:is|must\ be|would\ be|should\ be|has\ to\ be) | ['\u2019]s) \s++
            \(?+ (?P<it>[A-Z]) \)?+ (?= \s*+ (?: [.,;:!] | \Z | (?:because|since|as|not)\b ) )""",
    re.VERBOSE,
)
_NOT = re.compile(
    r"\bnot \s++ \(?+ [A-Z] \)?+ [,;:\s]++ (?:but\s++)?+ (?:(?:it|rather)\s++)?+ (?:is\s++)?+"
    r" \(?+ (?P<letter>[A-Z]) \)?+ (?![^\W_])",
    re.VERBOSE,
)
_MARKUP = (("*", ""), ("`", ""), ("\uff1a", ":"), ("\uff08", "("), ("\uff09", ")"))
_IN_BRACKETS = re.compile(r"\(([A-Z])\)(?P<others>(?:\s*+(?:/|and\b|or\b)\s*+\([A-Z]\))++)?+")


def chosen_letter(text: str) -> str | None:
    """Return a multiple-choice letter: of the box, else stated, in brackets, or alone in the text.

    If there is a box, or else ``<answer>``, it alone decides.
    """
    boxed = last_boxed(text) or tagged(text)
    if boxed is not None:
        return boxed_letter(boxed) or _stated(boxed)
    for old, new in _MARKUP:
        text = text.replace(old, new)
    if stated := _stated(text):
        return stated
    match = _in_brackets(text) or _LETTER.match(text)
    return match[1].upper() if match else None


def boxed_letter(text: str) -> str | None:
    """Return the letter that a box or a gold answer gives: B of ``(B)``, of ``B. 5 apples``."""
    match = _BOXED_LETTER.match(text)
    return match[1].upper() if match else None


def _stated(text: str) -> str | None:
    """Return the letter that a text states last as its answer, else the option it names last.

    What is said of other options behind the answer ("option A describes ...") does not count.
    """
    named = None
    answer = None
    for match in _STATED.finditer(text):
        named = match["letter"].upper()
        if match["answer"] is not None or match["correct"] is not None:
            answer = named
    if answer is None and "not" in text and (denied := last_match(_NOT, text)):
        answer = denied["letter"]
    if answer is None and (called := last_match(_CALLED, text)):
        answer = called["called"] or called["it"]
    return answer or named


def _in_brackets(text: str) -> re.Match[str] | None:
    """Return the last letter in brackets, unless it is one of several that are named together."""
    match = last_match(_IN_BRACKETS, text)
    return match if match and match["others"] is None else None
