"""Answers that no honest model writes: made from a seed, to try grading with."""

import random
from collections.abc import Callable, Sequence

PWNED = "PWNED"
"""Name of a file that code in an answer makes, if something runs it."""

_UNICODE = "\x00\x01\x08\x1b\u202e\u202d\u2066\u200b\u0301\ufeff\ufffe½²٣１𝟙∞−√⁄\U0001f600"
_TOKENS = (
    r"\frac \dfrac \sqrt \boxed \text \left( \right) \left. \right\} \begin{pmatrix}",
    r"\begin{cases} \end{cases} \int \sum_{i=1} \prod \lim_{x\to0} \log \infty \pi \cdot \pm",
    r"{ } ( ) [ ] ^ _ & \\ \{ \} , ; = < > ! % $ $$ | + - * / ' ~ # @ 0 1 2 7 10 999 x y n i e",
)
_BRACKETS = (
    *(("{", "}"), ("(", ")"), (r"\sqrt{", "}"), (r"\frac{", "}{2}"), (r"\left(", r"\right)")),
    *(("[", "]"), (r"\text{", "}"), ("|", "|"), ("-", ""), (r"\begin{matrix}", ""), ("x_{", "}")),
)
_LARGE = (
    *(r"%s!", r"%s!!!", r"\binom{%s}{7}", r"\sum_{i=1}^{%s} \frac{1}{i}", r"\prod_{i=1}^{%s} i"),
    *(r"\int_0^{%s} e^{x^2} \sin x^x dx", r"(x+y+z+w)^{%s}", r"\sqrt[%s]{2}", r"\log_{%s} %s"),
    *(r"\lim_{x \to %s} x^x", r"\frac{%s}{%s}", r"0.(%s)", r"%s \mod 7", r"\gcd(%s, 6)"),
)
_LATEX = (
    *(r"\input{/etc/passwd}", r"\include{%s}", r"\write18{touch %s}", r"\openin5=/etc/shadow"),
    *(r"\immediate\openout3=%s", r"\def\a{\a\a}\a", r"\catcode`\{=12", r"\csname %s\endcsname"),
    *(
        r"\loop\iftrue\repeat",
        r"\newcommand{\x}{\x}\x",
        r"\special{ps: run %s}",
        r"\usepackage{%s}",
    ),
)
_PYTHON = (
    *("__import__('os').system('touch %s')", "open('%s', 'w').write('x')", "exec('open(%r,1)')"),
    *("eval('__import__(\"os\").getcwd()')", "().__class__.__bases__[0].__subclasses__()"),
    *("[open('%s', 'w') for _ in range(3)]", "(lambda: open('%s', 'w'))()", "print(input())"),
    *("__import__('socket').create_connection(('127.0.0.1', {port}))", "exit()", "quit(1)"),
    *("__import__('urllib.request').request.urlopen('http://127.0.0.1:{port}/')", "x.__init__"),
    *('sympify(\'open("%s","w")\')', "Symbol('x').func.__globals__", 'f\'{open("%s","w")}\''),
    *("S(open('%s','w'))", "Lambda(x, x).__call__.__globals__", "while True: pass", "1/0; exit()"),
)


def answers(count: int, seed: int, golds: Sequence[str], port: int = 9) -> list[str]:
    """Return hostile answers, of all kinds in turn.

    Args:
        count: how many.
        seed: of everything random in them.
        golds: sound answers, to be spoiled.
        port: where code in an answer calls, if something runs it.
    """
    draw = random.Random(seed)
    kinds: tuple[Callable[[random.Random], str], ...] = (
        _tower,
        _nested,
        _large,
        lambda draw: draw.choice(_LATEX).replace("%s", PWNED),
        lambda draw: _code(draw, port),
        _characters,
        _soup,
        _soup,
        lambda draw: _spoiled(draw, golds),
        lambda draw: _spoiled(draw, golds),
        lambda draw: _spoiled(draw, golds),
        _long,
    )
    return [kinds[number % len(kinds)](draw) for number in range(count)]


def _tower(draw: random.Random) -> str:
    levels = [str(draw.choice((2, 9, 10, 99, 1.5, "x", "e"))) for _ in range(draw.randint(2, 7))]
    joint, close = draw.choice((("^{", "}"), ("**", ""), ("^(", ")")))
    return joint.join(levels) + close * (len(levels) - 1)


def _nested(draw: random.Random) -> str:
    opening, closing = draw.choice(_BRACKETS)
    depth = int(10 ** draw.uniform(1, 3.7))
    return opening * depth + draw.choice(("", "1", "x")) + closing * draw.choice((depth, depth - 1))


def _large(draw: random.Random) -> str:
    number = draw.choice(("10^{12}", "99999999", "10^{10^{10}}", "9" * 400, "1e999999999"))
    return draw.choice(_LARGE).replace("%s", number)


def _code(draw: random.Random, port: int) -> str:
    code = draw.choice(_PYTHON).replace("%s", PWNED).replace("{port}", str(port))
    return draw.choice(("{}", r"\text{{{}}}", "x = {}", r"\frac{{{}}}{{2}}", "({}, 1)")).format(
        code
    )


def _characters(draw: random.Random) -> str:
    return "".join(draw.choice(_UNICODE + "0123 x+") for _ in range(draw.randint(1, 60)))


def _soup(draw: random.Random) -> str:
    tokens = " ".join(_TOKENS).split()
    return draw.choice(("", " ")).join(draw.choice(tokens) for _ in range(draw.randint(1, 40)))


def _spoiled(draw: random.Random, golds: Sequence[str]) -> str:
    text = draw.choice(golds)
    for _ in range(draw.randint(1, 3)):
        place = draw.randint(0, len(text))
        inserted = draw.choice(
            ("", "", r"\frac", "{", "}", "^", "(", "\\", "0", ",", "\x00", "^{9")
        )
        text = text[:place] + inserted + text[place + draw.randint(0, 2) :]
    return text


def _long(draw: random.Random) -> str:
    part = draw.choice(
        ("1", "x", "\\", "$", "1+", "{}", "9^", r"\frac12", "(1,2),", "١", "= ", "\n")
    )
    length = int(10 ** draw.uniform(3, 6))
    return (part * length)[:length]
