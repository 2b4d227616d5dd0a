r"""What a final answer says: a tree of its tokens, by the notation of mathematics.

Nothing is guessed: what is not in this grammar is `UnreadableError`, and only an answer of the same
tokens equals it.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

from headsweep.grading.lexer import Token
from headsweep.grading.words import NUMBERS, SCALES, leaves_a_number


class UnreadableError(ValueError):
    """An answer that is outside of the grammar, or too large to compute with."""


class Node(NamedTuple):
    """A part of an answer: what it is, its parts, and what else tells it from others."""

    kind: str
    parts: tuple["Node", ...] = ()
    text: str = ""
    number: Fraction = Fraction(0)


RELATIONS = ("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\in")
EMPTY = Node("set")
REALS = r"\mathbb{R}"
ALL_REALS = {"all real numbers", "real numbers", "all reals", "all real"}

_FUNCTIONS = set(
    r"\sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \log \ln \exp".split()
)
_GREEK = set(
    r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \pi "
    r"\rho \sigma \tau \upsilon \phi \chi \psi \omega \Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma "
    r"\Phi \Psi \Omega \infty \ell \ldots".split()
)
_MODIFIERS = set(
    r"\bar \vec \hat \widehat \tilde \angle \triangle \overrightarrow \overleftrightarrow".split()
)
_CURRENCIES = {"$", "€", "£", "¥", "₹"}
_SEPARATORS = {",": ",", ";": ",", "and": "and", r"\land": "and", "or": "or", r"\lor": "or"}
_PAIRS = {r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", r"\langle": r"\rangle", "|": "|"}
_MATRICES = {"pmatrix": "()", "bmatrix": "()", "matrix": "()", "vmatrix": "||"}
_APPLIED = ("f", "g", "h")  # f(2) applies a function, x(2) is a product
_FIRST = {r"\frac", r"\sqrt", "√", r"\binom", r"\begin", "(", "[", "{", *_PAIRS}
_END = Token("end", "")
_DEPTH = 60  # of what stands in one another
_MOST_TOKENS = 1_500


def parse(tokens: Sequence[Token]) -> Node:
    """Return what an answer says.

    Several values with commas between them are a ``list``; so is ``\\pm 3``.

    Raises:
        UnreadableError: it is outside of the grammar.
    """
    if not tokens or len(tokens) > _MOST_TOKENS:
        raise UnreadableError("no answer, or a long one")
    if len(tokens) == 1 and tokens[0].text in NUMBERS:
        return Node("number", number=Fraction(NUMBERS[tokens[0].text]))
    parser = _Parser(tokens)
    items, joint = parser.items(_END.text, both_signs=True)
    parser.expect(_END.text)
    if len(items) == 1:
        return items[0]
    return Node("list", tuple(items), joint)


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [*tokens, _END]
        self.place = 0
        self.depth = 0
        self.upper = True  # whether ± is read as +
        self.has_signs = False
        self.in_bars = False

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def follows(self, *texts: str) -> bool:
        """Return whether these are the next tokens."""
        return [token.text for token in self.tokens[self.place :][: len(texts)]] == [*texts]

    def take(self) -> Token:
        token = self.next
        if token is _END:
            raise UnreadableError("it ends too early")
        self.place += 1
        return token

    def taken(self, text: str) -> bool:
        """Take the next token if it is this one; return whether it is."""
        is_it = self.next.text == text and self.next is not _END
        self.place += is_it
        return is_it

    def expect(self, text: str) -> None:
        if self.next.text != text:
            raise UnreadableError(f"{self.next.text} is not in the grammar")
        self.place += self.next is not _END

    def items(self, closing: str, *, both_signs: bool = False) -> tuple[list[Node], str]:
        """Return what stands between separators up to a closing token, and the last separator."""
        found: list[Node] = []
        joint = ""
        while self.next.text not in closing.split() or not closing:
            start = self.place
            if both_signs:
                self.has_signs = False
            found.append(self.relation())
            if both_signs and self.has_signs:
                self.place = start
                self.upper = False
                found.append(self.relation())
                self.upper = True
                joint = joint or ","
            is_joined = False
            while self.next.text in _SEPARATORS:
                is_joined = True
                joint = _SEPARATORS[self.take().text]
            if not is_joined:
                break
        if self.next.text not in (closing.split() or [""]):
            raise UnreadableError(f"{self.next.text} is not in the grammar")
        return found, joint

    def relation(self) -> Node:
        """Return sides with relations between them; one without any is returned as it is."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise UnreadableError("too deep")
        sides = [self.union()]
        signs = []
        while self.next.text in RELATIONS:
            signs.append(self.take().text)
            sides.append(self.union())
        self.depth -= 1
        return Node("relation", tuple(sides), " ".join(signs)) if signs else sides[0]

    def union(self) -> Node:
        parts = [self.ratio()]
        while self.taken(r"\cup"):
            parts.append(self.ratio())
        return Node("union", tuple(parts)) if len(parts) > 1 else parts[0]

    def ratio(self) -> Node:
        parts = [self.sum()]
        while self.taken(":"):
            parts.append(self.sum())
        return Node("ratio", tuple(parts)) if len(parts) > 1 else parts[0]

    def sum(self) -> Node:
        parts = [self.product()]
        while self.next.text in ("+", "-", r"\pm", r"\mp"):
            is_negative = self._is_negative(self.take().text)
            part = self.product()
            parts.append(_negative(part) if is_negative else part)
        return parts[0] if len(parts) == 1 else _sum(parts)

    def _is_negative(self, sign: str) -> bool:
        if sign in (r"\pm", r"\mp"):
            self.has_signs = True
            return self.upper == (sign == r"\mp")
        return sign == "-"

    def product(self) -> Node:
        factor = self.factor()
        if factor.kind == "words":
            return factor
        while True:
            if self.taken("*"):
                factor = _times(factor, self.factor())
            elif self.next.text == "/" and self.tokens[self.place + 1].kind != "word":
                self.take()
                factor = _over(factor, self.factor())
            elif self.next.kind == "word" and self.next.text not in _SEPARATORS:
                return self._quantity(factor)
            elif self._starts_factor():
                factor = self._beside(factor)
            else:
                return factor

    def _starts_factor(self) -> bool:
        token = self.next
        if token.kind in ("number", "name") or token.text in _FUNCTIONS | _GREEK - {r"\ldots"}:
            return True
        if token.text == "|":
            return not self.in_bars
        return token.text in _FIRST

    def _beside(self, before: Node) -> Node:
        """Return the product of a factor with what stands beside it."""
        if self.next.kind == "number" and self.tokens[self.place - 1].kind == "number":
            raise UnreadableError("two numbers beside one another")
        return _times(before, self.power())

    def _quantity(self, factor: Node) -> Node:
        """Return a factor with the words behind it: multiples, then a unit or what is counted."""
        while self.next.text in SCALES or self.next.text.removesuffix("s") in SCALES:
            scale = SCALES[self.take().text.removesuffix("s")]
            factor = Node("product", (factor, Node("number", number=Fraction(scale))))
        words: list[str] = []
        while self.next.kind == "word" or self.next.text in ("/", ".", "-", "^", "(", ")"):
            text = self.take().text
            if text == "^":
                self.taken("{")
                text = f"^{self.take().text}"
                self.taken("}")
                if text not in ("^2", "^3"):
                    raise UnreadableError("a unit's power")
            if text in _SEPARATORS:
                self.place -= 1
                break
            if text not in (".", "-", "(", ")"):
                words.append(text.lower())
        if not leaves_a_number(words):
            raise UnreadableError(f"{words} change a number")
        return Node("quantity", (factor,), " ".join(words)) if words else factor

    def factor(self) -> Node:
        """Return a power with its signs."""
        is_negative = False
        while self.next.text in ("+", "-", r"\pm", r"\mp"):
            is_negative ^= self._is_negative(self.take().text)
        power = self.power()
        if not is_negative:
            return power
        return _negative(power)

    def power(self) -> Node:
        base = self.postfix()
        if self.next.text != "^":
            return base
        self.take()
        if base.kind in ("words", "tuple", "set", "matrix", "quantity"):
            raise UnreadableError(f"a power of {base.kind}")
        self.depth += 1
        if self.depth > _DEPTH:
            raise UnreadableError("too deep")
        exponent = self._exponent()
        self.depth -= 1
        return self._behind(Node("power", (base, exponent)))

    def _exponent(self) -> Node:
        if self.next.text == "{":
            return self.group()
        if self.next.text == "-":
            self.take()
            return _negative(self._exponent())
        if self.next.kind == "number":
            return self._decimal(self.take().text)
        return self.power()

    def postfix(self) -> Node:
        return self._behind(self.atom())

    def _behind(self, node: Node) -> Node:
        """Return a node with the signs behind it: primes, factorials, percent and degrees."""
        while True:
            if node.kind == "name" and self.next.text == "'":
                node = node._replace(text=f"{node.text}{self.take().text}")
            elif node.kind == "name" and (self.follows("^", "'") or self.follows("^", "{", "'")):
                self.place += 1
                in_braces = self.taken("{")
                while self.taken("'"):
                    node = node._replace(text=f"{node.text}'")
                if in_braces:
                    self.expect("}")
            elif self.taken("!"):
                if self.next.text == "!":
                    raise UnreadableError("a double factorial")
                node = Node("factorial", (node,))
            elif self.taken("%"):
                node = Node("quantity", (node,), "percent")
            elif self._takes_degrees():
                unit = {"C": "celsius", "F": "fahrenheit"}.get(self.next.text, "degree")
                self.place += unit != "degree"
                node = Node("quantity", (node,), unit)
            else:
                break
        if node.kind == "name" and self.next.text == "(" and _is_function(node.text):
            return Node("call", (self.group(),), node.text)
        return node

    def _takes_degrees(self) -> bool:
        for texts in (("°",), ("^", "°"), ("^", r"\circ"), ("^", "{", r"\circ", "}")):
            if self.follows(*texts):
                self.place += len(texts)
                return True
        return False

    def group(self) -> Node:
        """Return what stands in the brackets or braces that follow: one value, or a tuple."""
        opening = self.take().text
        before, self.in_bars = self.in_bars, False
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
        if not items:
            raise UnreadableError("nothing in brackets")
        return node

    def argument(self) -> Node:
        """Return a macro's argument: in braces, or one digit or sign."""
        if self.next.text == "{":
            return self.group()
        if self.next.kind == "number" and len(self.next.text) > 1 and self.next.text.isdecimal():
            first, rest = self.next.text[0], self.next.text[1:]
            self.tokens[self.place : self.place + 1] = [Token("number", first), Token("number", rest)]
        return self._decimal(self.take().text) if self.next.kind == "number" else self.atom()

    def atom(self) -> Node:
        token = self.next
        text = token.text
        if text in ("(", "[", "{"):
            return self.group()
        self.take()
        if token.kind == "number":
            return self._number(text)
        if token.kind == "word":
            return self._words(text)
        if token.kind == "based":
            return Node("based", text=text)
        if token.kind == "name" or text in _GREEK:
            return self._name(text)
        if text in _FUNCTIONS:
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
            return _over(self.argument(), self.argument())
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
        has_point = self.follows(".", r"\bar")
        if has_point or ("." in text and self.next.text == r"\bar"):
            self.place += 1 + has_point
            period = self._texts().strip("{}")
            if not period.isdecimal():
                raise UnreadableError("a period without digits")
            decimals = len(text.partition(".")[2])
            tail = Fraction(int(period), 10**decimals * (10 ** len(period) - 1))
            return Node("number", number=Fraction(text) + tail)
        return self._mixed(int(text)) if text.isdecimal() else self._decimal(text)

    def _decimal(self, text: str) -> Node:
        return Node("number", text=text, number=Fraction(text))

    def _mixed(self, whole: int) -> Node:
        """Return an integer with the proper fraction beside it, if one is there."""
        start = self.place
        if self.next.text == r"\frac":
            ratio = self.atom()
        elif self.next.kind == "number" and self.tokens[self.place + 1].text == "/":
            above = self._decimal(self.take().text)
            self.take()
            ratio = Node("quotient", (above, self.atom()))
        else:
            return self._decimal(str(whole))
        if not all(part.kind == "number" for part in ratio.parts):
            self.place = start
            return self._decimal(str(whole))
        above, below = (part.number for part in ratio.parts)
        if not (0 < above < below and above.denominator == below.denominator == 1):
            raise UnreadableError("an improper fraction beside a number")
        return Node("number", number=whole + above / below)

    def _words(self, first: str) -> Node:
        words = [first]
        while self.next.kind in ("word", "name") or self.next.text in ("-", "'", "."):
            if self.next.text in _SEPARATORS:
                break
            words.append(self.take().text)
        text = " ".join(word for word in words if word not in ".-")
        if self.next is not _END and self.next.text not in {*_SEPARATORS, *RELATIONS, ")", "]", r"\}"}:
            raise UnreadableError(f"{self.next.text} behind words")
        return Node("name", text=REALS) if text in ALL_REALS else Node("words", text=text)

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
            while self.next.kind == "name" or self.next.text in {r"\frac", r"\sqrt", *_GREEK}:
                if argument.kind == "quantity" or self.next.text == r"\ldots":
                    break
                argument = Node("product", (argument, self.power()))
        node = Node("call", (argument, base) if base else (argument,), name)
        if exponent == Node("negative", (Node("number", text="1", number=Fraction(1)),)):
            inverse = rf"\arc{name[1:]}"
            if inverse not in _FUNCTIONS:
                raise UnreadableError(f"the inverse of {name}")
            return node._replace(text=inverse)
        return Node("power", (node, exponent)) if exponent else node

    def _enclosed(self, opening: str) -> Node:
        before, self.in_bars = self.in_bars, opening == "|"
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
        items, _ = self.items(r"\}")
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


