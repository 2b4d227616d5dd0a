"""The steps of a head selector as jobs: train, rank, evaluate, and whether the embedding matters.

Each reads tables, calls the modules beside it, and writes its results and their records.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int

from headroom import paths
from headroom.config import Config, Selector
from headroom.errors import TableError
from headroom.identity import key
from headroom.plan import pool
from headroom.record import Stopwatch, read_record, write_record
from headroom.sprint import (
    baselines,
    data,
    evaluation,
    matching,
    methods,
    model,
    selection,
    training,
    validation,
)
from headroom.sprint.evaluation import Scores, drawn, ordered
from headroom.sprint.matching import Ranked
from headroom.statistics.bootstrap import Bootstrap
from headroom.tables import CURVES, POINTS, RANKING, read_metadata, write_table, write_text
from headroom.variants import BASE


def train(config: Config, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.
    """
    stopwatch = Stopwatch()
    options = config.selectors[name]
    heads = _pool(config, options)
    questions, z = _training_z(config, options, heads)
    _, vectors = data.read_embeddings(_embeddings(config, options, options.train), questions)
    embeddings, correct = torch.tensor(vectors), torch.tensor(z)

    setting, choice = training.choose(embeddings, correct, options)
    seed = options.seeds[0]
    fit = training.fit(embeddings, correct, setting, options, seed)
    facts = {
        "settings": options.model_dump(mode="json"),
        "model": key(config, "models", options.model),
        "decoding": key(config, "decodings", options.decoding),
        "train": key(config, "questions", options.train),
        "embedder": key(config, "embedders", options.embedder),
        "heads": heads,
        "seed": seed,
        "training_questions": len(questions),
        "solved_by_no_head": fit.left_out,
        "solved_by_all_heads": int(z.all(axis=1).sum()),
        "training_loss": fit.loss,
        "diverged": fit.diverged,
    }
    path = _of_run(paths.SELECTOR, config, name)
    model.save(path, fit.selector, facts)
    write_record(path, stopwatch, facts)
    _write_csv(_of_run(paths.CHOICE, config, name), choice, stopwatch, facts)


def rank(config: Config, name: str) -> None:
    """Rank the heads of the pool for each test question.

    Writes `paths.RANKING`, and where heads and questions lie as `paths.POINTS`.

    Raises:
        TableError: the selector was trained for another pool.
    """
    stopwatch = Stopwatch()
    options = config.selectors[name]
    trained = _of_run(paths.SELECTOR, config, name)
    selector, facts = model.load(trained)
    if facts["heads"] != _pool(config, options):
        raise TableError(f"{trained} was trained for another pool of heads; remove it and rerun")
    questions, vectors = data.read_embeddings(_embeddings(config, options, options.test))

    selecting = Stopwatch()
    order, distances = selection.rank(selector, torch.from_numpy(vectors))
    seconds = selecting.seconds
    ranked = np.array(facts["heads"])[order]
    table = pd.DataFrame(
        {"question_id": questions, "heads": list(ranked), "distances": list(distances)}
    )
    path = _of_run(paths.RANKING, config, name)
    facts = {**facts, "test": key(config, "questions", options.test)}
    write_table(path, table, RANKING, facts)
    write_record(path, stopwatch, {**facts, "selection_seconds": round(seconds, 6)})
    path = _of_run(paths.POINTS, config, name)
    placed = selection.points(selector, facts["heads"], questions, torch.from_numpy(vectors))
    write_table(path, placed, POINTS)
    write_record(path, stopwatch, facts)


def evaluate(config: Config, name: str) -> None:
    """Compare the selector with its baselines on the test questions.

    Curves end at the size of the pool where that is smaller than `max_n`. Writes `paths.CURVES`,
    `paths.PAIRED`, `paths.SENSITIVITY` and `paths.DIVERSITY`; the seconds that embedding and
    selection took are in the record of the last.
    """
    stopwatch = Stopwatch()
    options = config.selectors[name]
    heads = _pool(config, options)
    max_n = min(options.max_n, len(heads))
    ranking = _of_run(paths.RANKING, config, name)
    questions, nearest = _nearest(ranking, heads)

    _, train_z = _training_z(config, options, heads)
    greedy = _answers(paths.GRADED, config, options, options.decoding, options.test)
    answers = data.read_answers(greedy, questions, heads)
    base = data.read_answers(greedy, questions, [str(BASE)])
    shortlist, sensitivity = baselines.choose_shortlist(train_z, answers.correct, options)
    best = baselines.accuracy_order(train_z)[:1]
    scores = {
        methods.SPRINT: ordered(answers.select(nearest), max_n),
        methods.RANDOM: drawn(answers.select(np.array(shortlist.heads)), max_n),
        methods.COVER: ordered(answers.select(baselines.greedy_cover(train_z)), max_n),
        methods.SINGLE: ordered(answers.select(best), max_n),
        methods.BASE: ordered(base, max_n),
        methods.ORACLE: evaluation.oracle(answers, max_n),
        **_sampling(config, options, questions, max_n),
    }

    bootstrap = Bootstrap(len(questions), options.bootstrap, config.seed)
    facts = {
        **read_metadata(ranking),
        "test_questions": len(questions),
        "shortlist_criterion": shortlist.criterion,
        "shortlist": [heads[member] for member in shortlist.heads],
        "best_single_head": heads[best[0]],
        "bootstrap_seed": config.seed,
    }
    path = _of_run(paths.CURVES, config, name)
    write_table(path, evaluation.curves(scores, bootstrap), CURVES, facts)
    write_record(path, stopwatch, facts)
    differences = evaluation.paired(scores, bootstrap)
    _write_csv(_of_run(paths.PAIRED, config, name), differences, stopwatch, facts)
    _write_csv(_of_run(paths.SENSITIVITY, config, name), sensitivity, stopwatch, facts)
    diversity = evaluation.diversity(scores, bootstrap)
    seconds = {
        "selection_seconds": read_record(ranking).get("selection_seconds"),
        "embedding_seconds": read_record(_embeddings(config, options, options.test)).get("seconds"),
    }
    path = Path(paths.DIVERSITY.format(run=config.run, selector=name, suffix="csv"))
    _write_csv(path, diversity, stopwatch, facts | seconds)


