"""Removes each kind of file under a finished run in turn, and asks Snakemake what it would make.

main() writes, into a file of JSON, the first of its arguments, what a dry run with those after the
second, those of `snakemake`, finds: by rule and file, whether the rule is to run when this file
alone is missing. Of each rule that the second names (of all, if it is empty) one job is tried, with
all its files.
"""

import json
import sys
from pathlib import Path

from snakemake import cli
from snakemake.dag import DAG  # after the above: neither order else works

_init = DAG.init


async def _init_and_remove(dag, *arguments, **options):
    await _init(dag, *arguments, **options)
    found = []
    jobs = {job.rule.name: job for job in sorted(dag.jobs, key=lambda job: job.jobid) if job.output}
    jobs = {name: jobs[name] for name in sys.argv[2].split() or jobs}
    assert not [*dag.needrun_jobs()], "the run is not finished"
    for rule, job in sorted(jobs.items()):
        for file in sorted(map(str, job.output)):
            hidden = Path(file).rename(f"{file}.hidden")
            dag.workflow.iocache.clear()
            dag._reason.clear()
            await dag.update_needrun()
            found.append((rule, file, job in {*dag.needrun_jobs()}))
            hidden.rename(file)
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


def main():
    DAG.init = _init_and_remove
    cli.main(sys.argv[3:])
