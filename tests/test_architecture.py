"""Dependencies point one way, start-up stays light, and nothing runs what configs or data say."""

import ast
import os
import socket
from functools import cache
from pathlib import Path

import pytest

from example_config import VALUES
from headsweep.config import parse
from headsweep.errors import ConfigError, EngineError
from headsweep.machine import sockets
from processes import python

SOURCE = Path(__file__).parents[1] / "src" / "headsweep"

FLOORS = (
    "__main__ cli",
    "workflow",
    "page",
    "results",
    "experiments",
    "answers",
    "engine grading",
    "store",
    "benchmarks",
    "models",
    "config statistics",
    "files",
    "machine",
    "variants text words telling arguments choices errors",
)
"""From the top down: a room may import itself, what stands right of it, and lower floors."""

ROOMS = " ".join(FLOORS).split()
CODE_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "numpy.load", "np.load", "yaml.load", "os.system"}
OPENERS = {"open", "safe_open", "load_file", "ParquetFile", "open_to_read", "read_plain"}
METHODS = {"read_text", "read_bytes", "open", "load_file", "read_csv", "read_parquet", "read_json"}
METHODS |= {"ParquetFile", "read_schema", "pq.read_table", "pq.read_metadata"}
"""Functions that open files: by their names alone, and as attributes of a path or a library."""
LAST_WORDS = {name.rpartition(".")[2] for name in METHODS}

OWN_READERS = {
    "files/plain_files": "the way in and out for all others",
    "files/record": "the readers: JSON, text, tensors, and records with a checksum of their own",
    "files/safe_files": "the readers: Parquet tables, which hold a checksum",
    "results/facts": "the reader of CSV",
    "experiments/compression/checkpoint": "states of trainings, which hold a checksum",
    "store/journal": "journals, whose lines hold a checksum each",
    "answers/client": "a run's models by key; the engine reads the config again",
    "store/layout": "the store's version and users, which are not results",
    "config/files": "configs: users' own, and those of runs, compared with their records",
    "grading/foreign_answers": "tables of answers that others made",
    "grading/lm_eval": "the version in a file of lm_eval's",
    "cli/export": "the card of an earlier export, to know it again",
    "cli/commands": "a text to solve",
    "cli/machine": "a profile of the user's",
    "cli/without_snakemake": "a run's config, to put it back",
    "machine/limited": "the kernel's file of this process",
    "benchmarks/prompts": "tokenizers, compared with the package's own",
    "machine/host": "the kernel's limits of this process",
    "page/report": "the page's own style and script",
    "models/files": "headers of models, foreign ones too, before they are loaded",
    "models/source": "models, to take their fingerprints",
    "models/gguf": "GGUF files, which are foreign",
    "models/gguf_header": "GGUF files, which are foreign",
    "benchmarks/sources": "benchmarks, which are foreign",
    "experiments/recovery/texts": "texts of the user's",
    "store/revisions": "models and benchmarks of the user's",
    "answers/server": "the null device",
    "grading/pool": "the null device",
    "grading/worker": "devices and files of the kernel",
    "cli/main": "a device of the kernel",
    "results/published": "the papers' numbers, which are no files of a run",
    "answers/engine_sockets": "a file of the kernel",
}
"""Modules that open files themselves, and which files these are. All others read through the first
three, so that damage to a file of a run or the store never passes unseen."""

OUTSIDE = ["..", "../other", "a/b", "/etc", "a\x00b", "", ".hidden", "a b", "a\nb", "~", "a" * 65]


@cache
def nodes_of(file):
    return [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


@pytest.fixture(autouse=True, scope="module")
def _trees_are_dropped():
    """They are 400,000 objects, which later tests need not carry."""
    yield
    nodes_of.cache_clear()


def imported(file):
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(file):
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if room_of(file) != "__init__"]


def test_imports_point_down():
    upwards = {}
    for file in FILES:
        allowed = {*ROOMS[ROOMS.index(room_of(file)) :], "__version__"}
        found = {name.split(".")[1] for name in imported(file) if name.startswith("headsweep.")}
        if not found <= allowed:
            upwards[str(file.relative_to(SOURCE))] = found - allowed
    assert upwards == {}


MODULES = {
    ".".join(("headsweep", *file.relative_to(SOURCE).with_suffix("").parts)): file
    for file in FILES
    if file.name != "__init__.py"
}


def neighbours(file):
    """Return the modules that one imports, in functions and for types, too."""
    for name in imported(file):
        module = name if name in MODULES else name.rpartition(".")[0]
        if module in MODULES and MODULES[module] != file:
            yield module


def test_no_modules_import_each_other_in_a_circle():
    left = {name: {*neighbours(file)} for name, file in MODULES.items()}
    while lowest := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in lowest:
            del left[name]
    # What is left lies on a circle, or imports what does.
    while highest := left.keys() - set().union(*left.values()):
        for name in highest:
            del left[name]
    assert not left


LONGEST_BODY = 60


