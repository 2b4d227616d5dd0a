r"""Tokens of a final answer, LaTeX or plain text: the first step of the judge of mathematics.

What means the same becomes the same token: ``\dfrac`` and ``\frac``, ``≤`` and ``<=``, ``²`` and
``^2``. What means nothing goes: sizes, colours, spaces. All else stays as it is written,
in its case and order, known or not. Time is linear in the length of the text.
"""

import re
import unicodedata
from string import ascii_lowercase
from typing import NamedTuple

from headsweep.grading.notation import closing_brace, with_plain_thousands
from headsweep.grading.words import SCALES, UNITS, word_set


class Token(NamedTuple):
    r"""A token: its kind, and its text in one spelling.

    Kinds are ``number``; ``based``, one that names its base; ``name``, of what is one thing in
    mathematics (``x``, ``AB``); ``word``; ``unread``, of a long text; and ``sign``: a macro
    with its backslash, or one other character.
    """

    kind: str
    text: str


_MEANINGS = {
    "*": r"\times \cdot \ast \star",
    "/": r"\div",
    r"\frac": r"\dfrac \tfrac \cfrac",
    r"\binom": r"\dbinom \tbinom",
    r"\leq": r"\le \leqslant \leqq",
    r"\geq": r"\ge \geqslant \geqq",
    r"\neq": r"\ne",
    "<": r"\lt",
    ">": r"\gt",
    r"\ldots": r"\dots \cdots \dotsc",
    r"\emptyset": r"\varnothing",
    r"\{": r"\lbrace",
    r"\}": r"\rbrace",
    "[": r"\lbrack",
    "]": r"\rbrack",
    "|": r"\lvert \rvert \vert",
    r"\|": r"\lVert \rVert \Vert",
    "°": r"\degree",
    "'": r"\prime",
    ":": r"\colon",
    "%": r"\%",
    "$": r"\$ \textdollar",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "€": r"\euro",
    "£": r"\pounds",
    r"\epsilon": r"\varepsilon",
    r"\phi": r"\varphi",
    r"\bar": r"\overline",
    r"\arcsin": r"\asin",
    r"\arccos": r"\acos",
    r"\arctan": r"\atan",
    r"\mid": r"\big|",
}
_SPELLINGS = {old: new for new, all_old in _MEANINGS.items() for old in all_old.split()}
_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/",
        "∕": "/", "⁄": "/", "≤": r"\leq ", "⩽": r"\leq ", "≥": r"\geq ", "⩾": r"\geq ",
        "≠": r"\neq ", "±": r"\pm ", "∓": r"\mp ", "∞": r"\infty ", "∪": r"\cup ",
        "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "∣": r"\mid ", "…": r"\ldots ",
        "′": "'", "’": "'", "″": "''", "∠": r"\angle ", "△": r"\triangle ", "≈": r"\approx ",
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
        "ℂ": r"\mathbb{C}", "º": "°", "˚": "°", "ϖ": r"\varpi ", "∘": r"\circ ",
        "⟨": r"\langle ", "⟩": r"\rangle ",
        "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
        "→": r"\to ", "∖": r"\setminus ", "¬": r"\neg ", "∧": r"\land ", "∨": r"\lor ",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "", "\u2061": "", "\ufeff": "",
    }
)  # fmt: skip
_RAISED = re.compile("[⁺⁻⁰¹²³⁴-⁹ⁿ]+")
_LOWERED = re.compile("[₊₋₀-₉]+")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")

_DROPPED = word_set(
    r"""
    \left \right \bigl \bigr \Bigl \Bigr \big \Big \bigg \Bigg \biggl \biggr \Biggl \Biggr
    \middle \displaystyle \textstyle \scriptstyle \limits \nolimits \, \; \: \! \> \quad
    \qquad \( \) \[ \] \hfill \hspace* \mathstrut \strut \thinspace \enspace \/ \bf \rm \it
    """
) | {"\\ ", "\\\n"}
_DROPPED_WITH_ARGUMENT = {r"\color", r"\phantom", r"\hspace", r"\vspace", r"\textcolor", r"\tag"}
_TEXT = word_set(
    r"""
    \text \textbf \textit \textrm \textnormal \textsf \texttt \emph \mbox \hbox \mathrm
    \operatorname \mathit \mathsf
    """
)
_WRAPPERS = word_set(
    r"""
    \mathbf \boldsymbol \bm \pmb \mathnormal \underline \boxed \fbox \ensuremath \mathop
    \mathord \mathbin \mathrel
    """
)
_ALPHABETS = {r"\mathbb", r"\mathcal", r"\mathfrak", r"\mathscr"}

