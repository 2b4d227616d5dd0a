"""The jobs of a head selector: train, rank, evaluate.

Each reads tables and writes results and their records. Only those that train or rank import torch.
"""

import logging
from collections import defaultdict

import numpy as np
import pandas as pd

from headroom import paths, tables
from headroom.benchmarks.overlap import overlap
from headroom.config import Config
from headroom.errors import RESULT, TableError
from headroom.record import Stopwatch, peak_resident, read_record, write_record
from headroom.sprint import choosing, evaluation, matching, methods, rankers, validation
from headroom.sprint.card import card
from headroom.sprint.evaluation import Scores, drawn, mean_over, ordered
from headroom.sprint.experiment import Experiment, GradedAnswers
from headroom.sprint.validation import ALL, Order
from headroom.statistics.answers import extend
from headroom.statistics.intervals import Bootstrap
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)


def train(config: Config, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.
    """
    from headroom.sprint import model, training

    experiment = Experiment(config, name)
    options, store = experiment.options, experiment.store
    questions, z = experiment.z(options.train)
    embeddings = experiment.questions(options.train, questions).embeddings
    setting, choice = training.choose(embeddings, z, options)
    seed = options.seeds[0]
    (fit,) = training.fit(embeddings[setting.embedder], z, [setting], [seed])
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
    model.save(path, fit.selector, facts)
    write_record(path, experiment.stopwatch, facts)
    experiment.save(paths.CHOICE, choice, facts)


def rank(config: Config, name: str) -> None:
    """Rank the heads of the pool for each test question.

    Writes `paths.RANKING`, the positions of heads and questions (`paths.POINTS`), and the rankings
    of selectors trained from every seed, on redraws of the training questions, and without each
    fold of them (`paths.TRAININGS`).

    Raises:
        TableError: the selector was trained for another pool.
    """
    from headroom.sprint import model, training

    experiment = Experiment(config, name)
    options, heads = experiment.options, experiment.heads
    trained = experiment.output(paths.SELECTOR)
    selector, facts = model.load(trained)
    if facts["heads"] != heads:
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    asked = experiment.questions(options.test)
    vectors = asked.embeddings[selector.setting.embedder]

    before, selecting = peak_resident(), Stopwatch()
    order, distances = model.rank(selector, vectors)
    seconds, held = selecting.seconds, peak_resident() - before
    ranked = {"heads": list(np.array(heads)[order]), "distances": list(distances)}
    table = pd.DataFrame({"question_id": asked.ids, **ranked})
    facts = {**facts, "test": experiment.store.key("questions", options.test)}
    cost = {"selection_seconds": seconds, "selection_bytes": held}
    experiment.save(paths.RANKING, table, facts, tables.RANKING, **cost)
    placed = model.points(selector, heads, asked.ids, vectors)
    experiment.save(paths.POINTS, placed, facts, tables.POINTS)

    learnt, z = experiment.z(options.train)
    known = experiment.questions(options.train, learnt)
    again = training.rank_again(known, z, asked, selector.setting, options)
    rankings = [(methods.SPRINT, *ranking) for ranking in again]
    for method, ranker in rankers.rankers(known, z, options).items():
        for of, rows in validation.redraws(len(z), options).items():
            order = ranker(known.of(rows), z[rows], asked)
            rankings.append((method, of, options.seeds[0], asked.ids, order))
    table = pd.DataFrame(rankings, columns=["method", "training", "seed", "question_id", "heads"])
    table["heads"] = [list(order.astype(np.int16)) for order in table["heads"]]
    table = table.explode(["question_id", "heads"])
    experiment.save(paths.TRAININGS, table, facts, tables.TRAININGS)


def evaluate(config: Config, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    SPRINT's values are means over selectors trained from each of the config's seeds. Curves end at
    `max_n` or the size of the pool. Writes `paths.CURVES`, `paths.PAIRED`, `paths.VOTES`,
    `paths.SENSITIVITY`, `paths.DIVERSITY`, `paths.ABLATION` (readings of the loss),
    `paths.OVERLAP` (test questions that resemble training questions), `paths.EMBEDDING_VALUE`
    (whether knowing the question matters), `paths.CHOOSING` (one answer chosen without the oracle)
    and the selector's model card, `paths.SELECTOR_CARD`. The record of diversity holds wall time
    and memory of embedding the test questions and of ranking the heads for them.
    """
    experiment = Experiment(config, name)
    options, graded = experiment.options, GradedAnswers(config, experiment.options.model)
    ranking = experiment.output(paths.RANKING)
    questions = list(tables.read_table(ranking, tables.RANKING)["question_id"])
    rankings = defaultdict[str, dict[str, list[Order]]](dict)
    table = tables.read_table(experiment.output(paths.TRAININGS), tables.TRAININGS)
    for (method, of, _), part in table.groupby(["method", "training", "seed"], sort=False):
        found = rankings[str(of)].setdefault(str(method), [])
        found.append(np.stack(part["heads"].tolist()))
    known, z = experiment.z(options.train)
    max_n, redraws = min(options.max_n, z.shape[1]), validation.redraws(len(z), options)
    asked, heads, base = (options.decoding, options.test), experiment.heads, [str(BASE)]
    answers = graded.of(*asked, heads, questions)

    shortlists = {
        of: rankers.choose_shortlist(z[rows], answers.correct, options)
        for of, rows in redraws.items()
    }
    sampled = {
        method: [drawn(graded.of(decoding, options.test, base, questions), max_n)]
        for decoding, method in methods.sampling(config, options.sampling).items()
    }
    of_pool, of_base = drawn(answers, max_n), ordered(graded.of(*asked, base, questions), max_n)
    # An oracle needs one head a question, so that the ceiling does not depend on N.
    ceiling = extend(answers.correct.any(axis=1, keepdims=True).astype(float), max_n)

    def of_order(order: Order) -> Scores:
        return ordered(answers.select(order[..., :max_n]), max_n)

    # Of all questions, then of each redraw: by method, in the order shown, scores of each seed.
    learnt: list[dict[str, list[Scores]]] = [
        {
            **{method: list(map(of_order, found)) for method, found in rankings[of].items()},
            methods.RANDOM: [drawn(answers.select(shortlists[of][0]), max_n)],
            methods.POOL: [of_pool],
            methods.COVER: [of_order(rankers.greedy_cover(z[rows]))],
            methods.SINGLE: [of_order(rankers.accuracy_order(z[rows])[:1])],
            **sampled,
            methods.BASE: [of_base],
            methods.ORACLE: [{"pass_at_n": ceiling}],
        }
        for of, rows in redraws.items()
    ]
    scores = {method: mean_over(by_seed) for method, by_seed in learnt[0].items()}
    bootstrap = Bootstrap(len(questions), options.bootstrap, config.seed)
    facts = {
        **tables.read_metadata(ranking),
        "test_questions": len(questions),
        "bootstrap_seed": config.seed,
    }
    curves, diversity = evaluation.curves(scores, bootstrap, graded.prompt_tokens(*asked))
    experiment.save(paths.CURVES, curves, facts, tables.CURVES)
    alike = overlap(experiment.texts(options.train), experiment.texts(options.test))
    apart = ~np.isin(questions, alike.loc[alike["degree"] != "unknown", "question_id"])
    compared = learnt, apart, bootstrap
    others, voters = [name for name in scores if name != methods.SPRINT], [*sampled, methods.BASE]
    readings = {
        each: of_order(rankings[each][methods.SPRINT][0])["pass_at_n"]
        for each in validation.readings(options)
    }
    matched = [
        matching.compare(method, answers.correct, orders[0], z, max_n, bootstrap, config.seed)
        for method, orders in rankings[ALL].items()  # of the first seed
    ]
    # Agreement between heads is computed on all training questions; the verifier is trained on
    # their folds, each ranked by a selector trained without it.
    on_train = graded.of(options.decoding, options.train, heads, known)
    folds = validation.folds(len(z), options)
    ranked = np.concatenate([rankings[of][methods.SPRINT][0] for of in folds])
    held_out = on_train.of(np.concatenate([*folds.values()])).select(ranked)
    weight = choosing.agreement_with_others(on_train)
    chosen = [
        choosing.learnt(answers.select(order), weight[order], held_out, max_n)
        for order in rankings[ALL][methods.SPRINT]
    ]
    of_chosen = {method: scores[method] for method in (methods.SPRINT, *sampled)}
    results: dict[str, pd.DataFrame | str] = {
        paths.ABLATION: evaluation.ablation(readings, bootstrap),
        paths.OVERLAP: alike,
        paths.PAIRED: evaluation.paired(others, *compared),
        paths.VOTES: evaluation.paired(voters, *compared, "majority"),
        paths.SENSITIVITY: shortlists[ALL][1],
        paths.SELECTOR_CARD: card(config, name, facts, curves),
        paths.EMBEDDING_VALUE: pd.concat(matched, ignore_index=True),
        paths.CHOOSING: choosing.compare(of_chosen, {methods.SPRINT: mean_over(chosen)}, bootstrap),
    }
    for template, content in results.items():
        experiment.save(template, content, facts)
    names = {"embedder": facts["setting"]["embedder"], "questions": options.test}
    embedded = experiment.store.path(paths.EMBEDDINGS, **names)
    costs = read_record(ranking) | read_record(embedded)
    kinds = "embedding_", "selection_"  # seconds and bytes of either, where measured
    cost = {each: value for each, value in costs.items() if each.startswith(kinds)}
    experiment.save(paths.DIVERSITY, diversity, facts, **cost)
    solved = curves[curves["n"] == max_n].set_index("method")["pass_at_n"]
    rival = str(solved.drop([methods.SPRINT, methods.ORACLE]).idxmax())
    _LOG.log(
        RESULT,
        "selector %s, %s on %d questions of %s: Pass@%d %.1f%%, best other (%s) %.1f%%",
        *(name, options.model, len(questions), options.test, max_n),
        *(100 * solved[methods.SPRINT], rival, 100 * solved[rival]),
    )
