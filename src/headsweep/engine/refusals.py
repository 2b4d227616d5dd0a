"""What the engine refuses: kinds of models, prompts, logits of no numbers."""

from typing import Any

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from headsweep.engine.requests import Request
from headsweep.errors import ModelError
from headsweep.models.geometry import HeadGeometry
from headsweep.models.rope import check_rope_types


def check_kind(config: Any) -> None:
    """Raise a ModelError if rows depend on one another, or keep more than keys and values."""
    check_rope_types(getattr(config, "rope_parameters", None) or {})
    layers = DynamicCache(config=config).layers
    if others := {type(layer) for layer in layers} - {DynamicLayer, DynamicSlidingWindowLayer}:
        names = ", ".join(sorted(other.__name__ for other in others))
        raise ModelError(
            f"the model keeps more than keys and values ({names}), which the rows of a batch "
            f"cannot share; use a decoder with plain attention"
        )


def check_request(request: Request, geometry: HeadGeometry, positions: int) -> None:
    """Raise a ModelError if a model of so many positions cannot answer a request."""
    geometry.check(request.variant)
    if not 0 < len(request.prompt) < positions:
        raise ModelError(
            f"the prompt of question {request.question_id!r} has {len(request.prompt)} tokens; "
            f"the model takes 1 to {positions - 1}: leave this question out, or use a model with "
            f"more positions"
        )


def not_finite(dtype: str) -> ModelError:
    """Return the error of a model whose logits are not finite in a type."""
    if dtype == "float16":
        advice = "float16 is too narrow for it; use dtype bfloat16"
    else:
        advice = "its weights are damaged, perhaps; fetch it again"
    return ModelError(f"the model's logits are not finite in {dtype}: {advice}")
