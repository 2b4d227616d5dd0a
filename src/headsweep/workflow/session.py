"""What the Snakefile does before and after its jobs.

Snakemake's own objects (the workflow, its jobs) are untyped.
"""

import contextlib
import itertools
import os
import shlex
import sys
import time
from collections.abc import Iterable
from logging import Logger
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from headsweep.answers.work import Work
from headsweep.config import load
from headsweep.config import parse as parse_config
from headsweep.config.files import read_values
from headsweep.errors import ConfigError, HeadsweepError, TableError
from headsweep.experiments.athena.problems import check_generated
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import read_text
from headsweep.machine import fork_server
from headsweep.store.batches import seeded_arms
from headsweep.store.layout import Store, is_archived, mark_version, write_config
from headsweep.store.revisions import resolve
from headsweep.workflow.cost import question_count
from headsweep.workflow.preflight import check_devices, preflight
from headsweep.workflow.resources import PROFILE, UNNAMED
from headsweep.workflow.rules import Rules

_WORTH_A_SERVER = 4
"""So many jobs take longer to import what they need than a process that does it for all."""
_IMPORTING_LITTLE = ("all", "generate")  # an engine answers
_HELD: list[Locks] = []
"""Locks of this process, which hold until it ends, however it ends."""


def checked(values: dict[str, Any], files: Iterable[str], *, look: bool) -> Store:
    """Return the store of the typed config, resolved.

    With `look`, in the main process, the inputs on the disk are checked, too, and the config files
    that Snakemake took the values from: of a key given twice it takes the last. Processes of single
    jobs, as on a cluster, take what the main process has resolved: tables that the run has made
    since could choose other heads.

    Raises:
        WorkflowError: the config cannot run; one line.
    """
    try:
        # Jobs that Snakemake starts as `python -m` import nothing from the folder of the run.
        os.environ["PYTHONSAFEPATH"] = "1"
        if not look:
            return Store(load(Path(paths.CONFIG.format(run=parse_config(values).run))))
        for file in map(Path, files):
            if file.is_file():  # not a pipe, which can be read only once
                read_values(file)
        store = Store(resolve(parse_config(values)))
        preflight(store)
        check_generated(store)
        _restore_config(store)
    except HeadsweepError as error:
        raise WorkflowError(str(error)) from None
    return store


def _restore_config(store: Store) -> None:
    """Write the config of a run again that has lost it: a user may have removed a damaged one.

    A run begins by writing it, but where nothing is left to do Snakemake calls no handler.
    """
    files = [store.path(template) for template in (paths.CONFIG, paths.MODEL_SECTIONS)]
    if files[0].parent.is_dir() and not all(file.exists() for file in files):
        write_config(store)


def shell_prefix(run: str) -> str:
    """Return the prefix of every shell command.

    It gives jobs the `headsweep` of Snakemake's environment, activated or not, and the config of
    their run. The rules' own commands name neither, or Snakemake would take another run that shares
    their files for changed code.
    """
    programs = shlex.quote(str(Path(sys.executable).parent))
    config = shlex.quote(paths.CONFIG.format(run=run))
    prefix = f"set -euo pipefail; export PATH={programs}:$PATH HEADSWEEP_CONFIG={config}; "
    return prefix.replace("{", "{{").replace("}", "}}")  # Snakemake formats it


def cores(workflow: Any) -> int | None:
    """Return the number of cores that local jobs may use; None where none is stated.

    Raises:
        WorkflowError: it is 0, with which Snakemake would wait for ever.
    """
    cores: int | None = workflow.resource_settings.cores
    if cores == 0:
        raise WorkflowError("--cores 0: no job can run on no core; give at least --cores 1")
    return cores


def runs_here(workflow: Any) -> bool:
    """Tell whether jobs run on this machine; on a cluster a number of jobs at once is stated.

    While it reads the Snakefile, Snakemake has not yet set what its `local_exec` tells.
    """
    return bool(workflow.is_main_process and workflow.resource_settings.nodes is None)


def keep_handlers(workflow: Any) -> None:
    """Have Snakemake call the handlers of a module, as which snakedeploy includes the workflow."""
    if not workflow.modifier.is_main_snakefile():
        for name in ("onstart", "onsuccess", "onerror"):
            handler = workflow.globals[name]
            setattr(workflow, f"_{name}", lambda log, handler=handler: handler())


def plan_what_is_missing() -> None:
    """Have Snakemake make files that are gone, and ask every job for a reason of its own to run.

    Snakemake makes a missing file only where a job needs it that is to run: under a finished run it
    has nothing to do, whatever was removed. What an archive is without, as models, is made again
    only where this folder has made it before.

    Snakemake 9 does not ask the jobs behind one that must run, because its new output makes them
    run, too. An input of any age does not: a run that made a model again left out the missing files
    behind it and ended as done (snakemake/snakemake#4166).
    """
    from snakemake.dag import DAG  # its import works only after that of `snakemake.workflow`

    update = DAG.update_needrun

    async def update_needrun(dag: Any, *arguments: Any, **options: Any) -> None:
        recorded = dag.workflow.persistence.metadata
        for job in dag.jobs:
            missing = [file async for file in job.missing_output(job.output)]
            gone = [file for file in missing if is_archived(Path(file)) or recorded(file)]
            dag.reason(job).missing_output.update(gone)
        dag.bfs = lambda *_: ()  # this method calls it only to find the jobs that it skips
        try:
            await update(dag, *arguments, **options)
        finally:
            vars(dag).pop("bfs", None)

    DAG.update_needrun = update_needrun


