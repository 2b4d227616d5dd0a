"""Compares two runs: settings, right answers of each variant, Pass@N.

Runs are matched by the names in their configs: models, decodings, question sets and selectors of
the same name are compared even if their settings differ, since differing settings are what one
wants to compare. What no name matches is matched by what it is: the same model and the same split,
as in a sweep by hand and a run of a config. Questions are matched by id, within the same split
only, and right answers are compared question by question, with paired intervals and tests.
"""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.config import load
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.record import read_record
from headsweep.files.safe_files import read_table, write_csv, written_to
from headsweep.files.tables import CURVES, GRADED
from headsweep.results.facts import FORMS
from headsweep.results.run import CONFIG, find
from headsweep.results.systems import of_pairs
from headsweep.statistics import SIGNIFICANCE, intervals
from headsweep.store.batches import batches
from headsweep.store.keys import model_identity, split_key
from headsweep.store.layout import Store
from headsweep.text import plain, short
from headsweep.variants import Variant

_SHOWN = 8  # rows of each table shown in the terminal
_NAMED = 3  # parts of a run that a message names
_FORMS = {
    **dict.fromkeys(("first", "second", "changed"), FORMS["part"]),
    **dict.fromkeys(("difference", "low", "high"), FORMS["points"]),
    **dict.fromkeys(("p", "q"), FORMS["p"]),
}
_NOTHING_COMMON = {
    "variants": "no question is in both",
    "pass_at_n": "no method is in both",
}

Tables = dict[str, pd.DataFrame]


def compare(first: Path, second: Path) -> tuple[Tables, list[str]]:
    """Compare two runs, given their folders.

    Returns:
        What has the same name but could not be compared, and the tables `settings` (that differ,
        as JSON), `variants` and `pass_at_n` (of what `of` names). Differences are second − first.
        Accuracies are on the common questions; `gained`: questions that only the second run has
        right, `lost`: only the first; `changed`: share of final answers that differ.

    Raises:
        ConfigError: they have nothing in common.
        TableError: a table is missing or damaged.
    """
    of_first, of_second = _parts(first), _parts(second)
    left_out: list[str] = []
    compared_parts: list[tuple[_Part, _Part]] = []
    tables_of_kind: dict[str, list[pd.DataFrame]] = {"variants": [], "pass_at_n": []}
    for key, other in _matched(of_first, of_second).items():
        parts = of_first[key], of_second[other]
        files = [part.file for part in parts]
        missing = [file for file in files if not file.exists()]
        if parts[0].split != parts[1].split:
            left_out.append(f"{key.name}: questions of different splits")
            continue
        if missing:
            left_out.append(f"{key.name}: {missing[0]} is missing; run it to its end")
            continue
        table = _variants(*files) if key.table == "variants" else _pass_at_n(*files)
        if table.empty:
            left_out.append(f"{key.name}: {_NOTHING_COMMON[key.table]}")
            continue
        table.insert(0, "of", key.name if key == other else f"{key.name} = {other.name}")
        tables_of_kind[key.table].append(table)
        compared_parts.append(parts)
    if not compared_parts:
        told = [_has(first, of_first), _has(second, of_second), *left_out[:_NAMED]]
        raise ConfigError(
            f"{first} and {second} have nothing to compare: {'; '.join(told)}; compare runs of the "
            f"same questions"
        )
    of_parts = compared_parts[0]
    settings_of_runs = [
        _settings(first, of_parts[0].file, {}),
        _settings(second, of_parts[1].file, _as_called(*of_parts)),
    ]
    sides = ["first", "second"]
    settings = pd.concat(settings_of_runs, axis=1, keys=sides).fillna("")
    settings = settings[settings["first"] != settings["second"]].rename_axis("setting")
    tables = {
        name: pd.concat(parts, ignore_index=True) for name, parts in tables_of_kind.items() if parts
    }
    return {"settings": settings.reset_index(), **tables}, left_out


class _Key(NamedTuple):
    """What is compared of two runs."""

    table: str  # the table of the comparison: variants or pass_at_n
    name: str  # names of model, decoding and question set, or of a selector


class _Part(NamedTuple):
    """A part of a run that can be compared."""

    model: str
    """What tells its model from others."""
    split: str
    """Key of the split that its questions are from."""
    sections: Mapping[str, str]
    """The names of what it is made of, by section of the config."""
    file: Path


