"""The model card of a pruned model: what was removed, and how the rest is loaded."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import transformers
from huggingface_hub import ModelCard, ModelCardData

from headsweep.files.plain_files import expanded
from headsweep.variants import Variant

Form = Literal["zeroed", "uniform", "free"]

PRUNED_HEADS = "pruned_heads.json"
"""What was removed, as JSON; the model card beside it describes the same in words."""
CARD = "README.md"
"""The model card."""

LOADED_BY: Mapping[Form, str] = {
    "zeroed": "zeroed: plain from_pretrained loads it",
    "uniform": "uniform: plain from_pretrained loads it",
    "free": "free, layers keep different numbers of heads: headsweep.load_model loads it",
}
"""The form of a model that was saved, and what loads it."""

_LOADING = {
    "zeroed": "Loads as its source does: the heads' weights are zero, all shapes are the source's.",
    "uniform": (
        "Loads with plain `from_pretrained`: every layer kept the same number of heads. "
        "transformers {version} was seen to build these shapes from the config. vLLM 0.32 "
        "served such a Llama as it is, and such a Qwen2 with `--model-impl transformers` only: its "
        "own Qwen2 takes hidden_size / heads for the width of a head. Others were not tried."
    ),
    "free": "Loads only with headsweep: layers kept different numbers of heads.",
}

_TEMPLATE = """\
---
{{ card_data }}
---
# {{ name }}

{{ loads }}

```python
{{ example }}
```

`{{ source }}`{% if revision %} (revision {{ revision }}){% endif %} \
{%- if removed %} without {{ removed | length }} of its attention heads, counted from 0:

{{ removed | join(", ") }}

They were chosen by this criterion: {{ criterion }}.
{%- else %}, trained further; no attention head was removed.
{%- endif %}

`{{ file }}` has the same as JSON; its `kept` lists the heads of the unpruned model that each \
layer still has.
{% if measured %}
| measured | |
|---|---|
{% for name, value in measured.items() -%}
| {{ name }} | {{ value }} |
{% endfor %}
{{ how }}
{%- endif %}"""


class Pruning(NamedTuple):
    """What was done to a model, for its card."""

    source: str  # hub id or folder of the model that was pruned
    revision: str | None  # its commit on the hub, or the fingerprint of its folder
    removed: Sequence[Variant]  # heads, numbered as in the source
    criterion: str  # how they were chosen
    measured: Mapping[str, float | int | str] = MappingProxyType({})  # names say the units
    how: str = ""  # how that was measured, as a sentence


def card_of(name: str, kind: str, facts: Mapping[str, Any]) -> str:
    """Return the model card of a pruned model of a transformers class, from what is saved of it."""
    source, form = facts["source"], facts["form"]
    data = ModelCardData(
        base_model=None if expanded(source).is_dir() else source,
        library_name="headsweep" if form == "free" else "transformers",
        tags=["pruned", "attention-heads", form] if facts["removed"] else [],
    )
    example = f"from transformers import {kind}\n\nmodel = {kind}.from_pretrained(folder)"
    if form == "free":
        example = "import headsweep\n\nmodel = headsweep.load_model(folder)"
    card = ModelCard.from_template(
        data,
        template_str=_TEMPLATE,
        name=name,
        loads=_LOADING[form].format(version=transformers.__version__),
        example=example,
        file=PRUNED_HEADS,
        **facts,
    )
    return str(card)