def weigh_embedding(config: Config, name: str) -> None:
    """Ask whether the question embedding matters, on held-out training and on test questions.

    For each split of the training questions the chosen setting is trained again without the
    held-out part. The setting was chosen on these parts, which favours SPRINT there, a little.
    Writes `paths.EMBEDDING_VALUE`.
    """
    stopwatch = Stopwatch()
    options = config.selectors[name]
    heads = _pool(config, options)
    max_n = min(options.max_n, len(heads))
    trained, facts = model.load(_of_run(paths.SELECTOR, config, name))
    questions, z = _training_z(config, options, heads)
    base = _training_z(config, options, [str(BASE)])[1][:, 0]
    _, vectors = data.read_embeddings(_embeddings(config, options, options.train), questions)
    embeddings, correct = torch.tensor(vectors), torch.tensor(z)

    held_out = []
    for split in validation.splits(len(z), options.validation, options.seeds):
        fit = training.fit(
            embeddings[split.fit], correct[split.fit], trained.setting, options, split.seed
        )
        order, _ = selection.rank(fit.selector, embeddings[split.held_out])
        held_out.append(
            Ranked(split.held_out, z[split.held_out], order, z[split.fit], base[split.fit])
        )
    ranking = _of_run(paths.RANKING, config, name)
    asked, nearest = _nearest(ranking, heads)
    greedy = _answers(paths.ACCURACY, config, options, options.decoding, options.test)
    found, test = data.read_correct(greedy, heads)
    place = {question: row for row, question in enumerate(found)}
    test = test[[place[question] for question in asked]]
    tested = [Ranked(np.arange(len(asked)), test, nearest, z, base)]
    table = pd.concat(
        matching.compare(parts, questions, max_n, options.bootstrap, config.seed)
        for parts, questions in ((held_out, "training, held out"), (tested, "test"))
    )
    path = Path(paths.EMBEDDING_VALUE.format(run=config.run, selector=name, suffix="csv"))
    facts |= {"test": key(config, "questions", options.test), "bootstrap_seed": config.seed}
    _write_csv(path, table, stopwatch, facts)


def _nearest(path: Path, heads: list[str]) -> tuple[list[str], Int[np.ndarray, "questions pool"]]:
    """Return question ids of a ranking and, for each, numbers in the pool, nearest first."""
    questions, ranked = data.read_ranking(path)
    number = {head: index for index, head in enumerate(heads)}
    return questions, np.array([[number[head] for head in row] for row in ranked])


def _sampling(
    config: Config, options: Selector, questions: list[str], max_n: int
) -> dict[str, Scores]:
    """Return the scores of the sampling decodings, by display name."""
    temperatures = {name: config.decodings[name].temperature for name in options.sampling}
    scores = {}
    for decoding, method in methods.sampling(temperatures).items():
        path = _answers(paths.GRADED, config, options, decoding, options.test)
        samples = config.decodings[decoding].samples
        answers = data.read_answers(path, questions, [str(BASE)], samples)
        scores[method] = drawn(answers, max_n)
    return scores


def _pool(config: Config, options: Selector) -> list[str]:
    """Return the names of the pool's members: heads, sorted, after the base model if it is one."""
    base = [BASE] if options.include_base else []
    return [str(member) for member in (*base, *pool(config, options))]


def _training_z(
    config: Config, options: Selector, heads: list[str]
) -> tuple[list[str], Bool[np.ndarray, "questions pool"]]:
    path = _answers(paths.ACCURACY, config, options, options.decoding, options.train)
    return data.read_correct(path, heads)


def _embeddings(config: Config, options: Selector, questions: str) -> Path:
    return Path(
        paths.EMBEDDINGS.format(
            embedder=key(config, "embedders", options.embedder),
            questions=key(config, "questions", questions),
        )
    )


def _answers(
    template: str, config: Config, options: Selector, decoding: str, questions: str
) -> Path:
    return Path(
        template.format(
            run=config.run,
            model=key(config, "models", options.model),
            decoding=key(config, "decodings", decoding),
            questions=key(config, "questions", questions),
        )
    )


def _of_run(template: str, config: Config, name: str) -> Path:
    return Path(template.format(run=config.run, selector=name))


def _write_csv(
    path: Path, table: pd.DataFrame, stopwatch: Stopwatch, facts: dict[str, Any]
) -> None:
    write_text(path, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    write_record(path, stopwatch, facts)
