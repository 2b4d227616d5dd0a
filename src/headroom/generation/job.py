"""The generate job: one variant's answers to one question set, written as one table."""

import gc
import json
import logging
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headroom import paths
from headroom.config import Config, Decoding
from headroom.errors import TableError
from headroom.identity import key, settings, split_key
from headroom.record import Stopwatch, write_record
from headroom.tables import ANSWERS, QUESTIONS, read_metadata, read_table, write_table
from headroom.variants import Variant

if TYPE_CHECKING:  # torch and the model are loaded only where a question is left to answer
    from headroom.generation.engine import Answer
    from headroom.generation.prompts import Family
    from headroom.models.load import LoadedModel

_LOG = logging.getLogger(__name__)

_SECONDS_BETWEEN_REPORTS = 10


def run(config: Config, model: str, decoding: str, questions: str, variant: Variant) -> None:
    """Answer a question set with one variant of a model; write the table and its record.

    Answers that the store holds already, made for another draw from the same split, are taken
    over. The model is loaded only if some question is left.

    Args:
        config: the run's config.
        model: config name.
        decoding: config name.
        questions: config name.
        variant: what is pruned.

    Raises:
        ModelError: the model cannot be loaded, pruned so, or fitted into memory.
        TableError: the question set is missing or damaged.
    """
    stopwatch = Stopwatch()
    keys = {
        "model": key(config, "models", model),
        "decoding": key(config, "decodings", decoding),
        "questions": key(config, "questions", questions),
    }
    output = Path(paths.ANSWERS.format(variant=variant, **keys))
    rows = read_table(Path(paths.QUESTIONS.format(**keys)), QUESTIONS)
    split = split_key(config, questions)
    finished = finished_answers(output, split)
    section = config.models[model]
    family = config.questions[questions].family

    @cache
    def load() -> "LoadedModel":
        # Importing torch and transformers makes a million objects, none of them garbage: looking
        # for it would cost a fifth of the job's start.
        gc.disable()
        try:
            from headroom.models.load import load_model
        finally:
            gc.enable()
        file = Path(paths.MODEL.format(**keys))
        folder = json.loads(file.read_text(encoding="utf-8"))["folder"]
        return load_model(
            folder, dtype=section.dtype, device=section.device, attention=section.attention
        )

    answers = answer(
        load,
        rows,
        config.decodings[decoding],
        family,
        variant,
        batch_size=section.batch_size,
        finished=finished,
    )
    facts: dict[str, Any] = {**keys, "variant": str(variant), "split": split}
    write_table(output, answers, ANSWERS, facts)
    if load.cache_info().currsize:
        from headroom.generation.prompts import prompt_facts

        facts["device"] = str(load().device)
        facts["threads"] = _threads()
        facts["prompt"] = prompt_facts(load().tokenizer, config.decodings[decoding], family)
    facts |= {
        "settings": {
            "model": settings(config, "models", model),
            "decoding": settings(config, "decodings", decoding),
            "questions": settings(config, "questions", questions),
        },
        "batch_size": section.batch_size,
        "answers": len(answers),
        "reused": int(answers["question_id"].isin(finished["question_id"]).sum()),
        "new_tokens": int(answers["token_ids"].map(len).sum()),
        "truncated": int((answers["stop_reason"] == "length").sum()),
    }
    write_record(output, stopwatch, facts)


def answer(
    load: Callable[[], "LoadedModel"],
    questions: pd.DataFrame,
    decoding: Decoding,
    family: "Family",
    variant: Variant,
    *,
    batch_size: int,
    finished: pd.DataFrame,
) -> pd.DataFrame:
    """Answer questions with one variant.

    Args:
        load: returns the model; called only if some question is not finished.
        questions: a question set.
        decoding: how tokens are chosen.
        family: which of the authors' prompts applies.
        variant: what is pruned.
        batch_size: most answers decoded together.
        finished: answers that are taken over, all samples of a question or none.

    Returns:
        Answers in the order of the questions, then of the samples (see `tables.ANSWERS`).
    """
    places = {question_id: place for place, question_id in enumerate(questions["question_id"])}
    parts = [finished[finished["question_id"].isin(places.keys())]]
    left = questions[~questions["question_id"].isin(finished["question_id"])]
    if len(left):
        parts.append(_generate(load(), left, decoding, family, variant, batch_size))
    answers = pd.concat([part for part in parts if len(part)], ignore_index=True)
    order = answers["question_id"].map(places)
    return (
        answers.assign(_place=order)
        .sort_values(["_place", "sample"], ignore_index=True)
        .drop(columns="_place")
    )


def finished_answers(output: Path, split: str) -> pd.DataFrame:
    """Return the answers of the same variant to other draws from the same split.

    Args:
        output: the table to be made, in the store; tables of the same name in its sibling
            folders are read.
        split: key of the split; only tables that name it are used.

    Returns:
        Answers as in `tables.ANSWERS`, each (question, sample) once; perhaps none.
    """
    found = [ANSWERS.empty_table().to_pandas()]
    for file in sorted(output.parent.parent.glob(f"*/{output.name}")):
        if file == output:
            continue
        try:
            if read_metadata(file).get("split") == split:
                found.append(read_table(file, ANSWERS))
        except TableError as error:
            _LOG.warning("not reused: %s", error)
    answers = pd.concat(found[1:] or found, ignore_index=True)
    return answers.drop_duplicates(["question_id", "sample"], ignore_index=True)


def _generate(
    loaded: "LoadedModel",
    questions: pd.DataFrame,
    decoding: Decoding,
    family: "Family",
    variant: Variant,
    batch_size: int,
) -> pd.DataFrame:
    from headroom.generation.engine import Engine, Request
    from headroom.generation.prompts import encode_prompt, prompt_text

    requests = []
    for question_id, question in zip(questions["question_id"], questions["question"], strict=True):
        text = prompt_text(loaded.tokenizer, question, decoding, family)
        prompt = encode_prompt(loaded.tokenizer, text)
        samples = range(decoding.samples)
        requests += [Request(question_id, prompt, variant, sample) for sample in samples]
    answers = Engine(loaded, decoding, batch_size).run(requests)
    return pd.DataFrame(
        [
            {
                "question_id": found.request.question_id,
                "sample": found.request.sample,
                "token_ids": found.token_ids,
                "text": loaded.tokenizer.decode(found.token_ids, skip_special_tokens=True),
                "stop_reason": found.stop_reason,
                "margin": found.margin,
            }
            for found in _with_progress(answers, len(requests), str(variant))
        ]
    )


def _with_progress(answers: Iterator["Answer"], total: int, name: str) -> Iterator["Answer"]:
    """Pass answers on; say now and then how many are done and how long the rest will take."""
    begin = reported = time.monotonic()
    for done, found in enumerate(answers, start=1):
        yield found
        now = time.monotonic()
        if done == total or now - reported >= _SECONDS_BETWEEN_REPORTS:
            reported = now
            rate = done / (now - begin)
            left = (total - done) / rate
            _LOG.info("%s: %d of %d answers, %.1f/s, %.0f s left", name, done, total, rate, left)


def _threads() -> int:
    import torch

    return torch.get_num_threads()
