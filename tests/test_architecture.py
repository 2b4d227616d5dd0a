"""Dependencies point one way, start-up stays light, and nothing runs what configs or data say."""

import ast
import os
import socket
from pathlib import Path

import pytest

from example_config import VALUES
from headsweep.config import parse
from headsweep.errors import ConfigError, EngineError
from headsweep.generation import client
from processes import python

SOURCE = Path(__file__).parents[1] / "src" / "headsweep"

FLOORS = (
    "reference cli jobs proof tool bench",
    "report figures analysis",
    "frontier recovery sprint compression",
    "generation reasoner grading athena",
    "planning embeddings models benchmarks statistics config",
    "record tables variants text arguments paths errors",
)
"""From the top down: a room may import itself, what stands right of it, and lower floors."""

ROOMS = " ".join(FLOORS).split()
CODE_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "numpy.load", "np.load", "yaml.load", "os.system"}
OUTSIDE = ["..", "../other", "a/b", "/etc", "a\x00b", "", ".hidden", "a b", "a\nb", "~", "a" * 65]


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(file):
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if room_of(file) != "__init__"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_down(file):
    room = room_of(file)
    allowed = {*ROOMS[ROOMS.index(room) :], "__version__"}
    found = {name.split(".")[1] for name in imported(file) if name.startswith("headsweep.")}
    assert found <= allowed, f"{room} may not import {found - allowed}"


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("import headsweep", "torch transformers numpy pandas"),
        ("from headsweep import cli; cli.parser()", "torch transformers pandas pyarrow numpy"),
        (
            "from headsweep import cli, jobs; from headsweep.generation import client; "
            "assert all(jobs.parser_of(['job', job.name]) for job in jobs.JOBS)",
            "torch pandas pyarrow tempfile subprocess dataclasses inspect",
        ),
        (
            "from headsweep.planning import inputs, cost, batches",
            "torch transformers datasets sklearn huggingface_hub",
        ),
    ],
)
def test_start_up_imports_nothing_heavy(command, forbidden):
    code = f"import sys; {command}; print(*sorted(sys.modules))"
    assert not set(python("-c", code).split()) & set(forbidden.split())


@pytest.mark.parametrize("file", sorted(SOURCE.parent.rglob("*.py")), ids=lambda file: file.stem)
def test_nothing_reads_pickles_or_runs_what_it_reads(file):
    assert not {name.partition(".")[0] for name in imported(file)} & CODE_READERS
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in CODE_RUNNERS, ast.unparse(node)
            for keyword in node.keywords:
                if keyword.arg in ("trust_remote_code", "allow_pickle", "shell"):
                    assert ast.unparse(keyword.value) == "False", ast.unparse(node)


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("section", ["run", "models", "questions", "decodings", "sweeps"])
def test_no_name_leads_out_of_the_results_folder(section, name):
    held = VALUES[section]
    value = name if section == "run" else {**held, name: next(iter(held.values()))}
    with pytest.raises(ConfigError):
        parse({**VALUES, section: value})


def test_an_engine_and_another_user_refuse_each_other(monkeypatch):
    name, mine = f"headsweep-test-{os.getpid()}", os.getuid()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        assert client._try(name) is None
        listener.listen()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        with pytest.raises(EngineError, match=f"user {mine}'s, not yours"):
            client._try(name)
        connection, _ = listener.accept()
        with connection, pytest.raises(EngineError, match=f"user {mine}'s, not yours"):
            client.check_peer(connection)
