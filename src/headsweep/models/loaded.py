"""A model that is loaded, with all that generation needs of it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headsweep.models.geometry import HeadGeometry


@dataclass(frozen=True)
class LoadedModel:
    """A decoder in evaluation mode, and what generation needs besides."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase  # pads on the left
    geometry: HeadGeometry
    folder: Path
    device: torch.device  # of the embeddings, where token ids have to be
    dtype: torch.dtype
    pad_token_id: int  # within the embeddings; padding is masked out
    eos_token_ids: tuple[int, ...]  # that end an answer in `transformers.generate`, ascending


def dtype_name(dtype: torch.dtype) -> str:
    """Return a type's name without its module: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Let a model compute in float32; only the module that runs has its parameters twice."""
    kept: dict[nn.Parameter, Tensor] = {}

    def cast(module: nn.Module, _: object) -> None:
        for parameter in module.parameters(recurse=False):
            kept[parameter] = parameter.data
            parameter.data = parameter.data.float()

    def restore(module: nn.Module, *_: object) -> None:
        for parameter in module.parameters(recurse=False):
            parameter.data = kept.pop(parameter, parameter.data)

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(cast).remove)
            hooks.callback(module.register_forward_hook(restore, always_call=True).remove)
        yield