_NO_FACTORS = ("tuple", "set", "words", "quantity", "based", "relation", "list")


def _times(a: Node, b: Node) -> Node:
    """Return a product; of a number and a matrix, the matrix of their products."""
    if b.kind == "matrix" and a.kind != "matrix":
        a, b = b, a
    if a.kind == "matrix":
        return _each(a, lambda entry: _times(entry, b))
    if a.kind == "quantity" and b.kind != "quantity":
        return a._replace(parts=(_times(*a.parts, b),))
    if b.kind == "quantity" and a.kind != "quantity":
        return b._replace(parts=(_times(a, *b.parts),))
    if a.kind in _NO_FACTORS or b.kind in _NO_FACTORS:
        raise UnreadableError(f"{a.kind} times {b.kind}")
    return Node("product", (a, b))


def _sum(parts: list[Node]) -> Node:
    units = {part.text for part in parts if part.kind == "quantity"}
    if len(units) > 1 or (units and parts[-1].kind != "quantity"):
        raise UnreadableError("a sum of units")
    if units:  # 2 cm + 3 cm, or (2 + 3) cm
        values = [*(part.parts[0] if part.kind == "quantity" else part for part in parts)]
        return parts[-1]._replace(parts=(_sum(values),))
    if any(part.kind in _NO_FACTORS or part.kind == "matrix" for part in parts):
        raise UnreadableError("a sum of more than numbers")
    return Node("sum", tuple(parts))


def _negative(node: Node) -> Node:
    if node.kind == "matrix":
        return _each(node, _negative)
    if node.kind == "quantity":
        return node._replace(parts=(_negative(*node.parts),))
    if node.kind == "based":
        return node._replace(text=f"-{node.text}")
    if node.kind in _NO_FACTORS:
        raise UnreadableError(f"- before {node.kind}")
    return Node("negative", (node,))


def _over(a: Node, b: Node) -> Node:
    if a.kind == "matrix":
        return _each(a, lambda entry: _over(entry, b))
    if a.kind == "quantity" and b.kind != "quantity":
        return a._replace(parts=(_over(*a.parts, b),))
    if a.kind in _NO_FACTORS or b.kind in (*_NO_FACTORS, "matrix"):
        raise UnreadableError(f"{a.kind} over {b.kind}")
    return Node("quotient", (a, b))


def _each(matrix: Node, change: Callable[[Node], Node]) -> Node:
    rows = (Node("row", tuple(map(change, row.parts))) for row in matrix.parts)
    return matrix._replace(parts=tuple(rows))


def _is_function(name: str) -> bool:
    return name.rstrip("'") in _APPLIED or name.endswith("'")

