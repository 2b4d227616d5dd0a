"""Hostile answers, graded among sound ones: nothing runs, nothing hangs, no other answer suffers.

A seeded sample here; `make hostile` grades 10,000.
"""

import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from headsweep.grading import pool
from headsweep.grading.graders import BENCHMARKS, GRADERS
from headsweep.grading.matrix import grade_answers
from headsweep.grading.pool import Limits

COUNT = int(os.environ.get("HEADSWEEP_HOSTILE", "60"))
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=10, memory_mib=256)
GOLDS = [
    *("12", r"\frac{3}{4}", r"2\sqrt{5}", "(3, -2)", r"[0,\infty)", "x^2+3x-1", r"\text{Evelyn}"),
    *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "1,2,3", r"90^\circ", "0.125", "10010_2", "x=5"),
]
PWNED = "PWNED"
"""Name of a file that code in an answer makes, if something runs it."""

UNICODE = "\x00\x01\x08\x1b\u202e\u202d\u2066\u200b\u0301\ufeff\ufffe½²٣１𝟙∞−√⁄\U0001f6000123 x+"
TOKENS = (
    r"\frac \dfrac \sqrt \boxed \text \left( \right) \left. \right\} \begin{pmatrix}",
    r"\begin{cases} \end{cases} \int \sum_{i=1} \prod \lim_{x\to0} \log \infty \pi \cdot \pm",
    r"{ } ( ) [ ] ^ _ & \\ \{ \} , ; = < > ! % $ $$ | + - * / ' ~ # @ 0 1 2 7 10 999 x y n i e",
)
BRACKETS = (
    *(("{", "}"), ("(", ")"), (r"\sqrt{", "}"), (r"\frac{", "}{2}"), (r"\left(", r"\right)")),
    *(("[", "]"), (r"\text{", "}"), ("|", "|"), ("-", ""), (r"\begin{matrix}", ""), ("x_{", "}")),
)
LARGE = (
    *(r"%s!", r"%s!!!", r"\binom{%s}{7}", r"\sum_{i=1}^{%s} \frac{1}{i}", r"\prod_{i=1}^{%s} i"),
    *(r"\int_0^{%s} e^{x^2} \sin x^x dx", r"(x+y+z+w)^{%s}", r"\sqrt[%s]{2}", r"\log_{%s} %s"),
    *(r"\lim_{x \to %s} x^x", r"\frac{%s}{%s}", r"0.(%s)", r"%s \mod 7", r"\gcd(%s, 6)"),
)
LATEX = (
    *(r"\input{/etc/passwd}", r"\include{%s}", r"\write18{touch %s}", r"\openin5=/etc/shadow"),
    *(r"\immediate\openout3=%s", r"\def\a{\a\a}\a", r"\catcode`\{=12", r"\csname %s\endcsname"),
    *(r"\loop\iftrue\repeat", r"\newcommand{\x}{\x}\x", r"\special{ps: run %s}"),
)
PYTHON = (
    *("__import__('os').system('touch %s')", "open('%s', 'w').write('x')", "exec('open(%r,1)')"),
    *("eval('__import__(\"os\").getcwd()')", "().__class__.__bases__[0].__subclasses__()"),
    *("[open('%s', 'w') for _ in range(3)]", "(lambda: open('%s', 'w'))()", "print(input())"),
    *("__import__('socket').create_connection(('127.0.0.1', {port}))", "exit()", "quit(1)"),
    *("__import__('urllib.request').request.urlopen('http://127.0.0.1:{port}/')", "x.__init__"),
    *('sympify(\'open("%s","w")\')', "Symbol('x').func.__globals__", 'f\'{open("%s","w")}\''),
    *("S(open('%s','w'))", "Lambda(x, x).__call__.__globals__", "while True: pass", "1/0; exit()"),
)
AROUND_CODE = ("{}", r"\text{{{}}}", "x = {}", r"\frac{{{}}}{{2}}", "({}, 1)")
NUMBERS = ("10^{12}", "99999999", "10^{10^{10}}", "9" * 400, "1e999999999")
INSERTED = ("", "", r"\frac", "{", "}", "^", "(", "\\", "0", ",", "\x00", "^{9")
REPEATED = ("1", "x", "\\", "$", "1+", "{}", "9^", r"\frac12", "(1,2),", "١", "= ", "\n")


