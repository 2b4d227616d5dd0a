"""Pruned models on disk: folders in the hub's format, safetensors only, with a model card.

There are three forms. A *zeroed* model keeps all its shapes and loads everywhere. A *uniform* model
has the same number of heads in every layer; its config states the number, so that plain
`from_pretrained` loads it, too. A *free* model has layers with different numbers of heads. Its
config lists the heads that each layer kept; `read_pretrained` builds layers with these heads and
reads the weights. Plain `from_pretrained` refuses it because shapes do not match.
"""

import contextlib
import copy
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from headsweep import __version__
from headsweep.errors import ModelError, cause_of
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import atomic, write_json, write_text
from headsweep.models.geometry import HeadGeometry, find_heads, kept_heads
from headsweep.models.guard import CONFIG
from headsweep.models.model_card import CARD, PRUNED_HEADS, Form, Pruning, card_of
from headsweep.models.removal import absent_heads, cut_layers, equal_outputs, find_cuts, without
from headsweep.models.source import tokenizer_files
from headsweep.variants import Variant


def save_pruned(
    model: PreTrainedModel,
    geometry: HeadGeometry,
    folder: Path,
    form: Form,
    pruning: Pruning,
    tokenizer: Path | None = None,
    stopwatch: Stopwatch | None = None,
) -> None:
    """Save a model after `zero_heads` or `remove_heads`; the folder appears whole or not at all.

    The geometry has its present heads; the tokenizer's files are copied from another folder. Given
    a stopwatch, which started with the work, the folder gets a record of all its files.

    What was saved is loaded again and compared before the folder appears, which takes the memory of
    a second model.

    Raises:
        ModelError: the folder exists, the model cannot be saved in that form, or what transformers
            loads again is another model.
    """
    check_target(folder)
    config = _config_that_builds(model, geometry) if form == "uniform" else model.config
    with atomic(folder, folder=True) as made:
        config_before = model.config
        model.config = config
        try:
            model.save_pretrained(made)
        finally:
            model.config = config_before
        _check_saved(model, made)
        if tokenizer:
            for file in tokenizer_files(tokenizer):
                copy = made / file.relative_to(tokenizer)
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, copy)
        gone = {str(head) for head in pruning.removed} if form == "zeroed" else set()
        kept = {
            str(layer.index): [
                number
                for head, number in enumerate(layer.original_heads)
                if str(Variant(layer.index, head)) not in gone
            ]
            for layer in geometry.layers
        }
        facts = {
            "form": form,
            "source": pruning.source,
            "revision": pruning.revision,
            "criterion": pruning.criterion,
            "removed": [str(head) for head in sorted(pruning.removed)],
            "kept": kept,
            "measured": dict(pruning.measured),
            "how": pruning.how,
            "headsweep": __version__,
        }
        write_json(made / PRUNED_HEADS, facts)
        write_text(made / CARD, card_of(folder.name, type(model).__name__, facts))
        if stopwatch is not None:
            write_record(made / PRUNED_HEADS, stopwatch, {"pruning": facts}, made)


def _check_saved(model: PreTrainedModel, folder: Path) -> None:
    """Raise a ModelError unless a folder's model has the weights, and computes as, the one saved.

    Weights are equal to the bit; outputs may have another order of summation, as on another device.
    """
    try:
        loaded, _ = read_pretrained(
            type(model), folder, dtype="auto", device_map="cpu", attn_implementation="eager"
        )
    except Exception as error:  # transformers' own of any type
        raise _not_as_saved(model, cause_of(error, 200)) from error
    weights = loaded.state_dict()
    for name, saved in model.state_dict().items():
        if name not in weights or not torch.equal(weights[name], saved.cpu()):
            raise _not_as_saved(model, f"{name} is another one")
    if not equal_outputs(model, loaded.eval()):
        raise _not_as_saved(model, "it computes something else")


def _not_as_saved(model: PreTrainedModel, reason: str) -> ModelError:
    return ModelError(
        f"a pruned {type(model).__name__} cannot be saved so that it is loaded again ({reason}); "
        f"use another model"
    )


