"""What a selector's evaluation reads, and what each method reaches on the test questions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from headsweep.config import Config, Selector
from headsweep.errors import TableError
from headsweep.experiments.sprint import methods, rankers, validation
from headsweep.experiments.sprint.evaluation import shuffle
from headsweep.experiments.sprint.experiment import Experiment, GradedAnswers
from headsweep.experiments.sprint.pass_at_n import Answers, Scores, Trained, Values, drawn, ordered
from headsweep.experiments.sprint.validation import Order, Z
from headsweep.files.tables import RANKING, TRAININGS
from headsweep.statistics.answers import extend, pass_at_n_drawn, pass_at_n_ordered
from headsweep.statistics.differences import Outcomes
from headsweep.variants import BASE

_T = TypeVar("_T")


@dataclass(frozen=True)
class Inputs:
    """Questions, graded answers and rankings."""

    options: Selector
    questions: Sequence[str]
    """Ids of the test questions."""
    z: Z
    """Z of the training questions over the pool."""
    heads: Answers
    """The pool's answers to the test questions."""
    sampled: Mapping[str, Answers]
    """The base model's samples, by method."""
    base: Answers
    """The base model's greedy answers."""
    rankings: Mapping[str, Mapping[str, Sequence[Order]]]
    """Rankings by method and by training, one for each seed."""

    @property
    def max_n(self) -> int:
        """The largest N: a pool may have fewer heads than the options say."""
        return min(self.options.max_n, self.z.shape[1])

    @property
    def redraws(self) -> dict[str, validation.Rows]:
        """The training questions of each training, by name."""
        return validation.redraws(len(self.z), self.options)

    def of_draws(self, method: str) -> list[Sequence[Order]]:
        """Return a method's rankings of the test questions, by draw and by seed."""
        return [self.rankings[method][draw] for draw in validation.draws(self.options)]


def load_inputs(config: Config, experiment: Experiment, graded: GradedAnswers) -> Inputs:
    """Read rankings and answers.

    Raises:
        TableError: a table is missing or damaged, or lacks an answer.
    """
    options = experiment.options
    heads = experiment.heads
    base = [str(BASE)]
    questions, rankings = _rankings(experiment)
    _, z = experiment.z(options.train)
    sampled = {
        method: graded.of(decoding, options.test, base, questions)
        for decoding, method in methods.sampling(config, options.sampling).items()
    }
    return Inputs(
        options=options,
        questions=questions,
        z=z,
        heads=graded.of(options.decoding, options.test, heads, questions),
        sampled=sampled,
        base=graded.of(options.decoding, options.test, base, questions),
        rankings=rankings,
    )


def _rankings(experiment: Experiment) -> tuple[list[str], dict[str, dict[str, list[Order]]]]:
    """Return ids of the test questions, and rankings by method and by training."""
    ranking = experiment.store.read(RANKING, selector=experiment.name)
    rankings = defaultdict[str, dict[str, list[Order]]](dict)
    table = experiment.store.read(TRAININGS, selector=experiment.name)
    for (method, training, _), part in table.groupby(["method", "training", "seed"], sort=False):
        of_seeds = rankings[str(method)].setdefault(str(training), [])
        of_seeds.append(np.stack(part["heads"].tolist()))
    return list(ranking["question_id"]), rankings


def passed(experiment: Experiment, graded: GradedAnswers, questions: Sequence[str]) -> Outcomes:
    """Return Pass@N of a SPRINT selector on test questions that it shares with another selector.

    Raises:
        TableError: it ranked heads for other questions.
    """
    options = experiment.options
    ranked, rankings = _rankings(experiment)
    if ranked != list(questions):
        path = experiment.output(RANKING)
        raise TableError(f"{path} is about other questions; remove it and rerun")
    answers = graded.of(options.decoding, options.test, experiment.heads, ranked)
    max_n = min(options.max_n, len(experiment.heads))
    by_draw = []
    for draw in validation.draws(options):
        orders = rankings[methods.SPRINT][draw]
        by_draw.append(
            [pass_at_n_ordered(answers.select(order).correct, max_n) for order in orders]
        )
    return by_draw


def _of_rankings(inputs: Inputs, method: str, measure: Callable[[Order], _T]) -> list[list[_T]]:
    """Return the measure of each of a method's rankings, by draw and by seed."""
    return [[measure(order) for order in orders] for orders in inputs.of_draws(method)]


def score(inputs: Inputs) -> dict[str, Trained]:
    """Return the scores of every method, in the order in which tables show them."""
    max_n = inputs.max_n

    def in_order(order: Order) -> Scores:
        return ordered(inputs.heads.select(order[..., :max_n]), max_n)

    random, cover, single = [], [], []
    for rows in inputs.redraws.values():
        learnt = inputs.z[rows]
        best, _ = rankers.weigh_shortlists(learnt, inputs.options)
        shortlist = rankers.shortlists(learnt, inputs.options)[best]
        random.append([drawn(inputs.heads.select(shortlist), max_n)])
        cover.append([in_order(rankers.greedy_cover(learnt))])
        single.append([in_order(rankers.accuracy_order(learnt)[:1])])
    # An oracle needs one head a question, so that the ceiling does not depend on N.
    ceiling = extend(inputs.heads.correct.any(axis=1, keepdims=True).astype(float), max_n)
    ranked: dict[str, Trained] = {
        method: _of_rankings(inputs, method, in_order)
        for method in (methods.SPRINT, *methods.RIVALS)
        if method in inputs.rankings
    }
    return {
        **ranked,
        methods.RANDOM: random,
        methods.POOL: [[drawn(inputs.heads, max_n)]],
        methods.COVER: cover,
        methods.SINGLE: single,
        **{method: [[drawn(answers, max_n)]] for method, answers in inputs.sampled.items()},
        methods.BASE: [[ordered(inputs.base, max_n)]],
        methods.ORACLE: [[{"pass_at_n": ceiling}]],
    }


def shuffled(inputs: Inputs) -> dict[str, Outcomes]:
    """Return Pass@N with shuffled questions, of each method that ranks heads for a question."""

    def measure(order: Order) -> Values:
        return shuffle(inputs.heads.correct, order, inputs.max_n)

    return {
        method: _of_rankings(inputs, method, measure)
        for method in (methods.SPRINT, *methods.RIVALS)
        if method in inputs.rankings
    }


def by_readings(inputs: Inputs, readings: Iterable[str]) -> dict[str, Outcomes]:
    """Return Pass@N of every reading of the loss, by name."""

    def measure(order: Order) -> Values:
        return pass_at_n_ordered(inputs.heads.select(order).correct, inputs.max_n)

    return {name: _of_rankings(inputs, name, measure) for name in readings}


def shortlisted(inputs: Inputs) -> dict[rankers.Shortlist, Outcomes]:
    """Return Pass@N of heads drawn from every shortlist."""
    by_draw = [
        rankers.shortlists(inputs.z[rows], inputs.options) for rows in inputs.redraws.values()
    ]
    correct = inputs.heads.correct
    return {
        shortlist: [
            [pass_at_n_drawn(correct[:, heads[shortlist]], inputs.max_n)] for heads in by_draw
        ]
        for shortlist in by_draw[0]
    }
