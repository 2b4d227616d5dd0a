"""What the workflow's rules read, make and ask for, from the keys and names in their wildcards.

`Rules` answers for one config; the rest is what the Snakefile does before and after its jobs.
Snakemake's own objects (wildcards, jobs, the workflow) have no types.
"""

import shlex
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from logging import Logger
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import report

from headroom import paths
from headroom.config import Config, Selector, Study, Sweep
from headroom.config import parse as parse_config
from headroom.errors import HeadroomError
from headroom.planning.arms import Arm, all_arms, arms, histories, own_answers
from headroom.planning.batches import Batch, batches, find_batch, pool
from headroom.planning.clock import bring_to_present
from headroom.planning.cost import (
    Request,
    generation_cost,
    generation_request,
    generation_seconds,
    training_request,
    training_seconds,
)
from headroom.planning.keys import digest, encoder_key, study_keys
from headroom.planning.preflight import check_devices, preflight
from headroom.planning.resolve import resolve
from headroom.planning.store import Store
from headroom.tables import write_json
from headroom.variants import PATTERN, Variant

Inputs = dict[str, str | list[str]]
"""Named inputs of a rule."""
Resources = dict[str, Callable[..., int]]
"""Resources of a rule, as functions of a job's wildcards and of the number of its attempt."""

EXHIBITS = ("table1", "table2", "table3a", "table3b", "table4", "knee", "quantisation", "cost")
"""Tables of the compression paper."""
STUDY_FILES = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
STUDY_FIGURES = (paths.PARETO, paths.IMPORTANCE, paths.LOSSES, paths.ALPHA)
SELECTOR_RESULTS = (
    *(paths.CHOICE, paths.CURVES, paths.PAIRED, paths.SENSITIVITY, paths.ABLATION),
    paths.SELECTOR_CARD,
)
SELECTOR_TABLES = (paths.EMBEDDING_VALUE, paths.DIVERSITY, paths.CHOOSING)
PAPERS = ("sprint", "compression")
CONTROL_TABLES = ("gains", "heads", "spread", "failures")

_BESIDE = ("pdf", "svg", "dark.svg", "csv", "json")
_JUDGED_A_CORE = 10_000
"""Answers for which grading is worth another core."""


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


def shown(file: str, caption: str, category: str, **labels: str) -> Any:
    """Return a file for Snakemake's own report, with the caption of that name."""
    return report(file, caption=f"../report/{caption}.rst", category=category, labels=labels)


