"""Config files as plain values: YAML, or the JSON that a run saved."""

import json
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from headsweep.errors import ConfigError, quoted, reject_duplicate_keys

_MOST_CHARACTERS = 300_000
_MOST_NODES = 100_000  # with those that aliases stand for
_LONGEST = 100  # characters of a number, a date, or what else is no text
_NEXT = "name another, or begin with one of those whose folder `headsweep doctor` names"
_TEXT = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice, and numbers of endless digits."""

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

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        is_scalar = isinstance(node, yaml.ScalarNode)
        if is_scalar and node.tag != _TEXT and len(node.value) > _LONGEST:
            problem = f"{quoted(node.value)} is too long for what is no text; write it in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_object(node, deep)


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
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}; {_NEXT}") from None
    except RecursionError:
        raise ConfigError(f"config file {path} is nested too deeply; flatten it") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config file {path} is not {kind}: {_cause(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"config file {path} holds no keys; {_NEXT}")
    return values


def _compare(path: Path) -> None:
    """Compare a config with the record of the run that wrote it, if there is one."""
    from headsweep.files.record import contradicting_record, record_path  # slow to import

    record = record_path(path)
    if record.exists() and contradicting_record(path):
        raise ConfigError(
            f"config file {path} is damaged or was edited: its checksum differs from that in "
            f"{record.name}; make it again by its run, or, to use it as it is, remove {record}"
        )


def _read_yaml(text: str) -> Any:
    """Return what YAML says.

    Raises:
        yaml.YAMLError, ValueError: it is not YAML, a text does not fit its tag, or there is too
            much of it.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters; {_MOST_CHARACTERS} are allowed")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _MOST_NODES:
            raise ValueError(
                f"its aliases stand for more than {_MOST_NODES} values; write it without them"
            )
        return loader.construct_document(node)
    except (LookupError, AttributeError, ArithmeticError) as error:  # PyYAML's, as for `!!int ""`
        raise ValueError(f"a text does not fit its tag ({error})") from None


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return how many nodes there are in one, those that aliases stand for counted each time."""
    if id(node) not in sizes:
        sizes[id(node)] = _MOST_NODES  # so that an alias in what it names is too much
        parts = list[yaml.Node]()
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        sizes[id(node)] = min(_MOST_NODES + 1, 1 + sum(_size(part, sizes) for part in parts))
    return sizes[id(node)]


def _cause(error: Exception) -> str:
    """Return what is wrong and in which line, without the excerpt that PyYAML adds."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error)
    context = error.context  # type: ignore[attr-defined]
    problem = error.problem  # type: ignore[attr-defined]
    return f"line {mark.line + 1}: {', '.join(filter(None, (context, problem)))}"
