"""The warm commands of the mini-runs are the real ones, and the workflow's jobs find them."""

import subprocess

import warm
from headsweep import __version__


def said(program, *arguments, folder):
    done = subprocess.run(
        [warm.commands() / program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_statuses_texts_and_the_folder_are_those_of_the_real_commands(tmp_path):
    status, version, _ = said("headsweep", "--version", folder=tmp_path)
    assert (status, version.split()[-1]) == (0, __version__)
    status, _, error = said("headsweep", "nonsense", folder=tmp_path)
    assert status == 2 and "nonsense" in error
    status, _, error = said("headsweep", "table", ".", folder=tmp_path)
    assert status == 2 and error
    status, _, error = said("snakemake", "--cores", "1", folder=tmp_path)
    assert status == 1 and "No Snakefile found" in error


def test_jobs_of_a_warm_run_are_warm():
    code = "from headsweep.workflow.session import shell_prefix; print(shell_prefix('r'))"
    status, prefix, _ = said("python", "-c", code, folder=".")
    assert status == 0
    assert f"PATH={warm.commands()}:" in prefix
