"""The base class of config sections, and types that they share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from headsweep.errors import nearest, quoted

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


def _distinct(values: tuple[_T, ...]) -> tuple[_T, ...]:
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{value!r} stands twice; name it once")
    return values


DISTINCT = AfterValidator(_distinct)
"""Refuses a value that stands twice in a list."""


def _not_true_or_false(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"Input should be a number, not {value}")
    return value


_NUMBER = BeforeValidator(_not_true_or_false)
"""Refuses True and False, which Python takes for 1 and 0."""


def unquoted(word: str) -> BeforeValidator:
    """Return what takes False for a word, `off` or `no`, that YAML reads as False."""
    return BeforeValidator(lambda value: word if value is False else value)


ONE_OR_SEVERAL = BeforeValidator(
    lambda value: value if isinstance(value, list | tuple) else (value,)
)
"""Accepts a single value as a list of one."""

Name = Annotated[str, Field(pattern=NAME, max_length=64)]
Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Depth = Annotated[int, Field(ge=1, le=1000, strict=True)]
"""A number of layers, or of heads in a layer: what a config says of all of them is written out."""
Share = Annotated[float, Field(ge=0, lt=1), _NUMBER]
Fraction = Annotated[float, Field(ge=0, le=1), _NUMBER]
ShareAboveZero = Annotated[float, Field(gt=0, le=1), _NUMBER]
Positive = Annotated[float, Field(gt=0, le=1e9), _NUMBER]
NotNegative = Annotated[float, Field(ge=0, le=1e9), _NUMBER]
Some = Annotated[tuple[_T, ...], Field(min_length=1), DISTINCT]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Section(BaseModel):
    """A part of the config: no unknown keys, no changes after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*")
    @classmethod
    def _encodable(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                message = f"{quoted(value)} holds half of a character; write it whole"
                raise ValueError(message) from None
        return value

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


def first_problem(error: ValidationError, root: type[Section], where: str = "") -> str:
    """Return the first problem of a section's validation in one line, as `problem_of` does."""
    return problem_of(error.errors()[0], root, where)


def problem_of(problem: Any, root: type[Section], where: str = "") -> str:
    """Return one problem of a validation in one line: its key, what is wrong, what is allowed.

    Args:
        problem: as pydantic describes it.
        root: the section that was validated.
        where: the key of that section.
    """
    parts = [where] if where else []
    for place, part in enumerate(problem["loc"]):
        if part != "[key]" and not is_branch(problem["loc"], place):
            parts.append(str(part))
    key = ".".join(parts)
    message = problem["msg"].removeprefix("Value error, ")
    match problem["type"]:
        case "extra_forbidden":
            allowed = sorted(_section(problem["loc"][:-1], root).model_fields)
            meant = nearest(parts[-1], allowed)
            return f"unknown key {key!r}{meant}; allowed here: {', '.join(allowed)}"
        case "missing":
            return f"key {key!r} is missing"
        case "value_error":
            return f"{key}: {message}" if key else message
        case "string_pattern_mismatch":
            message = f"use {ALLOWED[problem['ctx']['pattern']]}"
        case "tuple_type":
            message = "Input should be a list"
    return f"{key}: {message}, not {quoted(problem['input'])}"


def is_branch(location: Sequence[Any], place: int) -> bool:
    """Tell whether a part of an error's location is no key, but names a branch of a union.

    The unions are those of `layers` and `heads`: all of them, a list, or heads chosen elsewhere.
    """
    of_union = place > 0 and location[place - 1] in ("layers", "heads")
    return of_union and str(location[place]).startswith(("literal[", "tuple[", "TopHeads"))


def _section(location: tuple[Any, ...], root: type[Section]) -> type[Section]:
    """Return the section class that a validation error's location points at."""
    section = root
    parts = iter(location)
    for part in parts:
        if (field := section.model_fields.get(part)) is not None:
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, Section):
                    section = kind
            if get_origin(field.annotation) is dict:
                next(parts, None)  # a name that the user gave
    return section


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with changes; nested mappings are merged."""
    whole = dict(values)
    for key, change in changes.items():
        old = whole.get(key)
        if isinstance(old, Mapping) and isinstance(change, Mapping):
            change = merged(old, change)
        whole[key] = change
    return whole
