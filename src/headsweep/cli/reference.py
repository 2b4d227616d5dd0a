"""Generate the reference of config keys and commands, and the captions in Snakemake's report.

Usage: ``python -m headsweep.cli.reference config/reference.md workflow/report``.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headsweep.cli.main import parser
from headsweep.config import Config
from headsweep.results.exhibits import EXHIBITS
from headsweep.workflow.jobs import JOBS

_ABOUT = (
    "Made by `make reference` from the schema and the commands' arguments: [every key](#every-key) "
    "of a config, [every command](#every-command) for people, and [the workflow's jobs]"
    "(#the-workflows-jobs). NAME stands for a name of your own: letters, digits, `_`, `.` and `-`."
)

_KINDS = {
    "null": "`null`",
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "number": "number",
}
_EXIT_STATUS = (
    "The exit status is 0 when all is done, 2 for bad input, explained in one line, 130 after an "
    "interruption, 141 where nobody reads what is printed, and 1 for a bug."
)
_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def page() -> str:
    """Return the page: a table for each section of a config and for each command."""
    schema = Config.model_json_schema()
    places: dict[str, list[str]] = {}
    for name, place in _sections(schema, schema["$defs"]):
        places.setdefault(name, []).append(place)
    parts = ["# Reference", "", _ABOUT, "", "## Every key", ""]
    parts.append(_section("A config", schema, places))
    parts += [_section(name, schema["$defs"][name], places) for name in places]
    parts += ["## Every command", "", _EXIT_STATUS, ""]
    parts += [
        _command(name, command)
        for name, command in _commands("headsweep", parser())
        if not name.startswith("headsweep job ")
    ]
    parts += ["## The workflow's jobs", "", "Rules call these, in this order.", ""]
    parts += ["| command | |", "| --- | --- |"]
    parts += [f"| `headsweep job {job.name}` | {job.help} |" for job in JOBS]
    return "\n".join([*parts, ""])


def _commands(
    name: str, command: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the full name of each command that has no subcommands, and the command."""
    below = [a.choices for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield name, command
        return
    for subcommand, subparser in below[0].items():
        yield from _commands(f"{name} {subcommand}", subparser)


def _command(name: str, command: argparse.ArgumentParser) -> str:
    lines = [f"### {name}", "", command.description or "", ""]
    lines += ["| argument | |", "| --- | --- |"]
    for action in command._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        label = ", ".join(action.option_strings) or (action.metavar or action.dest)
        choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
        text = (action.help or "") % {"default": action.default}
        about = "; ".join(part for part in (text, choices) if part)
        lines.append(f"| `{label}` | {_cell(about)} |")
    return "\n".join([*lines, ""])


def _sections(schema: Any, definitions: Any, parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield each section below a schema, as the name of its class and its place in a config.

    Places are as in ``models.NAME``, in the order of the schema, sections before those in them.
    """
    for key, value in schema["properties"].items():
        place = f"{parent}{key}{'.NAME' if value.get('type') == 'object' else ''}"
        for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(value)):
            yield name, place
            yield from _sections(definitions[name], definitions, f"{place}.")


def _section(name: str, schema: Any, places: dict[str, list[str]]) -> str:
    required = schema.get("required", [])
    first, *others = [f"`{place}`" for place in places.get(name, [])] or [name]
    also = f" Likewise {', '.join(others)}." if others else ""
    lines = [f"### {first}", "", " ".join(schema["description"].split()) + also, ""]
    lines += ["| key | value | default | |", "| --- | --- | --- | --- |"]
    for key, value in schema["properties"].items():
        default = "required" if key in required else _default(value)
        about = " ".join(value.get("description", "").split())
        lines.append(f"| `{key}` | {_type(value, places)} | {default} | {_cell(about)} |")
    return "\n".join([*lines, ""])


def _type(value: Any, places: dict[str, list[str]]) -> str:
    if "$ref" in value:
        place = places[value["$ref"].rpartition("/")[2]][0]
        return f"[`{place}`](#{place.replace('.', '').lower()})"
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_type(part, places) for part in value["anyOf"]))
    if "enum" in value or "const" in value:
        return ", ".join(f"`{choice}`" for choice in value.get("enum") or [value["const"]])
    match value.get("type"):
        case "array":
            (items,) = value.get("prefixItems", [])[:1] or [value.get("items") or {}]
            return f"list of {_type(items, places)}"
        case "object":
            other = value.get("additionalProperties")
            named: Any = other if isinstance(other, dict) else None
            named = named or next(iter(value.get("patternProperties", {}).values()), None)
            if named and "$ref" not in named and "type" in named and named["type"] == "array":
                return f"for each name a {_type(named, places)}"
            return _type(named, places) if named else "settings"
        case kind:
            limits = [f"{sign} {value[name]:,}" for name, sign in _SIGNS.items() if name in value]
            return " ".join([_KINDS.get(kind, "text"), ", ".join(limits)]).strip()


def _default(value: Any) -> str:
    """Return a key's default; a section's defaults are in its own table."""
    default = value.get("default")
    if "$ref" in value and isinstance(default, dict):
        return "as below"
    return f"`{_cell(default if isinstance(default, str) else json.dumps(default))}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


def captions(folder: Path) -> dict[Path, str]:
    """Return the captions of all figures for Snakemake's report, by their files in a folder."""
    return {folder / f"{exhibit.name}.rst": exhibit.caption_file for exhibit in EXHIBITS}


if __name__ == "__main__":
    file, folder = map(Path, sys.argv[1:])
    file.write_text(page(), encoding="utf-8")
    for caption, text in captions(folder).items():
        caption.write_text(text, encoding="utf-8")