_WITH_ARGUMENT = _DROPPED_WITH_ARGUMENT | _TEXT | _WRAPPERS | _ALPHABETS

_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp"
_GREEK = "alpha beta gamma delta epsilon theta lambda mu pi rho sigma tau phi psi omega"
_PLAIN = {word: rf"\{word}" for word in f"{_FUNCTIONS} {_GREEK} sqrt".split()}
_PLAIN |= {"infinity": r"\infty", "inf": r"\infty", "oo": r"\infty"}
_PLAIN |= {"asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "union": r"\cup"}

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|~)++)
    | (?P<based>(?<!\d\.)(?<![A-Za-z0-9\\])
        (?:\d[\dA-F]*+(?:\.[\dA-F]++)?+|[A-F][\dA-F]*+\d[\dA-F]*+)
        \s*+_\s*+(?:\{\s*+\d++\s*+\}|\d))
    | (?P<number>(?<![\d,.])\d{1,3}(?:,\d{3})++(?!,?\d)(?:\.\d++)?+
        | (?<![\d.])\d{1,3}(?:[ ]\d{3}){2,}+(?![ ]?[\d.])
        | (?:\d++(?:\.\d++)?+|(?<![\d.])\.\d++)(?:[eE][-+]?\d{1,3}(?![\w{]|\.\d))?+ )
    | (?P<noon>(?<![A-Za-z\\])(?i:[ap]\.[ ]?m\b\.?|[ap]m(?![A-Za-z])))
    | (?P<letters>[A-Za-z]++)
    | (?P<sign>\\[A-Za-z]++\*?|\\.|\*\*|<=|>=|!=|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_LABEL = re.compile(
    r"\A\\(?:text|textbf|textrm|mathrm|mathbf)\s*+\{\s*+\([A-Z]\)\s*+\}(?:\s|\\[,;: ]|~|\\quad)*+"
    r"(?=-?\$?\d|\\(?:[dt]?frac|sqrt|\$))"
)
"""An option's label before an answer: the 5 of ``\\textbf{(B)}\\ 5``."""
_IN_BASE = re.compile(r"(?:\\text\s*\{|\()\s*([\dA-F]+)\s*[)}](?=\s*_\s*\{?\s*\d)")
_IN_DOLLARS = re.compile(r"(?<!\\)\$([^$]++)(?<!\\)\$(?!\d)")
_TIMES_TEN = re.compile(r"(?<=\d)\s?[xX]\s?(?=10\s*(?:\^|\*\*))")
_ENCLOSED = (("**", "**"), ("`", "`"))
_LONGEST = 4_000  # characters of an answer that is read
_DEPTH = 4  # of texts and wrappers in one another
_TRAILING = (".", ",", ";", "\\\\")
_LEADING = ("=", r"\approx", r"\therefore")
_JOINED = {"<=": r"\leq", ">=": r"\geq", "!=": r"\neq", "...": r"\ldots", "**": "^"}


def tokens(text: str) -> list[Token]:
    """Return the tokens of an answer; of one that is too long to be one, its text alone."""
    if len(text) > _LONGEST:
        return [Token("unread", text.strip())]
    text = _IN_DOLLARS.sub(r" \1 ", text.replace("$$", "$"))
    text = _TIMES_TEN.sub("*", text)
    text = _IN_BASE.sub(r"\1", _ascii(with_plain_thousands(text)).strip())
    for opening, closing in _ENCLOSED:
        inside = text[len(opening) : len(text) - len(closing)]
        is_enclosed = text.startswith(opening) and text.endswith(closing)
        if is_enclosed and inside and opening not in inside:
            text = inside.strip()
    text = _LABEL.sub("", text.strip(), count=1)
    found = _Lexer().read(text, in_text=False, depth=0)
    while found and found[-1].text in _TRAILING:
        found.pop()
    return found[1:] if found and found[0].text in _LEADING else found


def _ascii(text: str) -> str:
    """Return a text with LaTeX in place of other signs, as far as it has some."""
    if text.isascii():
        return text
    text = _VULGAR.sub(lambda sign: _fraction(sign[0]), text)
    text = _RAISED.sub(lambda run: f"^{{{_folded(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_folded(run[0])}}}", text)
    text = _folded(text.translate(_CHARACTERS)).translate(_CHARACTERS)
    return "".join(char if char.isascii() else _greek(char) for char in text)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-")


def _fraction(sign: str) -> str:
    above, _, below = unicodedata.normalize("NFKC", sign).partition("\N{FRACTION SLASH}")
    return rf"\frac{{{above}}}{{{below}}}"


def _greek(char: str) -> str:
    words = unicodedata.name(char, "").split()
    if words[:1] == ["GREEK"] and len(words) == 4:
        name = words[3].lower() if words[1] == "SMALL" else words[3].capitalize()
        return rf"\{name} "
    return char


class _Lexer:
    def __init__(self) -> None:
        self.found: list[Token] = []
        self.brackets = 0
        self.spaced = False

    def read(self, text: str, *, in_text: bool, depth: int) -> list[Token]:
        r"""Append the tokens of a text; those of a text in ``\text{}`` are words."""
        place = 0
        while match := _TOKEN.match(text, place):
            place = match.end()
            kind = match.lastgroup
            token = match[0]
            if kind == "sign":
                place = self._sign(token, text, place, in_text, depth)
            elif kind == "letters":
                self._letters(token, in_text)
            elif kind == "number" and self.brackets and "," in token:
                token = token.partition(",")[0]
                place = match.start() + len(token)
                self._add("number", token)
            elif kind == "number":
                self._add("number", token.replace(",", "").replace(" ", ""))
            elif kind == "based":
                digits, _, base = token.partition("_")
                self._add("based", f"{digits.strip()}_{base.strip(' {}')}")
            elif kind == "noon":
                self._add("word", f"{token[0].lower()}m")
            self.spaced = kind == "space"
        return self.found

    def _add(self, kind: str, text: str) -> None:
        self.found.append(Token(kind, text))

    def _sign(self, sign: str, text: str, place: int, in_text: bool, depth: int) -> int:
        """Append what a macro or another sign is; return where the text goes on."""
        sign = sign.rstrip("*") if sign.startswith("\\") and len(sign) > 2 else sign
        sign = _JOINED.get(sign, _SPELLINGS.get(sign, sign))
        if sign == r"\phantom" and not text.startswith("{", place):
            return place + 1
        if sign in _DROPPED:
            follows = text[place : place + 1]
            return place + (follows == "." and sign in (r"\left", r"\right"))
        argument = _argument(text, place) if sign in _WITH_ARGUMENT and depth < _DEPTH else None
        if argument is not None:
            inside, after = argument
            if sign in _ALPHABETS:
                self._add("name", f"{sign}{{{inside.strip()}}}")
            elif sign not in _DROPPED_WITH_ARGUMENT:
                self.read(inside, in_text=sign in _TEXT, depth=depth + 1)
            return after
        if sign == r"\not":
            negated = _TOKEN.match(text, place + text.startswith(" ", place))
            relation = _SPELLINGS.get(negated[0], negated[0]) if negated else ""
            self._add("sign", r"\neq" if relation == "=" else rf"\not{relation}")
            return negated.end() if negated else place
        self.brackets += (sign in ("(", "[", r"\{")) - (sign in (")", "]", r"\}"))
        self._add("sign", sign)
        return place

    def _letters(self, run: str, in_text: bool) -> None:
        """Append what a run of letters is: a bare macro, a name, a word, or letters."""
        before = self.found[-1] if self.found else Token("", "")
        behind_number = before.kind == "number" or before.text in ("}", "$", ")", "]")
        if not in_text and run in _PLAIN:
            self._add("sign", _PLAIN[run])
        elif len(run) == 1:
            # A letter behind a number in a text is a unit there; a product has none.
            behind = behind_number or before.kind == "word" or before.text == "/"
            is_unit = in_text and behind and run in UNITS
            self._add("word" if is_unit else "name", run)
        elif run.isupper():
            self._add("name", run)
        elif in_text or self._is_word(run, behind_number or before.kind == "word"):
            self._add("word", run.lower() if run[1:].islower() else run)
        else:
            for letter in run:
                self._add("name", letter)

    def _is_word(self, run: str, behind_number: bool) -> bool:
        r"""Return whether letters outside ``\text{}`` are a word, not a product of variables."""
        if run in UNITS or run in SCALES or run in ("and", "or", "of"):
            return behind_number or run in ("and", "or") or len(run) > 3
        if len(run) == 2:
            return run == "no" and not self.found
        if len(run) > 3 or not run.islower():
            return True
        is_row = run in ascii_lowercase  # abc, xyz
        is_spelled = any(vowel in run for vowel in "aeiou") and not is_row
        return len(set(run)) < 3 or (is_spelled and (self.spaced or not self.found))


def _argument(text: str, place: int) -> tuple[str, int] | None:
    """Return what stands in braces at a place, and where they end; None if none stand there."""
    while place < len(text) and text[place] == " ":
        place += 1
    if not text.startswith("{", place):
        return None
    end = closing_brace(text, place)
    return None if end is None else (text[place + 1 : end], end + 1)
