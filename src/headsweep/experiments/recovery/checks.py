"""What a decoder allows in a recovery, checked before anything is trained."""

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from headsweep.errors import ModelError
from headsweep.experiments.compression.heads_to_remove import check_ratio, even_count, lowest_heads
from headsweep.experiments.recovery.settings import Recovery
from headsweep.experiments.recovery.texts import Piece, Text, cut
from headsweep.models.checkpoints import check_uniform, outline, stated_config
from headsweep.models.geometry import kept_heads, most_tokens
from headsweep.models.load import load_tokenizer
from headsweep.models.removal import find_cuts, without

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


def check_packages(settings: Recovery) -> None:
    """Refuse settings that need a package which is not installed."""
    if settings.lora and importlib.util.find_spec("peft") is None:
        raise ModelError(
            "LoRA needs the package peft, which is not installed; install it: "
            "pip install 'peft>=0.17', or train all weights"
        )


def check_model(folder: Path, settings: Recovery) -> None:
    """Refuse what the model's config already shows to be impossible.

    Of a model whose layers differ it shows no numbers of heads: those are seen with its weights.
    """
    config = stated_config(folder)
    if settings.ratio and not kept_heads(config):
        model, geometry = outline(folder)
        gone = check_ratio(geometry, settings.ratio, settings.unit, settings.scope)
        find_cuts(model, geometry, without(geometry, gone))
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
    training, testing = (cut(part, tokenizer, settings.length) for part in (texts, held_out))
    if len(training) < settings.batch_size:
        raise ModelError(
            f"the texts make {len(training)} pieces of 2 to {settings.length} tokens, and a step "
            f"takes {settings.batch_size}; give more texts, or lower the batch size"
        )
    if (count := len({piece.text for piece in testing})) < 2:
        raise ModelError(
            f"{count} held-out texts of at least 2 tokens show no spread, so perplexity would have "
            f"no interval; give more, such as the parts of a long text, a line each"
        )
    return training, testing


def also_trained_on(texts: Sequence[Text], held_out: Sequence[Text]) -> int:
    """Return how many held-out texts are among those to train on, and warn of them."""
    trained = set(map(str, texts))
    again = sum(str(text) in trained for text in held_out)
    if again:
        _LOG.warning("%d held-out texts are also trained on, which flatters perplexity", again)
    return again
