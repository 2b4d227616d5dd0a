"""What the rules in workflow/rules read and make, as a config decides it, and their parameters.

The file is long because it has one method for each such question of a rule, in the order of the
rules' files. Snakemake knows one object, `RULES`, so that each rule shows where its inputs come
from. Snakemake's own objects (wildcards, jobs) are untyped.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from snakemake.io import report

from headsweep.config import EXPERIMENTS
from headsweep.config.titles import title, titles
from headsweep.files import paths
from headsweep.files.tables import (
    ACCURACY,
    ANSWERS,
    GRADED,
    INT8_OUTCOMES,
    PROBLEMS,
    QUESTIONS,
    RANKING,
    SOURCE,
    TRAININGS,
    FileKind,
)
from headsweep.page.printed import numbers
from headsweep.page.printed.exhibits import DOCUMENT, PRINTED
from headsweep.results.exhibits import EXHIBITS, RunFiles, Subject
from headsweep.store.batches import arms, at_home, encoders
from headsweep.store.keys import digest, encoder_key
from headsweep.store.layout import Store
from headsweep.store.looks import heads_of_key
from headsweep.store.map_scores import find_map, head_batches_elsewhere, score_files
from headsweep.variants import BASE, Variant
from headsweep.workflow import cost
from headsweep.workflow.resources import Resources
from headsweep.workflow.wildcards import WildcardLookup

InputFunction = Callable[[Any], list[str]]
"""Called by Snakemake with the wildcards of a job; returns the paths of input files."""


def shown(file: str, caption: str, category: str, **labels: str) -> Any:
    """Mark a file for Snakemake's own report, with the caption of the given name."""
    return report(file, caption=f"../report/{caption}.rst", category=category, labels=labels)


