"""The arms of the ablation, Table 4 of arXiv 2511.17577 and beyond, as changes of one setting each.

All other settings are those of the method, so that arms differ in what their name says only.
"""

from collections.abc import Mapping
from typing import Any

from headroom.config.compression import Compression
from headroom.config.section import merged
from headroom.errors import ConfigError

Changes = Mapping[str, Any]

_NO_TEACHER: Changes = {"distillation": {"teacher": "none"}}
_ONE_SHOT: Changes = {"schedule": "one_shot", "smallest": None, "largest_loss": None}

ARMS: Mapping[str, Changes] = {
    "baseline": {"ratio": 0.0, "start": 0.0, "rounds": 0},
    "pruning_only": _NO_TEACHER,
    "without_entropy": {**_NO_TEACHER, "importance": {"alpha": 1.0}},
    "without_norm": {**_NO_TEACHER, "importance": {"alpha": 0.0}},
    "response_distillation": {"distillation": {"teacher": "original", "feature": "none"}},
    "feature_distillation": {"distillation": {"teacher": "original", "response": False}},
    "random": {**_ONE_SHOT, "importance": {"criterion": "random"}},
    "global": _ONE_SHOT,
    "attention_visualisation": {**_ONE_SHOT, "importance": {"criterion": "attention"}},
    "distillation_only": {"ratio": 0.0, "start": 0.0},
    "full": {},
    "joint_single_teacher": {"distillation": {"teacher": "original"}},
    "small_from_scratch": {**_NO_TEACHER, "scratch": True},
}
"""In the order of the paper's table; the last two are ours. `joint_single_teacher` has the losses
of `full` without its recursion; `small_from_scratch` asks whether the large solver was needed."""


def arm(name: str, method: Compression) -> Compression:
    """Return the settings of an arm of the ablation.

    Args:
        name: one of `ARMS`.
        method: the settings of the arm `full`.

    Raises:
        ConfigError: there is no such arm.
    """
    if name not in ARMS:
        raise ConfigError(f"arm {name!r} is not known; arms are {', '.join(ARMS)}")
    return changed(method, ARMS[name])


def changed(settings: Compression, changes: Changes) -> Compression:
    """Return settings with some changed: sections of changes say what changes within them.

    Raises:
        pydantic.ValidationError: they do not go together.
    """
    return Compression.model_validate(merged(settings.model_dump(), changes))
