"""The jobs' functions, and what they import before they begin: start-up is most of a small job."""

import ast
import importlib
import inspect
import re
import textwrap
from typing import get_args

import pytest

from headsweep.cli import job
from headsweep.cli import main as cli
from headsweep.results.exhibits import Subject
from headsweep.workflow import jobs
from headsweep.workflow.jobs import JOBS
from processes import python

HEAVY = ["pandas", "matplotlib", "scipy", "sympy", "sklearn", "torch", "transformers"]
HEAVY += ["sentence_transformers"]

MAY_IMPORT = [
    {
        "answers.client": "",
        "answers.work": "",  # of a job that finds no engine
        "answers.prepare": "pandas",
        "grading.matrix": "pandas",
        "experiments.athena.problems": "pandas",
        "experiments.sprint.job": "pandas scipy",
        "experiments.sprint.frontier_job": "pandas scipy",
        "results.jobs": "pandas scipy",
        "experiments.maps.table": "pandas scipy",
        "page.report": "pandas scipy",
        "page.figures.draw": "pandas scipy matplotlib",
        "page.printed.job": "pandas scipy matplotlib",
    },
    {
        "answers.activations": "pandas scipy sympy torch transformers",
        "answers.inside_heads": "pandas scipy sympy torch transformers",
        "experiments.maps.known_texts": "pandas scipy sympy torch transformers",
        "experiments.maps.job": "pandas scipy sympy torch transformers",
        "experiments.compression.arm_jobs": "pandas scipy sympy torch transformers",
        "experiments.compression.arm_measurements": "pandas scipy sympy torch transformers",
    },
]
"""In each process one after the other: what one may import, those after it may, too."""


KINDS = {"variant": "Variant", "cores": "int", "seed": "int", "published": "Path"}
KINDS |= {"grading": "Preset"}
"""Types of the arguments that are read; of all others the text is passed on."""


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_jobs_function_takes_the_values_of_its_options(job):
    first, *parameters = inspect.signature(job.function).parameters.values()
    assert (first.name, first.annotation) == (("store", "Store"), ("batch", "Batch"))[job.of_batch]
    assert [parameter.name for parameter in parameters] == list(job.arguments)
    keys = ["model", "decoding", "questions"] if job.of_batch else []
    assert list(job.options) == [*keys, *job.arguments]
    for parameter in parameters:
        hint = getattr(parameter.annotation, "__name__", parameter.annotation)
        assert hint == KINDS.get(parameter.name, "str")
    if job.before_config:
        names = list(inspect.signature(job.before_config).parameters)
        assert names == ["config", *(["batch"] if job.of_batch else []), *job.arguments]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_calls_one_function_with_all_it_is_given(job):
    """What it calls is there, and takes that many arguments: mypy sees the types."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(job.function))).body
    call = function.body[-1].value
    module, name = ast.unparse(call.func).split(".")
    first = "batch" if job.of_batch else "store"
    assert [ast.unparse(argument) for argument in call.args] == [first, *job.arguments]
    imported = function.body[1]
    assert imported.names[0].asname in (module, None)
    path = f"{imported.module}.{imported.names[0].name}"
    target = getattr(importlib.import_module(path), name)
    inspect.signature(target).bind(*call.args)


def test_every_job_is_looked_at():
    assert len({job.name for job in JOBS}) == len(JOBS)
    assert {job.name: job.function.__name__ for job in JOBS} == {
        job.name: job.name.replace("-", "_") for job in JOBS
    }
    modules = {
        f"{node.module}.{alias.name}".removeprefix("headsweep.")
        for node in ast.walk(ast.parse(inspect.getsource(jobs)))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("headsweep")
        for alias in node.names
    }
    typing_only = {"config.Preset", "variants.Variant", "files.paths.BatchKeys"}
    typing_only |= {"store.batches.Batch", "store.layout.Store"}
    assert modules - typing_only <= {module for chain in MAY_IMPORT for module in chain}


def test_the_help_of_draw_names_every_kind_of_subject():
    told = {each.dest: each.help for each in job.parser_of(["job", "draw"])._actions}
    kinds = {*get_args(Subject)} - {"layer"}  # layers are drawn with their sweep
    assert {*re.findall(r"\w+", told["subject"])} == kinds | {"or"}


@pytest.mark.parametrize("chain", MAY_IMPORT)
def test_a_job_imports_what_it_needs(chain):
    code = (
        "import sys; from importlib import import_module\n"
        "for module in sys.argv[1:]:\n"
        "    import_module(f'headsweep.{module}'); print(*sys.modules)"
    )
    for module, loaded in zip(chain, python("-c", code, *chain).splitlines(), strict=True):
        found = set(HEAVY) & set(loaded.split())
        assert found <= set(chain[module].split()), f"headsweep.{module} imports {sorted(found)}"


@pytest.mark.parametrize("cores", ["0", "-1", "two", ""])
def test_what_is_no_number_of_cores_is_refused(cores, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the command sets it: here for the test only
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    words = ["job", "generate", "--config=c", "--model=m", "--decoding=d", "--questions=q"]
    assert cli.main([*words, "--variant=base", f"--cores={cores}"]) != 0
    assert "is not a number of cores; give 1 or more" in capsys.readouterr().err
