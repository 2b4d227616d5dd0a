"""Types of command-line arguments, and whole commands made from functions' signatures."""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from headsweep.errors import ConfigError, quoted


def count(text: str) -> int:
    """Read a positive whole number."""
    number = _whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a positive whole number")
    return number


def seed(text: str) -> int:
    """Read a seed: a whole number from 0."""
    number = _whole_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a whole number from 0")
    return number


def _whole_number(text: str) -> int | None:
    """Return the number that a text writes in digits alone; None if it writes none."""
    try:
        return int(text) if text.isdecimal() else None
    except ValueError:  # more digits than Python reads
        return None


def numbers_or_all(text: str) -> list[int] | Literal["all"]:
    """Read numbers from 0, as in ``5,15``, or ``all``."""
    if text == "all":
        return "all"
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is neither numbers, as in 5,15, nor all")
    return [int(part) for part in parts]


def layer_numbers(text: str) -> list[int]:
    """Read numbers of layers, as in ``0-2,-1``; negative ones count from the last."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(-?\d{1,4})|(\d{1,4})-(\d{1,4})", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} names no layers, as 0-2,-1 does")
        single, first, last = match.groups()
        if single:
            numbers.append(int(single))
        elif int(first) <= int(last):
            numbers += range(int(first), int(last) + 1)
        else:
            raise argparse.ArgumentTypeError(f"{part.strip()!r} ends before it begins")
    return numbers


def with_negative_lists(words: Sequence[str]) -> list[str]:
    """Return a command line in which lists such as ``-2,-1`` stand in one word with their option.

    argparse takes them for options of their own; single negative numbers it knows.
    """
    joined: list[str] = []
    for word in words:
        is_list = re.fullmatch(r"-\d+(,-?\d+(-\d+)?)+", word)
        if is_list and joined and re.fullmatch(r"--[a-z-]+", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def refuse_ignored(given: Mapping[str, bool], why: str) -> None:
    """Refuse options that would have no effect, by their names and whether they are given.

    Raises:
        ConfigError: one is given; the message says `why` it would be ignored.
    """
    if ignored := [option for option, is_given in given.items() if is_given]:
        raise ConfigError(
            f"{' and '.join(ignored)} would be ignored: {why}; give the command without"
        )


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    function: Callable[..., Any],
    *,
    handler: Callable[..., Any] | None = None,
    epilog: str | None = None,
    options: Sequence[str] = (),
    without: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Add a command that calls a function, or `handler` with the function's parameters.

    Parameters before the ``*`` of the signature become positional arguments, but for some
    `options`, those after it options; the command is `without` some. Types decide how arguments are
    read (whole numbers are positive). The docstring's first line describes the command, its
    ``Args:`` the arguments.
    """
    about, _, rest = (inspect.getdoc(function) or "").partition("\n")
    texts = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", rest, re.MULTILINE))
    form = argparse.RawDescriptionHelpFormatter
    command = commands.add_parser(name, description=about, epilog=epilog, formatter_class=form)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in without:
            continue
        required = parameter.default is parameter.empty
        keys = reading(parameter.annotation)
        keys["help"] = " ".join(texts[parameter.name].split()).replace("``", "").replace("%", "%%")
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.name in options:
            flags = [f"-{parameter.name}"] if len(parameter.name) == 1 else []
            flags.append(f"--{parameter.name.replace('_', '-')}")
            keys |= {"required": True} if required else {"default": parameter.default}
            if not required and parameter.default not in (None, False):
                keys["help"] += " (default: %(default)s)"
            command.add_argument(*flags, **keys)
        else:
            if not required and "nargs" not in keys:
                keys |= {"nargs": "?", "default": parameter.default}
            if "choices" not in keys:
                keys["metavar"] = parameter.name.upper()
            command.add_argument(parameter.name, **keys)
    command.set_defaults(handler=handler or function)
    return command


def listed(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> str:
    """Return a line for each command of a command line: its name, and what it does."""
    width = max(map(len, commands.choices))
    every = commands.choices.items()
    return "\n".join(f"  {name:<{width}}  {command.description}" for name, command in every)


def reading(hint: Any) -> dict[str, Any]:
    """Return the keywords with which argparse reads a value of a type."""
    if get_origin(hint) is list:
        return {"nargs": "*", "type": get_args(hint)[0]}
    # The types of a union such as int | None, or the hint alone; each without its annotation.
    parts = [hint] if get_origin(hint) is Literal else list(get_args(hint)) or [hint]
    parts = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    if any(get_origin(part) is Sequence for part in parts):
        return {"type": numbers_or_all}
    if get_origin(parts[0]) is Literal:
        return {"choices": get_args(parts[0])}
    if hint is bool:
        return {"action": "store_true"}
    # What may be a text or a path is read as a text: a path would lose its "./", by which a folder
    # is told from a hub id.
    kinds: dict[Any, Any] = {str: str, int: count, float: float, Path: Path}
    return {"type": next((kinds[part] for part in parts if part in kinds), str)}
