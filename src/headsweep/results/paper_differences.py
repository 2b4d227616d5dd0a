"""What differs between a run and the papers, as the page says beside published numbers.

A reader takes a number beside a published one for a replication. It is one only if model,
precision, layers, prompt and grading, or solver and data, are the paper's.
"""

import pandas as pd

from headsweep.config import Config
from headsweep.config.compression import Compression
from headsweep.config.titles import title
from headsweep.results.compression_evidence import condition
from headsweep.results.published import (
    FIGURE_LAYER,
    FIGURE_MODEL,
    LAYERS,
    model_beside,
    published_name,
)
from headsweep.store.batches import pool

_DTYPE = "float16"  # of the SPRINT paper's models, by its code
_ATTENTION = "flash_attention_2"
_QUESTIONS = 500  # of MATH-500
_OWN = ["decoder, training and division of the data are this project's"]


def of_sweep(config: Config, sweep: str) -> str:
    """Return what differs between a sweep and the SPRINT paper's tables, in one sentence."""
    section = config.sweeps[sweep]
    model, decoding = config.models[section.model], config.decodings[section.decoding]
    name = model_beside(model)
    shown_as = title(config, "models", section.model)
    if name is None:
        return f"{shown_as} is no model of the paper."
    here = {
        "prompt": (decoding.prompt, "authors"),
        "grading": (config.grading_of(sweep), "authors"),
        "precision": (model.dtype, _DTYPE),
        "attention": (model.attention, _ATTENTION),
    }
    differences = [] if published_name(model) else [f"the model is {shown_as}, not {name}"]
    differences += [
        f"{what} {ours}, not {theirs}" for what, (ours, theirs) in here.items() if ours != theirs
    ]
    layers = {head.layer for head in pool(config, section) if head.layer is not None}
    printed = {*LAYERS[name], FIGURE_LAYER} if name == FIGURE_MODEL else set(LAYERS[name])
    if more := sorted(layers - printed):
        differences.append(f"layers {', '.join(map(str, more))} are not printed")
    heads_asked = len(pool(config, section))
    every_head = sum(len(model.heads_in(layer)) for layer in layers)
    if heads_asked < every_head:
        differences.append(f"{heads_asked} of {every_head} heads")
    questions = config.questions[section.questions]
    if questions.benchmark != "math500":
        differences.append(f"questions are {title(config, 'questions', section.questions)}")
    elif questions.n is not None and questions.n < _QUESTIONS:
        differences.append(f"{questions.n} of its {_QUESTIONS} questions")
    if not differences:
        return "Settings are the paper's."
    return f"No replication: {'; '.join(differences)}."


def of_compression(config: Config, name: str) -> str:
    """Return what differs between a compression and the second paper's, in one sentence."""
    study = config.compressions[name]
    called = title(config, "compressions", name)
    if study.solver is None:
        return f"{called} is no solver of the paper."
    encoder = config.solver_of(study).encoder
    if paper_names := condition(config, name):
        own = f"{called} has the encoder of {paper_names[0]}"
    else:
        source = encoder.source or f"an encoder of {encoder.layers} layers, trained here,"
        own = f"{called} has {source} for ATHENA's"
    return f"No replication: {'; '.join([own, *_OWN, *_of_method(study.method)])}."


def _of_method(method: Compression) -> list[str]:
    """Return what differs between the settings of a method and the paper's equations."""
    differences = []
    importance, distillation = method.importance, method.distillation
    if importance.scale == "min_max":
        differences.append("norm and entropy are scaled to [0, 1] before they are mixed")
    if importance.entropy == "normalised":
        differences.append("entropy is a fraction of its maximum")
    if importance.calibration is not None:
        differences.append(f"heads are scored on {importance.calibration} problems, not all")
    if distillation.reduction == "keys":
        differences.append("differences of attention are summed over keys, not averaged")
    if method.training.patience is None:
        differences.append("no training of an arm stops early")
    return differences


def of_table(config: Config, table: pd.DataFrame) -> str:
    """Return the sentences on the compressions in a table that have published numbers beside."""
    printed = table.filter(like="published_").select_dtypes("number").notna().any(axis=1)
    names = table.loc[printed, "compression"].unique()
    return " ".join(of_compression(config, str(name)) for name in names)
