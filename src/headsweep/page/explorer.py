"""The explorer's data: what every head did by groups of questions, and questions with answers.

They are embedded in the page as JSON, within a budget. Counts by group are those of all questions.
For the questions that are shown, the outcomes of all heads are stored as bits. If not all questions
fit, those come first on which a head and the base model differ, in a random order. A changed answer
is stored as the length of its common start with the base model's answer, and the rest. The budget
that is left goes to the changed answers of the heads with the largest gains; for the other heads
only outcomes are stored.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from headsweep.config.experiments import METHOD
from headsweep.config.titles import title
from headsweep.files import paths
from headsweep.files.safe_files import read_table
from headsweep.files.tables import ANSWERS, QUESTIONS
from headsweep.page.looks import ShownTexts, add_looks
from headsweep.results.compression_arms import read_results
from headsweep.results.facts import Source, rows_of
from headsweep.results.gains import GAINS, HEADS, cells, read_z, shown
from headsweep.statistics import SIGNIFICANCE
from headsweep.store.layout import Store
from headsweep.text import plain, points, shared_length, visible
from headsweep.variants import BASE

_BUDGET = 2_200_000  # characters that a page of 3 MB embeds, over all sweeps
_SEED = 0  # of the questions that are shown where not all fit
_LONGEST = 20_000  # characters at which a text is cut off

ShownAnswers = list[tuple[str, float | None, bool]]
"""Texts, margins, and whether they were cut at the limit of tokens."""


def explored(store: Store) -> list[dict[str, Any]]:
    """Return the explorer's data of each sweep.

    Raises:
        TableError: a table of the run, or the questions, are damaged.
    """
    return [
        _sweep(store, name, _BUDGET // len(store.config.sweeps)) for name in store.config.sweeps
    ]


def script(data: object) -> Markup:
    """Return data as JSON that cannot end a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))


def label(head: Mapping[str, Any]) -> str:
    """Return what the map says of a head."""
    word = {"▲": "helps", "▼": "hurts", ".": "not shown to differ"}[head["marks"][0]]
    if head["cut_decides"]:
        word = "not counted: answers that were cut may decide it"
    return f"{head['name']}: {points(head['gain'])} points, {word}"


