r"""Atoms of final answers: numbers, names, words, functions, sets, matrices, what brackets hold."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from headsweep.grading.lexer import Token
from headsweep.grading.tree import EMPTY, REALS, Node, UnreadableError, quotient, times
from headsweep.grading.words import word_set

RELATIONS = ("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\in")
_EMPTY = {"no solution", "no solutions", "empty set", "the empty set", "empty"}
_NAMED = dict.fromkeys(("all real numbers", "real numbers", "all reals", "all real"), REALS)
_NAMED |= {"infinity": r"\infty"}

FUNCTIONS = word_set(
    r"""
    \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \log \ln \exp
    """
)
GREEK = word_set(
    r"""
    \alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi
    \pi \rho \sigma \tau \upsilon \phi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi
    \Sigma \Phi \Psi \Omega \infty \ell \ldots
    """
)
_MODIFIERS = word_set(
    r"""
    \bar \vec \hat \widehat \tilde \angle \triangle \overrightarrow \overleftrightarrow
    """
)
_CURRENCIES = {"$", "€", "£", "¥", "₹"}
SEPARATORS = {",": ",", ";": ",", "and": "and", r"\land": "and", "or": "or", r"\lor": "or"}
_PAIRS = {r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", r"\langle": r"\rangle", "|": "|"}
_MATRICES = {"pmatrix": "()", "bmatrix": "()", "matrix": "()", "vmatrix": "||"}
FIRST = {r"\frac", r"\sqrt", "√", r"\binom", r"\begin", "(", "[", "{", *_PAIRS}
END = Token("end", "")
_DEPTH = 50  # of what stands in one another


class Atoms(ABC):
    """Tokens, and how to take an atom from the next of them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [*tokens, END]
        self.place = 0
        self.depth = 0
        self.upper = True  # whether ± is read as +
        self.has_signs = False
        self.in_bars = False

    @abstractmethod
    def items(self, closing: str, *, both_signs: bool = False) -> tuple[list[Node], str]:
        """Return what stands between separators up to a closing token, and the last separator.

        With `both_signs`, what has a ± stands twice, once with each sign.
        """

    @abstractmethod
    def relation(self) -> Node:
        """Return what stands up to the next separator or closing token."""

    @abstractmethod
    def factor(self) -> Node:
        """Return an atom with its signs, powers and whatever belongs to it."""

    @abstractmethod
    def power(self) -> Node:
        """Return an atom with its powers and whatever belongs to it."""

    @property
    def next(self) -> Token:
        """The token that is not taken yet."""
        return self.tokens[self.place]

    def follows(self, *texts: str) -> bool:
        """Return whether these are the next tokens."""
        following = self.tokens[self.place : self.place + len(texts)]
        return [token.text for token in following] == [*texts]

    def take(self) -> Token:
        """Take the next token."""
        token = self.next
        if token is END:
            raise UnreadableError("it ends too early")
        self.place += 1
        return token

    def taken(self, text: str) -> bool:
        """Take the next token if it is this one; return whether it is."""
        is_it = self.next.text == text and self.next is not END
        self.place += is_it
        return is_it

    def expect(self, text: str) -> None:
        """Take the next token, which has to be this one."""
        if self.next.text != text:
            raise UnreadableError(f"{self.next.text} is not in the grammar")
        self.place += self.next is not END

    def group(self) -> Node:
        """Return what stands in the brackets or braces that follow: one value, or a tuple."""
        self._descend()
        opening = self.take().text
        before = self.in_bars
        self.in_bars = False
        if opening == "{":
            items, _ = self.items("}")
            self.take()
            node = items[0] if len(items) == 1 else Node("set", tuple(items))
        else:
            items, joint = self.items(") ]")
            brackets = opening + self.take().text
            if len(items) == 1 and brackets in ("()", "[]"):
                node = items[0]
            elif len(items) > 1 and joint == ",":
                node = Node("tuple", tuple(items), brackets)
            else:
                raise UnreadableError(f"{brackets} around {len(items)} values")
        self.in_bars = before
        self.depth -= 1
        if not items:
            raise UnreadableError("nothing in brackets")
        return node

    def argument(self) -> Node:
        """Return a macro's argument: in braces, or one digit or sign."""
        if self.next.text == "{":
            return self.group()
        if self.next.kind == "number" and len(self.next.text) > 1 and self.next.text.isdecimal():
            digits = self.next.text
            self.tokens[self.place] = Token("number", digits[0])
            self.tokens.insert(self.place + 1, Token("number", digits[1:]))
        return decimal(self.take().text) if self.next.kind == "number" else self.atom()

    def atom(self) -> Node:
        """Take what is one thing: a number, a name, what stands in brackets, a function's value."""
        if self.next.text in ("(", "[", "{"):
            return self.group()
        self._descend()
        node = self._atom()
        self.depth -= 1
        return node

    def _descend(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            raise UnreadableError("too deep")

    def _atom(self) -> Node:
        token = self.next
        text = token.text
        self.take()
        if token.kind == "number":
            return self._number(text)
        if text == "." and self.next.text == r"\bar":
            self.place -= 1
            return self._number("0")
        if token.kind == "word":
            return self._words(text)
        if token.kind == "based":
            return Node("based", text=text)
        if token.kind == "name" or text in GREEK:
            return self._name(text)
        if text in FUNCTIONS:
            return self._function(text)
        if text in _MODIFIERS:
            return self._name(text + self._texts())
        if text in _CURRENCIES:
            value = self.factor()
            return Node("quantity", value.parts if value.kind == "quantity" else (value,), text)
        if text in _PAIRS:
            return self._enclosed(text)
        if text == r"\{":
            return self._set()
        if text == r"\emptyset":
            return EMPTY
        if text == r"\frac":
            return quotient(self.argument(), self.argument())
        if text == r"\binom":
            return Node("binomial", (self.argument(), self.argument()))
        if text in (r"\sqrt", "√"):
            index = self.group() if text == r"\sqrt" and self.next.text == "[" else None
            inside = self.argument() if text == r"\sqrt" else self.atom()
            return Node("root", (inside, index) if index else (inside,))
        if text == r"\begin":
            return self._matrix()
        raise UnreadableError(f"{text} is not in the grammar")

    def _number(self, text: str) -> Node:
        if self.follows(".", r"\bar") or ("." in text and self.next.text == r"\bar"):
            self.taken(".")
            self.take()
            period = self._texts().strip("{}")
            if not period.isdecimal():
                raise UnreadableError("a period without digits")
            decimals = len(text.partition(".")[2])
            tail = Fraction(int(period), 10**decimals * (10 ** len(period) - 1))
            return Node("number", number=Fraction(text) + tail)
        return self._mixed(int(text)) if text.isdecimal() else decimal(text)

    def _mixed(self, whole: int) -> Node:
        """Return an integer with the proper fraction beside it, if one is there."""
        start = self.place
        if self.next.text == r"\frac":
            ratio = self.atom()
        elif self.next.kind == "number" and self.tokens[self.place + 1].text == "/":
            above = decimal(self.take().text)
            self.take()
            ratio = Node("quotient", (above, self.atom()))
        else:
            return decimal(str(whole))
        if not all(part.kind == "number" for part in ratio.parts):
            self.place = start
            return decimal(str(whole))
        ratio_above, ratio_below = (part.number for part in ratio.parts)
        are_integers = ratio_above.denominator == ratio_below.denominator == 1
        if not are_integers or not 0 < ratio_above < ratio_below:
            raise UnreadableError("an improper fraction beside a number")
        return Node("number", number=whole + ratio_above / ratio_below)

    def _words(self, first: str) -> Node:
        words = [first]
        while self.next.kind in ("word", "name") or self.next.text in ("-", "'", "."):
            if self.next.text in SEPARATORS:
                break
            words.append(self.take().text)
        text = " ".join(word for word in words if word not in ".-")
        if self.next is not END and self.next.text not in {
            *SEPARATORS,
            *RELATIONS,
            ")",
            "]",
            r"\}",
        }:
            raise UnreadableError(f"{self.next.text} behind words")
        if text in _EMPTY:
            return EMPTY
        name = _NAMED.get(text)
        return Node("name", text=name) if name else Node("words", text=text)

    def _name(self, text: str) -> Node:
        if self.taken("_"):
            text += f"_{self._texts().strip('{}')}"
        return Node("name", text=text)

    def _texts(self) -> str:
        """Take a macro's argument; return its tokens as they are."""
        if not self.taken("{"):
            return f"{{{self.take().text}}}"
        texts = []
        depth = 1
        while depth:
            texts.append(self.take().text)
            depth += (texts[-1] == "{") - (texts[-1] == "}")
        return f"{{{' '.join(texts[:-1])}}}"

    def _function(self, name: str) -> Node:
        base = self.argument() if name == r"\log" and self.taken("_") else None
        exponent = None
        if self.taken("^"):
            exponent = self.argument()
        if self.next.text in ("(", "{", "["):
            argument = self.group()
            if exponent is None and self.next.text == "!":
                raise UnreadableError("a factorial behind a function")
        else:
            argument = self.power()
            while self.next.kind == "name" or self.next.text in {r"\frac", r"\sqrt", *GREEK}:
                if argument.kind == "quantity" or self.next.text == r"\ldots":
                    break
                argument = times(argument, self.power())
        node = Node("call", (argument, base) if base else (argument,), name)
        if exponent == Node("negative", (Node("number", text="1", number=Fraction(1)),)):
            inverse = rf"\arc{name[1:]}"
            if inverse not in FUNCTIONS:
                raise UnreadableError(f"the inverse of {name}")
            return node._replace(text=inverse)
        return Node("power", (node, exponent)) if exponent else node

    def _enclosed(self, opening: str) -> Node:
        before = self.in_bars
        self.in_bars = opening == "|"
        items, _ = self.items(_PAIRS[opening])
        self.in_bars = before
        self.expect(_PAIRS[opening])
        if opening == r"\langle":
            return Node("tuple", tuple(items), "()")
        if len(items) != 1:
            raise UnreadableError(f"{opening} around {len(items)} values")
        return Node("call", tuple(items), opening)

    def _set(self) -> Node:
        start = self.place
        if self.next.kind == "name":
            name = Node("name", text=self.take().text)
            if self.taken(r"\in"):
                self.take()
            if self.next.text in (":", "|", r"\mid"):
                self.take()
                conditions, joint = self.items(r"\}")
                self.expect(r"\}")
                return Node("builder", (name, *conditions), joint)
        self.place = start
        items, _ = self.items(r"\}", both_signs=True)
        self.expect(r"\}")
        return Node("set", tuple(items))

    def _matrix(self) -> Node:
        kind = _MATRICES.get(self._texts().strip("{}"))
        if kind is None:
            raise UnreadableError("an unknown environment")
        rows = [[self.relation()]]
        while not self.taken(r"\end"):
            if self.taken("&"):
                rows[-1].append(self.relation())
            else:
                self.expect("\\\\")
                if self.next.text != r"\end":
                    rows.append([self.relation()])
        self._texts()
        return Node("matrix", tuple(Node("row", tuple(row)) for row in rows), kind)


def decimal(text: str) -> Node:
    """Return the node of a decimal."""
    return Node("number", text=text, number=Fraction(text))
