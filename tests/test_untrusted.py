"""Configs, models and data are untrusted: no code of theirs runs, no file lies where they want."""

import ast
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from example_config import VALUES
from headroom import paths
from headroom.config import parse
from headroom.errors import ConfigError
from headroom.generation.server import _listening
from headroom.planning.batches import batches
from headroom.planning.store import Store

SOURCE = Path(__file__).parents[1] / "src"
CODE_READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CODE_RUNNERS = {"eval", "exec", "torch.load", "numpy.load", "np.load", "yaml.load", "os.system"}
OUTSIDE = ["..", "../other", "a/b", "/etc", "a\x00b", "", ".hidden", "a b", "a\nb", "~", "a" * 65]


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: file.stem)
def test_nothing_reads_pickles_or_runs_what_it_reads(file: Path) -> None:
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
def test_no_name_leads_out_of_the_results_folder(section: str, name: str) -> None:
    values: dict[str, Any] = dict(VALUES)
    if section == "run":
        values["run"] = name
    else:
        values[section] = {**values[section], name: next(iter(values[section].values()))}
    with pytest.raises(ConfigError):
        parse(values)


def test_every_path_of_a_config_lies_in_its_folder() -> None:
    config = parse({**VALUES, "run": "a.b_c-d"})
    results = Path(paths.RESULTS).absolute()
    for batch in batches(config):
        for template in (paths.JOURNAL, paths.FINISHED, paths.ACCURACY, paths.GRADED):
            keys = Store(config).keys(**batch.names)
            for variant in batch.variants:
                file = Path(template.format(run=config.run, variant=variant, **keys)).resolve()
                assert file.is_relative_to(results)
    for template in vars(paths).values():
        if isinstance(template, str) and template.startswith("results"):
            assert ".." not in template


def test_another_user_cannot_reach_an_engine() -> None:
    path = Path("/tmp") / f"hr-{os.getpid()}.sock"  # where anyone may look
    with _listening(path):
        try:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            if os.geteuid() == 0:
                assert _connects_as_nobody(path) is False
        finally:
            path.unlink()


def _connects_as_nobody(path: Path) -> bool:
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(65534)
        try:
            socket.socket(socket.AF_UNIX).connect(str(path))
            os._exit(0)
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(2)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
