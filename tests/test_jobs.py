"""What the workflow's commands may import before they begin: start-up is most of a small job."""

import pytest

from headroom import cli
from headroom.jobs import JOBS, SHORTCUTS
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
        "report.page": "pandas scipy",
        "figures.draw": "pandas scipy matplotlib",
    },
    {
        "generation.activations": "pandas scipy sympy torch transformers",
        "compression.arm_jobs": "pandas scipy sympy torch transformers",
        "compression.arm_measurements": "pandas scipy sympy torch transformers",
    },
]
"""In each process one after the other: what one may import, those after it may, too."""


def test_every_command_is_looked_at():
    named = {job.function for job in JOBS} | {*SHORTCUTS.values()}
    modules = {function.partition(":")[0] for function in named}
    assert modules <= {module for chain in MAY_IMPORT for module in chain}


@pytest.mark.parametrize("chain", MAY_IMPORT)
def test_a_job_imports_what_it_needs(chain):
    code = (
        "import sys; from importlib import import_module\n"
        "for module in sys.argv[1:]:\n"
        "    import_module(f'headroom.{module}'); print(*sys.modules)"
    )
    for module, loaded in zip(chain, python("-c", code, *chain).splitlines(), strict=True):
        found = set(HEAVY) & set(loaded.split())
        assert found <= set(chain[module].split()), f"headroom.{module} imports {sorted(found)}"


@pytest.mark.parametrize("cores", ["0", "-1", "two", ""])
def test_what_is_no_number_of_cores_is_refused(cores, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the command sets it: here for the test only
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    words = ["generate", "--config=c", "--model=m", "--decoding=d", "--questions=q"]
    assert cli.main([*words, "--variant=base", f"--cores={cores}"]) != 0
    assert "is not a number of cores; give 1 or more" in capsys.readouterr().err
