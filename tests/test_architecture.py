"""Dependencies point one way, start-up stays light, and nothing runs what configs or data say."""

import ast
import os
import socket
from pathlib import Path

import pytest

from example_config import VALUES
from headsweep.config import parse
from headsweep.errors import ConfigError, EngineError
from headsweep.generation import sockets
from processes import python

SOURCE = Path(__file__).parents[1] / "src" / "headsweep"

FLOORS = (
    "reference __main__ cli workflow proof tool",
    "report printed figures analysis",
    "maps recovery sprint compression",
    "generation reasoner grading athena",
    "planning embeddings models benchmarks statistics config",
    "record safe_files plain_files limited tables variants text arguments paths choices errors",
)
"""From the top down: a room may import itself, what stands right of it, and lower floors."""

ROOMS = " ".join(FLOORS).split()
CODE_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "numpy.load", "np.load", "yaml.load", "os.system"}
OPENERS = {"open", "safe_open", "load_file", "ParquetFile", "open_to_read", "read_plain"}
METHODS = {"read_text", "read_bytes", "open", "load_file", "read_csv", "read_parquet", "read_json"}
METHODS |= {"ParquetFile", "read_schema", "pq.read_table", "pq.read_metadata"}
"""Functions that open files: by their names alone, and as attributes of a path or a library."""

OWN_READERS = {
    "plain_files": "the way in and out for all others",
    "record": "the readers: JSON, text, tensors, and records with a checksum of their own",
    "safe_files": "the readers: Parquet tables, which hold a checksum",
    "analysis/facts": "the reader of CSV",
    "compression/checkpoint": "states of trainings, which hold a checksum",
    "generation/journal": "journals, whose lines hold a checksum each",
    "generation/client": "a run's config and model names; the engine computes the keys again",
    "planning/store": "the store's version and users, which are not results",
    "config/files": "configs: users' own, and those of runs, compared with their records",
    "tool/foreign": "tables of answers that others made",
    "tool/lm_eval": "the version in a file of lm_eval's",
    "tool/export": "the card of an earlier export, to know it again",
    "tool/command": "a text to solve",
    "tool/machine": "a profile of the user's",
    "tool/without_snakemake": "a run's config, to put it back",
    "limited": "the kernel's file of this process",
    "generation/prompts": "tokenizers, compared with the package's own",
    "planning/host": "the kernel's limits of this process",
    "report/page": "the page's own style and script",
    "models/files": "headers of models, foreign ones too, before they are loaded",
    "models/source": "models, to take their fingerprints",
    "models/gguf": "GGUF files, which are foreign",
    "models/gguf_header": "GGUF files, which are foreign",
    "benchmarks/sources": "benchmarks, which are foreign",
    "recovery/texts": "texts of the user's",
    "planning/revisions": "models and benchmarks of the user's",
    "grading/pool": "the null device",
    "grading/worker": "devices and files of the kernel",
    "cli": "a device of the kernel",
    "analysis/published": "the papers' numbers, which are no files of a run",
    "generation/sockets": "a file of the kernel",
    "proof/planting": "the sealed file, whose checksum was told before",
}
"""Modules that open files themselves, and which files these are. All others read through the first
three, so that damage to a file of a run or the store never passes unseen."""

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
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node) is not None
                body = node.body[1:] if documented else node.body
                if body and body[-1].end_lineno - body[0].lineno >= LONGEST_BODY:
                    longer.add(f"{file.relative_to(SOURCE)}: {node.name}")
    assert not longer


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
        ("from headsweep import cli; cli.parser()", "torch transformers pandas pyarrow numpy"),
        (
            "from headsweep import cli; from headsweep.generation import client; "
            "from headsweep.workflow import command; "
            "assert all(command.parser_of(['job', job.name]) for job in command.JOBS)",
            "torch pandas pyarrow tempfile subprocess dataclasses inspect",
        ),
        (
            "from headsweep.planning import preflight, revisions, cost, batches",
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
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                told = f"{file}: {ast.unparse(node)}"
                assert ast.unparse(node.func) not in CODE_RUNNERS, told
                for keyword in node.keywords:
                    if keyword.arg in ("trust_remote_code", "allow_pickle", "shell"):
                        assert ast.unparse(keyword.value) == "False", told


def openings(file):
    """Yield the calls by which a module opens files."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        # A function that is handed on opens files, too.
        if isinstance(node, ast.Name) and node.id in OPENERS:
            yield node.id
        if isinstance(node, ast.Attribute) and METHODS & {node.attr, ast.unparse(node)}:
            yield ast.unparse(node)


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
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("open", "Handler")):
                words = {
                    ast.unparse(word).strip("'\"") for word in ast.walk(node) if word != node.func
                }
                if words & {"a", "ab", "w", "wb", "x", "xb", "r+", "r+b"} or "FileHandler" in words:
                    opening.add(f"{file.relative_to(SOURCE)}: {ast.unparse(node.func)}")
    handed = {"generation/client.py: os.fdopen", "generation/journal.py: os.fdopen"}
    handed |= {"cli.py: os.fdopen"}  # what `open_to_write` has opened
    handed |= {"limited.py: os.fdopen"}  # a pipe
    assert opening == handed | {"cli.py: Path(os.devnull).open"}


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
