"""The page of how-tos is true: its reference is current and what it tells to do works."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from headroom.reference import page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "config" / "README.md"
EDIT = re.compile(r"<!-- (append to|replace in) (\S+) -->\n```python\n(.*?)```", re.DOTALL)


def test_the_reference_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run `make reference`"


def test_a_grader_is_added_as_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    edits = EDIT.findall(PAGE.read_text(encoding="utf-8"))
    assert sum(code.count("\n") for _, _, code in edits) < 60
    for how, name, code in edits:
        file = tmp_path / name
        text = file.read_text(encoding="utf-8")
        if how == "append to":
            text = f"{text}\n\n{code}"
        else:
            start = code.partition("=")[0] + "="
            (line,) = [line for line in text.splitlines() if line.startswith(start)]
            text = text.replace(line, code.strip())
        file.write_text(text, encoding="utf-8")
    check = (
        "from headroom.config import Questions\n"
        "from headroom.grading.graders import find_grader\n"
        "family = Questions(benchmark='custom', split='x', file='a.csv', grader='items').family\n"
        "grader = find_grader(family, 'default')\n"
        r"answer = grader.extract('They are \\boxed{pear, Apple}.')" + "\n"
        "print(grader.equal(answer, 'apple,pear'), grader.equal(answer, 'apple'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        env={"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]
