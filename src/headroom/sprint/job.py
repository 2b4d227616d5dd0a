"""The steps of a head selector as jobs: train, rank, evaluate, weigh the embedding, choose.

Each reads tables, calls the modules beside it, and writes its results and their records. Those
that train or rank load torch, the others do without.
"""

import logging

import numpy as np
import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.errors import TableError
from headroom.record import Stopwatch, read_record, write_record
from headroom.saying import RESULT
from headroom.sprint import baselines, choosing, data, evaluation, matching, methods
from headroom.sprint.card import card
from headroom.sprint.evaluation import drawn, ordered
from headroom.sprint.experiment import Experiment, write_csv
from headroom.sprint.matching import Ranked
from headroom.statistics.bootstrap import Bootstrap
from headroom.tables import CURVES, POINTS, RANKING, read_metadata, write_table, write_text
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
    questions, z = experiment.training_z(heads)
    embeddings = torch.tensor(experiment.training_embeddings(questions))
    correct = torch.tensor(z)

    setting, choice = training.choose(embeddings, correct, options)
    seed = options.seeds[0]
    fit = training.fit(embeddings, correct, setting, options, seed)
    facts = {
        "settings": options.model_dump(mode="json"),
        "model": experiment.store.key("model", options.model),
        "decoding": experiment.store.key("decoding", options.decoding),
        "train": experiment.store.key("questions", options.train),
        "embedder": experiment.store.key("embedder", options.embedder),
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

    Writes `paths.RANKING`, and where heads and questions lie as `paths.POINTS`.

    Raises:
        TableError: the selector was trained for another pool.
    """
    import torch

    from headroom.sprint import model, selection

    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    test = experiment.options.test
    trained = experiment.output(paths.SELECTOR)
    selector, facts = model.load(trained)
    if facts["heads"] != experiment.heads:
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    questions, vectors = data.read_embeddings(experiment.embeddings(test))

    selecting = Stopwatch()
    order, distances = selection.rank(selector, torch.from_numpy(vectors))
    seconds = selecting.seconds
    ranked = np.array(facts["heads"])[order]
    table = pd.DataFrame(
        {"question_id": questions, "heads": list(ranked), "distances": list(distances)}
    )
    path = experiment.output(paths.RANKING)
    facts = {**facts, "test": experiment.store.key("questions", test)}
    write_table(path, table, RANKING, facts)
    write_record(path, stopwatch, {**facts, "selection_seconds": round(seconds, 6)})
    path = experiment.output(paths.POINTS)
    placed = selection.points(selector, facts["heads"], questions, torch.from_numpy(vectors))
    write_table(path, placed, POINTS)
    write_record(path, stopwatch, facts)


def evaluate(config: Config, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    Curves end at the size of the pool where that is smaller than `max_n`. Writes `paths.CURVES`,
    `paths.PAIRED`, `paths.SENSITIVITY` and `paths.DIVERSITY`, the selector's model card as
    `paths.SELECTOR_CARD`; the seconds that embedding and selection took are in the record of
    diversity.
    """
    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads, max_n = experiment.options, experiment.heads, experiment.max_n
    questions, nearest = experiment.nearest()

    _, train_z = experiment.training_z(heads)
    answers = experiment.answers(options.test, questions)
    graded = experiment.table(paths.GRADED, options.decoding, options.test)
    base = data.read_answers(graded, questions, [str(BASE)])
    shortlist, sensitivity = baselines.choose_shortlist(train_z, answers.correct, options)
    best = baselines.accuracy_order(train_z)[:1]
    scores = {
        methods.SPRINT: ordered(answers.select(nearest), max_n),
        methods.RANDOM: drawn(answers.select(np.array(shortlist.heads)), max_n),
        methods.COVER: ordered(answers.select(baselines.greedy_cover(train_z)), max_n),
        methods.SINGLE: ordered(answers.select(best), max_n),
        methods.BASE: ordered(base, max_n),
        methods.ORACLE: evaluation.oracle(answers, max_n),
        **{
            method: drawn(sampled, max_n)
            for method, sampled in experiment.samples(questions).items()
        },
    }

    bootstrap = Bootstrap(len(questions), options.bootstrap, config.seed)
    ranking = experiment.output(paths.RANKING)
    facts = {
        **read_metadata(ranking),
        "test_questions": len(questions),
        "shortlist_criterion": shortlist.criterion,
        "shortlist": [heads[member] for member in shortlist.heads],
        "best_single_head": heads[best[0]],
        "bootstrap_seed": config.seed,
    }
    curves = evaluation.curves(scores, bootstrap)
    path = experiment.output(paths.CURVES)
    write_table(path, curves, CURVES, facts)
    write_record(path, stopwatch, facts)
    differences = evaluation.paired(scores, bootstrap)
    write_csv(experiment.output(paths.PAIRED), differences, stopwatch, facts)
    write_csv(experiment.output(paths.SENSITIVITY), sensitivity, stopwatch, facts)
    path = experiment.output(paths.SELECTOR_CARD)
    write_text(path, card(config, name, facts, curves))
    write_record(path, stopwatch, facts)
    seconds = {
        "selection_seconds": read_record(ranking).get("selection_seconds"),
        "embedding_seconds": read_record(experiment.embeddings(options.test)).get("seconds"),
    }
    diversity = evaluation.diversity(scores, bootstrap)
    write_csv(experiment.output(paths.DIVERSITY), diversity, stopwatch, facts | seconds)
    solved = curves[curves["n"] == max_n].set_index("method")["pass_at_n"]
    rival = str(solved.drop([methods.SPRINT, methods.ORACLE]).idxmax())
    _LOG.log(
        RESULT,
        "selector %s, %s on %d questions of %s: Pass@%d %.1f%%, best other (%s) %.1f%%",
        *(name, options.model, len(questions), options.test, max_n),
        *(100 * solved[methods.SPRINT], rival, 100 * solved[rival]),
    )


def weigh_embedding(config: Config, name: str) -> None:
    """Ask whether the question embedding matters, on held-out training and on test questions.

    For each split of the training questions the chosen setting is trained again without the
    held-out part. The setting was chosen on these parts, which favours SPRINT there, a little.
    Writes `paths.EMBEDDING_VALUE`.
    """
    import torch

    from headroom.sprint import model, training

    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads, max_n = experiment.options, experiment.heads, experiment.max_n
    trained, facts = model.load(experiment.output(paths.SELECTOR))
    questions, z = experiment.training_z(heads)
    base = experiment.training_z([str(BASE)])[1][:, 0]
    embeddings = torch.tensor(experiment.training_embeddings(questions))
    held_out = [
        Ranked(split.held_out, z[split.held_out], order, z[split.fit], base[split.fit])
        for split, order in training.rank_held_out(
            embeddings, torch.tensor(z), trained.setting, options
        )
    ]
    asked, nearest = experiment.nearest()
    greedy = experiment.table(paths.ACCURACY, options.decoding, options.test)
    found, test = data.read_correct(greedy, heads)
    place = {question: row for row, question in enumerate(found)}
    test = test[[place[question] for question in asked]]
    tested = [Ranked(np.arange(len(asked)), test, nearest, z, base)]
    table = pd.concat(
        matching.compare(parts, questions, max_n, options.bootstrap, config.seed)
        for parts, questions in ((held_out, "training, held out"), (tested, "test"))
    )
    facts |= {
        "test": experiment.store.key("questions", options.test),
        "bootstrap_seed": config.seed,
    }
    write_csv(experiment.output(paths.EMBEDDING_VALUE), table, stopwatch, facts)


def choose(config: Config, name: str) -> None:
    """Say how much of Pass@N is left where nobody knows the right answer.

    What learns from answers learns from training questions: how far a head agrees with the others
    from all of them, the verifier from held-out parts, ranked by selectors trained without these.
    Writes `paths.CHOOSING`.
    """
    import torch

    from headroom.sprint import model, training

    stopwatch = Stopwatch()
    experiment = Experiment(config, name)
    options, heads = experiment.options, experiment.heads
    trained, facts = model.load(experiment.output(paths.SELECTOR))
    questions, z = experiment.training_z(heads)
    embeddings = torch.tensor(experiment.training_embeddings(questions))
    learnt = experiment.answers(options.train, questions)
    held_out = [
        learnt.of(split.held_out).select(order)
        for split, order in training.rank_held_out(
            embeddings, torch.tensor(z), trained.setting, options
        )
    ]
    asked, nearest = experiment.nearest()
    ranked = experiment.answers(options.test, asked).select(nearest)
    agreement = choosing.agreement_with_others(learnt)[nearest]
    rules = {
        methods.SPRINT: choosing.among_ranked(ranked, agreement, held_out, experiment.max_n),
        **{
            method: choosing.among_drawn(sampled, experiment.max_n)
            for method, sampled in experiment.samples(asked).items()
        },
    }
    table = choosing.compare(rules, Bootstrap(len(asked), options.bootstrap, config.seed))
    facts |= {
        "test": experiment.store.key("questions", options.test),
        "bootstrap_seed": config.seed,
    }
    write_csv(experiment.output(paths.CHOOSING), table, stopwatch, facts)
