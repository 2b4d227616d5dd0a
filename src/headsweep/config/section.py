"""The base class of config sections, and types that they share."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"
SPLIT = r"^[A-Za-z0-9_]+$"
DEVICE = r"^(auto|cpu|cuda(:\d+)?|balanced)$"
ALLOWED = {
    NAME: "letters, digits, '.', '_' and single '-' between them",
    SPLIT: "letters, digits and '_'",
    DEVICE: "auto, cpu, cuda, cuda:N or balanced",
}
"""What messages say of a pattern."""

_T = TypeVar("_T")

Name = Annotated[str, Field(pattern=NAME, max_length=64)]
Count = Annotated[int, Field(ge=1, strict=True)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Some = Annotated[tuple[_T, ...], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Section(BaseModel):
    """A part of the config: no unknown keys, no changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def non_defaults(self, default: "Section | None" = None) -> dict[str, Any]:
        """Return the settings that are not at their defaults; those of nested sections likewise.

        Args:
            default: holds the defaults; by default they are the class's own.
        """
        changed = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            usual = field.get_default() if default is None else getattr(default, name)
            if value == usual:
                continue
            if isinstance(value, Section):
                value = value.non_defaults(usual if isinstance(usual, type(value)) else None)
            changed[name] = value
        return changed

    def reset(self, *names: str) -> Self:
        """Return the same settings with the named ones at their defaults, and unchecked."""
        fields = type(self).model_fields
        return self.model_copy(update={name: fields[name].get_default() for name in names})


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with changes; nested mappings are merged."""
    whole = dict(values)
    for key, change in changes.items():
        old = whole.get(key)
        if isinstance(old, Mapping) and isinstance(change, Mapping):
            change = merged(old, change)
        whole[key] = change
    return whole
