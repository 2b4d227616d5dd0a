"""The steps of a head selector as jobs: train, rank, evaluate, weigh the embedding, choose.

Each reads tables, calls the modules beside it, and writes its results and their records. Those
that train or rank load torch, the others do without.
"""

import logging

import numpy as np
import pandas as pd
from jaxtyping import Int

from headroom import paths
from headroom.benchmarks.overlap import overlap
from headroom.config import Config
from headroom.errors import TableError
from headroom.record import Stopwatch, peak_resident, read_record, write_record
from headroom.saying import RESULT
from headroom.sprint import baselines, choosing, evaluation, matching, methods, validation
from headroom.sprint.card import card
from headroom.sprint.evaluation import Retrained, drawn, ordered
from headroom.sprint.experiment import Experiment, write_csv
from headroom.sprint.matching import Ranked
from headroom.statistics.answers import majority_ordered
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.pass_at_n import pass_at_n_ordered
from headroom.tables import (
    CURVES,
    POINTS,
    RANKING,
    TRAININGS,
    read_metadata,
    write_table,
    write_text,
)
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)


def train(config: Config, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.
    """
    import torch

    from headroom.sprint import model, training

    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads = experiment.options, experiment.heads
    questions, z = experiment.z(options.train, heads)
    embeddings = training.tensors(experiment.embeddings(options.train, questions)[1])
    correct = torch.tensor(z)

    setting, choice = training.choose(embeddings, correct, options)
    seed = options.seeds[0]
    fit = training.fit(embeddings[setting.embedder], correct, setting, seed)
    facts = {
        "settings": options.model_dump(mode="json"),
        "model": experiment.store.key("model", options.model),
        "decoding": experiment.store.key("decoding", options.decoding),
        "train": experiment.store.key("questions", options.train),
        "embedder": experiment.store.key("embedder", setting.embedder),
        "heads": heads,
        "seed": seed,
        "training_questions": len(questions),
        "solved_by_no_head": fit.left_out,
        "solved_by_all_heads": int(z.all(axis=1).sum()),
        "training_loss": fit.loss,
        "diverged": fit.diverged,
    }
    path = experiment.output(paths.SELECTOR)
    model.save(path, fit.selector, facts)
    write_record(path, stopwatch, facts)
    write_csv(experiment.output(paths.CHOICE), choice, stopwatch, facts)


def rank(config: Config, name: str) -> None:
    """Rank the heads of the pool for each test question.

    Writes `paths.RANKING`, where heads and questions lie as `paths.POINTS`, and as
    `paths.TRAININGS` the rankings of selectors trained from every seed, on redraws of the training
    questions, and without each fold of them.

    Raises:
        TableError: the selector was trained for another pool.
    """
    import torch

    from headroom.sprint import model, rivals, training

    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options = experiment.options
    trained = experiment.output(paths.SELECTOR)
    selector, facts = model.load(trained)
    if facts["heads"] != experiment.heads:
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    questions, found = experiment.embeddings(options.test)
    vectors = torch.from_numpy(found[selector.setting.embedder])

    before, selecting = peak_resident(), Stopwatch()
    order, distances = model.rank(selector, vectors)
    cost = {"selection_seconds": selecting.seconds, "selection_bytes": peak_resident() - before}
    ranked = np.array(facts["heads"])[order]
    table = pd.DataFrame(
        {"question_id": questions, "heads": list(ranked), "distances": list(distances)}
    )
    path = experiment.output(paths.RANKING)
    facts = {**facts, "test": experiment.store.key("questions", options.test)}
    write_table(path, table, RANKING, facts)
    write_record(path, stopwatch, facts | cost)
    path = experiment.output(paths.POINTS)
    placed = model.points(selector, facts["heads"], questions, vectors)
    write_table(path, placed, POINTS)
    write_record(path, stopwatch, facts)

    learnt, z = experiment.z(options.train, experiment.heads)
    embeddings = experiment.embeddings(options.train, learnt)[1]
    tensors = training.tensors(embeddings), torch.tensor(z), training.tensors(found)
    again = training.rank_again(*tensors, selector.setting, options)
    rankings = [(methods.SPRINT, *ranking) for ranking in again]
    known = rivals.Questions(embeddings, experiment.subjects(options.train, learnt))
    asked = rivals.Questions(found, experiment.subjects(options.test, questions))
    folds = validation.folds(len(learnt), options.validation, options.seeds[0])
    for method, ranker in rivals.rankers(known, z, options).items():
        for name, rows in validation.trainings(len(learnt), options.redraws).items():
            ranking = ranker(known.of(rows), z[rows], asked)
            rankings.append((method, name, options.seeds[0], ranking))
        for number, fold in enumerate(folds):
            ranking = ranker(known.of(fold.fit), z[fold.fit], known.of(fold.held_out))
            rankings.append((method, validation.without(number), fold.seed, ranking))
    held_out = {
        validation.without(number): [learnt[row] for row in fold.held_out]
        for number, fold in enumerate(folds)
    }
    parts = [
        pd.DataFrame(
            {
                "method": method,
                "training": name,
                "seed": seed,
                "question_id": held_out.get(name, questions),
                "heads": list(ranking.astype(np.int16)),
            }
        )
        for method, name, seed, ranking in rankings
    ]
    path = experiment.output(paths.TRAININGS)
    write_table(path, pd.concat(parts, ignore_index=True), TRAININGS, facts)
    write_record(path, stopwatch, facts)


def evaluate(config: Config, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    SPRINT's values are means over selectors trained from each of the config's seeds. Curves end at
    the size of the pool where that is smaller than `max_n`. Writes `paths.CURVES`, `paths.PAIRED`,
    `paths.VOTES`, `paths.SENSITIVITY`, `paths.DIVERSITY`, `paths.ABLATION` (readings of the loss),
    `paths.OVERLAP` (test questions that resemble training questions) and the selector's model card,
    `paths.SELECTOR_CARD`. The record of diversity holds the seconds of embedding and selection.
    """
    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads, max_n = experiment.options, experiment.heads, experiment.max_n
    questions, trainings = experiment.trainings()

    _, train_z = experiment.z(options.train, heads)
    answers = experiment.answers(options.test, questions)
    base = experiment.answers(options.test, questions, [str(BASE)])

    learnt = baselines.learn(train_z, answers, options, max_n)
    sampled = {
        method: drawn(samples, max_n) for method, samples in experiment.samples(questions).items()
    }
    by_seed = [
        ordered(answers.select(order), max_n) for order in trainings[methods.SPRINT, validation.ALL]
    ]
    scores = {
        methods.SPRINT: evaluation.mean_over(by_seed),
        **{
            method: ordered(answers.select(orders[0]), max_n)
            for (method, name), orders in trainings.items()
            if method in methods.RIVALS and name == validation.ALL
        },
        **learnt.scores,
        methods.POOL: drawn(answers, max_n),
        methods.BASE: ordered(base, max_n),
        methods.ORACLE: evaluation.oracle(answers, max_n),
        **sampled,
    }

    def voted(name: str) -> Retrained:
        ranked = [answers.select(order) for order in trainings[methods.SPRINT, name]]
        return Retrained([majority_ordered(of.group, of.correct, max_n) for of in ranked], {})

    def retrained(name: str, rows: Int[np.ndarray, " questions"]) -> Retrained:
        def passes(order: Int[np.ndarray, "questions pool"]) -> evaluation.Passes:
            return pass_at_n_ordered(answers.select(order).correct, max_n)

        again = baselines.learn(train_z[rows], answers, options, max_n).scores
        others = {method: score.pass_at_n for method, score in again.items()}
        for method in methods.RIVALS:
            if (method, name) in trainings:
                others[method] = passes(trainings[method, name][0])
        return Retrained([passes(order) for order in trainings[methods.SPRINT, name]], others)

    whole, *redrawn = [
        retrained(name, rows)
        for name, rows in validation.trainings(len(train_z), options.redraws).items()
    ]
    bootstrap = Bootstrap(len(questions), options.bootstrap, config.seed)
    ranking = experiment.output(paths.RANKING)
    facts = {
        **read_metadata(ranking),
        "test_questions": len(questions),
        "shortlist_criterion": learnt.shortlist.criterion,
        "shortlist": [heads[member] for member in learnt.shortlist.heads],
        "best_single_head": heads[learnt.best],
        "bootstrap_seed": config.seed,
    }
    curves = evaluation.curves(scores, bootstrap)
    path = experiment.output(paths.CURVES)
    write_table(path, curves, CURVES, facts)
    write_record(path, stopwatch, facts)
    readings = {
        name: pass_at_n_ordered(answers.select(orders[0]).correct, max_n)
        for (method, name), orders in trainings.items()
        if method == methods.SPRINT and name in validation.readings(options)
    }
    tried = evaluation.ablation(readings, bootstrap)
    write_csv(experiment.output(paths.ABLATION), tried, stopwatch, facts)
    alike = overlap(experiment.texts(options.train), experiment.texts(options.test))
    write_csv(experiment.output(paths.OVERLAP), alike, stopwatch, facts)
    apart = ~np.isin(questions, alike["question_id"])
    passes = {method: score.pass_at_n for method, score in scores.items()}
    differences = evaluation.paired(passes, whole, redrawn, apart, bootstrap)
    write_csv(experiment.output(paths.PAIRED), differences, stopwatch, facts)
    voters = (methods.SPRINT, methods.BASE, *sampled)
    votes = {method: scores[method].majority for method in voters}
    by_votes = [voted(name) for name in validation.trainings(len(train_z), options.redraws)]
    differences = evaluation.paired(votes, by_votes[0], by_votes[1:], apart, bootstrap)
    write_csv(experiment.output(paths.VOTES), differences, stopwatch, facts)
    write_csv(experiment.output(paths.SENSITIVITY), learnt.sensitivity, stopwatch, facts)
    path = experiment.output(paths.SELECTOR_CARD)
    write_text(path, card(config, name, facts, curves))
    write_record(path, stopwatch, facts)
    embedded = experiment.embedded(options.test, facts["setting"]["embedder"])
    known = read_record(ranking) | read_record(embedded)
    facts = facts | {name: known[name] for name in evaluation.OVERHEAD if name in known}
    prompt_tokens = experiment.prompt_tokens(options.test)
    diversity = evaluation.diversity(scores, bootstrap, prompt_tokens)
    write_csv(experiment.output(paths.DIVERSITY), diversity, stopwatch, facts)
    solved = curves[curves["n"] == max_n].set_index("method")["pass_at_n"]
    rival = str(solved.drop([methods.SPRINT, methods.ORACLE]).idxmax())
    _LOG.log(
        RESULT,
        "selector %s, %s on %d questions of %s: Pass@%d %.1f%%, best other (%s) %.1f%%",
        *(name, options.model, len(questions), options.test, max_n),
        *(100 * solved[methods.SPRINT], rival, 100 * solved[rival]),
    )


def weigh_embedding(config: Config, name: str) -> None:
    """Ask whether the question matters, for SPRINT and for simpler methods.

    On held-out training and on test questions, of the first seed.

    For each fold of the training questions the chosen setting is trained again without it. The
    setting was chosen on parts of these questions, which favours SPRINT there, a little.
    Writes `paths.EMBEDDING_VALUE`.
    """
    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads, max_n = experiment.options, experiment.heads, experiment.max_n
    questions, z = experiment.z(options.train, heads)
    base = experiment.z(options.train, [str(BASE)])[1][:, 0]
    found, test = experiment.z(options.test, heads)
    place = {question: row for row, question in enumerate(found)}
    asked, trainings = experiment.trainings()
    test = test[[place[question] for question in asked]]
    tables = []
    for method in (methods.SPRINT, *methods.RIVALS):
        if (method, validation.ALL) not in trainings:
            continue
        held_out = [
            Ranked(fold.held_out, z[fold.held_out], order, z[fold.fit], base[fold.fit])
            for fold, order in experiment.held_out(questions, method)
        ]
        tested = [
            Ranked(np.arange(len(asked)), test, trainings[method, validation.ALL][0], z, base)
        ]
        for parts, name in ((held_out, "training, held out"), (tested, "test")):
            tables.append(
                matching.compare(method, parts, name, max_n, options.bootstrap, config.seed)
            )
    table = pd.concat(tables, ignore_index=True)
    facts = read_metadata(experiment.output(paths.TRAININGS)) | {"bootstrap_seed": config.seed}
    write_csv(experiment.output(paths.EMBEDDING_VALUE), table, stopwatch, facts)


def choose(config: Config, name: str) -> None:
    """Say how much of Pass@N is left where nobody knows the right answer.

    What learns from answers learns from training questions: how far a head agrees with the others
    from all of them, the verifier from folds, each ranked by a selector trained without it.
    SPRINT's values are means over selectors trained from each of the config's seeds, as in the
    curves. Writes `paths.CHOOSING`.
    """
    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options = experiment.options
    questions, _ = experiment.z(options.train, experiment.heads)
    learnt = experiment.answers(options.train, questions)
    held_out = [
        learnt.of(fold.held_out).select(order) for fold, order in experiment.held_out(questions)
    ]
    asked, trainings = experiment.trainings()
    answers = experiment.answers(options.test, asked)
    agreement = choosing.agreement_with_others(learnt)
    by_seed = [
        choosing.among_ranked(answers.select(order), agreement[order], held_out, experiment.max_n)
        for order in trainings[methods.SPRINT, validation.ALL]
    ]
    rules = {
        methods.SPRINT: {
            rule: np.mean([of_seed[rule] for of_seed in by_seed], axis=0) for rule in by_seed[0]
        },
        **{
            method: choosing.among_drawn(sampled, experiment.max_n)
            for method, sampled in experiment.samples(asked).items()
        },
    }
    table = choosing.compare(rules, Bootstrap(len(asked), options.bootstrap, config.seed))
    facts = read_metadata(experiment.output(paths.TRAININGS)) | {"bootstrap_seed": config.seed}
    write_csv(experiment.output(paths.CHOOSING), table, stopwatch, facts)
