"""The jobs of a head selector: train, rank, evaluate.

Each reads tables and writes results and their records. Only those that train or rank import torch.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headsweep.config.titles import titles
from headsweep.errors import RESULT, ConfigError, TableError
from headsweep.experiments.sprint import (
    evaluation,
    methods,
    rankers,
    scoring,
    validation,
)
from headsweep.experiments.sprint.experiment import Experiment, GradedAnswers
from headsweep.experiments.sprint.model_card import card
from headsweep.experiments.sprint.pass_at_n import Trained, mean_over, outcomes
from headsweep.experiments.sprint.rankers import EmbeddedQuestions
from headsweep.experiments.sprint.scoring import Inputs
from headsweep.experiments.sprint.validation import reading_of
from headsweep.files import paths, safe_files, tables
from headsweep.files.record import Stopwatch, peak_resident, read_record, write_record
from headsweep.statistics.differences import compare
from headsweep.statistics.intervals import Bootstrap
from headsweep.store.batches import at_home
from headsweep.store.layout import Store
from headsweep.text import counted

if TYPE_CHECKING:
    from headsweep.experiments.sprint.head_selector import Setting

_LOG = logging.getLogger(__name__)


def train(store: Store, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.

    Raises:
        ConfigError: no head solves any training question.
    """
    from headsweep.experiments.sprint import fitting, head_selector

    experiment = Experiment(store, name)
    options = experiment.options
    questions, z = experiment.z(options.train)
    if not z.any():
        raise ConfigError(
            f"selectors.{name}: no head solves any of the {len(z)} training questions, so there is "
            f"nothing to learn; choose easier training questions or a longer max_new_tokens"
        )
    embeddings = experiment.questions(options.train, questions).embeddings
    setting, choice = fitting.choose(embeddings, z, options)
    seed = options.seeds[0]
    (fit,) = fitting.fit(embeddings[setting.embedder], z, [setting], [seed])
    facts = {
        "settings": options.model_dump(mode="json"),
        "model": store.key("model", options.model),
        "decoding": store.key("decoding", options.decoding),
        "train": store.key("questions", options.train),
        "embedder": store.key("embedder", setting.embedder),
        "heads": experiment.heads,
        "seed": seed,
        "training_questions": len(questions),
        "solved_by_no_head": int((~z.any(axis=1)).sum()),
        "training_loss": fit.training_loss,
        "diverged": fit.diverged,
    }
    path = experiment.output(paths.SELECTOR)
    head_selector.save_selector(path, fit.selector, facts)
    write_record(path, experiment.stopwatch, facts)
    experiment.save(paths.CHOICE, choice, facts)


def rank(store: Store, name: str) -> None:
    """Rank the heads of the pool for each test question.

    Writes `tables.RANKING`, the positions of heads and questions (`tables.POSITIONS`), and the
    rankings of selectors, and of their readings, trained from every seed on all training questions
    and on redraws of them (`tables.TRAININGS`).

    Raises:
        TableError: the selector was trained for another pool.
    """
    from headsweep.experiments.sprint import head_selector

    experiment = Experiment(store, name)
    options, heads = experiment.options, experiment.heads
    trained = experiment.output(paths.SELECTOR)
    selector, facts = head_selector.load_selector(trained)
    if facts["heads"] != heads:
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    test = experiment.questions(options.test)
    vectors = test.embeddings[selector.setting.embedder]

    before, selecting = peak_resident(), Stopwatch()
    order, distances = head_selector.rank_heads(selector, vectors)
    seconds = selecting.seconds
    held = peak_resident() - before
    ranked = {"heads": list(np.array(heads)[order]), "distances": list(distances)}
    table = pd.DataFrame({"question_id": test.ids, **ranked})
    facts = {**facts, "test": experiment.store.key("questions", options.test)}
    cost = {"selection_seconds": seconds, "selection_bytes": held}
    experiment.save(tables.RANKING, table, facts, **cost)
    placed = head_selector.positions(selector, heads, test.ids, vectors)
    experiment.save(tables.POSITIONS, placed, facts)

    trainings = _trained_again(experiment, test, selector.setting)
    experiment.save(tables.TRAININGS, trainings, facts)


def _trained_again(
    experiment: Experiment, test: EmbeddedQuestions, setting: "Setting"
) -> pd.DataFrame:
    """Return how other seeds, other training questions and simpler methods rank the heads.

    On a redraw the settings of simpler methods are chosen anew if the options say so, as SPRINT's
    setting is. Columns are those of `headsweep.files.tables.TRAININGS`.
    """
    from headsweep.experiments.sprint import fitting

    options = experiment.options
    ids, z = experiment.z(options.train)
    train = experiment.questions(options.train, ids)
    rankings = list(fitting.rank_again(train, z, test, setting, options))
    of_all = rankers.rankers(train, z, options)
    for drawn, rows in validation.redraws(len(z), options).items():
        chosen = of_all
        if drawn != validation.ALL and options.redrawn_setting == "anew":
            chosen = rankers.rankers(train.of(rows), z[rows], options)
        for method in of_all:  # on a redraw there may be more: no question of it lacks a subject
            order = chosen[method](train.of(rows), z[rows], test)
            rankings.append(fitting.Ranking(method, drawn, options.seeds[0], test.ids, order))
    table = pd.DataFrame(rankings).rename(columns={"question_ids": "question_id"})
    table["heads"] = [list(ranking.heads.astype(np.int16)) for ranking in rankings]
    return table.explode(["question_id", "heads"])


