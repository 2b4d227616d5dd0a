r"""How models write answers: what a number is, and what stands around an answer that says nothing.

Both may meet hostile text: they take time linear in its length, as all of `graders` does.
"""

import re
from fractions import Fraction

_LONGEST = 400  # characters of a number; a float has fewer

_WRAPPER = re.compile(
    r"\A(?:\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|mathit|underline)\s*+)?\{"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DEPTH = 3  # of wrappers around an answer

_ENDS = ".,;~\\ \t\r\n"  # a stop, a line break or a space at the end: `5.`, `5 \\`, `5\,`
_RIGHT = r"\right"

_SPACE = re.compile(r"\\[,;:> ]|~|\s|[\u00a0\u2009\u202f]")
_THIN = r"(?:\\,|[\u2009\u202f])"
_THIN_SPACE = re.compile(_THIN)
_THIN_THOUSANDS = re.compile(
    rf"(?<![\d.,\\^_\u2009\u202f])\d{{1,3}}(?:{_THIN}\d{{3}})++(?!\d|{_THIN}\d)"
)
_SUPERSCRIPTS = str.maketrans(
    "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "-0123456789"
)
_POWER_OF_TEN = re.compile(
    r"""(?<![\w.,/^]) (?: (?P<factor>\d[\d,]*+(?:\.\d++)?+|\.\d++)
        \s*+ (?:\\times|\\cdot|[*x\u00b7\u00d7\u22c5]) \s*+ )? 10
    (?: \s*+(?:\^|\*\*)\s*+
            (?: \{\s*+(?P<braced>[-+\u2212]?+\d{1,2})\s*+\} | (?P<bare>-?\d{1,2})(?!\d) )
        | (?P<raised>\u207b?+[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,2}) )""",
    re.VERBOSE,
)
_COLOR = re.compile(r"\\(?:text)?color\s*+\{[^{}]*+\}")

# A number, with its spaces as `_spaced` writes them: `100 200` may be two, `1 234 567` is one.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})++|\d{1,3}(?:[ ]\d{3}){2,}+|\d++)(?![,\d])"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?[12]?\d{{1,2}})?+"
_NUMBER = re.compile(
    rf"""\A (?:\\?\$)*+ (?P<sign>[-+]?+) [ ]*+ (?:\\?\$)*+ [ ]*+ (?:
        (?P<before>\d*+\.\d*+) \\(?:overline|bar)\s*+ (?:\{{(?P<period>\d++)\}}|(?P<digit>\d))
        | (?:(?P<whole>\d++)(?:[ ]++(?=\d)|[ ]*+(?=\\)))?+ (?:
            (?P<above>{_DECIMAL}) [ ]*+/[ ]*+ (?P<below>[-+]?+{_DECIMAL})
            | \\[dtc]?frac[ ]*+ (?:\{{[ ]*+(?P<braced_above>[-+]?+{_DECIMAL})[ ]*+\}}|(?P<a>\d))
              [ ]*+ (?:\{{[ ]*+(?P<braced_below>[-+]?+{_DECIMAL})[ ]*+\}}|(?P<b>\d)) )
        | (?P<decimal>{_DECIMAL})
    ) [ ]*+ (?:\\?[%$]|\^[ ]*+(?:\\circ|\{{[ ]*+\\circ[ ]*+\}})|\\degree|°)*+ \Z""",
    re.VERBOSE,
)
_NAME = re.compile(r"\A\\?[A-Za-z_]{1,20}\s*+=")
_UNIT = re.compile(
    r"""(?: \\(?:text|textrm|textbf|mbox|mathrm)\s*+\{ (?P<in_braces>[A-Za-z .'/-]++) \}
        | (?<![\\A-Za-z .'/-]) (?P<space>[ ]*+) (?P<plain>[A-Za-z][A-Za-z .'/-]*+) )
    [ ]*+ (?:\^(?:[23]|\{[23]\})|[²³])?+ \Z""",
    re.VERBOSE,
)
_WORD = re.compile(r"[A-Za-z]+")
_MOST_WORDS = 4

_SHORT = re.compile(r"\A(?:cm|mm|km|dm|kg|mg|ml|cl|oz|ft|in|lb|hr|mi|yd|of)\Z", re.I)
"""Words of two letters that may stand behind a number without changing it.

They alone need no space before them: ``6xyz`` may be a product."""
_LETTER = re.compile(r"\A[mgshl]\Z", re.I)
r"""Units of one letter, which count only inside ``\text{}``: ``5s`` may be a product."""
_CHANGING = re.compile(
    r"""\A(?: (?:ten|dozen|hundred|thousand|\w*illion|lakh|crore)s? | score | gross | mil | grand
        | half | halves | (?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh
        | twelfth|hundredth|thousandth|\w+(?:teen|tie|illion)th)s? | zero | one | two | three | four
        | five | six | seven | eight | nine | eleven | twelve | \w+teen | (?:twen|thir|for|fif|six
        | seven|eigh|nine)ty | and | or | plus | minus | over | under | below | negative | point
        | not | base | squared | cubed | factorial | mod | modulo | sqrt | root | log | exp | cis
        | (?:arc|ar|a)?(?:sin|cos|tan|cot|sec|csc)h? | inf | infinity | alpha | beta | gamma | delta
        | epsilon | zeta | eta | theta | lambda | rho | sigma | tau | phi | psi | omega )\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that change the number before them, or that join it to more."""


def number(text: str) -> Fraction | None:
    r"""Return the value of a number, None if the text is anything else.

    A number is a decimal, with or without well-formed thousands or a power of ten, a ratio, a mixed
    number (``3 1/2``) or a repeating decimal (``0.\overline{3}``), in plain text or LaTeX. Dollar,
    percent and degree signs are ignored. ``1,2``, ``1 2`` and ``100 200`` are no numbers.
    """
    if len(text) > _LONGEST:
        return None
    if text.isdecimal():  # as most are
        return Fraction(int(text))
    text = _without_thousands_marks(text.replace("\N{MINUS SIGN}", "-"))
    match = _NUMBER.match(_without_end(with_exponents(_spaced(text))).strip())
    if match is None:
        return None
    try:
        value = _value(match)
    except ZeroDivisionError:
        return None
    return -value if value is not None and match["sign"] == "-" else value


def with_exponents(text: str) -> str:
    r"""Return a text with its powers of ten written short: ``3 \times 10^8`` as ``3e8``.

    ``10^8`` alone is ``1e8``.
    """
    return _POWER_OF_TEN.sub(_exponent, text)


def _exponent(match: re.Match[str]) -> str:
    raised = match["raised"]
    power = raised.translate(_SUPERSCRIPTS) if raised else match["braced"] or match["bare"]
    return f"{match['factor'] or 1}e{power}"


def _value(match: re.Match[str]) -> Fraction | None:
    """Return the absolute value of what `_NUMBER` has matched."""
    if match["decimal"]:
        return _fraction(match["decimal"])
    if match["before"]:
        period = match["period"] or match["digit"]
        decimals = len(match["before"].partition(".")[2])
        tail = Fraction(int(period), 10**decimals * (10 ** len(period) - 1))
        return _fraction(f"0{match['before']}0") + tail
    above = match["above"] or match["braced_above"] or match["a"]
    below = match["below"] or match["braced_below"] or match["b"]
    ratio = _fraction(above) / _fraction(below)
    if match["whole"] is None:
        return ratio
    mixed = 0 < ratio < 1 and above.isdecimal() and below.isdecimal()
    return int(match["whole"]) + ratio if mixed else None


def _spaced(text: str) -> str:
    """Return a text with plain spaces, and with none where thin ones separate thousands."""
    return _SPACE.sub(" ", _without_thin_thousands(text))


def with_plain_thousands(text: str) -> str:
    r"""Return a text whose thousands no LaTeX parts: ``1{,}000`` as ``1,000``."""
    return _without_thin_thousands(_without_thousands_marks(text))


def _without_thousands_marks(text: str) -> str:
    return text.replace("{,}", ",").replace(r"\!", "")


def _without_thin_thousands(text: str) -> str:
    return _THIN_THOUSANDS.sub(lambda match: _THIN_SPACE.sub("", match[0]), text)


def _fraction(decimal: str) -> Fraction:
    return Fraction(decimal.replace(",", "").replace(" ", ""))


def final_number(answer: str) -> Fraction | None:
    r"""Return the number that an answer gives, None if it gives none.

    It may have a name before it and a unit behind it, and stand in ``\text{}``: ``x = 5 cm``.
    """
    if len(answer) > _LONGEST:
        return None
    value = number(answer)
    if value is not None:
        return value
    text = _COLOR.sub("", answer)
    text = unwrapped(_without_end(_NAME.sub("", unwrapped(text), count=1).strip()))
    value = number(text)
    if value is not None:
        return value
    text = _spaced(text)
    unit = _UNIT.search(text)
    return number(text[: unit.start()]) if unit and _is_unit(unit) else None


def _is_unit(match: re.Match[str]) -> bool:
    """Return whether words behind a number leave it as it is."""
    words = _WORD.findall(match["in_braces"] or match["plain"])
    if not 1 <= len(words) <= _MOST_WORDS:
        return False
    if match["space"] == "" and not _SHORT.match(words[0]):
        return False
    return all(
        not _CHANGING.match(word)
        and (len(word) > 2 or _SHORT.match(word) or (match["in_braces"] and _LETTER.match(word)))
        for word in words
    )


def unwrapped(text: str) -> str:
    r"""Return a text without the ``{}``, ``\text{}``, ``\mathbf{}``, ... that enclose all of it."""
    text = text.strip()
    for _ in range(_DEPTH):
        wrapper = _WRAPPER.match(text)
        if wrapper is None or closing_brace(text, wrapper.end() - 1) != len(text) - 1:
            break
        text = text[wrapper.end() : -1].strip()
    return text


def closing_brace(text: str, start: int, braces: re.Pattern[str] = _BRACE) -> int | None:
    """Return the position of the brace that closes the one at `start`.

    By default an escaped brace is text, not a brace.
    """
    depth = 0
    for brace in braces.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None


def _without_end(text: str) -> str:
    r"""Return a text without a stop or a line break at its end; an ellipsis stays.

    So does the stop of ``\right.``.
    """
    bare = text.rstrip(_ENDS)
    tail = text[len(bare) :]
    return text if ".." in tail or (tail.startswith(".") and bare.endswith(_RIGHT)) else bare


# What math-verify cannot read, or reads as something else, and what is written in its place.
_GREEK = r"\\(?:pi|theta|alpha|beta|gamma|lambda|mu|phi)(?![A-Za-z])"
_BARE_FRACTION = re.compile(
    rf"\\[dtc]?frac\s*+(?:(?P<a>{_GREEK})\s*+(?:(?P<b>{_GREEK}|\d)|(?=\{{))"
    rf"|(?P<c>\d)\s*+(?P<d>{_GREEK}))"
)
_UNDERLINE = re.compile(r"\\underline\s*+(?=\{)")
_VARNOTHING = re.compile(r"\\varnothing(?![A-Za-z])")
_LABEL = re.compile(
    r"\A\\(?:text|textbf|textrm|mathrm|mathbf)\s*+\{\s*+\([A-Z]\)\s*+\}(?:\s|\\[,;: ]|~|\\quad)*+"
    r"(?=-?\$?\d|\\(?:[dt]?frac|sqrt|\$))"
)
_MIXED = re.compile(r"\A(-?+\d++)\s++(\d++)/(\d++)\Z")
_SPACED_THOUSANDS = re.compile(r"\A-?+\d{1,3}(?: \d{3}){2,}+\Z")


def readable(answer: str) -> str:
    r"""Return an answer in notation that math-verify reads, and reads right.

    It loses a stop at its end, an option's label before it (``\textbf{(B)}\ 5``), colours and
    underlines.
    """
    text = _without_end(answer.strip())
    if "\\" in text:
        text = _LABEL.sub("", text, count=1)
        text = _UNDERLINE.sub("", _COLOR.sub("", text))
        text = _VARNOTHING.sub(r"\\emptyset", text)
        text = _without_thin_thousands(text)
        return _BARE_FRACTION.sub(_braced, text)
    if mixed := _MIXED.match(text):
        return rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    return text.replace(" ", "") if _SPACED_THOUSANDS.match(text) else text


def _braced(match: re.Match[str]) -> str:
    above = match["a"] or match["c"]
    below = match["b"] or match["d"]
    return rf"\frac{{{above}}}" + (f"{{{below}}}" if below else "")


_IN_BASE = re.compile(r"\A-?+[\dA-F.,]++_(?:\{\s*+(?P<braced>\d++)\s*+\}|(?P<bare>\d))\Z")


_INTEGERS = re.compile(r"\A-?+\d++(?:[ ]++\d++)++\Z")


def spaced_integers(text: str) -> list[str] | None:
    """Return the integers of a text that is several of them, as ``100 200``; None otherwise."""
    plain = _without_end(_spaced(text)).strip()
    return plain.split() if _INTEGERS.match(plain) and number(plain) is None else None


def bases_differ(answer: str, gold: str) -> bool:
    """Return whether two numbers name their bases, and not the same: ``52_9`` and ``52_8``."""
    first, second = (_IN_BASE.match(_without_end(text.strip())) for text in (answer, gold))
    if first is None or second is None:
        return False
    return (first["braced"] or first["bare"]) != (second["braced"] or second["bare"])
