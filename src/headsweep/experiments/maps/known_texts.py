"""The texts of a map: a right and a wrong sample of each question, and its reference solution.

They are chosen once, so that all layers of a map score the same. Right and wrong texts are both
samples of one decoding, drawn alike. They are never the greedy answer: each of its tokens is the
base model's first choice, so hardly any change makes it likelier.
"""

import logging
from collections import Counter
from pathlib import Path

import pandas as pd

from headsweep.benchmarks.prompts import encode_within_limits
from headsweep.errors import TableError
from headsweep.experiments.maps.outcomes import RIGHT, SOLUTION, WRONG
from headsweep.experiments.maps.scoring import Text
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import read_arrow, write_table
from headsweep.files.tables import ANSWERS, QUESTIONS, TEXTS
from headsweep.grading.matrix import grade_answers
from headsweep.models.checkpoints import stated_config
from headsweep.models.geometry import most_tokens
from headsweep.statistics.maxima import FEWEST
from headsweep.store.layout import Store
from headsweep.store.map_scores import find_map
from headsweep.text import counted
from headsweep.variants import BASE

_LOG = logging.getLogger(__name__)

_PAIR, _SOLUTION = "sample pair", "reference solution"

_Pairs = dict[str, dict[str, tuple[int, ...]]]
"""The tokens of a right and a wrong sample, by question and kind."""


def write_texts(store: Store, texts: str) -> None:
    """Choose the texts of a map, given their key; write `tables.TEXTS` and its record.

    Raises:
        ConfigError: the config has no map of this key.
        ModelError, BenchmarkError, TableError, GradingError: see `choose_texts`.
    """
    stopwatch = Stopwatch()
    name, section = find_map(store.config, texts)
    folder = store.model_folder(section.model)
    limit = most_tokens(stated_config(folder))
    chosen, counts = choose_texts(store, name, folder, limit)
    rows = [
        {
            "question_id": text.question_id,
            "kind": text.kind,
            "prompt": text.prompt,
            "token_ids": text.tokens,
        }
        for text in chosen
    ]
    output = Path(TEXTS.path.format(texts=texts))
    write_table(output, pd.DataFrame(rows), TEXTS, {"map": name})
    facts = {"map": section.model_dump(mode="json"), "grading": store.config.grading}
    write_record(output, stopwatch, facts | counts)


def read_texts(texts: str) -> list[Text]:
    """Return the texts of a map, given their key.

    Raises:
        TableError: their table is missing or damaged.
    """
    rows = read_arrow(Path(TEXTS.path.format(texts=texts)), TEXTS).to_pylist()
    return [
        Text(row["question_id"], row["kind"], tuple(row["prompt"]), tuple(row["token_ids"]))
        for row in rows
    ]


def choose_texts(
    store: Store, name: str, folder: Path, limit: int | None = None
) -> tuple[list[Text], dict[str, int]]:
    """Return the texts of a map, question by question, and the numbers of `questions` that were
    looked at, of `pairs` and of `solutions`.

    Args:
        store: of a resolved config.
        name: of the map.
        folder: the model's.
        limit: most tokens that the model reads, prompt included, if it has a limit. Reference
            solutions beyond it are left out, and pairs: their prompt may have been shorter.

    Raises:
        TableError: a table is missing or damaged, or too few questions have texts to score.
        GradingError: no worker can be started.
        ModelError, BenchmarkError: see `encode_within_limits`.
    """
    config = store.config
    section = config.maps[name]
    questions = _questions(store, name)
    pair_of: _Pairs = {}
    for decoding in section.sampling:
        # The first decoding that has a question's pair gives it.
        pair_of = _pairs(store, name, decoding) | pair_of
    prompt_of = config.decodings[section.decoding]
    grader_name = config.questions[section.questions].grader_name
    asked = questions["question"].astype(str).tolist()
    solutions = questions["solution"].fillna("").astype(str).str.strip().tolist()
    encoded = encode_within_limits(folder, asked, prompt_of, grader_name, solutions)
    texts: list[Text] = []
    used, too_long = Counter[str](), Counter[str]()
    ids = questions["question_id"].astype(str)
    for question, of_prompt, solution in zip(ids, *encoded, strict=True):
        prompt = tuple(of_prompt)
        of_question = {
            _PAIR: pair_of.get(question, {}),
            _SOLUTION: {SOLUTION: tuple(solution)} if solution else {},
        }
        for what, tokens_of_kind in of_question.items():
            members = [
                Text(question, kind, prompt, tokens) for kind, tokens in tokens_of_kind.items()
            ]
            if any(limit is not None and text.length > limit for text in members):
                too_long[what] += 1
            elif members:
                used[what] += 1
                texts += members
    if too_long:
        left_out = " and ".join(counted(count, what) for what, count in too_long.items())
        _LOG.warning("left out: %s; %s reads at most %d tokens", left_out, section.model, limit)
    if max(used[_PAIR], used[_SOLUTION]) < FEWEST:
        raise TableError(
            f"maps.{name}: {used[_PAIR]} of {len(questions)} questions have a right and a wrong "
            f"sample, and {used[_SOLUTION]} a reference solution; {FEWEST} of a kind are needed: "
            f"draw more samples, raise max_new_tokens if most are cut, take other questions, or "
            f"name the column of a table's solutions (columns.solution, --solution-column)"
        )
    counts = {"questions": len(questions), "pairs": used[_PAIR], "solutions": used[_SOLUTION]}
    return texts, counts


def _questions(store: Store, name: str) -> pd.DataFrame:
    """Return the questions of a map: the first ones of its set."""
    section = store.config.maps[name]
    return store.read(QUESTIONS, questions=section.questions)[: section.n]


def _pairs(store: Store, name: str, decoding: str) -> _Pairs:
    """Return the first right and the first wrong sample of each question that has both.

    They are graded here, not read from a run: a map's scores are shared by all runs. A sample that
    was cut is no whole answer: it is neither.
    """
    config = store.config
    section = config.maps[name]
    names = {"model": section.model, "decoding": decoding, "questions": section.questions}
    questions = _questions(store, name)
    answers = store.read(ANSWERS, variant=BASE, **names)
    answers = answers[answers["question_id"].isin(questions["question_id"])]
    grader_name = config.questions[section.questions].grader_name
    graded = grade_answers(questions, {str(BASE): answers}, grader_name, config.grading)
    graded = graded[graded["stop_reason"] != "length"]
    answers = answers[answers["token_ids"].map(len) > 0]
    both = graded.merge(answers[["question_id", "sample", "token_ids"]], "inner")
    pairs: _Pairs = {}
    for question, samples in both.sort_values("sample").groupby("question_id", sort=False):
        right, wrong = samples[samples["correct"]], samples[~samples["correct"]]
        if len(right) and len(wrong):
            first = {RIGHT: right.iloc[0], WRONG: wrong.iloc[0]}
            pairs[str(question)] = {
                kind: tuple(map(int, row["token_ids"])) for kind, row in first.items()
            }
    return pairs
