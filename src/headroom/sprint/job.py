"""The jobs of a head selector: train, rank, evaluate.

Each reads tables and writes results and their records. Only those that train or rank import torch.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int

from headroom import paths
from headroom.benchmarks.overlap import overlap
from headroom.config import Config
from headroom.errors import TableError
from headroom.record import Stopwatch, peak_resident, read_record, write_record
from headroom.saying import RESULT
from headroom.sprint import choosing, evaluation, matching, methods, rankers, validation
from headroom.sprint.card import card
from headroom.sprint.evaluation import Answers, Scores, drawn, mean_over, ordered
from headroom.sprint.experiment import Experiment
from headroom.statistics.bootstrap import Bootstrap
from headroom.tables import CURVES, POINTS, RANKING, TRAININGS, read_metadata, write_table
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)


def train(config: Config, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.
    """
    import torch

    from headroom.sprint import model, training

    experiment = Experiment(config, name)
    options, store = experiment.options, experiment.store
    questions, z = experiment.z(options.train)
    known = experiment.questions(options.train, questions)[1].embeddings
    embeddings = {each: torch.tensor(vectors) for each, vectors in known.items()}
    correct = torch.tensor(z)

    setting, choice = training.choose(embeddings, correct, options)
    seed = options.seeds[0]
    (fit,) = training.fit(embeddings[setting.embedder], correct, [setting], [seed])
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
    import torch

    from headroom.sprint import model, training

    experiment = Experiment(config, name)
    options, heads = experiment.options, experiment.heads
    trained = experiment.output(paths.SELECTOR)
    selector, facts = model.load(trained)
    if facts["heads"] != heads:
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    questions, asked = experiment.questions(options.test)
    vectors = torch.from_numpy(asked.embeddings[selector.setting.embedder])

    before, selecting = peak_resident(), Stopwatch()
    order, distances = model.rank(selector, vectors)
    seconds, held = selecting.seconds, peak_resident() - before
    ranked = {"heads": list(np.array(heads)[order]), "distances": list(distances)}
    table = pd.DataFrame({"question_id": questions, **ranked})
    facts = {**facts, "test": experiment.store.key("questions", options.test)}
    cost = {"selection_seconds": seconds, "selection_bytes": held}
    experiment.save(paths.RANKING, table, facts, RANKING, **cost)
    path = experiment.output(paths.POINTS)
    write_table(path, model.points(selector, heads, questions, vectors), POINTS)
    write_record(path, experiment.stopwatch, facts)

    learnt, z = experiment.z(options.train)
    _, known = experiment.questions(options.train, learnt)
    of_known, of_asked = (
        {each: torch.tensor(vectors) for each, vectors in part.embeddings.items()}
        for part in (known, asked)
    )
    again = training.rank_again(of_known, torch.tensor(z), of_asked, selector.setting, options)
    rankings = [(methods.SPRINT, *ranking) for ranking in again]
    seed = options.seeds[0]
    trainings = validation.trainings(len(learnt), options)
    for method, ranker in rankers.rankers(known, z, options).items():
        for training_name, rows, fold in trainings:
            if fold is None:
                order = ranker(known.of(rows), z[rows], asked)
                rankings.append((method, training_name, seed, order))
    of_fold = {
        each: [learnt[row] for row in fold] for each, _, fold in trainings if fold is not None
    }
    columns = ["method", "training", "seed", "heads"]
    table = pd.DataFrame(
        [(*ranking[:3], list(ranking[3].astype(np.int16))) for ranking in rankings], columns=columns
    )
    table["question_id"] = [of_fold.get(each, questions) for each in table["training"]]
    experiment.save(paths.TRAININGS, table.explode(["question_id", "heads"]), facts, TRAININGS)


