"""Looks inside heads on the page: which ones it has room for, and how they are stored.

Offsets in the prompt and the answer become those of the text as the page shows it, in UTF-16 units,
as its script counts. A look names what the page shows, no more: weights in percent, effects in
hundredths of a logit.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from headsweep.files.safe_files import read_metadata, read_table
from headsweep.files.tables import LOOKS
from headsweep.results.facts import rows_of
from headsweep.store.layout import Store
from headsweep.store.looks import looks_file
from headsweep.text import visible

_BUDGET = 60_000  # characters of the looks of a page
_READ = 4  # tokens that a head reads most, of a look
_LEAST = 0.01  # of attention that is shown
_COLUMNS = ("of", "tokens", "effects", "rank", "end", "read")


class ShownTexts(NamedTuple):
    """A question that the explorer shows, as the model reads and answers it."""

    place: int
    """Among those that are shown."""
    question: str
    answer: str
    """The base model's."""


def add_looks(
    store: Store,
    sweep: str,
    data: dict[str, Any],
    texts: Mapping[str, ShownTexts],
    turned: Mapping[str, set[str]],
) -> None:
    """Add looks to the explorer's data of a sweep, those of turned outcomes first.

    Args:
        store: of a resolved config.
        sweep: its name.
        data: with heads; each gets `looks`, columns by name, or None. The sweep gets `looks`: what
            stands in a prompt before and after the question, the tokens named, and `why` there is
            no look where there is none.
        texts: of the questions that are shown whole, by id.
        turned: the questions that each head wins or loses.
    """
    config = store.config
    file = looks_file(store, sweep)
    data["looks"] = shared = {"before": "", "after": "", "tokens": [], "why": "", "file": str(file)}
    for head in data["heads"]:
        head["looks"] = None
    if not file.exists():
        shared["why"] = "the model was not there when this page was made"
        return
    refused = read_metadata(file)["refused"]
    if refused:
        shared["why"] = visible(refused)
        return
    shared["why"] = f"this page has room for some; all are in {file}"
    looks = read_table(file, LOOKS)
    looks = looks[looks["question_id"].isin(texts)].dropna(subset=["base_effect", "own_effect"])
    gains = {head["name"]: head["gain"] for head in data["heads"]}
    pairs = zip(looks["question_id"], looks["variant"], strict=True)
    turns = [question in turned[variant] for question, variant in pairs]
    looks = looks.assign(turns=turns, gain=looks["variant"].map(gains))
    looks = looks.sort_values(["turns", "gain"], ascending=False, kind="stable")
    columns = _columns(looks, texts, shared, _BUDGET // len(config.sweeps))
    for head in data["heads"]:
        if head["name"] in columns:
            model = config.models[config.sweeps[sweep].model]
            head["looks"] = {**columns[head["name"]], "peers": len(model.heads_in(head["layer"]))}


def _columns(
    looks: pd.DataFrame, texts: Mapping[str, ShownTexts], shared: dict[str, Any], room: int
) -> dict[str, dict[str, list[Any]]]:
    """Return the looks of each head in columns, as far as there is room, and fill `shared`."""
    tokens: dict[str, int] = {}
    found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {name: [] for name in _COLUMNS})
    around = Counter(zip(looks["before"], looks["after"], strict=True))
    usual = around.most_common(1)[0][0] if around else None
    if usual is not None:
        shared["before"], shared["after"] = map(visible, usual)
    for row in rows_of(looks):
        if (row.before, row.after) != usual:
            continue  # the page states the prompt once
        place, question, answer = texts[row.question_id]
        whole = row.before + question + row.after + answer
        read = zip(row.starts, row.lengths, row.weights, strict=True)
        most = [one for one in read if one[2] >= _LEAST][:_READ]
        named = [
            tokens.setdefault(visible(token), len(tokens))
            for token in (row.base_token, row.own_token)
        ]
        look = {
            "of": place,
            "tokens": named,
            "effects": [round(100 * effect) for effect in (row.base_effect, row.own_effect)],
            "rank": row.rank,
            "end": _units(whole[: row.end]),
            "read": [
                [_units(whole[:start]), _units(whole[start : start + length]), round(100 * weight)]
                for start, length, weight in most
            ],
        }
        room -= len(str(list(look.values())).replace(" ", ""))
        if room < 0:
            break
        for name, value in look.items():
            found[row.variant][name].append(value)
    shared["tokens"] = list(tokens)
    return found


def _units(text: str) -> int:
    """Return the length of a text as the page shows it, in UTF-16 units."""
    return len(visible(text).encode("utf-16-le")) // 2
