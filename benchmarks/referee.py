r"""The graders of mathematics on one table of pairs: how often each is wrong, and on what kinds.

Each pair of tests/grading/pairs.csv has a final answer, a gold answer and the verdict that a
mathematician would sign. Beside the judges of headsweep stand math-verify as it comes, and the
rules of lm-evaluation-harness's minerva tasks, which are those of Lewkowycz et al. (2022, Solving
Quantitative Reasoning Problems with Language Models, appendix D) and a comparison in sympy.
"""

import logging
import re
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import math_verify
import pandas as pd
import sympy
from sympy.parsing.latex import _parse_latex_antlr, parse_latex

from headsweep.grading import judge, prm800k_judge

PAIRS = Path(__file__).parents[1] / "tests" / "grading" / "pairs.csv"
_SECONDS = 5  # for a pair, as lm-evaluation-harness has it
_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"),
    (r",\text{and}", ","), (r"\text{and}", ","), (r"\text{m}", r"\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units",
    r"\ldots", "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm",
    "pounds", "meters", "meals", "edges", "students", "childrentickets", "multiples", r"\text{s}",
    r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}",
    r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots",
)  # fmt: skip
_UNWRAPPED = (
    (r"(?s)\A.*?(\$.*?\$).*\Z", r"\1"),
    (r"\\text\{(.*?)\}", r"\1"),
    (r"\\textbf\{(.*?)\}", r"\1"),
    (r"\\overline\{(.*?)\}", r"\1"),
    (r"\\boxed\{(.*)\}", r"\1"),
    (r"frac([^{])(.)", r"frac{\1}{\2}"),
    (r"sqrt([^{])", r"sqrt{\1}"),
)
# Versions of ANTLR from 4.10 read one another's tables; sympy accepts only its own.
_parse_latex_antlr.version = lambda _: "4.11"

Equal = Callable[[str, str], bool]


def minerva(answer: str, gold: str) -> bool:
    """Return whether an answer equals the gold answer by the rules of the minerva tasks."""
    first, second = _normal(answer), _normal(gold)
    if first == second:
        return True
    difference = parse_latex(first) - parse_latex(second)
    return bool(sympy.simplify(difference) == 0)


def _normal(answer: str) -> str:
    text = answer.rpartition("=")[2]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for old in _REMOVED:
        text = text.replace(old, "")
    for pattern, new in _UNWRAPPED:
        text = re.sub(pattern, new, text)
    text = text.replace("$", "")
    plain = text.replace(",", "")
    return plain if plain.isdigit() else text


def math_verify_alone(answer: str, gold: str) -> bool:
    """Return whether math-verify, as it comes, finds a boxed answer equal to the gold answer."""
    return bool(
        math_verify.verify(
            math_verify.parse(rf"\boxed{{{gold}}}"), math_verify.parse(rf"\boxed{{{answer}}}")
        )
    )


GRADERS: dict[str, Equal] = {
    "headsweep": judge.equal,
    "math-verify": math_verify_alone,
    "minerva": minerva,
    "PRM800K": prm800k_judge.equal,
}


def verdict(equal: Equal, answer: str, gold: str) -> bool:
    """Return what a grader says of a pair; what it cannot grade in time is not right."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        with redirect_stdout(None):  # ANTLR prints that versions differ
            return equal(answer, gold)
    except Exception:  # whatever a library raises on an answer that it cannot read
        return False
    finally:
        signal.alarm(0)


def errors(pairs: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Return each grader's errors and its milliseconds a pair.

    Args:
        pairs: columns kind, answer, gold, right ("yes" or "no").

    Returns:
        A row for each kind and one for all: pairs, and two columns a grader: wrong answers that it
        calls right, and right ones that it calls wrong. And the times, by grader.
    """
    truth = pairs["right"] == "yes"
    table = pairs.groupby("kind").size().to_frame("pairs")
    times = {}
    for name, equal in GRADERS.items():
        begin = time.perf_counter()
        said = pd.Series(
            [
                verdict(equal, answer, gold)
                for answer, gold in zip(pairs["answer"], pairs["gold"], strict=True)
            ],
            pairs.index,
        )
        times[name] = 1000 * (time.perf_counter() - begin) / len(pairs)
        table[f"{name}: false right"] = (said & ~truth).groupby(pairs["kind"]).sum()
        table[f"{name}: false wrong"] = (~said & truth).groupby(pairs["kind"]).sum()
    table.loc["all"] = table.sum()
    return table, pd.Series(times)


def run() -> None:
    """Print the table of errors on all pairs."""
    pairs = pd.read_csv(PAIRS, dtype=str, keep_default_na=False)
    logging.disable()  # other graders tell of each answer that they cannot read
    try:
        table, times = errors(pairs)
    finally:
        logging.disable(logging.NOTSET)
    right = (pairs["right"] == "yes").sum()
    print(f"{len(pairs):,} pairs, {right:,} right; false right / false wrong of each grader:")
    shown = table[["pairs"]].copy()
    for name in GRADERS:
        columns = table[f"{name}: false right"], table[f"{name}: false wrong"]
        shown[name] = [f"{first} / {second}" for first, second in zip(*columns, strict=True)]
    print(shown.to_string())
    print("milliseconds a pair: " + ", ".join(f"{name} {ms:.2f}" for name, ms in times.items()))


if __name__ == "__main__":
    run()
