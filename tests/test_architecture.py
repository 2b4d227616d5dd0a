"""Dependencies point one way, and start-up stays light."""

import ast
from pathlib import Path

import pytest

from processes import python

SOURCE = Path(__file__).parents[1] / "src" / "headroom"

FLOORS = (
    "reference cli jobs library tool bench",
    "report figures analysis",
    "frontier recovery sprint compression",
    "generation reasoner grading athena",
    "planning embeddings models benchmarks statistics config",
    "record tables variants arguments paths errors",
)
"""From the top down: a room may import itself, what stands right of it, and lower floors."""

ROOMS = " ".join(FLOORS).split()


def imports(file):
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "headroom":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("headroom.")}
    return found - {"__version__"}


def room_of(file):
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if room_of(file) != "__init__"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_down(file):
    room = room_of(file)
    allowed = ROOMS[ROOMS.index(room) :]
    assert imports(file) <= set(allowed), f"{room} may import {' '.join(allowed)}"


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("import headroom", "torch transformers numpy pandas"),
        ("from headroom import cli; cli.parser()", "torch transformers pandas pyarrow numpy"),
        (
            "from headroom import cli, jobs; cli.parser(jobs.JOBS); "
            "from headroom.generation import client",
            "torch pandas pyarrow tempfile subprocess dataclasses",
        ),
        (
            "from headroom.planning import inputs, cost, batches",
            "torch transformers datasets sklearn huggingface_hub",
        ),
    ],
)
def test_start_up_imports_nothing_heavy(command, forbidden):
    code = f"import sys; {command}; print(*sorted(sys.modules))"
    assert not set(python("-c", code).split()) & set(forbidden.split())
