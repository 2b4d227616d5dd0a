"""A model that is loaded, with all that generation needs of it."""

from dataclasses import dataclass
from pathlib import Path

import torch
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