def evaluate(store: Store, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    SPRINT's values are means over selectors trained from each of the config's seeds. Curves end at
    `max_n` or the size of the pool. Writes `tables.CURVES`, `paths.PAIRED`, `paths.VOTES`,
    `paths.SENSITIVITY`, `paths.DIVERSITY`, `paths.ABLATION` (readings of the loss),
    `paths.OVERLAP` (test questions that resemble training questions), `paths.EMBEDDING_VALUE`
    (whether knowing the question matters), `paths.TRANSFER` (beside selectors that learnt from the
    benchmark itself, if this one did not) and the selector's model card, `paths.SELECTOR_CARD`. The
    record of diversity holds wall time and memory of embedding the test questions and of ranking
    the heads for them.
    """
    config = store.config
    experiment = Experiment(store, name)
    options = experiment.options
    graded = GradedAnswers(store, options.model)
    inputs = scoring.load_inputs(config, experiment, graded)
    scores = scoring.score(inputs)
    bootstrap = Bootstrap(len(inputs.questions), options.bootstrap, config.seed)
    facts = {
        **safe_files.read_metadata(experiment.output(tables.RANKING)),
        "test_questions": len(inputs.questions),
        "bootstrap_seed": config.seed,
    }

    means = {method: mean_over(draws[0]) for method, draws in scores.items()}
    prompt_tokens = graded.prompt_tokens(options.decoding, options.test)
    curves, diversity = evaluation.curves(means, bootstrap, prompt_tokens)
    learnt, asked = config.questions[options.train], config.questions[options.test]
    alike = validation.overlap(
        experiment.texts(options.train),
        experiment.texts(options.test),
        one_origin=learnt.may_share(asked),
    )
    differences = _differences(inputs, scores, facts["setting"], alike, bootstrap)

    experiment.save(tables.CURVES, curves, facts)
    for template, table in differences.items():
        experiment.save(template, table, facts)
    experiment.save(paths.TRANSFER, _transfer(store, experiment, graded, inputs), facts)
    experiment.save(paths.OVERLAP, alike, facts)
    text = card(config, name, facts, curves, alike, differences[paths.PAIRED])
    experiment.save(paths.SELECTOR_CARD, text, facts)
    experiment.save(paths.DIVERSITY, diversity, facts, **_costs(experiment, facts))
    _log_result(experiment, curves, inputs)


def _transfer(
    store: Store, experiment: Experiment, graded: GradedAnswers, inputs: Inputs
) -> pd.DataFrame:
    """Return the selector's Pass@N beside that of selectors that learnt from the test's benchmark.

    It has no rows if this selector learnt from that benchmark itself.
    """
    at_home_passed = {
        other: scoring.passed(Experiment(store, other), graded, inputs.questions)
        for other in at_home(store.config, experiment.name)
    }
    passed = scoring.passed(experiment, graded, inputs.questions)
    return evaluation.transfer(passed, at_home_passed, titles(store.config, "selectors"))


def _log_result(experiment: Experiment, curves: pd.DataFrame, inputs: Inputs) -> None:
    """Log Pass@N with the most answers, of SPRINT and of the best other method."""
    solved = curves[curves["n"] == inputs.max_n].set_index("method")["pass_at_n"]
    rival = str(solved.drop([methods.SPRINT, methods.ORACLE]).idxmax())
    _LOG.log(
        RESULT,
        "selector %s, %s on %s of %s: Pass@%d %.1f%%, best other (%s) %.1f%%",
        experiment.name,
        experiment.options.model,
        counted(len(inputs.questions), "question"),
        experiment.options.test,
        inputs.max_n,
        100 * solved[methods.SPRINT],
        rival,
        100 * solved[rival],
    )


def _differences(
    inputs: Inputs,
    scores: Mapping[str, Trained],
    setting: Mapping[str, Any],
    alike: pd.DataFrame,
    bootstrap: Bootstrap,
) -> dict[str, pd.DataFrame]:
    """Return the tables of paired differences, by the template of their path."""
    families = evaluation.families(scores, scoring.shuffled(inputs))
    table = evaluation.compared(families)
    degrees = alike.set_index("question_id")["degree"][list(inputs.questions)].tolist()
    voters = {method: scores[method] for method in (methods.SPRINT, *inputs.sampled, methods.BASE)}
    votes = outcomes(voters, "majority")
    pairs = [(methods.SPRINT, method) for method in votes if method != methods.SPRINT]
    voted = compare(votes, pairs, range(1, inputs.max_n + 1))
    readings = validation.readings(inputs.options, reading_of(setting))
    chosen, held_out = rankers.weigh_shortlists(inputs.z, inputs.options)
    return {
        paths.PAIRED: evaluation.paired(table, families[methods.SPRINT], degrees, bootstrap),
        paths.VOTES: evaluation.paired(voted, votes, degrees, bootstrap),
        paths.EMBEDDING_VALUE: evaluation.embedding_worth(table),
        paths.ABLATION: evaluation.ablation(scoring.by_readings(inputs, readings), readings),
        paths.SENSITIVITY: evaluation.sensitivity(scoring.shortlisted(inputs), held_out, chosen),
    }


def _costs(experiment: Experiment, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return seconds and bytes of embedding and of ranking the test questions, where measured."""
    embedded = experiment.store.path(
        tables.EMBEDDINGS,
        embedder=facts["setting"]["embedder"],
        questions=experiment.options.test,
    )
    costs = read_record(experiment.output(tables.RANKING)) | read_record(embedded)
    kinds = "embedding_", "selection_"
    return {name: value for name, value in costs.items() if name.startswith(kinds)}
