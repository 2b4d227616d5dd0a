"""What a decoder allows in a recovery, checked before anything is trained."""

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from headsweep.compression.choice import check_ratio, even_count, lowest_heads
from headsweep.errors import ModelError
from headsweep.models.checkpoints import check_uniform, outline, stated_config
from headsweep.models.geometry import kept_heads, most_tokens
from headsweep.models.load import load_tokenizer
from headsweep.models.source import stated_geometry
from headsweep.recovery.settings import Recovery
from headsweep.recovery.texts import Piece, Text, cut

_LOG = logging.getLogger(__name__)


def evenly(folder: Path, settings: Recovery) -> Recovery:
    """Return the settings with a ratio that takes equally many of every layer, rounded down."""
    model, geometry = outline(folder)
    count = 0
    if settings.ratio:
        count = even_count(settings.ratio, geometry, settings.unit, model.config)
    equal = {layer.index: torch.zeros(layer.query_heads) for layer in geometry.layers}
    gone = lowest_heads(equal, geometry, count, scope="layer", unit=settings.unit)
    check_uniform(model, geometry, gone)
    _LOG.info("uniform: %.3g of each layer's heads go", count / geometry.heads)
    return settings.model_copy(update={"ratio": count / geometry.heads, "scope": "layer"})


def check_model(folder: Path, settings: Recovery) -> None:
    """Refuse what the model's config already shows to be impossible.

    Of a model whose layers differ it shows no numbers of heads: those are seen with its weights.
    """
    if settings.lora and importlib.util.find_spec("peft") is None:
        raise ModelError(
            "LoRA needs the package peft, which is not installed; install it: "
            "pip install 'peft>=0.17', or train all weights"
        )
    config = stated_config(folder)
    if not kept_heads(config):
        try:
            settings.schedule.check_shape(**stated_geometry(folder))
        except ValueError as error:
            raise ModelError(str(error)) from error
        if settings.protect:
            _, geometry = outline(folder)
            unit, scope = settings.unit, settings.scope
            check_ratio(geometry, settings.ratio, unit, scope, settings.protect)
    longest = most_tokens(config)
    if longest and settings.length > longest:
        raise ModelError(
            f"length {settings.length} is too long: {folder} reads {longest} tokens; lower it"
        )


def enough_pieces(
    texts: Sequence[Text], held_out: Sequence[Text], folder: Path, settings: Recovery
) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces to train on and those to measure on, or refuse too few."""
    tokenizer = load_tokenizer(folder)
    training, testing = (
        cut(part, tokenizer, settings.length, assistant_only=settings.assistant_only)
        for part in (texts, held_out)
    )
    if len(training) < settings.batch_size or not testing:
        raise ModelError(
            f"the texts make {len(training)} pieces of 2 to {settings.length} tokens, and "
            f"{len(testing)} held-out ones; a step takes {settings.batch_size}: give more texts, "
            f"or lower the batch size"
        )
    if again := len(set(map(str, held_out)) & set(map(str, texts))):
        _LOG.warning("%d held-out texts are also trained on, which flatters perplexity", again)
    return training, testing
