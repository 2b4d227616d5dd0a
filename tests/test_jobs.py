"""The jobs' functions, and what they import before they begin: start-up is most of a small job."""

import inspect

import pytest

from headsweep import cli
from headsweep.jobs import JOBS, function
from processes import python

HEAVY = (
    *("pandas", "matplotlib", "scipy", "sympy", "sklearn", "torch"),
    *("transformers", "sentence_transformers"),
)

MAY_IMPORT = [
    {
        "generation.client": "",
        "generation.work": "",  # of a job that finds no engine
        "generation.prepare": "pandas",
        "grading.matrix": "pandas",
        "athena.problems": "pandas",
        "sprint.job": "pandas scipy",
        "frontier": "pandas scipy",
        "analysis.jobs": "pandas scipy",
        "maps.table": "pandas scipy",
        "report.page": "pandas scipy",
        "figures.draw": "pandas scipy matplotlib",
    },
    {
        "generation.activations": "pandas scipy sympy torch transformers",
        "maps.job": "pandas scipy sympy torch transformers",
        "compression.arm_jobs": "pandas scipy sympy torch transformers",
        "compression.arm_measurements": "pandas scipy sympy torch transformers",
    },
]
"""In each process one after the other: what one may import, those after it may, too."""


OTHERWISE = {"source": "questions", "selector": "name", "map": "name"}
"""What functions call the config name that they are given for a key."""
KINDS = {"variant": "Variant", "cores": "int", "seed": "int", "published": "Path"}
"""Types of the arguments that are read; of all others the text is passed on."""


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_jobs_function_takes_the_jobs_arguments(job):
    signature = inspect.signature(function(job.function))
    signature.bind("config", *job.arguments)
    _, *parameters = signature.parameters.values()
    for argument, parameter in zip(job.arguments, parameters, strict=False):
        assert parameter.name in {argument, OTHERWISE.get(argument)}
        hint = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        assert hint == KINDS.get(argument, "str") or argument == "grading"
    if job.shortcut:
        found = list(inspect.signature(function(job.shortcut)).parameters)
        assert found == ["config", *job.arguments]


def test_every_job_is_looked_at():
    assert len({job.name for job in JOBS}) == len(JOBS)
    named = {path for job in JOBS for path in (job.function, job.shortcut) if path}
    modules = {path.partition(":")[0] for path in named}
    assert modules <= {module for chain in MAY_IMPORT for module in chain}


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