def evaluate(config: Config, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    SPRINT's values are means over selectors trained from each of the config's seeds. Curves end at
    `max_n` or the size of the pool. Writes `paths.CURVES`, `paths.PAIRED`, `paths.VOTES`,
    `paths.SENSITIVITY`, `paths.DIVERSITY`, `paths.ABLATION` (readings of the loss),
    `paths.OVERLAP` (test questions that resemble training questions), `paths.EMBEDDING_VALUE`
    (whether knowing the question matters), `paths.CHOOSING` (one answer chosen without the oracle)
    and the selector's model card, `paths.SELECTOR_CARD`. The record of diversity holds the seconds
    of embedding and selection.
    """
    experiment = Experiment(config, name)
    options, max_n = experiment.options, experiment.max_n
    questions, rankings = experiment.tested, experiment.rankings
    known, z = experiment.z(options.train)
    answers = experiment.answers(options.test, questions)
    base = experiment.graded.of(options.decoding, options.test, [str(BASE)], questions)
    samples = experiment.samples(questions)

    def learnt(training: str, rows: Int[np.ndarray, " questions"]) -> dict[str, list[Scores]]:
        """Return the scores of methods trained on these questions, one for each seed."""
        shortlist, _ = rankers.choose_shortlist(z[rows], answers.correct, options)
        of_all = {
            methods.COVER: rankers.greedy_cover(z[rows]),
            methods.SINGLE: rankers.accuracy_order(z[rows])[:1],
        }
        orders = {method: found for (method, of), found in rankings.items() if of == training}
        orders |= {method: [order] for method, order in of_all.items()}
        scores = {
            method: [ordered(answers.select(order[..., :max_n]), max_n) for order in found]
            for method, found in orders.items()
        }
        return scores | {methods.RANDOM: [drawn(answers.select(np.array(shortlist.heads)), max_n)]}

    trainings = validation.trainings(len(z), options)
    by_training = [learnt(each, rows) for each, rows, fold in trainings if fold is None]
    sampled = {method: drawn(found, max_n) for method, found in samples.items()}
    scores = {method: mean_over(by_seed) for method, by_seed in by_training[0].items()}
    scores |= {methods.POOL: drawn(answers, max_n), methods.BASE: ordered(base, max_n), **sampled}
    scores[methods.ORACLE] = evaluation.oracle(answers, max_n)

    bootstrap = Bootstrap(len(questions), options.bootstrap, config.seed)
    _, sensitivity = rankers.choose_shortlist(z, answers.correct, options)
    ranking = experiment.output(paths.RANKING)
    facts = {
        **read_metadata(ranking),
        "test_questions": len(questions),
        "bootstrap_seed": config.seed,
    }
    curves = evaluation.curves(scores, bootstrap)
    alike = overlap(experiment.texts(options.train), experiment.texts(options.test))
    apart = ~np.isin(questions, alike.loc[alike["degree"] != "unknown", "question_id"])
    compared = by_training, apart, bootstrap
    voters = {method: scores[method] for method in (methods.SPRINT, methods.BASE, *sampled)}
    readings = {
        each: ordered(answers.select(rankings[methods.SPRINT, each][0]), max_n)["pass_at_n"]
        for each in validation.readings(options)
    }
    matched = [
        matching.compare(method, answers.correct, order, z, max_n, bootstrap, config.seed)
        for method in (methods.SPRINT, *methods.RIVALS)
        for order in rankings.get((method, validation.ALL), [])[:1]  # the first seed's
    ]
    experiment.save(paths.CURVES, curves, facts, CURVES)
    results: dict[str, pd.DataFrame | str] = {
        paths.ABLATION: evaluation.ablation(readings, bootstrap),
        paths.OVERLAP: alike,
        paths.PAIRED: evaluation.paired(scores, *compared),
        paths.VOTES: evaluation.paired(voters, *compared, "majority"),
        paths.SENSITIVITY: sensitivity,
        paths.SELECTOR_CARD: card(config, name, facts, curves),
        paths.EMBEDDING_VALUE: pd.concat(matched, ignore_index=True),
        paths.CHOOSING: choosing.compare(_rules(experiment, known, answers, samples), bootstrap),
    }
    for template, content in results.items():
        experiment.save(template, content, facts)
    embedded = experiment.embedded(options.test, facts["setting"]["embedder"])
    costs = read_record(ranking) | read_record(embedded)
    cost = {each: costs[each] for each in evaluation.OVERHEAD if each in costs}
    prompt = experiment.graded.prompt_tokens(options.decoding, options.test)
    table = evaluation.diversity(scores, bootstrap, prompt)
    experiment.save(paths.DIVERSITY, table, facts, **cost)
    solved = curves[curves["n"] == max_n].set_index("method")["pass_at_n"]
    rival = str(solved.drop([methods.SPRINT, methods.ORACLE]).idxmax())
    _LOG.log(
        RESULT,
        "selector %s, %s on %d questions of %s: Pass@%d %.1f%%, best other (%s) %.1f%%",
        *(name, options.model, len(questions), options.test, max_n),
        *(100 * solved[methods.SPRINT], rival, 100 * solved[rival]),
    )


def _rules(
    experiment: Experiment, known: Sequence[str], answers: Answers, samples: Mapping[str, Answers]
) -> dict[str, choosing.Rules]:
    """Return what each rule chooses among SPRINT's answers and among samples, by method.

    Agreement between heads is computed on all training questions (`known`); the verifier is trained
    on their folds, each ranked by a selector trained without it.
    """
    options, rankings, max_n = experiment.options, experiment.rankings, experiment.max_n
    learnt = experiment.answers(options.train, known)
    held_out = [
        learnt.of(fold).select(rankings[methods.SPRINT, training][0])
        for training, _, fold in validation.trainings(len(known), options)
        if fold is not None
    ]
    agreement = choosing.agreement_with_others(learnt)
    by_seed = [
        choosing.among_ranked(answers.select(order), agreement[order], held_out, max_n)
        for order in rankings[methods.SPRINT, validation.ALL]
    ]
    drawn_rules = {each: choosing.among_drawn(found, max_n) for each, found in samples.items()}
    return {methods.SPRINT: mean_over(by_seed), **drawn_rules}