def _parts(run: Path) -> dict[_Key, _Part]:
    """Return what can be compared of a run.

    Sampled answers cannot be paired; Pass@N compares them.
    """
    # Answers that only a comparison of prompts asks for are graded in a table of its own.
    config = load(run / CONFIG).model_copy(update={"comparisons": {}})
    store = Store(config)
    usual_folder = store.path(paths.CONFIG).parent

    def part(model: str, decoding: str, questions: str, file: Path) -> _Part:
        identity = json.dumps(model_identity(config, model))
        sections = {"models": model, "decodings": decoding, "questions": questions}
        there = run / file.relative_to(usual_folder)
        return _Part(identity, split_key(config, questions), sections, there)

    parts = {}
    for batch in batches(store).values():
        if config.decodings[batch.decoding].greedy:
            name = ", ".join(batch.names)
            parts[_Key("variants", name)] = part(
                batch.model, batch.decoding, batch.questions, batch.path(GRADED)
            )
    for name, selector in config.selectors.items():
        file = store.path(CURVES, selector=name)
        parts[_Key("pass_at_n", name)] = part(
            selector.model, selector.decoding, selector.test, file
        )
    return parts


def _matched(of_first: Mapping[_Key, _Part], of_second: Mapping[_Key, _Part]) -> dict[_Key, _Key]:
    """Return which part of a second run is held against which of a first.

    Those of the same name are; then the only ones of the same model, split and decoding's name;
    then the only ones of the same model and split.
    """
    pairs = {key: key for key in of_first if key in of_second}
    for by_decoding in (True, False):
        left = _identities(of_first, pairs.keys(), by_decoding)
        others = _identities(of_second, pairs.values(), by_decoding)
        for key, identity in left.items():
            alike = [other for other in others if others[other] == identity]
            if len(alike) == 1 and [*left.values()].count(identity) == 1:
                pairs[key] = alike[0]
    return pairs


def _identities(
    parts: Mapping[_Key, _Part], taken: Collection[_Key], by_decoding: bool
) -> dict[_Key, tuple[str, ...]]:
    """Return what tells the parts of a run from others, whatever they are called; not of `taken`.

    The name of a decoding may belong to it.
    """
    identities: dict[_Key, tuple[str, ...]] = {}
    for key, part in parts.items():
        if key not in taken:
            decoding = part.sections["decodings"] if by_decoding else ""
            identities[key] = (key.table, part.model, part.split, decoding)
    return identities


def _as_called(first: _Part, second: _Part) -> dict[str, str]:
    """Return what keys of a second config are called in the first: ``models.b``, ``models.a``."""
    return {
        f"{section}.{name}": f"{section}.{first.sections[section]}"
        for section, name in second.sections.items()
    }


def _has(run: Path, parts: Mapping[_Key, _Part]) -> str:
    """Say what a run has to compare."""
    names = [key.name for key in parts]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{run} has {' | '.join(names[:_NAMED])}{more}" if names else f"{run} has no answers"


def base_answers(given: str) -> tuple[pd.DataFrame, str]:
    """Return the base model's greedy answers in a run, to compare them with anyone's.

    Returns:
        Columns question_id, correct, final_answer, tokens; and what they are.

    Raises:
        ConfigError: there is no such run, or it has not one batch of greedy answers alone.
        TableError: the table is missing or damaged.
    """
    run = find(given)
    parts = _parts(run)
    tables = {key.name: part.file for key, part in parts.items() if key.table == "variants"}
    if len(tables) != 1:
        several = "; ".join(f"{name}: {file}" for name, file in tables.items()) or "none"
        raise ConfigError(
            f"{run} has {len(tables)} batches of greedy answers ({several}); compare two runs "
            "alone, or write one batch as CSV"
        )
    ((name, file),) = tables.items()
    rows = read_table(file, GRADED)
    rows = rows[rows["variant"] == "base"].rename(columns={"answer": "final_answer"})
    columns = ["question_id", "correct", "final_answer", "tokens"]
    return rows[columns], f"run of headsweep in {run}, {name}, base"


