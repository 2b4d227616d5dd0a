"""What the Snakefile does before and after its jobs.

Snakemake's own objects (the workflow, its jobs) have no types.
"""

import contextlib
import os
import shlex
import sys
import time
from logging import Logger
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from headroom import paths
from headroom.config import Config
from headroom.config import parse as parse_config
from headroom.errors import HeadroomError
from headroom.planning.inputs import check_devices, preflight, resolve
from headroom.planning.workflow import Rules
from headroom.tables import write_json


def checked(values: dict[str, Any], *, look: bool) -> Config:
    """Return the config of these values, resolved.

    Args:
        values: the config as Snakemake has read it.
        look: whether the inputs on the disk are looked at, too.

    Raises:
        WorkflowError: the config cannot run, in one line.
    """
    try:
        resolved = resolve(parse_config(values))
        if look:
            preflight(resolved)
    except HeadroomError as error:
        raise WorkflowError(str(error)) from None
    return resolved


def shell_prefix(run: str) -> str:
    """Return what precedes every shell command.

    Jobs find the `headroom` of this Snakemake's environment, activated or not, and the config of
    their run. Neither stands in the rules' own commands: a run that shares another's answers must
    not look like changed code.
    """
    return (
        "set -euo pipefail; "
        f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
        f"HEADROOM_CONFIG={paths.CONFIG.format(run=run)}; "
    )


def begin(rules: Rules, workflow: Any, logger: Logger) -> None:
    """Do what a run does before its first job: check the machine, write the config, say the plan.

    Jobs read the resolved config from its file. It is no rule's input: settings that decide a
    file's content are in its path or in its rule's params, so that other edits rerun nothing.

    Raises:
        ModelError: a model needs what this machine lacks.
    """
    # Its limit of 100 job starts a second wakes Snakemake's scheduler, every second, once for each
    # job that has ended (snakemake/snakemake#3744): after 130 jobs that takes two thirds of a core.
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):  # the default
        workflow.scheduler.job_rate_limiter = None
    config = rules.config
    check_devices(config)
    ahead = bring_to_present(Path(paths.RESULTS))
    if ahead:
        logger.warning(f"{ahead} files in {paths.RESULTS} were dated in the future, now at present")
    write_json(rules.store.path(paths.CONFIG), config.model_dump(mode="json"))
    dag = workflow.dag
    local = bool(workflow.local_exec)
    jobs = {
        job.jobid: rules.planned(job, dag.dependencies[job], local=local)
        for job in dag.needrun_jobs()
    }
    cores = workflow.resource_settings.cores or 1 if local else 1  # not a cluster's
    logger.info("", extra={"planned": jobs, "cores": cores})


def tell_findings(rules: Rules, logger: Logger) -> None:
    """Print the findings of a run that is done, and where its report is."""
    said = rules.store.path(paths.FINDINGS)
    if said.exists():
        findings = said.read_text(encoding="utf-8").splitlines()
        logger.info("\n  ".join(["Findings", *findings]))
        logger.info(f"Done. Open {rules.store.path(paths.REPORT)}")


def bring_to_present(folder: Path) -> int:
    """Date the files of a folder that are dated in the future at now; return how many there are.

    Snakemake removes whatever it makes from a file of the future, for being older than that.
    They stay in order, a microsecond apart, and those of one time stay so: what was newer than its
    input still is. Files that may not be touched are left as they are.
    """
    now = time.time_ns()
    ahead: dict[Path, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            with contextlib.suppress(OSError):  # removed meanwhile
                if (modified := file.lstat().st_mtime_ns) > now:
                    ahead[file] = modified
    times = sorted(set(ahead.values()), reverse=True)
    present = {modified: now - 1000 * back for back, modified in enumerate(times)}
    for file, modified in ahead.items():
        with contextlib.suppress(OSError):
            os.utime(file, ns=(now, present[modified]), follow_symlinks=False)
    return len(ahead)
