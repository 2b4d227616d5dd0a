"""Prepares what answering needs: question sets, models, embedders and their vectors.

Each function reads tables, calls one room, and writes tables with a record. Names are config names.
"""

import logging
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.config.titles import title
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import (
    Stopwatch,
    checked_file,
    peak_resident,
    record_path,
    write_record,
)
from headsweep.files.safe_files import atomic, remove_folder, write_json, write_table
from headsweep.files.tables import EMBEDDINGS, QUESTIONS, SOURCE
from headsweep.models.footprint import embedding_model
from headsweep.models.source import BUILTIN
from headsweep.store.keys import settings, split_key
from headsweep.store.layout import Store
from headsweep.telling import told

_LOG = logging.getLogger(__name__)

_SECONDS_BETWEEN_TRIES = 0.5


def store_split(store: Store, questions: str) -> None:
    """Write the split that a question set is drawn from to the store.

    It comes from the hub, a file, or the generator. Sets of one split share it.
    """
    from headsweep.benchmarks.sources import read_source

    stopwatch = Stopwatch()
    section = store.config.questions[questions]
    rows = read_source(section)
    output = store.path(SOURCE, source=questions)
    write_table(output, rows, SOURCE)
    write_record(output, stopwatch, {"benchmark": section.model_dump(mode="json")})
    _LOG.info("%s has %d questions", section.origin, len(rows))


def draw_questions(store: Store, questions: str) -> None:
    """Draw a question set from its split."""
    from headsweep.benchmarks.draws import draw

    stopwatch = Stopwatch()
    config = store.config
    section = config.questions[questions]
    split = store.read(SOURCE, source=questions)
    vectors = _embed(store, section.embedder, split).vectors if section.embedder else None
    drawn = draw(split, section, vectors)
    output = store.path(QUESTIONS, questions=questions)
    write_table(output, drawn, QUESTIONS, {"split": split_key(config, questions)})
    facts = {"questions": settings(config, "questions", questions), "rows": len(drawn)}
    write_record(output, stopwatch, facts)
    called = title(config, "questions", questions)
    _LOG.info("%s: %d of %d questions are drawn", called, len(drawn), len(split))


def prepare_model(store: Store, model: str) -> None:
    """Fetch a model; check its heads; say in model.json where it is."""
    from headsweep.models import gguf, source

    output = store.path(paths.MODEL, model=model)
    locks = Locks(Path(paths.STORE_LOCKS))  # freed when this function ends
    if not locks.take(str(output)):
        with told("waiting for another process that makes the model ready"):
            while not locks.take(str(output)):
                time.sleep(_SECONDS_BETWEEN_TRIES)
        if output.exists() and record_path(output).exists():
            return
    stopwatch = Stopwatch()
    config = store.config
    section = config.models[model]
    facts: dict[str, Any] = {"model": section.model_dump(mode="json")}
    made_here = None  # what is fetched is the hub's to keep whole
    checkpoint = store.path(paths.CHECKPOINT, model=model)
    folder = source.fetch_model(
        section.source, section.revision, gguf_file=section.gguf_file, or_file=True
    )
    if folder.suffix == gguf.SUFFIX:
        facts["gguf"] = gguf.convert(folder, checkpoint, section.dtype)
        folder = made_here = checkpoint
    elif section.source in BUILTIN:  # a store outlives the environment that it was made in
        _copy(folder, checkpoint)
        folder = made_here = checkpoint
    source.check_geometry(folder, section)
    if section.source not in BUILTIN:
        from headsweep.benchmarks.prompts import check_reading

        check_reading(folder, config.decodings.values())
    write_json(output, {"folder": str(folder), "settings": settings(config, "models", model)})
    write_record(output, stopwatch, facts, made_here)
    _LOG.info("%s is ready in %s", title(config, "models", model), folder.absolute())


def _copy(folder: Path, to: Path) -> None:
    """Copy a model's files but for its record, whole or not at all, in place of an earlier copy.

    Modes are not copied: a package may be installed read-only, but its copy is replaced again.
    """
    remove_folder(to)
    with atomic(to, folder=True) as made:
        for file in folder.iterdir():
            if not file.name.endswith(".run.json"):  # this run's record vouches for the copy
                shutil.copyfile(checked_file(file), made / file.name)


def prepare_embedder(store: Store, embedder: str) -> None:
    """Fetch an embedder, or find it beside its model; say in its JSON file where it is."""
    stopwatch = Stopwatch()
    section = store.config.embedders[embedder]
    if section.source is not None:
        from headsweep.models.embeddings import fetch_embedder

        folder = str(fetch_embedder(section.source, section.revision))
    else:
        folder = str(store.embedder_folder(embedder))
    output = store.path(paths.EMBEDDER, embedder=embedder)
    write_json(output, {"folder": folder})
    write_record(output, stopwatch, {"embedder": settings(store.config, "embedders", embedder)})


def embed_questions(store: Store, embedder: str, questions: str) -> None:
    """Embed the questions of a set."""
    stopwatch = Stopwatch()
    rows = store.read(QUESTIONS, questions=questions)
    vectors, seconds, memory = _embed(store, embedder, rows)
    cost = {"embedding_seconds": seconds, "embedding_bytes": memory}
    output = store.path(EMBEDDINGS, embedder=embedder, questions=questions)
    table = pd.DataFrame({"question_id": rows["question_id"], "vector": list(vectors)})
    write_table(output, table, EMBEDDINGS)
    facts = {
        "embedder": settings(store.config, "embedders", embedder),
        "shape": list(vectors.shape),
    }
    write_record(output, stopwatch, facts | cost)


class _Embedded(NamedTuple):
    """The vectors of questions, and what they cost; no wait for a GPU is counted."""

    vectors: Any
    seconds: float
    memory: int  # bytes


def _embed(store: Store, embedder: str, rows: pd.DataFrame) -> _Embedded:
    before, importing = peak_resident(), Stopwatch()
    from headsweep.answers.exclusive import gpu_held, make_room
    from headsweep.models.embeddings import embed, load_embedder

    seconds = importing.seconds
    if (model := embedding_model(store.config, embedder)) is not None:
        make_room(model)
    with gpu_held():
        embedding = Stopwatch()
        folder = store.embedder_folder(embedder)
        vectors = embed(load_embedder(folder), rows["question"].tolist())
        seconds += embedding.seconds
    return _Embedded(vectors, seconds, peak_resident() - before)
