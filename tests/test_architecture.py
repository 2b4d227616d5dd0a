"""Dependencies point one way, and start-up stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headroom"

LEVELS = [
    {"reference"},
    {"cli"},
    {"library"},
    {"rules", "tool", "bench", "doctor"},
    {"stages"},
    {"figures"},
    {"sprint", "reasoner", "compression"},
    {"grading", "generation", "statistics", "athena"},
    {"preflight"},
    {"resolve"},
    {"models", "embeddings", "benchmarks"},
    {"training_costs"},
    {"estimate"},
    {"plan"},
    {"identity"},
    {"config", "paths", "variants", "tables", "record", "errors", "arguments", "clock", "saying"},
]
"""From the top down: a room may import from lower levels only, and from itself."""

FOUNDATION = LEVELS[-1]


def level_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "headroom":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("headroom.")}
    return found - {"__version__"}


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if room_of(file) != "__init__"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_down(file: Path) -> None:
    room = room_of(file)
    for imported in imports(file) - {room}:
        allowed = level_of(imported) > level_of(room)
        foundation = room in FOUNDATION and imported in FOUNDATION
        assert allowed or foundation, f"{room} imports {imported}"


def test_foundation_has_no_cycle() -> None:
    graph = {
        room: {name for file in FILES if room_of(file) == room for name in imports(file)}
        & (FOUNDATION - {room})
        for room in FOUNDATION
    }
    while graph:
        free = {room for room, needed in graph.items() if not needed & set(graph)}
        assert free, f"a cycle among {sorted(graph)}"
        graph = {room: needed for room, needed in graph.items() if room not in free}


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("from headroom import cli; cli.parser()", "torch transformers pandas pyarrow numpy"),
        (
            "from headroom import cli, rules; cli.parser(rules.RULES); "
            "from headroom.generation import client",
            "torch pandas pyarrow tempfile subprocess dataclasses",
        ),
        (
            "from headroom.generation import job, client",
            "torch transformers pandas multiprocessing",
        ),
        (
            "from headroom import preflight, estimate, plan",
            "torch transformers datasets sklearn huggingface_hub",
        ),
    ],
)
def test_start_up_imports_nothing_heavy(command: str, forbidden: str) -> None:
    code = f"import sys; {command}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & set(forbidden.split())
