"""Configs, models and data are untrusted: no code of theirs runs, no file lies where they want."""

import ast
import os
import socket
from pathlib import Path

import pytest

from example_config import VALUES
from headroom.config import parse
from headroom.errors import ConfigError, EngineError
from headroom.generation import client

SOURCE = Path(__file__).parents[1] / "src"
CODE_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "numpy.load", "np.load", "yaml.load", "os.system"}
OUTSIDE = ["..", "../other", "a/b", "/etc", "a\x00b", "", ".hidden", "a b", "a\nb", "~", "a" * 65]


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: file.stem)
def test_nothing_reads_pickles_or_runs_what_it_reads(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            names = [module or ""] if module else [alias.name for alias in node.names]
            assert not {name.partition(".")[0] for name in names} & CODE_READERS, ast.unparse(node)
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
    name, mine = f"headroom-test-{os.getpid()}", os.getuid()
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
