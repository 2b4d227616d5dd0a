# The config is checked whole, and every input that can be looked at, before the first job.
import gc
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from headroom import paths, training_costs
from headroom.clock import bring_to_present
from headroom.config import parse as parse_config
from headroom.errors import HeadroomError
from headroom.estimate import cost, generating, request
from headroom.generation.client import stop as stop_engines
from headroom.generation.work import forget_finished
from headroom.figures import published
from headroom.identity import data_key, digest, encoder_key, key, solver_key, source_key
from headroom.plan import all_arms, arms, batches, find_batch, own_answers, pool
from headroom.preflight import check_devices, preflight
from headroom.resolve import resolve
from headroom.tables import write_json
from headroom.variants import PATTERN, Variant

# A plan is made of objects that stay: looking for garbage among them at every 700th takes a seventh
# of the time.
gc.set_threshold(100_000)


def checked(values):
    try:
        resolved = resolve(parse_config(values))
        if workflow.is_main_process:
            preflight(resolved)
    except HeadroomError as error:
        raise WorkflowError(str(error)) from None
    return resolved


CORES = workflow.resource_settings.cores
if CORES == 0:  # Snakemake would wait for ever
    raise WorkflowError("--cores 0: no job can run on no core; give at least --cores 1")

CONFIG = checked(config)
RUN = CONFIG.run

# Jobs find the `headroom` of this Snakemake's environment, activated or not, and their run's
# config. Both stand outside the rules' own commands: a run that shares another's answers must not
# look like changed code.
shell.prefix(
    "set -euo pipefail; "
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    f"HEADROOM_CONFIG={paths.CONFIG.format(run=RUN)}; "
)

PUBLISHED = Path(workflow.basedir) / "config" / "published"
BATCHES = batches(CONFIG)
BATCH_OF = {tuple(batch.wildcards(CONFIG).values()): batch for batch in BATCHES}
if workflow.is_main_process:  # left by a run that was cut off in its last moment
    forget_finished(
        CONFIG,
        [
            batch
            for batch in BATCHES
            if Path(paths.ACCURACY.format(run=RUN, **batch.wildcards(CONFIG))).exists()
        ],
    )
KEYS = {
    kind: {key(CONFIG, kind, name): name for name in getattr(CONFIG, kind)}
    for kind in ("models", "questions", "decodings", "embedders")
}
TRAINED = [k for k, name in KEYS["models"].items() if CONFIG.models[name].train]
ARMS = all_arms(CONFIG)
DATA = sorted({data_key(CONFIG, name) for name in CONFIG.problems})
ENCODER_OF = {
    solver_key(CONFIG, study.solver, study.data): (
        encoder_key(CONFIG.solvers[study.solver].encoder)
        if CONFIG.solvers[study.solver].encoder.source
        else None
    )
    for study in CONFIG.compressions.values()
    if study.solver
}
FETCHED = [
    *(paths.MODEL.format(model=k) for k in KEYS["models"] if k not in TRAINED),
    *(
        paths.SOURCE.format(source=source_key(CONFIG, name))
        for name, questions in CONFIG.questions.items()
        if not questions.generated
    ),
    *(
        paths.EMBEDDER.format(embedder=k)
        for k, name in KEYS["embedders"].items()
        if CONFIG.embedders[name].source
    ),
    *(paths.PROBLEMS.format(data=k) for k in DATA),
    *(paths.ENCODER.format(encoder=k) for k in ENCODER_OF.values() if k),
]


# A job reads the resolved config from here. It is no rule's input: settings that decide a file's
# content are in the file's path or in its rule's params, so that other edits rerun nothing.
onstart:
    # Its limit of 100 job starts a second wakes Snakemake's scheduler, every second, once for each
    # job that has ended (snakemake/snakemake#3744): after 130 jobs that takes two thirds of a core.
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):  # the default
        workflow.scheduler.job_rate_limiter = None
    check_devices(CONFIG)
    ahead = bring_to_present(Path(paths.RESULTS))
    if ahead:
        logger.warning(
            f"{ahead} files in {paths.RESULTS} were dated in the future, now at present"
        )
    write_json(Path(of_run(paths.CONFIG)), CONFIG.model_dump(mode="json"))
    jobs = {job.jobid: planned(job) for job in workflow.dag.needrun_jobs()}
    cores = CORES or 1 if workflow.local_exec else 1  # a cluster's are not known
    logger.info("", extra={"planned": jobs, "cores": cores})


onsuccess:
    stop_engines()
    forget_finished(CONFIG, BATCHES)
    said = Path(of_run(paths.FINDINGS))
    if said.exists():
        findings = said.read_text(encoding="utf-8").splitlines()
        logger.info("\n  ".join(["Findings", *findings]))
        logger.info(f"Done. Open {of_run(paths.REPORT)}")


onerror:
    stop_engines()


# What much waits for begins first; whatever little waits for fills the cores that are left.
PRIORITY = {"models": 4, "inputs": 3, "answers": 2, "teachers": 1}


wildcard_constraints:
    variant=PATTERN,
    model="|".join(KEYS["models"]) or "none",
    questions="|".join(KEYS["questions"]) or "none",
    decoding="|".join(KEYS["decodings"]) or "none",
    embedder="|".join(KEYS["embedders"]) or "none",
    sweep="|".join(CONFIG.sweeps) or "none",
    selector="|".join(CONFIG.selectors) or "none",
    comparison="|".join(CONFIG.comparisons) or "none",
    layer=r"\d\d+",
    data="|".join(sorted({arm.data for arm in ARMS.values()}.union(DATA))) or "none",
    subject="|".join(sorted({arm.subject for arm in ARMS.values()})) or "none",
    arm="|".join(sorted({arm.key for arm in ARMS.values()})) or "none",
    solver="|".join(ENCODER_OF) or "none",
    encoder="|".join(k for k in ENCODER_OF.values() if k) or "none",
    compression="|".join(CONFIG.compressions) or "none",
    seed=r"\d+",


def of_run(template):
    """Return a template of a run's file with this run's name filled in."""
    return template.replace("{run}", RUN)


def log_of(template):
    """Return the log file of a rule: the wildcards of its output, under the run's logs."""
    return f"{paths.LOG.format(run=RUN)}/{template}.log"


def command(verb, *names):
    """Return the shell command of a rule: `headroom VERB` with the rule's wildcards."""
    arguments = " ".join(f"--{name} {{wildcards.{name}}}" for name in names)
    return f"headroom {verb} --log {{log}} {arguments}"


def accuracy(model, decoding, questions):
    """Return the accuracy matrix of config names."""
    return run_table(paths.ACCURACY, model, decoding, questions)


def graded(model, decoding, questions):
    """Return the graded answers of config names."""
    return run_table(paths.GRADED, model, decoding, questions)


def run_table(template, model, decoding, questions):
    return of_run(template).format(
        model=key(CONFIG, "models", model),
        decoding=key(CONFIG, "decodings", decoding),
        questions=key(CONFIG, "questions", questions),
    )
