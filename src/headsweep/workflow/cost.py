"""Estimate what a config costs before anything starts: jobs, tokens, seconds, disk.

Everything is counted in operations, at one rate a kind of device (`headsweep.machine.processors`);
`headsweep pilot` measures.

Generation: a token takes two operations a weight. Samples share their prompt's pass; a head needs
half of one, from its layer on. What verifying a base model's answers saves is not counted.

Maps: a text is a pass of the base model, and one of each row from its layer on.

Training: a step takes about six operations per weight and token, and two more for the teacher.
Testing on the development part after each epoch takes half as long again. Scoring takes a pass over
the calibration texts in each round, whatever the criterion and the schedule; the test at the end is
a model's answers, or a solver's judgements at each depth. The memory of scoring and training is in
`headsweep.workflow.memory`.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from headsweep.config import Config, Decoding, Model, Questions, Study
from headsweep.config.compression import Compression
from headsweep.config.solvers import Training
from headsweep.errors import HeadsweepError
from headsweep.machine.processors import Card
from headsweep.models.footprint import parameters
from headsweep.store.batches import Batch
from headsweep.store.map_scores import map_layers, mapped_model, scored_variants
from headsweep.workflow.memory import LENGTHS, recipe_of

SPLIT_SIZES = {
    ("math500", "test"): 500,
    ("math_train", "train"): 11_998,  # of 12,000 rows two have no gold answer
    ("gsm8k", "train"): 7_473,
    ("gsm8k", "test"): 1_319,
}
"""Number of questions in each split that can be drawn."""

ROWS = {"asdiv_a": 1_217, "math23k": 23_162}
"""Number of problems in each dataset."""

_UNKNOWN_SIZE = 1_000  # of a question set

_SHARE_OF_LAYERS = 0.5  # of a prompt's pass: a head's begins at its layer
_DISK_BYTES_A_TOKEN = 4.0  # token id and text, compressed

_SAMPLED_TEXTS = 2  # of a question in a map: a right and a wrong sample
_DISK_BYTES_A_SCORE = 20.0
_PROBLEM_TOKENS = 35  # of a solver's word problem
_PASSES = 4  # of two operations per weight and token: three for the student, one for its teacher
_DEVELOPMENT = 1.5
_TEST_SHARE = 0.2  # of a dataset: one of five folds; an official test part is smaller
_SOLVING = 10  # passes of the thought head over a problem of the test part
_TEST_TURNS = 5  # of a measurement; the first is a warm-up


class Cost(NamedTuple):
    """The estimated cost of a batch's answers, or of a compression's trainings."""

    jobs: int
    answers: int
    tokens: float
    disk_gigabytes: float
    """Size of the answers, or of the weights that are kept."""


def total_cost(costs: Sequence[Cost]) -> Cost:
    """Return the sum of costs, field by field."""
    return Cost(
        jobs=sum(cost.jobs for cost in costs),
        answers=sum(cost.answers for cost in costs),
        tokens=sum(cost.tokens for cost in costs),
        disk_gigabytes=sum(cost.disk_gigabytes for cost in costs),
    )


class Texts(NamedTuple):
    """The texts that a map scores."""

    number: int
    tokens: int
    """Of each, its prompt's included."""


@cache
def split_size(questions: Questions) -> int | None:
    """Return how many questions the split of a set has; None if unknown.

    Raises:
        BenchmarkError: the user's own file is missing or damaged.
    """
    if not questions.file:
        return SPLIT_SIZES.get((questions.benchmark, questions.split))
    from headsweep.benchmarks.sources import read_source  # slow to import

    return len(read_source(questions))


def question_count(questions: Questions) -> int:
    """Return how many questions a set has, as far as the config or the user's own file tells."""
    return questions.n or max(1, split_count(questions) - len(questions.leave_out))


def split_count(questions: Questions) -> int:
    """Return how many questions the split of a set has, as far as is known."""
    if questions.generated:
        return questions.n or _UNKNOWN_SIZE
    with suppress(HeadsweepError):  # another machine's file
        return split_size(questions) or _UNKNOWN_SIZE
    return _UNKNOWN_SIZE


def generation_cost(batch: Batch) -> Cost:
    """Estimate what generating one batch costs."""
    config = batch.store.config
    decoding, questions = config.decodings[batch.decoding], config.questions[batch.questions]
    answers = question_count(questions) * decoding.samples * len(batch.variants)
    tokens = answers * answer_length(batch)
    return Cost(len(batch.variants), answers, tokens, tokens * _DISK_BYTES_A_TOKEN / 1e9)


def generation_seconds(batch: Batch, card: Card) -> float:
    """Return the seconds that a card takes to generate a batch, without job starts."""
    config = batch.store.config
    decoding, questions = config.decodings[batch.decoding], config.questions[batch.questions]
    tokens = _generated_tokens(questions, decoding, len(batch.variants))
    return tokens * token_seconds(config.models[batch.model], card)


def _generated_tokens(questions: Questions, decoding: Decoding, variants: int) -> float:
    """Return the tokens that pass through all layers while so many variants answer questions."""
    prompt, _ = LENGTHS[questions.benchmark]
    count = question_count(questions)
    passes = count * (1 + _SHARE_OF_LAYERS * (variants - 1))  # samples share a prompt's pass
    written = count * decoding.samples * variants * _answer_length(questions, decoding)
    return passes * prompt + written


