"""The jobs of a head selector: train, rank, evaluate; and its model card.

Each reads tables and writes results and their records. Only those that train or rank import torch.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from huggingface_hub import ModelCardData

from headsweep import paths, tables
from headsweep.config import Config, Questions
from headsweep.errors import RESULT, TableError
from headsweep.models.source import local_folder
from headsweep.record import Stopwatch, peak_resident, read_record, write_record
from headsweep.sprint import choosing, evaluation, methods, rankers, validation
from headsweep.sprint.evaluation import POINTS, Scores, drawn, mean_over, ordered
from headsweep.sprint.experiment import Experiment, GradedAnswers
from headsweep.sprint.validation import ALL, Order
from headsweep.statistics.answers import extend
from headsweep.statistics.intervals import Bootstrap
from headsweep.variants import BASE

_LOG = logging.getLogger(__name__)


def train(config: Config, name: str) -> None:
    """Choose a selector's setting on held-out training questions, and train it on all of them.

    The final training starts from the first of the config's seeds. Writes `paths.SELECTOR` and
    `paths.CHOICE`.
    """
    from headsweep.sprint import model, training

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
    from headsweep.sprint import model, training

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
    alike = validation.overlap(experiment.texts(options.train), experiment.texts(options.test))
    apart = ~np.isin(questions, alike.loc[alike["degree"] != "unknown", "question_id"])
    compared = learnt, apart, bootstrap
    others, voters = [name for name in scores if name != methods.SPRINT], [*sampled, methods.BASE]
    readings = {
        each: of_order(rankings[each][methods.SPRINT][0])["pass_at_n"]
        for each in validation.readings(options)
    }
    matched = [
        evaluation.embedding_worth(
            method, answers.correct, orders[0], z, max_n, bootstrap, config.seed
        )
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


_CARD = """\
---
{data}
---
# {name}

Ranks the attention heads of a language model for a question: the nearest are those whose removal \
is expected to help to answer it (SPRINT, [arXiv 2506.03978](https://arxiv.org/abs/2506.03978), \
section 4).

{facts}

To answer a question with it:

```sh
headsweep solve --run results/{run} --selector {name} "What is 3 times 7?"
```

Pass@N on {n} test questions, in percent, with 95% bootstrap intervals over questions: a question \
counts as solved if any of N answers is right. Heads answer greedily, of at most \
{tokens:,} tokens; grading: {grading}. The selector has not seen these questions.

{passes}
"""


def card(config: Config, name: str, facts: Mapping[str, Any], curves: pd.DataFrame) -> str:
    """Return the model card of a trained selector of a resolved config.

    `facts` is the metadata saved with it; `curves` its Pass@N (`headsweep.tables.CURVES`).
    """
    options, chosen = config.selectors[name], facts["setting"]
    model = config.models[options.model]
    hub = model.source if model.source and not local_folder(model.source) else None
    tags = ["sprint", "head-selector", "attention-heads"]
    data = ModelCardData(base_model=hub, library_name="headsweep", tags=tags)
    shown = {
        "model": f"{model.source or options.model}, revision {model.revision}, {model.dtype}",
        "heads": f"{len(facts['heads'])}: {facts['heads'][0]} to {facts['heads'][-1]}",
        "question embeddings": chosen["embedder"],
        "learnt from": _drawn_from(options.train, config.questions[options.train]),
        "tested on": _drawn_from(options.test, config.questions[options.test]),
        "training": f"{chosen['epochs']:,} epochs, learning rate {chosen['learning_rate']:g}, "
        f"seed {facts['seed']}; chosen on held-out training questions (choice.csv)",
    }
    rows = curves[curves["n"].isin(POINTS)]
    passes = [
        [str(method), *map("{:.1f} ({:.1f} to {:.1f})".format, *100 * part.to_numpy().T)]
        for method, part in rows.groupby("method", sort=False)[["pass_at_n", "low", "high"]]
    ]
    return _CARD.format(
        data=data.to_yaml(),
        name=name,
        run=config.run,
        facts=_markdown(["", ""], *shown.items()),
        n=facts["test_questions"],
        tokens=config.decodings[options.decoding].max_new_tokens,
        grading=config.grading,
        passes=_markdown(["", *(f"N = {n}" for n in rows["n"].unique())], *passes),
    )


def _markdown(head: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _drawn_from(name: str, questions: Questions) -> str:
    source = questions.file or questions.dataset or questions.benchmark
    drawn = f"{questions.n:,} questions" if questions.n else "all questions"
    revision = f", revision {questions.revision}" if questions.revision else ""
    return f"{name}: {source}, split {questions.split}{revision}, {drawn}, seed {questions.seed}"
