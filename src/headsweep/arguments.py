"""Types of command-line arguments, and whole commands made from functions' signatures."""

import argparse
import inspect
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

from headsweep.errors import ConfigError, nearest, quoted

_WIDTH = 80


class _Form(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, at most 80 columns."""

    def __init__(self, prog: str) -> None:
        width = min(_WIDTH, shutil.get_terminal_size().columns)
        super().__init__(prog, width=width - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the word, what is allowed, the help to read next."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **{"formatter_class": _Form, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line; words that no command or option takes are refused here, by name."""
        for word in args or ():
            # What follows the name of a command, or a word before options of others, is not its.
            if word == "--" or (self._hands_on and not word.startswith("-")):
                break
            self._refuse_unknown(word)
        known, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(f"{quoted(extra[0])} is not expected there")
        return known, extra

    @property
    def _hands_on(self) -> bool:
        """Whether words are left to a command's own parser, or to another program."""
        return any(each.nargs in (argparse.PARSER, argparse.REMAINDER) for each in self._actions)

    def _refuse_unknown(self, word: str) -> None:
        option = word.partition("=")[0]
        allowed = self._option_string_actions
        if option.startswith("--") and not any(each.startswith(option) for each in allowed):
            meant = nearest(option, allowed)
            self.error(f"{quoted(option)} is no option{meant}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        told = f"{quoted(value)} is no {action.metavar or action.dest}"
        if action.option_strings:
            told = f"{'/'.join(action.option_strings)} {quoted(value)} is not allowed"
        self.error(f"{told}{nearest(str(value), choices)}; choose {', '.join(choices)}")

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError of one line, in place of printing the usage."""
        command = self.prog.partition(" ")[2]
        where = f"{command}: " if command else ""
        raise ConfigError(f"{where}{message}; `{self.prog} --help` shows how it is called")


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
    fields: type | None = None,
    values: Mapping[str, str] | None = None,
) -> argparse.ArgumentParser:
    """Add a command that calls a function, or `handler` with the function's parameters.

    Parameters before the ``*`` of the signature become positional arguments, but for some
    `options`, those after it options; the command is `without` some. Types decide how arguments are
    read (whole numbers are positive). The docstring's first line describes the command, its
    ``Args:`` the arguments, its ``Examples:``, which the epilog follows, how it is called. The
    `values` stand in place of their names in braces. A function that ends in ``**`` takes the
    `fields` of a dataclass: they are options that the dataclass describes.
    """
    about, _, rest = (inspect.getdoc(function) or "").partition("\n")
    for name_in_braces, value in (values or {}).items():
        rest = rest.replace(f"{{{name_in_braces}}}", value)
    parameters = {**inspect.signature(function).parameters}
    texts = _arguments_in(rest)
    if fields is not None:
        further = inspect.signature(fields).parameters
        parameters |= {name: further[name] for name in further if name not in parameters}
        texts = {**_arguments_in(inspect.getdoc(fields) or ""), **texts}
    if examples := re.search(r"^Examples:\n((?: {4}.*\n?)+)", rest, re.MULTILINE):
        called = examples[1].replace("\n    ", "\n  ").rstrip()
        epilog = "\n\n".join(filter(None, (f"examples:\n  {called.lstrip()}", epilog)))
    command = commands.add_parser(name, description=about, epilog=epilog)
    for parameter in parameters.values():
        if parameter.name in without or parameter.kind is parameter.VAR_KEYWORD:
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


def _arguments_in(docstring: str) -> dict[str, str]:
    """Return what a docstring says of each argument."""
    return dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", docstring, re.MULTILINE))


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