def scored_texts(config: Config, name: str) -> Texts:
    """Return the texts that a map scores: at most so many, each of a mean length."""
    section = config.maps[name]
    questions = config.questions[section.questions]
    count = question_count(questions)
    count = min(count, section.n or count)
    kinds = _SAMPLED_TEXTS + 1 if section.sampling else 1  # and a reference solution
    return Texts(count * kinds, sum(LENGTHS[questions.benchmark]))


def scoring_cost(config: Config, name: str) -> Cost:
    """Estimate what a map costs: jobs that choose its texts, score a layer each, and estimate."""
    layers = map_layers(config, name)
    texts = scored_texts(config, name)
    variants = sum(len(scored_variants(config, name, layer)) for layer in layers)
    scores = texts.number * variants
    disk = scores * _DISK_BYTES_A_SCORE / 1e9
    return Cost(len(layers) + 2, 0, scores * texts.tokens, disk)


def scoring_seconds(config: Config, name: str, layer: int, card: Card) -> float:
    """Return the seconds that a card takes to score a map's texts without a layer's heads.

    The rows of a text begin at the layer; below it they are the base model's, computed once.
    """
    model = mapped_model(config, name)
    texts = scored_texts(config, name)
    variants = len(scored_variants(config, name, layer))
    passes = 1 + variants * (model.layers - layer) / model.layers
    return passes * texts.number * texts.tokens * token_seconds(model, card)


def map_seconds(config: Config, name: str, card: Card) -> float:
    """Return the seconds that a card takes for all scores of a map, without job starts."""
    layers = map_layers(config, name)
    return sum(scoring_seconds(config, name, layer, card) for layer in layers)


def answer_length(batch: Batch) -> int:
    """Return the assumed mean length of a batch's answers, in tokens."""
    config = batch.store.config
    return _answer_length(config.questions[batch.questions], config.decodings[batch.decoding])


def _answer_length(questions: Questions, decoding: Decoding) -> int:
    _, length = LENGTHS[questions.benchmark]
    return min(length, decoding.max_new_tokens)


def training_cost(config: Config, compression: str) -> Cost:
    """Estimate what the trainings of a compression cost: its solvers and all arms."""
    study = config.compressions[compression]
    epochs = [
        recipe_of(config, study, settings).epochs
        for settings in study.settings.values()
        if settings.rounds
    ]
    epochs += [config.solver_of(study).training.epochs] if study.solver is not None else []
    jobs = len(study.seeds) * len(epochs)
    tokens = len(study.seeds) * sum(epochs) * math.prod(_training_part(config, study))
    return Cost(jobs, 0, tokens, 4e-9 * parameters(config, study) * jobs)


def training_seconds(
    config: Config, study: Study, settings: Compression | None, card: Card
) -> float:
    """Return the seconds that a card takes to train, score and test an arm.

    Without `settings`: to train its solver, or to measure the speed of a model's arms.
    """
    if settings is None and study.solver is None:
        return measuring_seconds(config, study, card)
    if settings is None:
        return _fit_seconds(config, study, config.solver_of(study).training, card)
    seconds = arm_test_seconds(config, study, card)
    if settings.rounds:
        seconds += _fit_seconds(config, study, recipe_of(config, study, settings), card)
    if settings.ratio and not settings.scratch:  # whose heads are another arm's
        texts, _ = _training_part(config, study)
        passes = settings.rounds * min(texts, settings.importance.calibration or texts)
        seconds += passes * _text_seconds(config, study, card)
    return seconds


def measuring_seconds(config: Config, study: Study, card: Card) -> float:
    """Return the seconds that a card takes to time the tests of a compression's arms."""
    arms = study.settings if study.measured is None else study.measured
    return _TEST_TURNS * len(arms) * arm_test_seconds(config, study, card)


def _text_seconds(config: Config, study: Study, card: Card) -> float:
    """Return the seconds of a study's model in one pass over a text of its training part."""
    _, length = _training_part(config, study)
    return 2 * parameters(config, study) * length / card.training


def _fit_seconds(config: Config, study: Study, training: Training, card: Card) -> float:
    """Return the seconds that a card takes to train a solver or an arm."""
    texts, _ = _training_part(config, study)
    launches = math.ceil(texts / training.batch_size) * card.training_launch_seconds
    products = _PASSES * texts * _text_seconds(config, study, card)
    return training.epochs * _DEVELOPMENT * (launches + products)


def arm_test_seconds(config: Config, study: Study, card: Card) -> float:
    """Return the seconds of an arm's test: a model's answers, or a solver's judgements."""
    if study.model is not None:
        questions = config.questions[str(study.test)]
        tokens = _generated_tokens(questions, config.decodings[study.decoding], variants=1)
        return tokens * token_seconds(config.models[study.model], card)
    texts, _ = _training_part(config, study)
    partition = config.problems[str(study.data)].partition
    share = _TEST_SHARE
    if partition.protocol == "random":
        share = partition.ratios[-1] / sum(partition.ratios)
    return _SOLVING * share * texts * _text_seconds(config, study, card)


def token_seconds(model: Model, card: Card) -> float:
    """Return the seconds of a token's products with all weights."""
    return 2e9 * model.billions / card.flops


def _training_part(config: Config, study: Study) -> tuple[int, int]:
    """Return the number of texts of a training part, and the mean tokens of each.

    A model learns from a prompt with its answer, a solver from a word problem alone.
    """
    if study.train is not None:
        questions = config.questions[study.train]
        prompt, _ = LENGTHS[questions.benchmark]
        answer = _answer_length(questions, config.decodings[study.decoding])
        return question_count(questions), prompt + answer
    problems = config.problems[str(study.data)]
    return problems.n or ROWS[problems.dataset], _PROBLEM_TOKENS
