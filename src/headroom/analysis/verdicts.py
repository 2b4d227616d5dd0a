"""A run's verdicts, one per question, shown on the page and in the terminal.

A verdict says *helps* or *hurts* only if its test is significant; otherwise it says that no effect
is shown, and what the interval leaves open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headroom import paths
from headroom.analysis.compression.trial import METHOD
from headroom.analysis.controls import HEADS, helping, hurting
from headroom.analysis.facts import LUCK, Sentence, Source, direction
from headroom.analysis.text import short
from headroom.config import Config
from headroom.planning.store import Store
from headroom.sprint import matching
from headroom.sprint.evaluation import PAIRED
from headroom.sprint.methods import COVER, SPRINT, sampling
from headroom.tables import CURVES, read_table
from headroom.variants import BASE

_TITLES = {
    "math500": "MATH-500",
    "math_train": "MATH",
    "gsm8k": "GSM8K",
    "generated_math": "MATH-like",
    "generated_gsm8k": "GSM8K-like",
    "generated": "Word problems",
    "math23k": "Math23k",
    "asdiv_a": "ASDiv-A",
}


@dataclass(frozen=True)
class Verdict:
    """The answer to one question."""

    section: str
    """Anchor of the page's section with its evidence."""
    mark: str
    """▲ better, ▼ worse, – not shown, ! needs a look."""
    answer: str
    effect: Sentence
    so: Sentence

    def __str__(self) -> str:
        return f"{self.answer}. {self.effect} {self.so}"


def verdicts(config: Config) -> list[Verdict]:
    """Return the verdicts of a finished run, in the order of the page.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    makers = (_heads, _sampling, _question, _compression, _published)
    return [verdict for make in makers for verdict in make(config)]


def title(config: Config, section: str, name: str) -> str:
    """Return the page's name of an entry of a config's section, such as ``models``.

    It is the entry's `title`, or else what the entry is: a benchmark's or file's name, for a
    selector its test questions.
    """
    entry = getattr(config, section)[name]
    if entry.title is not None:
        return short(entry.title, 40)
    if section == "selectors":
        return title(config, "questions", entry.test)
    if section == "models":
        return short(name, 28)
    kind = entry.dataset if section == "problems" else entry.benchmark
    own = entry.file or (section == "questions" and entry.dataset) or name
    return _TITLES.get(kind, short(Path(own).stem.replace("_", " "), 24))


def tested_on(config: Config, compression: str) -> str:
    """Return the page's name of what a compression was tested on."""
    study = config.compressions[compression]
    if study.data is not None:
        return title(config, "problems", study.data)
    return title(config, "questions", study.test or "")


def rival(config: Config, selector: str) -> tuple[str, int]:
    """Return the method that SPRINT is held against, and SPRINT's largest N.

    It is the selector's `versus`, or else the sampling with the highest Pass@N; choosing the
    temperature afterwards favours sampling. The name is empty without sampling.
    """
    table = read_table(Path(paths.CURVES.format(run=config.run, selector=selector)), CURVES)
    most = int(table.loc[table["method"] == SPRINT, "n"].max())
    section = config.selectors[selector]
    asked = section.versus or ""
    if asked in section.sampling:
        temperatures = {name: config.decodings[name].temperature for name in section.sampling}
        asked = sampling(temperatures)[asked]
    at = table[(table["n"] == most) & table["method"].str.startswith("sampling")]
    ranked = at.sort_values("pass_at_n", kind="stable")["method"]
    return asked or ("" if at.empty else str(ranked.iloc[-1])), most


