"""Chat templates say the same of the same messages, whenever and wherever they are rendered.

A model's template is a program (Jinja, in a sandbox). transformers hands it a clock, and Jinja has
chance. Llama's templates put today's date into each prompt: a sweep that goes on after midnight
would ask its heads other questions than its base model.
"""

from datetime import datetime
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import chat_template_utils

from headsweep.errors import ModelError, cause_of

TODAY = datetime(2024, 7, 26)  # of no place; templates write days
"""The date in all prompts: that which Llama's own templates take where they find no clock."""

_ADDRESS = " at 0x"  # in Python's name of an object; it differs from process to process

_compile = chat_template_utils._compile_jinja_template


def _compiled(template: str) -> Any:
    """Compile a template without clock and chance."""
    compiled = _compile(template)
    environment = compiled.environment
    environment.globals["strftime_now"] = TODAY.strftime
    environment.globals.pop("lipsum", None)
    environment.filters.pop("random", None)
    return compiled


chat_template_utils._compile_jinja_template = _compiled


def rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    """Return messages as text with the opening of the assistant's turn, by a tokenizer's template.

    Raises:
        jinja2.TemplateError: the template refuses them, or asks for chance.
        ModelError: it fails otherwise, or names an object of this process.
    """
    from jinja2 import TemplateError

    try:
        text = str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )
    except (TemplateError, MemoryError):
        raise
    except Exception as error:  # a template can raise any
        raise ModelError(
            f"the chat template of {tokenizer.name_or_path} fails ({cause_of(error, 200)}); "
            f"correct it, or use another model"
        ) from error
    if _ADDRESS in text and not any(_ADDRESS in message["content"] for message in messages):
        raise ModelError(
            f"the chat template of {tokenizer.name_or_path} writes the address of an object, which "
            f"differs from process to process; correct it, or use another model"
        )
    return text
