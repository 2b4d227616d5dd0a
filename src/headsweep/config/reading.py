"""Read a config: from values, as Snakemake has them, or from files."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headsweep.config.files import read_values
from headsweep.config.schema import Config
from headsweep.config.section import is_branch, merged, problem_of
from headsweep.errors import ConfigError


def parse(values: dict[str, Any], origin: str = "config") -> Config:
    """Check config values and return the typed config.

    Raises:
        ConfigError: one line naming the key, the value and what is allowed.
    """
    try:
        _check_names(values, origin)
    except RecursionError:
        raise ConfigError(
            f"{origin}: nested too deeply, or an alias stands in what it names; flatten it"
        ) from None
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        meant = filter(_is_meant, error.errors())
        # A misspelt key is why another one is missing.
        first = sorted(meant, key=lambda problem: problem["type"] != "extra_forbidden")
        problems = [problem_of(problem, Config) for problem in first]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{origin}: {problems[0]}{more}") from None


def _check_names(values: Any, origin: str, where: str = "") -> None:
    """Refuse names that YAML does not take for text, as it does not take an unquoted `no`.

    Raises:
        ConfigError: one line that says where.
    """
    if not isinstance(values, dict):
        return
    for name, value in values.items():
        if not isinstance(name, str):
            raise ConfigError(
                f"{origin}: {where or 'at the top'}: YAML reads a name there as {name!r}; write "
                f"it in quotes"
            )
        _check_names(value, origin, f"{where}.{name}" if where else name)


def load(path: Path, *further: Path) -> Config:
    """Read and check a config file (YAML, or the JSON that a run saved).

    Of a key that several files give, the last one's value counts, as it does for Snakemake.

    Raises:
        ConfigError: a file is missing, is not YAML or JSON, gives a key twice, or they do not fit
            the schema.
    """
    values = read_values(path)
    for other in further:
        values = merged(values, read_values(other))
    return parse(values, ", ".join(map(str, (path, *further))))


def _is_meant(problem: Any) -> bool:
    """Tell whether a problem is no other branch's of `Layers | TopHeads` than the value's.

    Text is meant to be `all`; a mapping chooses heads, where the key takes one; the rest is a list.
    """
    location = problem["loc"]
    if not is_branch(location, len(location) - 1):
        return True
    chooses_heads = location[0] in ("sweeps", "waiting") and location[-2] == "heads"
    branch = "tuple["
    if isinstance(problem["input"], str):
        branch = "literal["
    elif isinstance(problem["input"], dict) and chooses_heads:
        branch = "TopHeads"
    return str(location[-1]).startswith(branch)