def _sweep(store: Store, name: str, room: int) -> dict[str, Any]:
    """Return the explorer's data of a sweep, in so many characters."""
    z, variants = read_z(store, name)
    file_of = partial(store.of_sweep, name)
    files = {str(variant): file_of(ANSWERS, variant=variant) for variant in variants}
    tested = cells(z, variants)
    heads = _heads(store, name, tested)
    gains = Source.read(store, paths.CONTROLS, GAINS, sweep=name, table="gains")
    placebos = gains.where(by="overall").rows.dropna(subset="placebo")
    subjects, names = pd.factorize(z["subject"], sort=True)
    groups = tested.loc[tested["variant"] == str(BASE), ["by", "n", "correct"]].assign(
        which=[0, *range(len(names)), *sorted(z["level"].dropna().astype(int).unique())]
    )
    data: dict[str, Any] = {
        "name": name,
        "title": title(store.config, "sweeps", name),
        "subjects": [plain(subject) for subject in names],
        # Kind, subject's place or level, questions, the base model's right answers.
        "groups": groups[["by", "which", "n", "correct"]].to_numpy().tolist(),
        "heads": heads,
        # Layer, gain and table row of the best noise placebo of each layer.
        "placebos": placebos[["layer", "placebo"]].assign(row=placebos.index).values.tolist(),
        "store": str(files[str(BASE)].parent),
    }
    base = _answers(files[str(BASE)], z)
    questions = _questions(file_of(QUESTIONS), z, base)
    sizes = [len(script(question)) for question in questions]
    places = _shown(z[list(files)].to_numpy(), sizes, (room - len(script(data))) // 2)
    data["questions"] = [questions[place] for place in places]
    data["subject"] = subjects[places].tolist()
    data["level"] = z["level"].fillna(0).astype(int).iloc[places].tolist()
    z = z.iloc[places]
    data["base"] = _bits(z[str(BASE)])
    for head in heads:
        head["bits"] = _bits(z[head["name"]])
    if base:
        base = [base[place] for place in places]
        _add_answers(heads, files, z, base, room - len(script(data)))
        turned = {name: {*z.loc[z[name] != z[str(BASE)], "question_id"]} for name in files}
        add_looks(store, name, data, _whole_texts(file_of, z), turned)
    return data


def _add_answers(
    heads: Sequence[dict[str, Any]],
    files: Mapping[str, Path],
    z: pd.DataFrame,
    base: ShownAnswers,
    room: int,
) -> None:
    """Give heads their changed answers, those with the largest gains first, until room is out.

    `files` are the answers of each variant, `z` the rows of the questions that are shown.
    """
    for head in sorted(heads, key=lambda head: -head["gain"]):
        if room <= 0:
            return
        answers = _answers(files[head["name"]], z)
        if answers:
            changed = _changed(base, answers)
            room -= len(script(changed))
            if room > 0:
                head["answers"] = changed


def _shown(outcomes: np.ndarray, sizes: Sequence[int], room: int) -> np.ndarray:
    """Return the places of the questions that fit into so many characters, in ascending order.

    Args:
        outcomes: 0 or 1 [questions, variants], the base model's first.
        sizes: characters of each question with the base model's answer.
        room: characters for questions and outcomes.
    """
    cost = np.asarray(sizes) + 1 + outcomes.shape[1] / 6  # a comma; base64 has six bits a character
    same = (outcomes == outcomes[:, :1]).all(axis=1)
    order = np.random.default_rng(_SEED).permutation(len(cost))
    if cost.sum() > room:
        order = order[np.argsort(same[order], kind="stable")]
        order = order[cost[order].cumsum() <= room]
    return np.sort(order)


def _heads(store: Store, sweep: str, tested: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the data of each head, from the sweep's `cells`.

    `marks` and `right`, the number of right answers, are of all questions, then of each group. On
    all questions a head has a mark if it is shown to help or to hurt; in a group, to explore, if
    its false discovery rate q is below `SIGNIFICANCE`. `cut_decides` says that a head
    has no mark since cut answers could decide its test.
    """
    table = Source.read(store, paths.CONTROLS, HEADS, sweep=sweep, table="heads").rows
    failures = Source.read(store, paths.CONTROLS, ["mode"], sweep=sweep, table="failures").rows
    marks = np.where(tested["gain"] > 0, "▲", "▼")
    tested = tested.assign(mark=np.where(tested["q"] < SIGNIFICANCE, marks, "."))
    overall = tested["by"] == "overall"
    tested.loc[overall, "mark"] = "."
    for mark, sign in (("▲", 1), ("▼", -1)):
        tested.loc[overall & tested["variant"].isin(shown(table, sign)["variant"]), "mark"] = mark
    heads = table[table["variant"] != str(BASE)].astype({"layer": int, "head": int})
    names = heads["variant"]
    modes = names.map(failures.set_index("variant")["mode"]).astype(object)
    heads = heads.assign(
        name=names,
        row=heads.index,
        mode=modes.where(modes.notna(), None),
        marks=names.map(tested.groupby("variant")["mark"].agg("".join)),
        right=names.map(tested.groupby("variant")["correct"].agg(list)),
        removed=names.isin(_removed(store, store.config.sweeps[sweep].model)),
        cut_decides=heads["cut_decides"].eq(True),
        answers=None,
    )
    kept = ["name", "layer", "head", "accuracy", "gain", "low", "high", "adjusted"]
    kept += ["row", "mode", "marks", "right", "removed", "cut_decides", "answers"]
    return [row._asdict() for row in rows_of(heads[kept])]


def _removed(store: Store, model: str) -> set[str]:
    """Return the heads that the compressions of a model removed."""
    heads: set[str] = set()
    for name, study in store.config.compressions.items():
        if study.model == model and METHOD in study.arms:
            rounds = read_results(store, name).first_history(METHOD)["rounds"]
            heads.update(
                head
                for pruning_round in rounds
                for step in pruning_round["removals"]
                for head in step["heads"]
            )
    return heads


def _bits(outcomes: pd.Series) -> str:
    return base64.b64encode(np.packbits(outcomes.to_numpy().astype(bool)).tobytes()).decode()


def _answers(file: Path, z: pd.DataFrame) -> ShownAnswers:
    """Return a variant's answers in the order of Z; none if they are not stored."""
    if not file.exists():
        return []
    table = read_table(file, ANSWERS, columns=["question_id", "text", "margin", "stop_reason"])
    table = table.set_index("question_id").loc[z["question_id"]]
    margins = [
        round(float(margin), 4) if math.isfinite(margin) else None for margin in table["margin"]
    ]
    was_cut = (table["stop_reason"] == "length").tolist()
    return list(zip(map(_cut, table["text"]), margins, was_cut, strict=True))


def _changed(base: ShownAnswers, pruned: ShownAnswers) -> list[list[Any]]:
    """Return the answers that differ: question, length of the common start, the rest, margin, and
    True behind it if the answer was cut.

    Lengths are in UTF-16 units, as the page's script counts them.
    """
    differing = []
    for place, ((before, *_), (after, margin, cut)) in enumerate(zip(base, pruned, strict=True)):
        if before != after:
            shared = shared_length(before, after)
            length = len(after[:shared].encode("utf-16-le")) // 2
            entry = [place, length, after[shared:], margin]
            differing.append([*entry, True] if cut else entry)
    return differing


def _questions(file: Path, z: pd.DataFrame, base: ShownAnswers) -> list[list[Any]]:
    """Return id, question, right answer, base model's answer and its margin, None if missing; and
    True behind them if that answer was cut.
    """
    rows: list[list[Any]] = [[visible(name), *[None] * 4] for name in z["question_id"]]
    if file.exists():
        question_set = read_table(file, QUESTIONS).set_index("question_id").loc[z["question_id"]]
        for row, *texts in zip(rows, question_set["question"], question_set["answer"], strict=True):
            row[1:3] = [_cut(text) or None for text in texts]  # exported without texts
    for row, (text, margin, cut) in zip(rows, base, strict=False):
        row[3:] = [text, margin, True] if cut else [text, margin]
    return rows


def _whole_texts(file_of: Callable[..., Path], z: pd.DataFrame) -> dict[str, ShownTexts]:
    """Return the questions of Z that are shown whole, by id; none if they are not stored."""
    if not file_of(QUESTIONS).exists():
        return {}
    ids = z["question_id"]
    asked = read_table(file_of(QUESTIONS), QUESTIONS).set_index("question_id")["question"].loc[ids]
    table = read_table(file_of(ANSWERS, variant=BASE), ANSWERS, columns=["question_id", "text"])
    answered = table.set_index("question_id")["text"].loc[ids]
    texts = map(ShownTexts, range(len(ids)), asked, answered)
    whole = zip(ids, texts, strict=True)
    return {
        name: text
        for name, text in whole
        if text.question and max(len(text.question), len(text.answer)) <= _LONGEST
    }


def _cut(text: str) -> str:
    shown = visible(text[:_LONGEST])
    left_out = len(text) - _LONGEST
    return shown if left_out <= 0 else f"{shown} [… {left_out:,} characters more]"