class Rules:
    """Inputs and parameters of the rules of a resolved config's workflow.

    Snakemake calls the methods that take `wildcards`, once for each job. Other methods return such
    a function, or what does not depend on the job.

    Args:
        store: of a resolved config.
        cores: those that Snakemake may use, None if unknown.
        groups: Snakemake's names of job groups, to which `layer` adds.
        local: jobs run on this machine, and not on a cluster.
    """

    def __init__(
        self, store: Store, cores: int | None, groups: dict[str, str], *, local: bool = True
    ) -> None:
        self.config = store.config
        self.store = store
        self.files = RunFiles(store)
        self._lookup = WildcardLookup(store)
        self.batches = self._lookup.batches
        self.local = local
        self.resources = Resources(self._lookup, cores or 1, local=local)
        self._cores = cores or 1
        self._groups = groups

    # What every rule may use.

    @property
    def constraints(self) -> dict[str, str]:
        """The allowed values of each wildcard, as a regular expression."""
        return self._lookup.constraints

    def log(self, template: str) -> str:
        """Return the log file of a rule: the given template in the run's folder of logs."""
        return f"{self.store.fill(paths.LOG)}/{template}.log"

    def settings(self, *keys: str) -> str:
        """Return a digest of the config; of a section or entry without what only the page shows."""
        if not keys:
            return digest(self.config.model_dump(mode="json"))
        part: Any = self._deciding_values
        for key in keys:
            part = part[key]
        return digest(part)

    @cached_property
    def _deciding_values(self) -> dict[str, Any]:
        shown_only = {"__all__": {"title", "versus"}}
        sections = ("models", "questions", "problems", *EXPERIMENTS)
        return self.config.model_dump(mode="json", exclude=dict.fromkeys(sections, shown_only))

    # Targets.

    @property
    def fetched(self) -> list[str]:
        """The files of all models and data that are not made here."""
        config = self.config
        files = [self.store.fill(paths.MODEL, model=name) for name in config.models]
        for name, questions in config.questions.items():
            if not questions.generated:
                files.append(self.store.fill(SOURCE, source=name))
        for name, embedder in config.embedders.items():
            if embedder.source:
                files.append(self.store.fill(paths.EMBEDDER, embedder=name))
        files += [PROBLEMS.path.format(data=key) for key in self._lookup.problem_keys]
        files += [paths.ENCODER.format(encoder=key) for key in encoders(config)]
        return files

    def answers_of_all(self) -> list[str]:
        """Return the files of all answers."""
        return [file for batch in self.batches.values() for file in batch.answers]

    def _graded(self, model: str, decodings: Iterable[str], questions: str) -> list[str]:
        return [
            self.store.fill(GRADED, model=model, decoding=decoding, questions=questions)
            for decoding in decodings
        ]

    def _base_answers(self, model: str, decodings: Iterable[str], questions: str) -> list[str]:
        names = {"model": model, "questions": questions, "variant": str(BASE)}
        return [self.store.fill(ANSWERS, decoding=decoding, **names) for decoding in decodings]

    # benchmarks.smk

    def source_of_questions(self, wildcards: Any) -> list[str]:
        """Return the split that a question set is drawn from."""
        name = self.store.name("questions", wildcards.questions)
        return [self.store.fill(SOURCE, source=name)]

    def embedder_of_questions(self, wildcards: Any) -> list[str]:
        """Return the embedder by which a question set is drawn; none if it is drawn otherwise."""
        name = self.store.name("questions", wildcards.questions)
        embedder = self.config.questions[name].embedder
        return [self.store.fill(paths.EMBEDDER, embedder=embedder)] if embedder else []

    def model_of_embedder(self, wildcards: Any) -> list[str]:
        """Return the model that an embedder uses; none for a fetched embedder."""
        model = self.config.embedders[self.store.name("embedder", wildcards.embedder)].model
        return [self.store.fill(paths.MODEL, model=model)] if model else []

    # sweep.smk

    def answers(self, wildcards: Any) -> list[str]:
        """Return the answers of a batch: one file for each variant of the model."""
        return self._lookup.batch(wildcards).answers

    def answers_without_heads(self, wildcards: Any) -> list[str]:
        """Return the answers without each of the heads that a job looks into."""
        batch = self._lookup.batch(wildcards)
        heads = heads_of_key(batch, wildcards.heads)
        return [str(batch.path(ANSWERS, variant=head)) for head in heads]

    def job_group(self, wildcards: Any) -> str:
        """Return the group of jobs that share a SLURM allocation, and so a loaded model.

        Snakemake learns that it is one of the groups that the profile calls `layer`.
        """
        number = self._lookup.batch(wildcards).groups[Variant.parse(wildcards.variant)]
        group = f"{wildcards.model}/{wildcards.decoding}/{wildcards.questions}/{number}"
        self._groups[group] = "layer"
        return group

    def judges(self, wildcards: Any) -> int:
        """Return the cores for grading a batch; a job that takes all waits until all are free."""
        answers = cost.generation_cost(self._lookup.batch(wildcards)).answers
        return min(self._cores, 1 + answers // 10_000)

    def compared_questions(self, wildcards: Any) -> list[str]:
        """Return the question set of a comparison of prompts."""
        comparison = self.config.comparisons[wildcards.comparison]
        return [self.store.fill(QUESTIONS, questions=comparison.questions)]

    def compared_answers(self, wildcards: Any) -> list[str]:
        """Return the base model's answers under each decoding of a comparison of prompts."""
        comparison = self.config.comparisons[wildcards.comparison]
        return self._base_answers(comparison.model, comparison.decodings, comparison.questions)

    # sprint.smk

    def learnt_from(self, kind: FileKind) -> InputFunction:
        """Return an input function: a file of the questions that a selector is trained on.

        There is one for each embedder that the selector may choose, if the path has an embedder.
        """
        return lambda wildcards: self._of_selector(wildcards.selector, kind, "train")

    def tested_on(self, kind: FileKind) -> InputFunction:
        """Return an input function as `learnt_from`, for the questions a selector is tested on."""
        return lambda wildcards: self._of_selector(wildcards.selector, kind, "test")

    def _of_selector(self, name: str, kind: FileKind, part: str) -> list[str]:
        selector = self.config.selectors[name]
        questions = getattr(selector, part)
        files = (
            self.store.fill(
                kind,
                model=selector.model,
                decoding=selector.decoding,
                questions=questions,
                embedder=embedder,
            )
            for embedder in selector.embedder
        )
        return list(dict.fromkeys(files))

    def sampled(self, wildcards: Any) -> list[str]:
        """Return the graded samples, by temperature, that a selector is compared with."""
        selector = self.config.selectors[wildcards.selector]
        return self._graded(selector.model, selector.sampling, selector.test)

    def rankings_at_home(self, wildcards: Any) -> list[str]:
        """Return the rankings of selectors that learnt from the benchmark this one is tested on.

        There are none if it learnt from that benchmark itself.
        """
        return [
            self.store.fill(template, selector=name)
            for name in at_home(self.config, wildcards.selector)
            for template in (RANKING, TRAININGS)
        ]

    def titles_at_home(self, wildcards: Any) -> dict[str, str]:
        """Return what the table of a transfer calls this selector and those it is held against."""
        home = at_home(self.config, wildcards.selector)
        called = titles(self.config, "selectors")
        return {name: called[name] for name in (wildcards.selector, *home)} if home else {}

    # map.smk

    def model_of_texts(self, wildcards: Any) -> list[str]:
        """Return the model that scores the texts of a map."""
        _, section = find_map(self.config, wildcards.texts)
        return [self.store.fill(paths.MODEL, model=section.model)]

    def questions_of_texts(self, wildcards: Any) -> list[str]:
        """Return the question set that a map's texts answer."""
        _, section = find_map(self.config, wildcards.texts)
        return [self.store.fill(QUESTIONS, questions=section.questions)]

    def samples_of_texts(self, wildcards: Any) -> list[str]:
        """Return the samples, by temperature, that a map's texts are chosen from.

        They are of the store, as the scores are, which all runs share.
        """
        _, section = find_map(self.config, wildcards.texts)
        return self._base_answers(section.model, section.sampling, section.questions)

    def scores_of_map(self, wildcards: Any) -> list[str]:
        """Return a map's scores, a file a layer."""
        return score_files(self.config, wildcards.map)

    def gains_beside_map(self, wildcards: Any) -> list[str]:
        """Return the matrices Z whose gains a map is held against."""
        return [
            str(batch.path(ACCURACY)) for batch in head_batches_elsewhere(self.store, wildcards.map)
        ]

    def titles_beside_map(self, wildcards: Any) -> dict[str, str]:
        """Return what a map's table calls the questions of the gains that it is held against."""
        beside = head_batches_elsewhere(self.store, wildcards.map)
        return {
            batch.questions: title(self.config, "questions", batch.questions) for batch in beside
        }

    # frontier.smk

    def family_answers(self, part: str) -> InputFunction:
        """Return an input function: graded answers to the questions that a frontier chooses by
        ("train") or is tested on ("test"), of the families and of the samples.
        """

        def inputs(wildcards: Any) -> list[str]:
            frontier = self.config.frontiers[wildcards.frontier]
            decodings = (frontier.decoding, *frontier.sampling)
            return self._graded(frontier.model, decodings, getattr(frontier, part))

        return inputs

    # compression.smk

    def encoder_of_solver(self, wildcards: Any) -> list[str]:
        """Return the pretrained encoder that a solver starts from; none for one from scratch."""
        study = self._lookup.study_of_solver(wildcards.solver)
        encoder = self.config.solvers[str(study.solver)].encoder
        return [paths.ENCODER.format(encoder=encoder_key(encoder))] if encoder.source else []

    def data_of_arm(self, wildcards: Any) -> list[str]:
        """Return what an arm is trained and tested on: problems, or a model and question sets."""
        study = self._lookup.arm(wildcards).study
        if not study.model:
            return [PROBLEMS.path]
        return [
            self.store.fill(paths.MODEL, model=study.model),
            self.store.fill(QUESTIONS, questions=study.train),
            self.store.fill(QUESTIONS, questions=study.test),
        ]

    def answers_of_arm(self, wildcards: Any) -> list[str]:
        """Return the answers to training questions that a model's arm learns from; else none.

        Those without each head are among them if they rank the heads.
        """
        arm = self._lookup.arm(wildcards)
        return arm.answered(self.store).answers if arm.study.model else []

    def teacher_of_arm(self, wildcards: Any) -> list[str]:
        """Return the trained solver that an arm starts from; none for a model's arm."""
        arm = self._lookup.arm(wildcards)
        return [] if arm.study.model else [arm.file(paths.TEACHER, wildcards.seed)]

    def layout_of_arm(self, wildcards: Any) -> list[str]:
        """Return the history whose remaining heads an arm from scratch has; else none."""
        arm = self._lookup.arm(wildcards)
        layout = None if arm.study.model else arm.layout()
        return [layout.file(paths.HISTORY, wildcards.seed)] if layout else []

    def files_of_arms(self, template: str) -> InputFunction:
        """Return an input function: a file of every arm and seed of a compression."""

        def inputs(wildcards: Any) -> list[str]:
            study = self.config.compressions[wildcards.compression]
            return [
                arm.file(template, seed)
                for arm in arms(self.config, wildcards.compression)
                for seed in study.seeds
                if template != INT8_OUTCOMES.path or arm.name in study.int8
            ]

        return inputs

    def measured_arms(self, wildcards: Any) -> list[str]:
        """Return the histories of the arms whose speed and memory are measured."""
        study = self.config.compressions[wildcards.compression]
        return [
            arm.file(paths.HISTORY, study.seeds[0])
            for arm in arms(self.config, wildcards.compression)
            if study.measured is None or arm.name in study.measured
        ]

    # figures.smk

    @property
    def files_printed(self) -> list[str]:
        """The files of the run that the papers' exhibits are made from."""
        return numbers.files(self.store)

    @property
    def printed(self) -> list[str]:
        """The files of the papers' exhibits in the papers' form."""
        run = self.config.run
        made = [file for exhibit in PRINTED for file in exhibit.files(run)]
        return [*made, DOCUMENT.format(run=run)]

    def sweep_file(self, kind: FileKind) -> InputFunction:
        """Return an input function: a file of a sweep's batch, under the sweep's own grading."""
        return lambda wildcards: [self.files.sweep_table(wildcards.sweep, kind)]

    def figure_data(self, name: str, *kinds: Subject) -> list[str]:
        """Return the files that all figures of a subject are drawn from."""
        needs = dict.fromkeys(exhibit.needs for exhibit in EXHIBITS if exhibit.per in kinds)
        files = (file for need in needs for file in self.files.figure_data(need, name))
        return list(dict.fromkeys(files))

    def pictures(self, *kinds: Subject, sweep: str = "{sweep}") -> list[Any]:
        """Return all files of the figures that a job draws; Snakemake's report shows the PNGs.

        Names of subjects stay wildcards, but for that of a sweep if it is given.
        """
        files: list[Any] = []
        for exhibit in EXHIBITS:
            if exhibit.per not in kinds:
                continue
            subject = sweep if exhibit.per in ("sweep", "layer") else f"{{{exhibit.per}}}"
            layers = self.files.layers(sweep) if exhibit.per == "layer" else [0]
            for layer in layers:
                label = exhibit.title.format(of=subject, layer=layer)
                stem = exhibit.template(self.config.run, subject, layer).removesuffix("{suffix}")
                files += [f"{stem}{suffix}" for suffix in ("pdf", "svg", "csv", "json")]
                files.append(shown(f"{stem}png", exhibit.name, "Figures", figure=label))
        return files