def _heads(config: Config) -> Iterator[Verdict]:
    many = len(config.sweeps) > 1
    for sweep, section in config.sweeps.items():
        table = Source.read(config, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        rows = table.rows[table.rows["variant"] != str(BASE)]
        helps, hurts = (table.of(found(rows)) for found in (helping, hurting))
        best = helps if len(helps) else table.of(rows.loc[[rows["gain"].idxmax()]])
        said = Sentence(
            "{model}Best of {heads}: {gain} points ({low} to {high}), {n} questions; {hurt} hurt.",
            model=f"{title(config, 'models', section.model)}: " if many else "",
            heads=table.of(rows).number("variant", "count", "count"),
            **{column: best.number(column, "points") for column in ("gain", "low", "high")},
            n=best.number("n", "count"),
            hurt=hurts.number("variant", "count", "count"),
        )
        if len(helps):
            one = len(helps) == 1
            answer = f"{len(helps)} head{'s' * (not one)} help{'s' * one} when lost"
            so = Sentence("Its gain passes the corrected test.")
        else:
            answer = "No head is shown to help when lost"
            so = Sentence("Gains above {high} are unlikely.", high=best.number("high", "points"))
        yield Verdict("heads", "▲" if len(helps) else "–", answer, said, so)


def _sampling(config: Config) -> Iterator[Verdict]:
    found = []
    for name, section in config.selectors.items():
        method, most = rival(config, name)
        if method:
            row = Source.read(config, paths.PAIRED, PAIRED, selector=name)
            found.append((row.where(method=method, n=most), section, method))
    if not found:
        return
    mark, place, wins, losses = _most([row for row, *_ in found])
    row, section, method = found[place]
    sampled = all(each.startswith("sampling") for *_, each in found)
    other = "sampling" if sampled else "the other method"
    answer = f"Choosing heads is not shown to beat {other}"
    if wins and losses:
        answer = f"Heads beat {other} on {wins}, lose on {losses}"
    elif wins or losses:
        answer = f"Choosing heads beats {other}" if wins else f"{other} beats choosing heads"
        answer = f"{answer[0].upper()}{answer[1:]}{_share(wins or losses, len(found))}"
    names = {"model": section.model, "decoding": section.decoding, "questions": section.test}
    asked = Source.read(config, Store(config).path(paths.ACCURACY, **names))
    picked = section.versus is None and len(section.sampling) > 1
    said = Sentence(
        "{most} answers, {method}{picked}: {difference} points, {n} questions.",
        most=row.number("n", "count"),
        method=method.removeprefix("sampling ").replace("=", " = "),
        picked=f", best of {len(section.sampling)}, picked afterwards" if picked else "",
        difference=row.interval("difference", "points", "low", "high"),
        n=asked.number("question_id", "count", "count"),
    )
    so = "If answers can be checked, sample." if losses else "Sampling remains the simpler way."
    if wins and not losses:
        so = "Choosing heads is worth its training."
    yield Verdict("sampling", mark, answer, said, Sentence(so if sampled else ""))


def _question(config: Config) -> Iterator[Verdict]:
    shuffled, cover = [], []
    for name in config.selectors:
        table = Source.read(config, paths.EMBEDDING_VALUE, matching.COLUMNS, selector=name)
        own = table.where(method=SPRINT, questions="test", pool=matching.ALL, n=matching.MEAN)
        shuffled.append(own.where(against=matching.SHUFFLED))
        cover.append(own.where(against=COVER))
    if not shuffled:
        return
    mark, place, wins, losses = _most(shuffled)
    answer = "The question is not shown to matter"
    if wins or losses:
        answer = f"Knowing the question {'helps' if wins else 'hurts'}"
        answer += _share(wins or losses, len(shuffled))
    row = shuffled[place]
    said = Sentence(
        "Against shuffled questions: {difference} points, p {sign} {p}.",
        difference=row.interval("difference", "points", "low", "high"),
        sign="" if row.first["p"] < 0.001 else "=",
        p=row.number("p", "p"),
    )
    fixed = cover[place].first["low"] > 0
    so = "Fixed heads do worse." if fixed else "Fixed heads are not shown to be worse."
    yield Verdict("question", mark, answer, said, Sentence(so))


def _compression(config: Config) -> Iterator[Verdict]:
    if not config.compressions:
        return
    table = Source.read(config, paths.COMPRESSION_TABLE, exhibit="table1").where(arm=METHOD)
    rows = [row for row in table if not np.isnan(row.first["change"])]
    if not rows:
        return
    mark, place, wins, losses = _most(rows, low="change_low", high="change_high")
    row = rows[place]
    what = "no loss is shown"
    if wins or losses:
        what = ("worse" if losses else "better") + _share(losses or wins, len(rows))
    said = Sentence(
        "{name}: {change} points, {n} questions.",
        name=tested_on(config, row.first["compression"]),
        change=row.interval("change", "points", "change_low", "change_high"),
        n=row.number("n", "count"),
    )
    so = Sentence("{saved} fewer parameters.", saved=row.number("whole_removed", "percent"))
    if row.first["test_time_high"] < 1:
        so = Sentence(
            "The whole test takes {time} of the time.", time=row.number("test_time", "ratio")
        )
    elif row.first["test_time_high"] >= 1:
        so = Sentence("The whole test is not shown to be faster.")
    answer = f"{100 * row.first['ratio']:g}% of heads gone: {what}"
    yield Verdict("compression", mark, answer, said, so)


def _published(config: Config) -> Iterator[Verdict]:
    table = Source.read(config, paths.AUDIT_TABLE, ["pairs", "beyond"], paper="sprint")
    beyond, luck = table.number("beyond", "count", "sum"), table.number("pairs", "count", "luck")
    many = beyond.value > luck.value + 1.645 * np.sqrt(luck.value * (1 - LUCK))
    said = Sentence(
        "Of {pairs} best heads of a subject and layer; luck gives {luck}.",
        pairs=table.number("pairs", "count", "sum"),
        luck=luck,
    )
    answer = f"Published gains: {beyond} beat chance"
    so = "More than selection alone." if many else "Selection alone gives as many."
    yield Verdict("published", "▲" if many else "!", answer, said, Sentence(so))


def _share(some: int, of: int) -> str:
    return f" on {some} of {of}" if of > 1 else ""


def _most(
    rows: Sequence[Source], low: str = "low", high: str = "high"
) -> tuple[str, int, int, int]:
    """Return the mark of several intervals, the index to report, how many are above and below."""
    marks = [direction(row.first[low], row.first[high]) for row in rows]
    wins, losses = marks.count("▲"), marks.count("▼")
    mark = "!" if wins and losses else "▲" if wins else "▼" if losses else "–"
    place = next((n for n, each in enumerate(marks) if each != "–"), 0)
    return mark, place, wins, losses
