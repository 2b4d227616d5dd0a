"""What each head contributes: its share of what enters the output projection, and what leaves it.

The base model reads its own answers once more. A head whose removal ruins the model may be one that
carries most of its layer, or one that carries little. A noise placebo is as long as its head before
the projection; how long both are behind it depends on the projection's weights.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headroom import paths
from headroom.config import Config
from headroom.errors import ModelError, TableError
from headroom.generation.prompts import encode_prompt
from headroom.generation.work import Work
from headroom.models.geometry import AttentionLayer, LoadedModel
from headroom.models.load import load_model
from headroom.record import Stopwatch, read_json, write_record
from headroom.tables import ACTIVATIONS, write_table
from headroom.variants import BASE, Variant, noise_direction

_LOG = logging.getLogger(__name__)

QUESTIONS = 32  # texts that are read: thousands of tokens, enough for a share to two digits


def run(config: Config, model: str, decoding: str, questions: str) -> None:
    """Measure the heads of a model on its own answers to the first questions of a set.

    Writes `paths.ACTIVATIONS` and its record. Names are config names; the decoding is greedy.

    Raises:
        ModelError: the model cannot be loaded, or one text alone does not fit into memory.
        TableError: the question set or the base answers are missing or damaged.
    """
    stopwatch = Stopwatch()
    work = Work(config, model, decoding, questions)
    answers = work.base()
    if not answers:
        raise TableError(f"{work.output(BASE)} is missing; the base model has not answered yet")
    section = config.models[model]
    folder = read_json(Path(paths.MODEL.format(model=work.keys["model"])))["folder"]
    loaded = load_model(
        folder, dtype=section.dtype, device=section.device, attention=section.attention
    )
    settings = config.decodings[decoding], config.questions[questions].family
    texts = [
        (*encode_prompt(loaded.tokenizer, text, *settings), *answers[question])
        for question, text in list(work.texts.items())[:QUESTIONS]
    ]
    try:
        table = measure(loaded, texts)
    except torch.OutOfMemoryError:
        raise ModelError(
            "a single text does not fit in the GPU's memory beside what else is there; "
            "run `headroom engine stop`, and run again"
        ) from None
    output = Path(paths.ACTIVATIONS.format(**work.keys))
    facts = {**work.keys, "texts": len(texts), "tokens": sum(map(len, texts))}
    write_table(output, table, ACTIVATIONS, facts)
    write_record(output, stopwatch, facts | {"device": str(loaded.device)})
    _LOG.info("%s: %d heads on %d tokens", model, len(table), facts["tokens"])


@torch.inference_mode()
def measure(loaded: LoadedModel, texts: Sequence[tuple[int, ...]]) -> pd.DataFrame:
    """Return columns of `tables.ACTIVATIONS`, a row a layer and head, from texts' token ids."""
    sums: dict[int, Tensor] = {}
    noise: dict[int, Tensor] = {}  # what a unit of each head's noise is behind the projection
    with ExitStack() as hooks:
        for layer in loaded.geometry.layers:
            projection = loaded.geometry.output_projection(loaded.model, layer.index)
            places = [(layer.index, head) for head in range(layer.query_heads)]
            read = [loaded.geometry.weights_that_read(loaded.model, *place) for place in places]
            slices = torch.stack(read).double()
            own = [noise_direction(Variant(*place, kind="noise"), layer.width) for place in places]
            directions = torch.from_numpy(np.stack(own, axis=1)).to(slices)
            noise[layer.index] = (torch.cat(list(slices), dim=1) @ directions).norm(dim=0).cpu()
            hook = partial(_add, sums, layer, slices.mT @ slices)
            hooks.callback(projection.register_forward_pre_hook(hook).remove)
        for text in texts:
            ids = torch.tensor([text], device=loaded.device)
            loaded.model.base_model(input_ids=ids, use_cache=False)
    tokens = sum(map(len, texts))
    return pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "share": share,
            "norm": norm,
            "output_norm": output,
            "noise_norm": norm * noise[layer][head].item(),
        }
        for layer, found in sorted(sums.items())
        for head, (share, norm, output) in enumerate((found / tokens).tolist())
    )


def _add(
    sums: dict[int, Tensor],
    layer: AttentionLayer,
    grams: Float[Tensor, "query_heads head_dim head_dim"],
    _: nn.Module,
    inputs: tuple[Any, ...],
) -> None:
    """Add each head's share of the squared length, its length, and its output's, over all tokens.

    The output's squared length is a quadratic form of the head's slice; `grams` are its matrices.
    """
    heads = inputs[0].double().unflatten(-1, (layer.query_heads, layer.head_dim))
    norms = heads.norm(dim=-1).flatten(0, -2)
    squares = norms**2
    shares = squares / squares.sum(dim=-1, keepdim=True).clamp_min(1e-300)
    outputs = torch.einsum("...hi,hij,...hj->...h", heads, grams, heads).clamp_min(0).sqrt()
    parts = (shares, norms, outputs.flatten(0, -2))
    found = torch.stack([each.sum(dim=0) for each in parts], dim=-1).cpu()
    sums[layer.index] = sums.get(layer.index, 0) + found
