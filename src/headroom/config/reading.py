"""Read a config file into the typed config, or refuse it in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import ValidationError

from headroom.config.schema import Config
from headroom.config.section import Section
from headroom.errors import ConfigError


def parse(values: dict[str, Any], origin: str = "config") -> Config:
    """Check config values and return the typed config.

    Raises:
        ConfigError: one line naming the key, the value and what is allowed.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems = [_describe(problem) for problem in error.errors() if _is_meant(problem)]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{origin}: {problems[0]}{more}") from None


def load(path: Path) -> Config:
    """Read and check a config file (YAML, or the JSON that a run saved).

    Raises:
        ConfigError: the file is missing, is not YAML, or does not fit the schema.
    """
    try:
        read = json.loads if path.suffix == ".json" else yaml.safe_load  # YAML's reader is slow
        values = read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        first = " ".join(str(error).split())
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise ConfigError(f"config file {path} is not {kind}: {first}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"config file {path} holds no keys; see config/demo.yaml for an example")
    return parse(values, str(path))


def _is_meant(problem: Any) -> bool:
    """Tell whether a problem belongs to the branch of `Layers` that fits the value's type."""
    branch = "tuple[" if isinstance(problem["input"], str) else "literal['all']"
    return not any(str(part).startswith(branch) for part in problem["loc"][-1:])


def _describe(problem: Any) -> str:
    parts = (str(part) for part in problem["loc"])
    key = ".".join(part for part in parts if not part.startswith(("[key]", "literal[", "tuple[")))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        allowed = sorted(_section(problem["loc"][:-1]).model_fields)
        return f"unknown key {key!r}; allowed here: {', '.join(allowed)}"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {message}, not {problem['input']!r}"


def _section(location: tuple[Any, ...]) -> type[Section]:
    """Return the section class that a validation error's location points at."""
    section: type[Section] = Config
    parts = iter(location)
    for part in parts:
        field = section.model_fields.get(part)
        if field is not None:
            section = next(_sections(field.annotation), section)
            if get_origin(field.annotation) is dict:
                next(parts, None)  # a name that the user gave
    return section


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """Yield the section classes in a key's type."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
