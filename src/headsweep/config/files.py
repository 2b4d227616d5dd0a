"""Config files as plain values: YAML, or the JSON that a run saved."""

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from headsweep.errors import ConfigError, quoted, reject_duplicate_keys

_MOST_MERGED = 10_000  # keys that one mapping takes from others by `<<`


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, and merges that multiply without end."""

    def compose_mapping_node(self, anchor: dict[Hashable, Any]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            name = key.tag, str(key.value)
            if isinstance(key, yaml.ScalarNode) and name in seen:
                problem = f"the key {quoted(key.value)} is given twice; remove one"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MOST_MERGED:
            problem = f"a mapping merges more than {_MOST_MERGED} keys"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """Read a whole number, but none that YAML 1.1 takes for another: ``017`` as 15."""
    number = loader.construct_yaml_int(node)
    if ":" in node.value or re.match(r"[-+]?0\d", node.value):
        problem = f"{node.value} means {number} in YAML; write {number}, or a text in quotes"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return int(number)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)


def read_values(path: Path) -> dict[str, Any]:
    """Return the values of a config file, unchecked.

    Raises:
        ConfigError: the file is missing, is not YAML or JSON, gives a key twice, has no keys, or is
            not what a run wrote.
    """
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        text = path.read_text(encoding="utf-8")
        if kind == "JSON":
            _compare(path)
            values = json.loads(text, object_pairs_hook=reject_duplicate_keys)
        else:
            values = _read_yaml(text)
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"config file {path} is nested too deeply; flatten it") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config file {path} is not {kind}: {_cause(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"config file {path} holds no keys; see config/demo.yaml for an example")
    return values


def _compare(path: Path) -> None:
    """Compare a config with the record of the run that wrote it, if there is one."""
    from headsweep.record import contradicting_record, record_path  # slow to import

    record = record_path(path)
    if record.exists() and contradicting_record(path):
        raise ConfigError(
            f"config file {path} is damaged or was edited: its checksum differs from that in "
            f"{record.name}; make it again by its run, or, to use it as it is, remove {record}"
        )


def _read_yaml(text: str) -> Any:
    """Return what YAML says.

    Raises:
        yaml.YAMLError, ValueError: it is not YAML, or a text does not fit its tag.
    """
    try:
        return _Loader(text).get_single_data()
    except (LookupError, AttributeError) as error:  # PyYAML's own, as for `!!int ""`
        raise ValueError(f"a text does not fit its tag ({error})") from None


def _cause(error: Exception) -> str:
    """Return what is wrong and in which line, without the excerpt that PyYAML adds."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error)
    context = error.context  # type: ignore[attr-defined]
    problem = error.problem  # type: ignore[attr-defined]
    return f"line {mark.line + 1}: {', '.join(filter(None, (context, problem)))}"