def tower(draw):
    levels = [str(draw.choice((2, 9, 10, 99, 1.5, "x", "e"))) for _ in range(draw.randint(2, 7))]
    joint, close = draw.choice((("^{", "}"), ("**", ""), ("^(", ")")))
    return joint.join(levels) + close * (len(levels) - 1)


def nested(draw):
    opening, closing = draw.choice(BRACKETS)
    depth = int(10 ** draw.uniform(1, 3.7))
    return opening * depth + draw.choice(("", "1", "x")) + closing * draw.choice((depth, depth - 1))


def soup(draw):
    return draw.choice(("", " ")).join(
        draw.choices(" ".join(TOKENS).split(), k=draw.randint(1, 40))
    )


def spoiled(draw):
    text = draw.choice(GOLDS)
    for _ in range(draw.randint(1, 3)):
        place = draw.randint(0, len(text))
        text = text[:place] + draw.choice(INSERTED) + text[place + draw.randint(0, 2) :]
    return text


KINDS = (
    *(tower, nested, soup, soup, spoiled, spoiled, spoiled),
    lambda draw: draw.choice(LARGE).replace("%s", draw.choice(NUMBERS)),
    lambda draw: draw.choice(LATEX).replace("%s", PWNED),
    lambda draw: draw.choice(AROUND_CODE).format(draw.choice(PYTHON).replace("%s", PWNED)),
    lambda draw: "".join(draw.choices(UNICODE, k=draw.randint(1, 60))),
    lambda draw: (draw.choice(REPEATED) * (length := int(10 ** draw.uniform(3, 6))))[:length],
)


RULES = [*BENCHMARKS, *((name, "default") for name in GRADERS)]
SOUND = {"choice": ("A", "a", "B"), "exact": ("{n} up", "{n}  UP", "{n} down")}
"""A gold answer, a right and a wrong answer to the question of a number; others have numbers."""
OF_NUMBERS = ("{n}", "{n}.0", "{n}.5")


@pytest.mark.parametrize("rules", RULES, ids=" ".join)
def test_hostile_answers_are_graded_and_harm_nothing(rules, tmp_path, monkeypatch, capsys):
    family, preset = rules
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "Limits", lambda: LIMITS)
    worker, limited = pool.Worker, set()

    def started(step, limits):
        limited.add(limits)
        return worker(step, limits)

    monkeypatch.setattr(pool, "Worker", started)
    draw = random.Random(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        hostile = [KINDS[n % len(KINDS)](draw).replace("{port}", port) for n in range(COUNT)]
        # Beside each a right and a wrong answer, near it in the order of judging.
        gold, right, wrong = SOUND.get(family, OF_NUMBERS)
        rows, golds = [], []
        for n, own in enumerate(hostile):
            rows += [own, right.format(n=n), wrong.format(n=n)]
            golds += 3 * [gold.format(n=n)]
        ids = [f"q{place}" for place in range(len(rows))]
        answers = pd.DataFrame({"question_id": ids, "sample": 0, "token_ids": [[1]] * len(ids)})
        box = "{}" if rules == ("gsm8k", "authors") else r"so it is \boxed{{{}}}"
        answers["text"] = list(map(box.format, rows))
        given = {"base": answers.assign(stop_reason="eos", margin=1.0)}
        begin = time.monotonic()
        asked = pd.DataFrame({"question_id": ids, "answer": golds})
        graded = grade_answers(asked, given, family, preset)
        seconds = time.monotonic() - begin
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody called
    assert graded["question_id"].tolist() == ids
    sound = graded[graded.index % 3 > 0]
    assert sound["verdict"].eq("judged").all()
    assert sound["correct"].eq(sound.index % 3 == 1).all()
    found = Counter(graded["verdict"][0::3])
    assert found.keys() <= {"judged", "no_answer", "timeout", "memory", "error"}
    assert limited == {LIMITS}, "each was held to its limits"
    assert not any(Path(folder, PWNED).exists() for folder in (tmp_path, "/", "/tmp"))
    assert not list(tmp_path.iterdir())
    with capsys.disabled():
        print(f"\n{family} {preset}: {COUNT:,} hostile answers, {seconds:.0f} s, {dict(found)}")