def plainest_form(model: PreTrainedModel, geometry: HeadGeometry) -> Form:
    """Return uniform if plain `from_pretrained` can load a model with these heads, else free."""
    return "uniform" if _succeeds(partial(_config_that_builds, model, geometry)) else "free"


def can_state(config: PretrainedConfig, geometry: HeadGeometry) -> bool:
    """Return whether a config can state heads, the same number in every layer; builds no model."""
    return _succeeds(partial(_config_stating, config, geometry))


def _succeeds(attempt: Callable[[], object]) -> bool:
    """Return whether an attempt raises no ModelError."""
    try:
        attempt()
    except ModelError:
        return False
    return True


def stated_config(folder: Path) -> PretrainedConfig:
    """Return the config of a local folder's model; no code is loaded.

    Raises:
        ModelError: transformers cannot read it.
    """
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a config of any content raises errors of any type
        raise ModelError(
            f"{folder / CONFIG} cannot be read ({cause_of(error, 200)}); use a model that "
            f"transformers knows"
        ) from error


def outline(folder: Path) -> tuple[PreTrainedModel, HeadGeometry]:
    """Return the decoder of a local folder, with all its heads, without reading its weights.

    Other numbers stand for the weights, which take hardly any memory.

    Raises:
        ModelError: it is no decoder; or it has lost heads before, and its layers differ.
    """
    config = stated_config(folder)
    if kept_heads(config):
        raise ModelError(
            f"{folder} has layers with different numbers of heads, so it cannot become uniform; "
            f"prune the model from which it was made"
        )
    try:
        model = _without_memory(AutoModelForCausalLM, config)
    except Exception as error:  # of a config of any content
        raise ModelError(
            f"{folder} is no decoder that transformers knows ({cause_of(error, 200)}); take a "
            f"causal language model"
        ) from error
    return model, find_heads(model)


def check_uniform(model: PreTrainedModel, geometry: HeadGeometry, heads: Iterable[Variant]) -> None:
    """Raise a ModelError if an outline cannot be saved uniform without some heads.

    The outline loses them, and what stands for its weights.
    """
    smaller = without(geometry, heads)
    cuts = find_cuts(model, geometry, smaller)
    cut_layers(model.to("meta"), cuts)
    _config_that_builds(model, smaller)


def check_target(folder: Path) -> None:
    """Raise a ModelError if a folder exists."""
    if (folder / PRUNED_HEADS).exists():
        raise ModelError(
            f"{folder} exists, a pruned model; remove it, or name another folder. As a file for "
            f"llama.cpp: headsweep export-gguf {folder}"
        )
    if folder.exists():
        raise ModelError(f"{folder} exists; remove it, or name another folder")


