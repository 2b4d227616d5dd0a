"""The stages between the rooms: each reads tables, calls one room, writes tables and a record.

Names are config names; paths follow from the config (see `headroom.paths`, `headroom.identity`).
"""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from headroom import paths
from headroom.config import Config, Preset
from headroom.errors import ConfigError
from headroom.identity import BUILTIN, key, settings, source_key, split_key
from headroom.plan import Batch, find_batch
from headroom.record import Stopwatch, read_json, write_record
from headroom.saying import RESULT
from headroom.tables import (
    ACCURACY,
    ANSWERS,
    EMBEDDINGS,
    GRADED,
    QUESTIONS,
    atomic,
    read_table,
    write_json,
    write_table,
)
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)


def read_source(config: Config, source: str) -> None:
    """Read the split with the given source key, from the hub, a file, or the generator."""
    from headroom.benchmarks import sources

    stopwatch = Stopwatch()
    name = next((name for name in config.questions if source_key(config, name) == source), None)
    if name is None:
        raise ConfigError(f"no question set of this config is drawn from {source!r}")
    section = config.questions[name]
    rows = sources.read_source(section)
    output = Path(paths.SOURCE.format(source=source))
    write_table(output, rows, QUESTIONS)
    write_record(output, stopwatch, {"benchmark": section.model_dump(mode="json")})
    _LOG.info("%s: %d questions", source, len(rows))


def draw_questions(config: Config, questions: str) -> None:
    """Draw a question set from its split."""
    from headroom.benchmarks.sampling import draw

    stopwatch = Stopwatch()
    section = config.questions[questions]
    split = read_table(Path(paths.SOURCE.format(source=source_key(config, questions))), QUESTIONS)
    vectors = _embed(config, section.embedder, split) if section.embedder else None
    drawn = draw(split, section, vectors)
    output = Path(paths.QUESTIONS.format(questions=key(config, "questions", questions)))
    write_table(output, drawn, QUESTIONS, {"split": split_key(config, questions)})
    facts = {"questions": settings(config, "questions", questions), "rows": len(drawn)}
    write_record(output, stopwatch, facts)
    _LOG.info("%s: %d of %d questions", questions, len(drawn), len(split))


def prepare_model(config: Config, model: str) -> None:
    """Train a model, or fetch it; check its heads; say in model.json where it is."""
    from headroom.models import source

    stopwatch = Stopwatch()
    section = config.models[model]
    model_key = key(config, "models", model)
    own = None  # what is fetched is the hub's to keep whole
    if section.train is not None:
        from headroom.reasoner.training import train_reasoner

        folder = own = Path(paths.CHECKPOINT.format(model=model_key))
        train_reasoner(folder, section.train)
    else:
        assert section.source is not None  # the schema asks for one of the two
        folder = source.fetch_model(section.source, section.revision)
        if section.source in BUILTIN:  # a store outlives the environment that it was made in
            own = Path(paths.CHECKPOINT.format(model=model_key))
            folder = Path(shutil.copytree(folder, own, dirs_exist_ok=True))
    source.check_geometry(folder, section.layers, section.heads, section.kv_heads)
    output = Path(paths.MODEL.format(model=model_key))
    write_json(output, {"folder": str(folder), "settings": settings(config, "models", model)})
    write_record(output, stopwatch, {"model": section.model_dump(mode="json")}, own)
    _LOG.info("model %s is ready in %s", model, folder)


def prepare_embedder(config: Config, embedder: str) -> None:
    """Fetch an embedder, or find it beside its model; say in its JSON file where it is."""
    stopwatch = Stopwatch()
    section = config.embedders[embedder]
    if section.model is not None:
        model_file = Path(paths.MODEL.format(model=key(config, "models", section.model)))
        folder = str(read_json(model_file)["folder"])
    else:
        from headroom.embeddings import fetch_embedder

        assert section.source is not None  # the schema asks for one of the two
        folder = str(fetch_embedder(section.source, section.revision))
    output = Path(paths.EMBEDDER.format(embedder=key(config, "embedders", embedder)))
    write_json(output, {"folder": folder})
    write_record(output, stopwatch, {"embedder": settings(config, "embedders", embedder)})


def embed_questions(config: Config, embedder: str, questions: str) -> None:
    """Embed the questions of a set."""
    stopwatch = Stopwatch()
    keys = {
        "embedder": key(config, "embedders", embedder),
        "questions": key(config, "questions", questions),
    }
    rows = read_table(Path(paths.QUESTIONS.format(**keys)), QUESTIONS)
    vectors = _embed(config, embedder, rows)
    output = Path(paths.EMBEDDINGS.format(**keys))
    table = pd.DataFrame({"question_id": rows["question_id"], "vector": list(vectors)})
    write_table(output, table, EMBEDDINGS)
    facts = {"embedder": settings(config, "embedders", embedder), "shape": list(vectors.shape)}
    write_record(output, stopwatch, facts)