class Rules:
    """What the rules of a config's workflow read and ask for.

    Methods that take `wildcards` are functions of Snakemake: they return files, parameters or
    resources of one job.
    """

    def __init__(self, config: Config, cores: int | None, groups: dict[str, str]) -> None:
        """Plan a config.

        Args:
            config: resolved.
            cores: what Snakemake may use; None: not known.
            groups: Snakemake's, to which each group of jobs is added under its profile's name.
        """
        self.config = config
        self.store = Store(config)
        self.batches = batches(config)
        self._cores = cores or 1
        self._groups = groups
        self._batch_of = {tuple(self.store.keys(**b.names).values()): b for b in self.batches}
        self._arms = all_arms(config)
        self._encoders = {
            study_keys(config, study)["subject"]: config.solvers[study.solver].encoder
            for study in config.compressions.values()
            if study.solver
        }

    # All rules

    @cached_property
    def constraints(self) -> dict[str, str]:
        """What each wildcard may be, as a regular expression."""
        config, every = self.config, self._arms.values()
        kinds = {
            "model": self._keys("model", config.models),
            "questions": self._keys("questions", config.questions),
            "decoding": self._keys("decoding", config.decodings),
            "embedder": self._keys("embedder", config.embedders),
            "sweep": config.sweeps,
            "selector": config.selectors,
            "comparison": config.comparisons,
            "data": sorted({arm.data for arm in every}.union(self._data)),
            "subject": sorted({arm.subject for arm in every}),
            "arm": sorted({arm.key for arm in every}),
            "solver": self._encoders,
            "encoder": [key for solver in self._encoders if (key := self._encoder(solver))],
            "compression": config.compressions,
        }
        return {
            "variant": PATTERN,
            "layer": r"\d\d+",
            "seed": r"\d+",
            **{wildcard: _one_of(allowed) for wildcard, allowed in kinds.items()},
        }

    @property
    def fetched_models(self) -> str:
        """The keys of models that are fetched, as a regular expression."""
        models = self.config.models.items()
        return _one_of(self._keys("model", [name for name, model in models if not model.train]))

    @property
    def trained_models(self) -> str:
        """The keys of models that are trained here, as a regular expression."""
        models = self.config.models.items()
        return _one_of(self._keys("model", [name for name, model in models if model.train]))

    @property
    def fetched(self) -> list[str]:
        """The files of everything that is fetched from elsewhere."""
        config, fill = self.config, self.store.fill
        encoders = [self._encoder(solver) for solver in self._encoders]
        return [
            *(fill(paths.MODEL, model=n) for n, model in config.models.items() if not model.train),
            *(fill(paths.SOURCE, source=n) for n, q in config.questions.items() if not q.generated),
            *(fill(paths.EMBEDDER, embedder=n) for n, e in config.embedders.items() if e.source),
            *(paths.PROBLEMS.format(data=key) for key in self._data),
            *(paths.ENCODER.format(encoder=key) for key in encoders if key),
        ]

    def answers_of_all(self) -> list[str]:
        """Return the files of all answers."""
        return [file for batch in self.batches for file in self.store.answers(batch)]

    def graded_batches(self) -> list[Batch]:
        """Return the batches that are graded already."""
        return [b for b in self.batches if self.store.path(paths.ACCURACY, **b.names).exists()]

    def log(self, template: str) -> str:
        """Return the log file of a rule: the wildcards of its output, under the run's logs."""
        return f"{self.store.fill(paths.LOG)}/{template}.log"

    def settings(self, section: str, name: str | None = None) -> str:
        """Return a digest of an entry of a section of the config, or of all its entries."""
        entries = {
            each: entry.model_dump(mode="json")
            for each, entry in getattr(self.config, section).items()
        }
        return digest(entries if name is None else entries[name])

    @property
    def all_settings(self) -> str:
        """A digest of the whole config."""
        return digest(self.config.model_dump(mode="json"))

    def planned(self, job: Any, after: Iterable[Any]) -> tuple[str, str, float, list[int]]:
        """Return what the time left is told from, see `snakemake_logger_plugin_headroom.pace`.

        Args:
            job: one of Snakemake's jobs.
            after: the jobs that it waits for.
        """
        name, wildcards = job.rule.name, job.wildcards
        unit, seconds = str(job.jobid), 0.0
        if name == "generate":
            batch = self._batch(wildcards)
            unit = str(self.store.keys(**batch.names))
            seconds = generation_seconds(self.config, batch)
        elif name == "teacher" or (name == "compress" and self._arm(wildcards).settings.rounds):
            seconds = training_seconds(self.config, *self._trained(wildcards))
        return name, unit, seconds, [other.jobid for other in after]

    # Questions and embeddings

    def split(self, wildcards: Any) -> Inputs:
        """Return what a question set is drawn from."""
        name = self.store.name("questions", wildcards.questions)
        inputs: Inputs = {"source": self.store.fill(paths.SOURCE, source=name)}
        embedder = self.config.questions[name].embedder
        if embedder:
            inputs["embedder"] = self.store.fill(paths.EMBEDDER, embedder=embedder)
        return inputs

    def embedded_model(self, wildcards: Any) -> list[str]:
        """Return the model that an embedder is part of; none for one that is fetched."""
        model = self.config.embedders[self.store.name("embedder", wildcards.embedder)].model
        return [self.store.fill(paths.MODEL, model=model)] if model else []

    # The sweep

    def answers(self, wildcards: Any) -> list[str]:
        """Return the answers of a batch."""
        return self.store.answers(self._batch(wildcards))

    def layer(self, wildcards: Any) -> str:
        """Name the group of jobs that share an allocation of SLURM, and with it a loaded model."""
        number = Variant.parse(wildcards.variant).layer
        group = f"{wildcards.model}/{wildcards.decoding}/{wildcards.questions}/{number}"
        self._groups[group] = "layer"  # what the profile's group-components names
        return group

    def judges(self, wildcards: Any) -> int:
        """Return how many cores grading is worth: a job that wants all waits until all are free."""
        answers = generation_cost(self.config, self._batch(wildcards)).answers
        return min(self._cores, 1 + answers // _JUDGED_A_CORE)

    @property
    def generation_resources(self) -> Resources:
        """What a job of generation asks a cluster for."""
        return _resources(lambda w: generation_request(self.config, self._batch(w)))

    def compared(self, wildcards: Any) -> list[str]:
        """Return what a comparison of prompts reads."""
        section = self.config.comparisons[wildcards.comparison]
        names = {"model": section.model, "questions": section.questions, "variant": "base"}
        return [
            self.store.fill(paths.QUESTIONS, **names),
            *(self.store.fill(paths.ANSWERS, decoding=d, **names) for d in section.decodings),
        ]

    # SPRINT

    def training(self, wildcards: Any) -> Inputs:
        """Return what a selector is trained on."""
        selector = self._selector(wildcards)
        return {
            "accuracy": self._table(paths.ACCURACY, selector, selector.train),
            "embeddings": self._embeddings(selector, selector.train),
        }

    def ranked(self, wildcards: Any) -> Inputs:
        """Return the questions that heads are ranked for, and what other selectors learn from."""
        selector = self._selector(wildcards)
        return {
            "embeddings": self._embeddings(selector, selector.test),
            "accuracy": self._table(paths.ACCURACY, selector, selector.train),
            "learnt": self._embeddings(selector, selector.train),
            "texts": self._texts(selector),
        }

    def evaluated(self, wildcards: Any) -> Inputs:
        """Return what a selector is evaluated on, its ranking excepted."""
        selector = self._selector(wildcards)
        return {
            "train": self._table(paths.ACCURACY, selector, selector.train),
            "test": self._table(paths.ACCURACY, selector, selector.test),
            "graded": self._table(paths.GRADED, selector, selector.test),
            "texts": self._texts(selector),
            "sampled": self._sampled(selector),
        }

    def weighed(self, wildcards: Any) -> Inputs:
        """Return what the worth of an embedding is judged from."""
        selector = self._selector(wildcards)
        return {
            "train": self._table(paths.ACCURACY, selector, selector.train),
            "test": self._table(paths.ACCURACY, selector, selector.test),
        }

    def voted(self, wildcards: Any) -> list[str]:
        """Return the graded answers that ways of choosing are held against one another on."""
        selector = self._selector(wildcards)
        own = [
            self._table(paths.GRADED, selector, name) for name in (selector.train, selector.test)
        ]
        return own + self._sampled(selector)

    # Compression

    def taught(self, wildcards: Any) -> Inputs:
        """Return what a solver is trained from."""
        encoder = self._encoder(wildcards.solver)
        inputs: Inputs = {"data": paths.PROBLEMS}
        return {**inputs, "encoder": paths.ENCODER.format(encoder=encoder)} if encoder else inputs

    def tested(self, wildcards: Any) -> Inputs:
        """Return what an arm learns from and is tested on."""
        study = self._arm(wildcards).study
        if not study.model:
            return {"data": paths.PROBLEMS}
        return {
            "model": self.store.fill(paths.MODEL, model=study.model),
            "questions": [
                self.store.fill(paths.QUESTIONS, questions=name)
                for name in (study.train, study.test)
            ],
        }

    def compressed(self, wildcards: Any) -> Inputs:
        """Return what an arm starts from."""
        arm, inputs = self._arm(wildcards), self.tested(wildcards)
        if arm.study.model:
            answers = own_answers(self.config, arm.study, arm.every_head(self.config))
            return {**inputs, "answers": list(answers.values())}
        inputs["teacher"] = arm.file(paths.TEACHER, wildcards.seed)
        layout = arm.layout()
        if layout:
            inputs["layout"] = layout.file(paths.HISTORY, wildcards.seed)
        return inputs

    def quantised(self, wildcards: Any) -> Inputs:
        """Return what an arm is tested from with weights of eight bits."""
        return {**self.tested(wildcards), "history": paths.HISTORY}

    @property
    def training_resources(self) -> Resources:
        """What a job of training, compressing or testing asks a cluster for."""
        return _resources(lambda w: training_request(self.config, *self._trained(w)))

    def gathered(self, wildcards: Any) -> Inputs:
        """Return the files of all arms of a compression."""
        study = self.config.compressions[wildcards.compression]
        runs = [
            (arm, seed) for arm in arms(self.config, wildcards.compression) for seed in study.seeds
        ]
        return {
            "outcomes": [arm.file(paths.OUTCOMES, seed) for arm, seed in runs],
            "histories": histories(self.config, wildcards.compression),
            "int8": [
                arm.file(paths.INT8_OUTCOMES, seed) for arm, seed in runs if arm.name in study.int8
            ],
        }

    def measured(self, wildcards: Any) -> list[str]:
        """Return the arms of a compression whose speed and memory are measured."""
        study = self.config.compressions[wildcards.compression]
        return [
            arm.file(paths.HISTORY, study.seeds[0])
            for arm in arms(self.config, wildcards.compression)
            if study.measured is None or arm.name in study.measured
        ]

    # Tables, figures and the report

    def sweep_table(self, name: str, template: str = paths.ACCURACY) -> str:
        """Return the accuracy matrix of a sweep, or another file of its batch."""
        sweep: Sweep = self.config.sweeps[name]
        names = {"model": sweep.model, "decoding": sweep.decoding, "questions": sweep.questions}
        return self.store.fill(template, **names)

    def sweep_tables(self) -> list[str]:
        """Return the accuracy matrices of all sweeps."""
        return [self.sweep_table(name) for name in self.config.sweeps]

    def sweep_figures(self, name: str) -> list[str]:
        """Return the templates of a sweep's figures; only the suffix is left open."""
        heads = pool(self.config, self.config.sweeps[name])
        layers = sorted({head.layer for head in heads if head.layer is not None})
        heatmaps = [paths.HEATMAP.replace("{layer}", f"{layer:02d}") for layer in layers]
        templates = (paths.FOREST, paths.AGREEMENT, paths.COMPONENTS, paths.COST, *heatmaps)
        return [self.store.fill(template, sweep=name) for template in templates]

    def drawn_for_sweep(self, name: str) -> list[str]:
        """Return what the figures of a sweep are drawn from."""
        sweep: Sweep = self.config.sweeps[name]
        batch = find_batch(self.config, sweep.model, sweep.decoding, sweep.questions)
        return [
            self.sweep_table(name),
            *self._controls(name, ("heads", "spread")),
            *self.store.answers(batch),
        ]

    def drawn_for_selector(self, wildcards: Any) -> Inputs:
        """Return what the figures of a selector are drawn from."""
        selector = self._selector(wildcards)
        return {
            "curves": self.store.fill(paths.CURVES),
            "paired": self.store.fill(paths.PAIRED),
            "points": self.store.fill(paths.POINTS),
            "accuracy": self._table(paths.ACCURACY, selector, selector.test),
        }

    def study_files(self, name: str) -> list[str]:
        """Return what a compression has found."""
        return [self.store.fill(template, compression=name) for template in STUDY_FILES]

    def studied(self) -> list[str]:
        """Return what all compressions have found."""
        return [file for name in self.config.compressions for file in self.study_files(name)]

    def judged(self) -> list[str]:
        """Return the files of this run that claims are judged from."""
        files = []
        for name in self.config.sweeps:
            files += [self.sweep_table(name), *self._controls(name, ("gains",))]
        for name in self.config.selectors:
            files += [self.store.fill(t, selector=name) for t in (paths.CURVES, paths.PAIRED)]
        return files + self.studied()

    def png(self, template: str) -> str:
        """Return the figure that Snakemake's report shows."""
        return self.store.fill(template, suffix="png")

    def figure(self, template: str) -> Any:
        """Return a figure for Snakemake's report; the first word of its name names its caption."""
        name = Path(template).name.partition(".")[0]
        label = name.replace("_{", ", {")
        return shown(self.png(template), name.partition("_")[0], "Figures", figure=label)

    def beside(self, template: str, *suffixes: str) -> list[str]:
        """Return what a figure's job makes beside its PNG, or the files with given suffixes."""
        return [self.store.fill(template, suffix=suffix) for suffix in suffixes or _BESIDE]

    def reported(self) -> list[str]:
        """Return everything that the report of this run shows."""
        config, fill = self.config, self.store.fill
        files = self._pictures(paths.AUDIT)
        files += [fill(paths.AUDIT_TABLE, paper=paper, suffix="csv") for paper in PAPERS]
        files += self.beside(paths.CLAIMS, "csv", "md")
        if config.sweeps:
            files += self._pictures(paths.VIOLINS, paths.LEVELS)
        for name in config.sweeps:
            files += [self.sweep_table(name), fill(paths.TABLE, sweep=name, suffix="md")]
            files += self._controls(name, CONTROL_TABLES)
            files += self._pictures(*self.sweep_figures(name))
        for name in config.selectors:
            figures = self._pictures(paths.PASS_AT_N, paths.SPACE)
            results = (*SELECTOR_RESULTS, *SELECTOR_TABLES)
            for template in (*figures, *results):
                files.append(fill(template, selector=name, suffix="md"))
        for name in config.comparisons:
            files.append(fill(paths.COMPARISON, comparison=name, suffix="md"))
        if config.compressions:
            files += self.studied()
            for exhibit in EXHIBITS:
                files += [
                    fill(paths.COMPRESSION_TABLE, exhibit=exhibit, suffix=suffix)
                    for suffix in ("csv", "md")
                ]
        for name in config.compressions:
            files += [fill(file, compression=name) for file in self._pictures(*STUDY_FIGURES)]
        return files

    # Of several stages

    @cached_property
    def _data(self) -> list[str]:
        """Keys of the datasets, in order."""
        return sorted(self._keys("data", self.config.problems))

    def _keys(self, wildcard: str, names: Iterable[str]) -> list[str]:
        return [self.store.key(wildcard, name) for name in names]

    def _encoder(self, solver: str) -> str | None:
        """Return the key of the pretrained encoder of a solver with a key."""
        encoder = self._encoders[solver]
        return encoder_key(encoder) if encoder.source else None

    def _batch(self, wildcards: Any) -> Batch:
        return self._batch_of[wildcards.model, wildcards.decoding, wildcards.questions]

    def _selector(self, wildcards: Any) -> Selector:
        return self.config.selectors[wildcards.selector]

    def _table(
        self, template: str, selector: Selector, questions: str, decoding: str | None = None
    ) -> str:
        """Return a table of a selector's model, on given questions."""
        names = {"model": selector.model, "questions": questions}
        return self.store.fill(template, decoding=decoding or selector.decoding, **names)

    def _sampled(self, selector: Selector) -> list[str]:
        """Return the graded samples that a selector is held against."""
        return [self._table(paths.GRADED, selector, selector.test, d) for d in selector.sampling]

    def _texts(self, selector: Selector) -> list[str]:
        names = (selector.train, selector.test)
        return [self.store.fill(paths.QUESTIONS, questions=name) for name in names]

    def _embeddings(self, selector: Selector, questions: str) -> str:
        names = {"embedder": selector.embedder, "questions": questions}
        return self.store.fill(paths.EMBEDDINGS, **names)

    def _arm(self, wildcards: Any) -> Arm:
        return self._arms[wildcards.subject, wildcards.data, wildcards.arm]

    def _trained(self, wildcards: Any) -> tuple[Study, *tuple[Any, ...]]:
        """Return the compression that a job is of, and the settings of its arm where it has one."""
        if hasattr(wildcards, "compression"):
            return (self.config.compressions[wildcards.compression],)
        if hasattr(wildcards, "arm"):
            arm = self._arm(wildcards)
            return arm.study, arm.settings
        subject = (wildcards.solver, wildcards.data)
        return (next(a.study for a in self._arms.values() if (a.subject, a.data) == subject),)

    def _controls(self, sweep: str, tables: Iterable[str]) -> list[str]:
        return [
            self.store.fill(paths.CONTROLS, sweep=sweep, table=table, suffix="csv")
            for table in tables
        ]

    def _pictures(self, *templates: str) -> list[str]:
        """Return the files of figures that the report shows; other wildcards stay open."""
        return [file for template in templates for file in self.beside(template, "png", "json")]


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
    jobs = {job.jobid: rules.planned(job, dag.dependencies[job]) for job in dag.needrun_jobs()}
    cores = workflow.resource_settings.cores or 1 if workflow.local_exec else 1  # not a cluster's
    logger.info("", extra={"planned": jobs, "cores": cores})


def tell_findings(rules: Rules, logger: Logger) -> None:
    """Print the findings of a run that is done, and where its report is."""
    said = rules.store.path(paths.FINDINGS)
    if said.exists():
        findings = said.read_text(encoding="utf-8").splitlines()
        logger.info("\n  ".join(["Findings", *findings]))
        logger.info(f"Done. Open {rules.store.path(paths.REPORT)}")


def _resources(request: Callable[[Any], Request]) -> Resources:
    """Return functions of Snakemake; each attempt asks for as much again."""
    return {
        "gpu": lambda wildcards: request(wildcards).gpus,
        "mem_mb": lambda wildcards, attempt: attempt * request(wildcards).megabytes,
        "runtime": lambda wildcards, attempt: attempt * request(wildcards).minutes,
    }


def _one_of(allowed: Iterable[str]) -> str:
    """Return a regular expression that one of the given texts matches; of none, one for `none`."""
    return "|".join(allowed) or "none"
