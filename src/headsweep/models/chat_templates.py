"""Chat templates say the same of the same messages, whenever and wherever they are rendered.

A model's template is a program (Jinja, in a sandbox). transformers hands it a clock, Jinja has
chance, and Python names an object by its address. Llama's templates put today's date into each
prompt: a sweep that goes on after midnight would ask its heads other questions than its base model.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import TemplateError, Undefined
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers import PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

from headsweep.errors import ModelError, cause_of

TODAY = datetime(2024, 7, 26)  # of no place; templates write days
"""The date in all prompts: that which Llama's own templates take where they find no clock."""

_OF_CHANCE = ("random", "pprint")
"""Filters of chance, or, as `pprint` sorts by them, of addresses."""


class _Object:
    """What a template may call and look into, but not write: its name holds its address.

    An address differs from process to process, and a template could write a part of it.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        raise TemplateError("it writes an object, whose address differs from process to process")


def _steady(value: Any) -> Any:
    """Return a value as a template gets it: its text and its order are those of every process."""
    if isinstance(value, type | Undefined | LoopContext | Macro):
        return value
    if isinstance(value, Iterator | KeysView | ItemsView):  # views have differences, which are sets
        return [*value]
    if callable(value) or type(value).__repr__ is object.__repr__:
        return _Object(value)
    return value


def _of(value: Any) -> Any:
    return value.value if isinstance(value, _Object) else value


def _steady_filter(made: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(made)
    def steady(*arguments: Any, **named: Any) -> Any:
        return _steady(made(*arguments, **named))

    return steady


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without clock, chance and addresses.

    Whatever a template gets that it has not written itself comes from one of these methods.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        kept = [name for name in self.filters if name not in _OF_CHANCE]
        self.filters = {name: _steady_filter(self.filters[name]) for name in kept}
        del self.globals["lipsum"]

    def from_string(self, *arguments: Any, **named: Any) -> Any:
        """Compile a template, when transformers has put all that it adds into the environment."""
        self.globals["strftime_now"] = TODAY.strftime
        self.globals = {name: _steady(value) for name, value in self.globals.items()}
        return super().from_string(*arguments, **named)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return _steady(super().getattr(_of(obj), attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return _steady(super().getitem(_of(obj), argument))

    def call(self, context: Context, obj: Any, /, *arguments: Any, **named: Any) -> Any:
        return _steady(super().call(context, _of(obj), *arguments, **named))


setattr(chat_template_utils, "ImmutableSandboxedEnvironment", _Environment)  # noqa: B010


def rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    """Return messages as text with the opening of the assistant's turn, by a tokenizer's template.

    Raises:
        jinja2.TemplateError: the template refuses them, asks for chance, or writes an object.
        ModelError: it fails otherwise.
    """
    try:
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )
    except (TemplateError, MemoryError):
        raise
    except Exception as error:  # a template can raise any
        raise ModelError(
            f"the chat template of {tokenizer.name_or_path} fails ({cause_of(error, 200)}); "
            f"correct it, or use another model"
        ) from error
