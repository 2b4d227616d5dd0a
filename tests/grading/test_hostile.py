"""Hostile answers, graded among sound ones: nothing runs, nothing hangs, no other answer suffers.

A seeded sample here; `make hostile` grades 10,000.
"""

import os
import socket
import time
from collections import Counter
from pathlib import Path

import hostile
import pandas as pd
import pytest
from test_pool import used

from headroom.grading import pool
from headroom.grading.matrix import grade_answers
from headroom.grading.pool import Limits

COUNT = int(os.environ.get("HEADROOM_HOSTILE", "60"))
LIMITS = Limits(cpu_seconds=0.5, wall_seconds=10, memory_mib=256)
GOLDS = [
    *("12", r"\frac{3}{4}", r"2\sqrt{5}", "(3, -2)", r"[0,\infty)", "x^2+3x-1", r"\text{Evelyn}"),
    *(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "1,2,3", r"90^\circ", "0.125", "10010_2", "x=5"),
]


@pytest.mark.parametrize("preset", ["default", "authors"])
def test_hostile_answers_are_graded_and_harm_nothing(preset, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "Limits", lambda: LIMITS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        answers = hostile.answers(COUNT, 1, GOLDS, port)
        # Beside each a right and a wrong answer, near it in the order of judging.
        rows = [
            row
            for number, answer in enumerate(answers)
            for row in ((answer, number), (f"{number}.0", number), (f"{number}.5", number))
        ]
        before, begin = used(), time.monotonic()
        graded = grade_answers(
            *(_questions(rows), {"base": _answers(rows)}),
            family="math",
            preset=preset,
            workers=2,
        )
        seconds = time.monotonic() - begin
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody called
    assert graded["question_id"].tolist() == _names(rows)
    assert graded["verdict"][1::3].eq("judged").all()
    assert graded["verdict"][2::3].eq("judged").all()
    assert graded["correct"][1::3].all()
    assert not graded["correct"][2::3].any()
    found = Counter(graded["verdict"][0::3])
    assert found.keys() <= {"judged", "no_answer", "timeout", "memory", "error"}
    # Each was held to its limit: half a second, and the start of another worker.
    held = found["timeout"] + found["memory"] + found["error"]
    assert used() - before < 30 + 6 * held + 0.5 * COUNT
    assert not any(Path(folder, hostile.PWNED).exists() for folder in (tmp_path, "/", "/tmp"))
    assert not list(tmp_path.iterdir())
    with capsys.disabled():
        print(f"\n{preset}: {COUNT:,} hostile answers, {seconds:.0f} s, {dict(found)}")


def _questions(rows: list[tuple[str, int]]) -> pd.DataFrame:
    golds = [str(number) for _, number in rows]
    return pd.DataFrame({"question_id": _names(rows), "answer": golds})


def _answers(rows: list[tuple[str, int]]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": _names(rows),
            "sample": 0,
            "text": [rf"so it is \boxed{{{row}}}" for row, _ in rows],
            "token_ids": [[1]] * len(rows),
            "stop_reason": "eos",
            "margin": 1.0,
        }
    )


def _names(rows: list[tuple[str, int]]) -> list[str]:
    return [f"q{place}" for place in range(len(rows))]