def grade(config: Config, model: str, decoding: str, questions: str) -> None:
    """Judge all answers of a batch; write them graded, and the accuracy matrix Z."""
    from headroom.grading.matrix import accuracy_matrix, grade_answers

    stopwatch = Stopwatch()
    batch = find_batch(config, model, decoding, questions)
    keys = batch.wildcards(config)
    rows = read_table(Path(paths.QUESTIONS.format(**keys)), QUESTIONS)
    answers = {
        str(variant): read_table(Path(file), ANSWERS)
        for variant, file in zip(batch.variants, batch.answers(config), strict=True)
    }
    family = config.questions[questions].family
    graded = grade_answers(rows, answers, family=family, preset=config.grading, workers=_cores())
    facts = {**keys, "grading": config.grading}
    graded_file = Path(paths.GRADED.format(run=config.run, **keys))
    write_table(graded_file, graded, GRADED, facts)
    matrix = accuracy_matrix(graded, rows)
    variants = [name for name in matrix.columns if name not in ACCURACY.names]
    schema = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in variants)])
    output = Path(paths.ACCURACY.format(run=config.run, **keys))
    write_table(output, matrix, schema, facts)
    verdicts = graded["verdict"].value_counts().sort_index().to_dict()
    for file in (graded_file, output):
        write_record(file, stopwatch, {**facts, "verdicts": verdicts})
    shown = RESULT if len(batch.variants) > 1 else logging.INFO
    _LOG.log(shown, "%s", _right(config, batch, graded))


def _right(config: Config, batch: Batch, graded: pd.DataFrame) -> str:
    """Say whose answers are right how often: the base model's and its pruned heads'."""
    right = 100 * graded.groupby("variant")["correct"].mean()
    pruned = [right[str(variant)] for variant in batch.variants if variant.kind == "head"]
    names = (batch.model, batch.decoding, batch.questions)
    sweeps = [
        f"sweep {name}, "
        for name, sweep in config.sweeps.items()
        if (sweep.model, sweep.decoding, sweep.questions) == names
    ]
    heads = f", without one of {len(pruned)} heads {min(pruned):.1f} to " if pruned else ""
    return (
        f"{''.join(sweeps)}{batch.model} on {graded['question_id'].nunique()} questions of "
        f"{batch.questions}, {batch.decoding}: {right[str(BASE)]:.1f}% right"
        + (f"{heads}{max(pruned):.1f}%" if pruned else "")
    )


def compare_prompts(config: Config, comparison: str) -> None:
    """Grade the base model's answers under two prompts, each under both sets of rules."""
    from headroom.grading.matrix import grade_answers

    stopwatch = Stopwatch()
    section = config.comparisons[comparison]
    questions_key = key(config, "questions", section.questions)
    rows = read_table(Path(paths.QUESTIONS.format(questions=questions_key)), QUESTIONS)
    family = config.questions[section.questions].family
    graded: dict[tuple[str, Preset], pd.DataFrame] = {}
    for decoding in section.decodings:
        file = paths.ANSWERS.format(
            model=key(config, "models", section.model),
            decoding=key(config, "decodings", decoding),
            questions=questions_key,
            variant=BASE,
        )
        answers = {str(BASE): read_table(Path(file), ANSWERS)}
        for preset in ("default", "authors"):
            graded[decoding, preset] = grade_answers(
                rows, answers, family=family, preset=preset, workers=_cores()
            )
    reference = graded[section.decodings[0], "default"]["correct"]
    table = pd.DataFrame(
        [
            {
                "decoding": decoding,
                "grading": preset,
                "n": len(result),
                "correct": int(result["correct"].sum()),
                "accuracy": result["correct"].mean(),
                "no_answer": int(result["answer"].isna().sum()),
                "truncated": int((result["stop_reason"] == "length").sum()),
                "differ_from_default": int((result["correct"] != reference).sum()),
            }
            for (decoding, preset), result in graded.items()
        ]
    )
    output = Path(paths.COMPARISON.format(run=config.run, comparison=comparison, suffix="csv"))
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False)
    write_record(output, stopwatch, {"comparison": section.model_dump(mode="json")})


def _embed(config: Config, embedder: str, rows: pd.DataFrame) -> Any:
    from headroom.embeddings import embed, load_embedder

    file = Path(paths.EMBEDDER.format(embedder=key(config, "embedders", embedder)))
    folder = read_json(file)["folder"]
    return embed(load_embedder(folder), rows["question"].tolist())


def _cores() -> int:
    return len(os.sched_getaffinity(0))
