r"""What a final answer says: a tree of its tokens, by the notation of mathematics.

Nothing is guessed: what is not in this grammar is an `UnreadableError`, and only an answer of the
same tokens equals it.
"""

from collections.abc import Sequence
from fractions import Fraction

from headsweep.grading.atoms import (
    END,
    FIRST,
    FUNCTIONS,
    GREEK,
    RELATIONS,
    SEPARATORS,
    Atoms,
    decimal,
)
from headsweep.grading.lexer import Token
from headsweep.grading.tree import Node, UnreadableError, negative, over, sum_of, times
from headsweep.grading.words import NUMBERS, leaves_a_number, scale_of

_APPLIED = ("f", "g", "h")  # f(2) applies a function, x(2) is a product
_MOST_TOKENS = 1_500


def parse(tokens: Sequence[Token]) -> Node:
    r"""Return what an answer says.

    Several values with commas between them are a ``list``; so is ``\pm 3``.

    Raises:
        UnreadableError: it is outside of the grammar.
    """
    if not tokens or len(tokens) > _MOST_TOKENS:
        raise UnreadableError("no answer, or a long one")
    if len(tokens) == 1 and tokens[0].text in NUMBERS:
        return Node("number", number=Fraction(NUMBERS[tokens[0].text]))
    parser = _Parser(tokens)
    items, joint = parser.items(END.text, both_signs=True)
    parser.expect(END.text)
    if len(items) == 1:
        return items[0]
    return Node("list", tuple(items), joint)


class _Parser(Atoms):
    def items(self, closing: str, *, both_signs: bool = False) -> tuple[list[Node], str]:
        before = self.has_signs
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
            while self.next.text in SEPARATORS:
                is_joined = True
                joint = SEPARATORS[self.take().text]
            if not is_joined:
                break
        if both_signs:
            self.has_signs = before
        if self.next.text not in (closing.split() or [""]):
            raise UnreadableError(f"{self.next.text} is not in the grammar")
        return found, joint

    def relation(self) -> Node:
        """Return sides with relations between them; one without any is returned as it is."""
        sides = [self.union()]
        signs = []
        while self.next.text in RELATIONS:
            signs.append(self.take().text)
            sides.append(self.union())
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
            parts.append(negative(part) if is_negative else part)
        return parts[0] if len(parts) == 1 else sum_of(parts)

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
                factor = times(factor, self.factor())
            elif self.next.text == "/" and self.tokens[self.place + 1].kind != "word":
                self.take()
                factor = over(factor, self.factor())
            elif self.next.kind == "word" and self.next.text not in SEPARATORS:
                return self._quantity(factor)
            elif self._starts_factor():
                factor = self._beside(factor)
            else:
                return factor

    def _starts_factor(self) -> bool:
        token = self.next
        if token.kind in ("number", "name") or token.text in FUNCTIONS | GREEK - {r"\ldots"}:
            return True
        if token.text == "|":
            return not self.in_bars
        return token.text in FIRST

    def _beside(self, before: Node) -> Node:
        """Return the product of a factor with what stands beside it."""
        if self.next.kind == "number" and self.tokens[self.place - 1].kind == "number":
            raise UnreadableError("two numbers beside one another")
        return times(before, self.power())

    def _quantity(self, factor: Node) -> Node:
        """Return a factor with the words behind it: multiples, then a unit or what is counted."""
        while scale := scale_of(self.next.text):
            self.take()
            factor = times(factor, Node("number", number=Fraction(scale)))
        words: list[str] = []
        while self.next.kind == "word" or self.next.text in ("/", ".", "-", "^"):
            text = self.take().text
            if text == "^":
                self.taken("{")
                text = f"^{self.take().text}"
                self.taken("}")
                if text not in ("^2", "^3"):
                    raise UnreadableError("a unit's power")
            if text in SEPARATORS:
                self.place -= 1
                break
            if text not in (".", "-"):
                words.append(text.lower())
            if self.follows("(", "s", ")"):
                self.place += 3
        if not leaves_a_number(words):
            raise UnreadableError(f"{words} change a number")
        is_plain = not words or factor.kind == "quantity"  # as of $5 million dollars
        return factor if is_plain else Node("quantity", (factor,), " ".join(words))

    def factor(self) -> Node:
        """Return a power with its signs."""
        is_negative = False
        while self.next.text in ("+", "-", r"\pm", r"\mp"):
            is_negative ^= self._is_negative(self.take().text)
        power = self.power()
        if not is_negative:
            return power
        return negative(power)

    def power(self) -> Node:
        base = self.postfix()
        if self.next.text != "^":
            return base
        self.take()
        if base.kind in ("words", "tuple", "set", "matrix", "quantity"):
            raise UnreadableError(f"a power of {base.kind}")
        exponent = self._exponent()
        return self._behind(Node("power", (base, exponent)))

    def _exponent(self) -> Node:
        if self.next.text == "{":
            return self.group()
        if self.next.text == "-":
            self.take()
            return negative(self._exponent())
        if self.next.kind == "number":
            return decimal(self.take().text)
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
            elif self.next.text == "%" and node.kind != "quantity":
                self.take()
                node = Node("quantity", (node,), "percent")
            elif node.kind != "quantity" and self._takes_degrees():
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


def _is_function(name: str) -> bool:
    return name.rstrip("'") in _APPLIED or name.endswith("'")
