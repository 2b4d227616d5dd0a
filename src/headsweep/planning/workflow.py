"""Inputs, outputs and resources of the workflow's rules, as functions of their wildcards.

Snakemake's own objects (wildcards, jobs) are untyped.
"""

import re
from collections.abc import Callable, Iterable
from functools import cached_property, reduce
from operator import getitem
from typing import Any, get_args

from headsweep import paths
from headsweep.config import EXPERIMENTS, Config, Preset, Study
from headsweep.config.compression import Compression
from headsweep.planning import cost
from headsweep.planning.batches import (
    Arm,
    Batch,
    all_arms,
    arms,
    at_home,
    batches,
    encoders,
    solvers,
)
from headsweep.planning.exhibits import Shown
from headsweep.planning.maps import (
    find_map,
    layer_name,
    map_layers,
    measured,
    score_files,
    texts_key,
)
from headsweep.planning.store import digest, encoder_key
from headsweep.variants import Variant, pattern


class Rules(Shown):
    """Inputs, parameters and resources of the rules of a resolved config's workflow.

    Snakemake calls the methods that take `wildcards`, once for each job. `cores` are those that it
    may use, None if unknown; `layer` adds to `groups`, its names of job groups.
    """

    def __init__(self, config: Config, cores: int | None, groups: dict[str, str]) -> None:
        super().__init__(config)
        self.batches = batches(config)
        self._cores, self._groups = cores or 1, groups
        self._batch_of = {tuple(self.store.keys(**b.names).values()): b for b in self.batches}
        self.scoring_resources = _resources(
            lambda wildcards: cost.scoring_request(config, find_map(config, wildcards.texts)[0])
        )
        self._arms, self._solvers = all_arms(config), solvers(config)
        self._data = sorted(self.store.key("data", name) for name in config.problems)
        self.generation_resources = _resources(
            lambda wildcards: cost.generation_request(config, self._batch(wildcards))
        )
        self.training_resources = _resources(
            lambda wildcards: cost.training_request(config, *self._trained(wildcards))
        )

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each wildcard that stands for a name or a key."""
        config, every = self.config, self._arms.values()
        found = {section.removesuffix("s"): [*getattr(config, section)] for section in EXPERIMENTS}
        keyed: dict[str, Iterable[str]] = {
            "model": config.models,
            "questions": config.questions,
            "decoding": config.decodings,
            "embedder": config.embedders,
            "source": config.questions,
        }
        for wildcard, section in keyed.items():
            keys = (self.store.key(wildcard, name) for name in section)
            found[wildcard] = list(dict.fromkeys(keys))  # several sets may be drawn from a source
        return found | {
            "grading": [*get_args(Preset)],
            "data": sorted({arm.data for arm in every}.union(self._data)),
            "subject": sorted({arm.subject for arm in every}),
            "arm": sorted({arm.key for arm in every}),
            "solver": sorted({solver for solver, _ in self._solvers}),
            "encoder": [*encoders(config)],
            "texts": list(dict.fromkeys(texts_key(config, name) for name in config.maps)),
            "layer": [layer_name(n) for n in sorted(self._mapped_layers())],
        }

    @cached_property
    def constraints(self) -> dict[str, str]:
        """The allowed values of each wildcard, as a regular expression."""
        either = {
            wildcard: "|".join(map(re.escape, values)) or "none"
            for wildcard, values in self.values.items()
        }
        return {"variant": pattern(), "seed": r"\d+", **either}

    @property
    def fetched(self) -> list[str]:
        """The files of all models and data that are not made here."""
        config, fill = self.config, self.store.fill
        return [
            *(fill(paths.MODEL, model=name) for name in config.models),
            *(fill(paths.SOURCE, source=n) for n, q in config.questions.items() if not q.generated),
            *(fill(paths.EMBEDDER, embedder=n) for n, e in config.embedders.items() if e.source),
            *(paths.PROBLEMS.format(data=key) for key in self._data),
            *(paths.ENCODER.format(encoder=key) for key in encoders(config)),
        ]

    def answers_of_all(self) -> list[str]:
        """Return the files of all answers."""
        return [file for batch in self.batches for file in self.store.answers(batch)]

    def graded_batches(self) -> list[Batch]:
        """Return the batches that are graded already."""
        return [b for b in self.batches if self.store.path(paths.ACCURACY, **b.names).exists()]

    def log(self, template: str) -> str:
        """Return the log file of a rule: the given template in the run's folder of logs."""
        return f"{self.store.fill(paths.LOG)}/{template}.log"

    def settings(self, *keys: str) -> str:
        """Return a digest of the config; of a section or entry without what only the page shows."""
        if not keys:
            return digest(self.config.model_dump(mode="json"))
        return digest(reduce(getitem, keys, self._values))

    @cached_property
    def _values(self) -> dict[str, Any]:
        shown = {"__all__": {"title", "versus"}}
        sections = ("models", "questions", "problems", *EXPERIMENTS)
        return self.config.model_dump(mode="json", exclude=dict.fromkeys(sections, shown))

    def planned(
        self, job: Any, after: Iterable[Any], *, local: bool = True
    ) -> tuple[str, str, float, list[int]]:
        """Return what `snakemake_logger_plugin_headsweep.pace` estimates the time left from.

        `after` are the jobs that the job waits for; if not `local`, jobs run on a cluster.
        """
        name, wildcards = job.rule.name, job.wildcards
        unit, seconds = str(job.jobid), 0.0
        if name == "generate":
            batch = self._batch(wildcards)
            unit = str(self.store.keys(**batch.names))
            card = cost.card_of(self.config.models[batch.model].device, local=local)
            seconds = cost.generation_seconds(self.config, batch, card)
            seconds *= self._cores if local else 1
        elif name == "teacher" or (name == "compress" and self._arm(wildcards).settings.rounds):
            card = cost.card_of("auto", local=local)
            seconds = cost.training_seconds(self.config, *self._trained(wildcards), card)
        return name, unit, seconds, [other.jobid for other in after]

    def split(self, wildcards: Any) -> list[str]:
        """Return the inputs of the draw of a question set."""
        name = self.store.name("questions", wildcards.questions)
        embedder, fill = self.config.questions[name].embedder, self.store.fill
        embedders = [fill(paths.EMBEDDER, embedder=embedder)] if embedder else []
        return [fill(paths.SOURCE, source=name), *embedders]

    def embedded_model(self, wildcards: Any) -> list[str]:
        """Return the model that an embedder uses; none for a fetched embedder."""
        model = self.config.embedders[self.store.name("embedder", wildcards.embedder)].model
        return [self.store.fill(paths.MODEL, model=model)] if model else []

    def answers(self, wildcards: Any) -> list[str]:
        """Return the answers of a batch."""
        return self.store.answers(self._batch(wildcards))

    def layer(self, wildcards: Any) -> str:
        """Return the group of jobs that share a SLURM allocation, and so a loaded model."""
        number = self._batch(wildcards).groups[Variant.parse(wildcards.variant)]
        group = f"{wildcards.model}/{wildcards.decoding}/{wildcards.questions}/{number}"
        self._groups[group] = "layer"  # what the profile's group-components names
        return group

    def judges(self, wildcards: Any) -> int:
        """Return the cores for grading a batch; a job that takes all waits until all are free."""
        answers = cost.generation_cost(self.config, self._batch(wildcards)).answers
        return min(self._cores, 1 + answers // 10_000)

    def compared(self, wildcards: Any) -> list[str]:
        """Return the inputs of a comparison of prompts."""
        section = self.config.comparisons[wildcards.comparison]
        names = {"model": section.model, "questions": section.questions, "variant": "base"}
        return [
            self.store.fill(paths.QUESTIONS, **names),
            *(self.store.fill(paths.ANSWERS, decoding=d, **names) for d in section.decodings),
        ]

    def families(self, wildcards: Any) -> list[str]:
        """Return the graded answers that a comparison of families needs."""
        frontier = self.config.frontiers[wildcards.frontier]
        return [
            self.store.fill(paths.GRADED, model=frontier.model, decoding=decoding, questions=name)
            for name in (frontier.train, frontier.test)
            for decoding in (frontier.decoding, *frontier.sampling)
        ]

    def scored(self, wildcards: Any) -> list[str]:
        """Return the inputs of the scores of a map's texts."""
        _, section = find_map(self.config, wildcards.texts)
        names = {"model": section.model, "questions": section.questions}
        fill = self.store.fill
        return [
            fill(paths.MODEL, model=section.model),
            fill(paths.QUESTIONS, questions=section.questions),
            *(fill(paths.GRADED, decoding=each, **names) for each in section.sampling),
        ]

    def mapped(self, wildcards: Any) -> list[str]:
        """Return the inputs of a map's tables: its scores, and measured gains to hold them by."""
        name, fill = wildcards.map, self.store.fill
        gains = [fill(paths.ACCURACY, **batch.names) for batch in measured(self.config, name)]
        return [*score_files(self.config, name), *gains]

    def of_selector(self, job: str) -> Callable[[Any], list[str]]:
        """Return the input function of a selector's job, without the selector's own results."""

        def inputs(wildcards: Any) -> list[str]:
            selector = self.config.selectors[wildcards.selector]

            def of(template: str, part: str, **names: str) -> str:
                names = {"model": selector.model, "decoding": selector.decoding, **names}
                return self.store.fill(template, questions=getattr(selector, part), **names)

            def embedded(part: str) -> list[str]:
                return [of(paths.EMBEDDINGS, part, embedder=each) for each in selector.embedder]

            accuracy, parts = of(paths.ACCURACY, "train"), ("train", "test")
            if job == "train_selector":
                return [accuracy, *embedded("train")]
            sets = [of(paths.QUESTIONS, part) for part in parts]
            if job == "rank_heads":
                return [accuracy, *sets, *embedded("train"), *embedded("test")]
            graded = [of(paths.GRADED, part) for part in parts]
            sampled = [of(paths.GRADED, "test", decoding=each) for each in selector.sampling]
            others = [
                self.store.fill(template, selector=each)
                for each in at_home(self.config, wildcards.selector)
                for template in (paths.RANKING, paths.TRAININGS)
            ]
            return [accuracy, *sets, *graded, *sampled, *others]

        return inputs

    def taught(self, wildcards: Any) -> list[str]:
        """Return the inputs of a solver's training."""
        study = next(of for (key, _), of in self._solvers.items() if key == wildcards.solver)
        encoder = self.config.solvers[str(study.solver)].encoder
        fetched = [paths.ENCODER.format(encoder=encoder_key(encoder))] if encoder.source else []
        return [paths.PROBLEMS, *fetched]

    def tested(self, wildcards: Any) -> list[str]:
        """Return the data that an arm is trained and tested on."""
        study, fill = self._arm(wildcards).study, self.store.fill
        if not study.model:
            return [paths.PROBLEMS]
        drawn = [fill(paths.QUESTIONS, questions=name) for name in (study.train, study.test)]
        return [fill(paths.MODEL, model=study.model), *drawn]

    def compressed(self, wildcards: Any) -> list[str]:
        """Return the inputs of an arm's compression."""
        arm, inputs = self._arm(wildcards), self.tested(wildcards)
        if arm.study.model:
            return inputs + self.store.answers(arm.answered(self.config))
        inputs.append(arm.file(paths.TEACHER, wildcards.seed))
        if layout := arm.layout():
            inputs.append(layout.file(paths.HISTORY, wildcards.seed))
        return inputs

    def quantised(self, wildcards: Any) -> list[str]:
        """Return the inputs of an arm's test with 8-bit weights."""
        return [*self.tested(wildcards), paths.HISTORY]

    def gathered(self, wildcards: Any) -> list[str]:
        """Return the result files of all arms of a compression."""
        study = self.config.compressions[wildcards.compression]
        return [
            arm.file(template, seed)
            for arm in arms(self.config, wildcards.compression)
            for template in (paths.OUTCOMES, paths.HISTORY, paths.INT8_OUTCOMES)
            for seed in study.seeds
            if template != paths.INT8_OUTCOMES or arm.name in study.int8
        ]

    def measured(self, wildcards: Any) -> list[str]:
        """Return the histories of the arms whose speed and memory are measured."""
        study = self.config.compressions[wildcards.compression]
        return [
            arm.file(paths.HISTORY, study.seeds[0])
            for arm in arms(self.config, wildcards.compression)
            if study.measured is None or arm.name in study.measured
        ]

    def _mapped_layers(self) -> set[int]:
        return {layer for name in self.config.maps for layer in map_layers(self.config, name)}

    def _batch(self, wildcards: Any) -> Batch:
        return self._batch_of[wildcards.model, wildcards.decoding, wildcards.questions]

    def _arm(self, wildcards: Any) -> Arm:
        return self._arms[wildcards.subject, wildcards.data, wildcards.arm]

    def _trained(self, wildcards: Any) -> tuple[Study, Compression | None]:
        """Return a job's compression, and the settings of its arm if it has one."""
        if hasattr(wildcards, "compression"):
            return self.config.compressions[wildcards.compression], None
        if hasattr(wildcards, "arm"):
            arm = self._arm(wildcards)
            return arm.study, arm.settings
        return self._solvers[wildcards.solver, wildcards.data], None


def _resources(request: Callable[[Any], cost.Request]) -> dict[str, Callable[..., int]]:
    """Return a rule's resources as functions of a job's wildcards and attempt number."""
    return {
        "gpu": lambda wildcards: request(wildcards).gpus,
        "mem_mb": lambda wildcards, attempt: attempt * request(wildcards).megabytes,
        "runtime": lambda wildcards, attempt: attempt * request(wildcards).minutes,
    }
