"""What each head contributes: its share of the output projection's input, and its output.

The base model reads its own answers once more. A head whose removal ruins the model may carry most
of its layer, or only little of it. A noise placebo is as long as its head after the projection;
both lengths are measured, so that the table shows it.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.answers.exclusive import with_model
from headsweep.answers.work import Work
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.engine.weights import fast_linear
from headsweep.errors import TableError
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ACTIVATIONS
from headsweep.models.geometry import AttentionLayer
from headsweep.models.loaded import LoadedModel
from headsweep.models.noise import LayerNoise, layer_noise
from headsweep.store.batches import Batch
from headsweep.variants import BASE

_LOG = logging.getLogger(__name__)

QUESTIONS = 32  # texts that are read: thousands of tokens, enough for a share to two digits

_MEASURES = ("share", "norm", "output_norm", "noise_norm")  # of a head, as `_add` adds them up


def run(batch: Batch) -> None:
    """Measure the heads of a model on its own answers to the first questions of a set.

    Writes `tables.ACTIVATIONS` and its record. The decoding is greedy.

    Raises:
        ModelError: the model cannot be loaded, or one text alone does not fit into memory.
        TableError: the question set or the base answers are missing or damaged.
    """
    stopwatch = Stopwatch()
    work = Work(batch)
    answers = work.base()
    if not answers:
        raise TableError(f"{work.output(BASE)} is missing; the base model has not answered yet")
    table, texts, name = with_model(batch.store, batch.model, partial(_measure, work, answers))
    output = batch.path(ACTIVATIONS)
    facts = {**batch.keys._asdict(), "texts": len(texts), "tokens": sum(map(len, texts))}
    write_table(output, table, ACTIVATIONS, facts)
    write_record(output, stopwatch, facts | {"device": name})
    _LOG.info("%s: %d heads on %d tokens", batch.model, len(table), facts["tokens"])


def _measure(
    work: Work, answers: Mapping[str, Sequence[int]], loaded: LoadedModel
) -> tuple[pd.DataFrame, list[tuple[int, ...]], str]:
    """Return what `measure` does, the texts, and the device."""
    texts = [
        (
            *encode_prompt(loaded.tokenizer, text, work.decoding, work.grader_name),
            *answers[question],
        )
        for question, text in list(work.texts.items())[:QUESTIONS]
    ]
    return measure(loaded, texts), texts, str(loaded.device)


@torch.inference_mode()
def measure(loaded: LoadedModel, texts: Sequence[tuple[int, ...]]) -> pd.DataFrame:
    """Return columns of `tables.ACTIVATIONS`, a row a layer and head, from texts' token ids."""
    sums: dict[int, Tensor] = {}
    with ExitStack() as hooks:
        for layer in loaded.geometry.layers:
            projection = loaded.geometry.output_projection(loaded.model, layer.index)
            weight = loaded.geometry.output_weight(loaded.model, layer.index)
            slices = torch.stack(weight.split(layer.head_dim, dim=1))
            noise = layer_noise(loaded.model, loaded.geometry, layer.index)
            units = (noise.directions.double() @ weight.T).norm(dim=1)
            hook = partial(_add, sums, layer, slices.mT @ slices, noise, units)
            hooks.callback(projection.register_forward_pre_hook(hook).remove)
        hooks.enter_context(fast_linear(loaded.model))
        for text in texts:
            ids = torch.tensor([text], device=loaded.device)
            loaded.model.base_model(input_ids=ids, use_cache=False)
    tokens = sum(map(len, texts))
    rows = []
    for layer_index, sums_of_layer in sorted(sums.items()):
        for head, means in enumerate((sums_of_layer / tokens).tolist()):
            measures = dict(zip(_MEASURES, means, strict=True))
            rows.append({"layer": layer_index, "head": head, **measures})
    return pd.DataFrame(rows)


def _add(
    sums: dict[int, Tensor],
    layer: AttentionLayer,
    grams: Float[Tensor, "query_heads head_dim head_dim"],
    noise: LayerNoise,
    units: Float[Tensor, " query_heads"],
    _: nn.Module,
    inputs: tuple[Any, ...],
) -> None:
    """Add each head's share of the squared length, its length, its output's, and its noise's.

    The output's squared length is a quadratic form of the head's slice; `grams` are its matrices.
    The noise is what the placebo adds: `units` are the lengths of its directions behind W.
    """
    heads = inputs[0].double().unflatten(-1, (layer.query_heads, layer.head_dim))
    norms = heads.norm(dim=-1).flatten(0, -2)
    squares = norms**2
    shares = squares / squares.sum(dim=-1, keepdim=True).clamp_min(1e-300)
    outputs = torch.einsum("...hi,hij,...hj->...h", heads, grams, heads).clamp_min(0).sqrt()
    added = noise.lengths(inputs[0].unflatten(-1, (layer.query_heads, -1))) * units
    measures = (shares, norms, outputs.flatten(0, -2), added.flatten(0, -2))  # as `_MEASURES`
    totals = torch.stack([measure.sum(dim=0) for measure in measures], dim=-1).cpu()
    sums[layer.index] = sums.get(layer.index, 0) + totals