def begin(rules: Rules, workflow: Any, logger: Logger) -> None:
    """Prepare a run before its first job: check the machine, write the config, log the plan.

    Jobs read the resolved config from its file, which is not an input of any rule: settings that
    decide a file's content are in its path or in its rule's params, so other edits rerun nothing.

    Raises:
        ConfigError, ModelError: this machine lacks disk space, a GPU or vLLM, nobody has named the
            cluster's partition or account, or a `headsweep sweep` does the same run.
    """
    # With its limit of 100 job starts a second, Snakemake's scheduler wakes every second once for
    # each finished job (snakemake/snakemake#3744): two thirds of a core after 130 jobs.
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):  # the default
        workflow.scheduler.job_rate_limiter = None
    config = rules.config
    check_devices(rules.store)
    if not rules.local:
        _check_named(workflow)
    _HELD.append(Locks(Path(paths.RUN_LOCK)))
    if not _HELD[-1].take(config.run):
        raise ConfigError(
            f"run {config.run!r} is under way in this folder, without Snakemake; wait for its end"
        )
    if ahead := bring_to_present(Path(paths.RESULTS)):
        logger.warning(
            f"{ahead} files in {paths.RESULTS} were dated in the future; they now have today's date"
        )
    mark_version()
    write_config(rules.store)
    logger.info(describe_store(rules))
    dag = workflow.dag
    jobs = {
        job.jobid: rules.resources.planned(job, dag.dependencies[job]) for job in dag.needrun_jobs()
    }
    importing = [job for job in dag.needrun_jobs() if job.rule.name not in _IMPORTING_LITTLE]
    if len(importing) >= _WORTH_A_SERVER and rules.local and not _in_containers(workflow):
        fork_server.begin()
    cores = (workflow.resource_settings.cores or 1) if rules.local else 1  # a cluster's are unknown
    logger.info("", extra={"planned": jobs, "cores": cores})


def _in_containers(workflow: Any) -> bool:
    """Tell whether jobs run in environments of their own, by Snakemake's --sdm."""
    return bool(workflow.deployment_settings.deployment_method)


def _check_named(workflow: Any) -> None:
    """Refuse to submit jobs whose resources hold what the profile has until somebody names them.

    Raises:
        ConfigError: one line that says what to name.
    """
    submitted = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
    one_of_each_rule = {job.rule.name: job for job in submitted}.values()
    unnamed = {
        resource
        for job in one_of_each_rule
        for resource, value in job.resources.items()
        if value == UNNAMED
    }
    if unnamed:
        raise ConfigError(
            f"{', '.join(sorted(unnamed))}: {UNNAMED!r} is no name on your cluster; write those "
            f"that it has into {PROFILE}, or into a copy of its folder for --workflow-profile"
        )


def planned_answers(workflow: Any) -> list[Path]:
    """Return the tables of the jobs that are to generate answers in this run."""
    jobs = workflow.dag.needrun_jobs()
    return [Path(job.output[0]) for job in jobs if job.rule.name == "generate"]


def describe_store(rules: Rules) -> str:
    """Say how much of what a config needs is in the store already, in one line.

    Of questions that are not drawn there are as many as `headsweep plan` assumes, and a table of
    answers, which is not read, answers all.
    """
    total = stored = 0
    config = rules.config
    for batch in rules.batches.values():
        work = Work(batch)
        try:
            there, wanted = work.counted
        except TableError:  # not drawn yet; or damaged, as its first reader says
            samples = config.decodings[batch.decoding].samples
            answers = samples * question_count(config.questions[batch.questions])
            wanted = answers * len(batch.variants)
            there = wanted - answers * len(work.lacking)
        total += wanted
        stored += there
    models = [rules.store.path(paths.MODEL, model=name).exists() for name in config.models]
    every = seeded_arms(config)
    compressed = [Path(arm.file(paths.HISTORY, seed)).exists() for arm, seed in every]
    parts = [
        f"{stored:,} of {total:,} answers ({total - stored:,} to generate)" if total else "",
        f"{sum(models)} of {len(models)} models" if models else "",
        f"{sum(compressed)} of {len(compressed)} trained arms" if compressed else "",
    ]
    return f"In the store: {', '.join(filter(None, parts)) or 'nothing is needed'}"


def tell_findings(rules: Rules, workflow: Any, logger: Logger) -> None:
    """Log the findings of a finished run and the path of its report.

    A run that was not asked for the report does not tell what an earlier one found.
    """
    if all(job.rule.name != "report_page" for job in workflow.dag.jobs):
        return
    if (findings := rules.store.path(paths.FINDINGS)).exists():
        lines = read_text(findings).splitlines()
        logger.info("\n  ".join(["Findings", *lines]))
        for name in rules.config.waiting:
            logger.warning(f"sweeps.{name} is left out: give the same command again")
        page = rules.store.path(paths.REPORT)
        # With --directory nothing tells any more where the user stands.
        logger.info(f"Done. Open {page.absolute() if workflow.overwrite_workdir else page}")


def bring_to_present(folder: Path) -> int:
    """Set files dated in the future to the present; return how many there are.

    Snakemake removes what it makes from a file dated in the future, as older than its input. The
    files keep their order, a microsecond apart, and equal times stay equal, so outputs stay newer
    than their inputs. A store that is a link is walked, too. Files that may not be changed are left
    as they are.
    """
    now = time.time_ns()
    ahead: dict[Path, int] = {}
    linked = folder / Path(paths.STORE).name
    tops = (folder, linked) if linked.is_symlink() else (folder,)
    for parent, _, names in itertools.chain.from_iterable(map(os.walk, tops)):
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