def test_no_functions_body_is_longer_than_a_screen():
    longer = set()
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node) is not None
                body = node.body[1:] if documented else node.body
                if body and body[-1].end_lineno - body[0].lineno >= LONGEST_BODY:
                    longer.add(f"{file.relative_to(SOURCE)}: {node.name}")
    assert not longer


DOORS = {
    "cli/main": "check, plan",
    "cli/store": "the configs of all runs here",
    "cli/export": "export",
    "cli/compare": "each of two runs",
    "cli/peek": "peek",
    "cli/peek_page": "peek --page, also the part of a run that is finished",
    "cli/pilot": "pilot, also its few questions",
    "cli/pilot_trial": "the process of a pilot",
    "cli/without_snakemake": "sweep, map, try",
    "results/run": "load, and what is made of a run's folder",
    "workflow/session": "the Snakefile",
    "store/layout": "the config of a run, which jobs and engines read",
    "store/chosen_heads": "a config that is not whole yet",
}
"""Modules that make the store of a config, and for what. Others are given it, with the keys that it
has made."""


def test_stores_are_made_at_the_doors():
    makers = set()
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Store":
                makers.add(str(file.relative_to(SOURCE).with_suffix("")))
    assert makers == DOORS.keys()


def test_only_the_room_of_the_workflow_knows_snakemake():
    knowing = {
        room_of(file)
        for file in FILES
        for name in imported(file)
        if name.partition(".")[0] == "snakemake"
    }
    assert knowing == {"workflow"}


@pytest.mark.parametrize(
    ("command", "forbidden"),
    [
        ("import headsweep", "torch transformers numpy pandas"),
        (
            "from headsweep.cli import main as cli; cli.parser()",
            "torch transformers pandas pyarrow numpy",
        ),
        (
            "from headsweep.cli import main as cli, job; from headsweep.answers import client; "
            "assert all(job.parser_of(['job', one.name]) for one in job.JOBS)",
            "torch pandas pyarrow tempfile subprocess dataclasses inspect",
        ),
        (
            "from headsweep.workflow import preflight, cost; "
            "from headsweep.store import revisions, batches",
            "torch transformers datasets sklearn huggingface_hub",
        ),
    ],
)
def test_start_up_imports_nothing_heavy(command, forbidden):
    code = f"import sys; {command}; print(*sorted(sys.modules))"
    assert not set(python("-c", code).split()) & set(forbidden.split())


def test_nothing_reads_pickles_or_runs_what_it_reads():
    for file in SOURCE.parent.rglob("*.py"):
        assert not {name.partition(".")[0] for name in imported(file)} & CODE_READERS, file
        for node in nodes_of(file):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in CODE_RUNNERS, f"{file}:{node.lineno}"
                for keyword in node.keywords:
                    if keyword.arg in ("trust_remote_code", "allow_pickle", "shell"):
                        assert ast.unparse(keyword.value) == "False", f"{file}:{node.lineno}"


def openings(file):
    """Yield the calls by which a module opens files."""
    for node in nodes_of(file):
        # A function that is handed on opens files, too.
        if isinstance(node, ast.Name) and node.id in OPENERS:
            yield node.id
        if isinstance(node, ast.Attribute) and node.attr in LAST_WORDS:
            path = ast.unparse(node)
            if METHODS & {node.attr, path}:
                yield path


def test_only_the_readers_open_files_of_a_run():
    opening = {
        str(file.relative_to(SOURCE).with_suffix("")): found
        for file in FILES
        if (found := sorted({*openings(file)}))
    }
    unknown = {name: found for name, found in opening.items() if name not in OWN_READERS}
    assert not unknown, "read through record.py, safe_files.py or facts.read_csv"
    assert OWN_READERS.keys() == opening.keys(), "these open nothing any more"


def test_only_plain_files_opens_a_file_to_write():
    opening = set()
    for file in FILES:
        for node in nodes_of(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("open", "Handler")):
                words = {
                    ast.unparse(word).strip("'\"") for word in ast.walk(node) if word != node.func
                }
                if words & {"a", "ab", "w", "wb", "x", "xb", "r+", "r+b"} or "FileHandler" in words:
                    opening.add(f"{file.relative_to(SOURCE)}: {ast.unparse(node.func)}")
    handed = {"answers/client.py: os.fdopen", "store/journal.py: os.fdopen"}
    handed |= {"cli/main.py: os.fdopen"}  # what `open_to_write` has opened
    handed |= {"machine/limited.py: os.fdopen"}  # a pipe
    handed |= {"machine/fork_server.py: os.fdopen"}  # the streams of who asks
    assert opening == handed | {"cli/main.py: Path(os.devnull).open"}


def test_only_plain_files_writes_out_a_home_folder():
    """Python's own `expanduser` ends in a traceback where nobody has the name."""
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert "expanduser" not in text or file.name == "plain_files.py", file


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
        assert sockets.connect(name) is None
        listener.listen()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        with pytest.raises(EngineError, match=f"user {mine}'s, not yours"):
            sockets.connect(name)
        connection, _ = listener.accept()
        with connection, pytest.raises(EngineError, match=f"user {mine}'s, not yours"):
            sockets.check_peer(connection)