def _settings(run: Path, file: Path, called: Mapping[str, str]) -> "pd.Series[str]":
    """Return a run's settings, and the versions and the commit that made a file, as JSON.

    Entries of the config are `called` by other names.
    """
    facts = load(run / CONFIG).model_dump(mode="json", exclude={"run"})
    record = read_record(file)
    facts |= {key: record[key] for key in ("versions", "git_commit") if key in record}
    row = pd.json_normalize(facts).astype(object).iloc[0]

    def renamed(setting: str) -> str:
        section, _, rest = setting.partition(".")
        name, _, rest = rest.partition(".")
        return f"{called.get(f'{section}.{name}', f'{section}.{name}')}.{rest}" if rest else setting

    return row.rename(renamed).map(partial(json.dumps, ensure_ascii=False))


def _variants(*files: Path) -> pd.DataFrame:
    """Compare base model and heads that both runs have, on the questions that both have."""
    one, two = (read_table(file, GRADED).fillna({"answer": ""}) for file in files)
    both = one.merge(two, on=["question_id", "variant"], suffixes=("_1", "_2"))
    if both.empty:
        return both
    names = [n for n in both["variant"].unique() if Variant.parse(n).kind in ("base", "head")]

    def by_variant(values: str) -> pd.DataFrame:
        return both.pivot(index="question_id", columns="variant", values=values)[names]

    first, second = by_variant("correct_1"), by_variant("correct_2")
    change = second.astype(int) - first.astype(int)
    table = of_pairs(change.to_numpy(), [True] * len(names)).set_index(change.columns)
    table.insert(1, "first", first.mean())
    table.insert(2, "second", second.mean())
    q = intervals.false_discovery(table["p"].to_numpy())
    differs = by_variant("answer_1").ne(by_variant("answer_2"))
    return table.drop(columns="test").assign(q=q, changed=differs.mean()).reset_index()


def _pass_at_n(*files: Path) -> pd.DataFrame:
    """Return Pass@N of the methods that both runs have, with unpaired intervals."""
    one, two = (read_table(file, CURVES).set_index(["method", "n"]) for file in files)
    one, two = one.align(two, join="inner", axis=0)
    first, second = one["pass_at_n"].to_numpy(), two["pass_at_n"].to_numpy()
    first_ends = (one["low"].to_numpy(), one["high"].to_numpy())
    second_ends = (two["low"].to_numpy(), two["high"].to_numpy())
    low, high = intervals.unpaired_difference(first, first_ends, second, second_ends)
    columns = {"first": first, "second": second, "difference": second - first}
    return pd.DataFrame({**columns, "low": low, "high": high}, one.index).reset_index()


def summary(tables: Tables, left_out: list[str]) -> str:
    """Return the comparison for a terminal: the rows that differ most of each table."""
    lines = []
    for name, table in tables.items():
        differing = table.map(partial(short, width=44)) if name == "settings" else table
        told = ""
        if "difference" in table:
            moved = (table["difference"] != 0) | (table.get("changed", 0) != 0)
            differing = table[moved].sort_values("difference", key=abs, ascending=False)
        if "q" in table:
            told = f", {(table['q'] < SIGNIFICANCE).sum()} at q < {SIGNIFICANCE}"
        lines += ["", f"{name}: {len(differing)} of {len(table)} rows differ{told}"]
        lines += shown(differing, {} if name == "settings" else _FORMS, _SHOWN)
    lines += ["", *(f"left out: {plain(text)}" for text in left_out)] if left_out else []
    notes = "Second − first, in percent and points, 95%; Pass@N as if independent."
    return "\n".join([*lines, notes])


def shown(table: pd.DataFrame, forms: Mapping[str, Callable[..., Any]], limit: int) -> list[str]:
    """Return a table for a terminal: its first rows, and how many more there are."""
    if table.empty:
        return []
    known = {column: form for column, form in forms.items() if column in table}
    lines = [table.head(limit).to_string(index=False, formatters=known)]
    if len(table) > limit:
        lines.append(f"... and {len(table) - limit} more; --out FOLDER writes all rows")
    return lines


def write(tables: Tables, folder: Path) -> None:
    """Write the tables as CSV.

    Raises:
        ConfigError: the folder cannot be written.
    """
    with written_to("--out", folder, "folder"):
        for name, table in tables.items():
            write_csv(folder / f"{name}.csv", table)