def read_pretrained(
    kind: Any, folder: Path, **options: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model from a local folder, pruned or not; neither code nor pickles are loaded.

    `kind` is a class or auto class of transformers, whose `from_pretrained` gets the options.
    Returned are the model, and the loading info of transformers.

    Raises:
        ModelError: the weights do not fit the heads that the config lists.
    """
    options |= {
        "local_files_only": True,
        "trust_remote_code": False,
        "use_safetensors": True,
        "output_loading_info": True,
    }
    config = stated_config(folder)
    if not kept_heads(config):
        return kind.from_pretrained(folder, **options)
    smaller = _class_with_heads(kind, config)
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # weights whose shapes do not match are refused below
    try:
        model, info = smaller.from_pretrained(folder, ignore_mismatched_sizes=True, **options)
    finally:
        logging.set_verbosity(level)
    model.__class__ = smaller.__base__
    if info["mismatched_keys"]:
        name, stored, wanted = min(info["mismatched_keys"])
        raise ModelError(
            f"{folder}: {name} has shape {tuple(stored)}, not {tuple(wanted)}, as kept_heads in "
            f"config.json requires; fetch the model again"
        )
    return model, info


def _class_with_heads(kind: Any, config: PretrainedConfig) -> Any:
    """Return a subclass whose new models have only the heads that a config lists as kept.

    So transformers reads weights into their final shapes; the unpruned model is never in memory.
    """
    whole = copy.deepcopy(config)
    whole.get_text_config().kept_heads = {}
    model = _without_memory(kind, whole)
    geometry = find_heads(model)
    gone = absent_heads(geometry, kept_heads(config))
    cuts = find_cuts(model, geometry, without(geometry, gone))

    whole_class = type(model)

    class Smaller(whole_class):  # type: ignore[misc, valid-type]
        # transformers knows by a class's name and module how its weights are named in files.
        __module__ = whole_class.__module__

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            with torch.device("cpu"):  # transformers builds models on the device meta
                cut_layers(self, cuts)

    Smaller.__name__ = whole_class.__name__
    return Smaller


def _without_memory(kind: Any, config: PretrainedConfig) -> PreTrainedModel:
    """Return an untrained model whose weights are views of a few random numbers.

    Entry (i, j) of a matrix is number i + j of its own: rows and columns differ, so that data can
    be watched on its way, and n + m numbers make n x m entries.
    """
    draw = torch.Generator().manual_seed(0)
    # Fused kernels of experts refuse such views.
    plain = {"experts_implementation": "eager"}
    with init_empty_weights(include_buffers=False):
        if hasattr(kind, "from_config"):  # an auto class
            model = kind.from_config(config, trust_remote_code=False, **plain)
        else:
            model = kind._from_config(config, **plain)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            numbers = 0.1 * torch.randn(1 + sum(parameter.shape) - parameter.ndim, generator=draw)
            entries = numbers.as_strided(parameter.shape, [1] * parameter.ndim)
            setattr(module, name, nn.Parameter(entries, requires_grad=False))
    return model.eval()


def _config_that_builds(model: PreTrainedModel, geometry: HeadGeometry) -> PretrainedConfig:
    """Return a config with which transformers is seen to build a pruned model's shapes.

    Raises:
        ModelError: there is none.
    """
    config = _config_stating(model.config, geometry)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    try:
        with torch.device("meta"):
            fresh = type(model)(config)
        built = {name: tensor.shape for name, tensor in fresh.state_dict().items()}
    except (ValueError, RuntimeError, AssertionError):  # the heads do not divide the width
        built = {}
    if built != shapes:
        raise _no_config(config, geometry)
    return config


def _config_stating(unpruned: PretrainedConfig, geometry: HeadGeometry) -> PretrainedConfig:
    """Return a model's config with other heads, the same number in every layer.

    Raises:
        ModelError: layers differ, or transformers refuses such a config.
    """
    counts = {(layer.query_heads, layer.kv_heads, layer.head_dim) for layer in geometry.layers}
    if len(counts) > 1:
        heads = sorted({layer.query_heads for layer in geometry.layers})
        raise ModelError(
            f"layers would keep {', '.join(map(str, heads))} heads, but a uniform model has the "
            f"same number in each; remove equally many, or save it free or zeroed"
        )
    ((query_heads, kv_heads, head_dim),) = counts
    config = copy.deepcopy(unpruned)
    text = config.get_text_config()
    text.num_attention_heads = query_heads
    with contextlib.suppress(AttributeError):  # Falcon computes it from the width
        text.head_dim = head_dim
    if text.head_dim != head_dim:
        raise _no_config(config, geometry)
    for name in ("num_key_value_heads", "num_kv_heads"):
        if getattr(text, name, None) is not None:
            setattr(text, name, kv_heads)
    text.__dict__.pop("kept_heads", None)
    try:
        type(config).from_dict(config.to_dict())  # checks values, which setting them does not
    except (ValueError, StrictDataclassError) as error:
        raise _no_config(config, geometry) from error
    return config


def _no_config(config: PretrainedConfig, geometry: HeadGeometry) -> ModelError:
    layer = geometry.layers[0]
    width = config.get_text_config().hidden_size
    return ModelError(
        f"no {type(config).__name__} has {layer.query_heads} heads of width {layer.head_dim} in a "
        f"model of width {width}; save it free or zeroed"
    )
