"""A run's verdicts, one per question, shown on the page and in the terminal.

A verdict says *helps* or *hurts* only if its test is significant; otherwise it says that no effect
is shown, and what the interval leaves open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headroom import paths
from headroom.analysis.facts import LEVEL, Sentence, Source
from headroom.analysis.gains import HEADS, shown
from headroom.analysis.text import short
from headroom.analysis.trials import METHOD
from headroom.config import Config
from headroom.sprint import evaluation
from headroom.sprint.evaluation import MEAN, PAIRED
from headroom.sprint.methods import COVER, SPRINT, sampling
from headroom.variants import BASE

_TITLES = {"math500": "MATH-500", "math_train": "MATH", "gsm8k": "GSM8K", "math23k": "Math23k"}
_TITLES |= {"generated_math": "MATH-like", "generated_gsm8k": "GSM8K-like"}
_TITLES |= {"generated": "Word problems", "asdiv_a": "ASDiv-A"}


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
    makers = (_heads, _sampling, _question, _families, _compression, _published)
    return [verdict for make in makers for verdict in make(config)]


def title(config: Config, section: str, name: str) -> str:
    """Return the page's name of an entry of a config's section, such as ``models``.

    It is the entry's `title`, or else its benchmark's or file's name or that of its test questions.
    """
    entry = getattr(config, section)[name]
    if section == "comparisons":
        return title(config, "questions", entry.questions)
    if entry.title is not None:
        return short(entry.title, 40)
    if section in ("selectors", "frontiers"):
        return title(config, "questions", entry.test)
    if section == "models":
        return short(name, 28)
    kind = entry.dataset if section == "problems" else entry.benchmark
    own = entry.file or (section == "questions" and entry.dataset) or name
    return _TITLES.get(kind, short(Path(own).stem.replace("_", " "), 24))


def of_sweep(config: Config, sweep: str) -> str:
    """Return the title of a sweep's questions, with its model if the run has several."""
    section = config.sweeps[sweep]
    asked = title(config, "questions", section.questions)
    return f"{_of_model(config, section.model)}{asked} questions"


def _of_model(config: Config, model: str) -> str:
    return f"{title(config, 'models', model)}, " if len(config.models) > 1 else ""


def tested_on(config: Config, compression: str) -> str:
    """Return the page's name of what a compression was tested on."""
    study = config.compressions[compression]
    return title(config, "problems" if study.data else "questions", study.data or study.test or "")


def rival(config: Config, selector: str) -> tuple[str, int]:
    """Return the method that SPRINT is held against, and SPRINT's largest N.

    It is the selector's `versus`, or else the sampling with the highest Pass@N, a choice that
    favours sampling; without sampling it is empty.
    """
    table = Source.read(config, paths.CURVES, selector=selector).rows
    most = int(table.loc[table["method"] == SPRINT, "n"].max())
    section = config.selectors[selector]
    if section.versus:
        return sampling(config, section.sampling).get(section.versus, section.versus), most
    at = table[(table["n"] == most) & table["method"].str.startswith("sampling")]
    ranked = at.sort_values("pass_at_n", kind="stable")["method"]
    return next(reversed(ranked.tolist()), ""), most


def _heads(config: Config) -> Iterator[Verdict]:
    for sweep in config.sweeps:
        table = Source.read(config, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        rows = table.rows[table.rows["variant"] != str(BASE)]
        helps, hurts = (table.of(shown(rows, sign)) for sign in (1, -1))
        best = helps or table.of(rows.loc[[rows["gain"].idxmax()]])
        said = best.say(
            "{of}: "
            * (len(config.sweeps) > 1)
            + "Best of {heads}: {gain points} points ({low points} to {high points}), {n count} "
            "questions; {hurt} hurt.",
            of=of_sweep(config, sweep),
            heads=table.of(rows).number("variant", "count", "count"),
            hurt=hurts.number("variant", "count", "count"),
        )
        answer, so = "No head is shown to help when lost", "Gains above {high points} are unlikely."
        if helps:
            many = "1 head helps" if len(helps) == 1 else f"{len(helps)} heads help"
            answer, so = f"{many} when lost", "Its gain passes the corrected test."
        yield Verdict("heads", "▲" if helps else "–", answer, said, best.say(so))


def _sampling(config: Config) -> Iterator[Verdict]:
    held = {}
    for name in config.selectors:
        method, most = rival(config, name)
        if method:
            row = Source.read(config, paths.PAIRED, PAIRED, selector=name)
            held[row.where(method=method, n=most)] = name, method
    if not held:
        return
    sampled = all(method.startswith("sampling") for _, method in held.values())
    other = "sampling" if sampled else "the other method"
    mark, row, answer = _told(
        list(held),
        f"Choosing heads is not shown to beat {other}",
        f"Choosing heads beats {other}",
        f"{other[0].upper()}{other[1:]} beats choosing heads",
    )
    name, method = held[row]
    section = config.selectors[name]
    names = {"model": section.model, "decoding": section.decoding, "questions": section.test}
    asked = Source.read(config, paths.ACCURACY, **names)
    picked = section.versus is None and len(section.sampling) > 1
    said = row.say(
        "{n count} answers, {of}: {difference points low high} points, {asked} questions.",
        of=method.removeprefix("sampling ").replace("=", " = ")
        + f", best of {len(section.sampling)}, picked afterwards" * picked,
        asked=asked.number("question_id", "count", "count"),
    )
    ends = {"▲": "Choosing heads is worth its training.", "–": "Sampling remains the simpler way."}
    so = ends.get(mark, "If answers can be checked, sample.")
    yield Verdict("sampling", mark, answer, said, Sentence(so if sampled else ""))


def _question(config: Config) -> Iterator[Verdict]:
    held = {}
    for name in config.selectors:
        table = Source.read(config, paths.EMBEDDING_VALUE, evaluation.WORTH, selector=name)
        own = table.where(method=SPRINT, questions="test", pool=evaluation.WHOLE_POOL, n=MEAN)
        held[own.where(against=evaluation.SHUFFLED)] = own.where(against=COVER)
    if not held:
        return
    answers = "Knowing the question helps", "Knowing the question hurts"
    mark, row, answer = _told(list(held), "The question is not shown to matter", *answers)
    said = row.say(
        "Against shuffled questions: {difference points low high} points, p {sign} {p p}.",
        sign="" if row.value("p") < 0.001 else "=",
    )
    fixed = held[row].value("low") > 0
    so = "Fixed heads do worse." if fixed else "Fixed heads are not shown to be worse."
    yield Verdict("question", mark, answer, said, Sentence(so))


def _families(config: Config) -> Iterator[Verdict]:
    for name, frontier in config.frontiers.items():
        table = Source.read(config, paths.FRONTIER, frontier=name, table="paired")
        tested = table.query("outcome == 'pass' and order == 'ordered' and adjusted == adjusted")
        heads = tested.where(family="head")
        row = heads.where(versus="sampling")
        if not row:
            continue
        mark = row.direction("low", "high", "adjusted")
        answers = {"▲": "Heads beat sampling", "▼": "Sampling beats heads"}
        answer = answers.get(mark, "Heads are not shown to beat sampling")
        said = row.say(
            "{of}, " * (len(config.frontiers) > 1)
            + "{budget count} answers' tokens: {difference points low high} points.",
            of=_of_model(config, frontier.model) + title(config, "frontiers", name),
        )
        others = heads.query("versus != 'sampling'")
        won = others.query(f"adjusted < {LEVEL} and difference > 0")
        beaten = won.number("difference", "count", "count") if won else "none"
        so = others.say("Heads beat {won} of {difference count count} families.", won=beaten)
        yield Verdict("families", mark, answer, said, so if others else Sentence(""))


def _compression(config: Config) -> Iterator[Verdict]:
    if not config.compressions:
        return
    table = Source.read(config, paths.COMPRESSION_TABLE, exhibit="table1").where(arm=METHOD)
    rows = [row for row in table if row.number("change")]
    if not rows:
        return
    mark, row, told = _told(rows, "no loss is shown", "better", "worse", "change")
    answer = f"{100 * row.value('ratio'):g}% of heads gone: {told}"
    said = row.say(
        "{of}: {change points change_low change_high} points, {n count} questions.",
        of=tested_on(config, row.first["compression"]),
    )
    so = row.say("{whole_removed percent} fewer parameters.")
    if row.value("test_time_high") < 1:
        so = row.say("Whole test: {test_time ratio} of the time.")
    elif row.value("test_time_high") >= 1:
        so = Sentence("The whole test is not shown to be faster.")
    table4 = Source.read(config, paths.COMPRESSION_TABLE, exhibit="table4")
    for kept in table4.where(compression=row.first["compression"], arm="trained_on"):
        # As many steps with nothing pruned: what pruning costs, training longer aside.
        said = kept.say("{said} Trained as long, all kept: {change points}.", said=said)
    yield Verdict("compression", mark, answer, said, so)


def _published(config: Config) -> Iterator[Verdict]:
    table = Source.read(config, paths.AUDIT_TABLE, ["pairs", "beyond"], paper="sprint")
    beyond, luck = table.number("beyond", "count", "sum"), table.number("pairs", "count", "luck")
    many = beyond.value > luck.value + 1.645 * np.sqrt(luck.value * (1 - LEVEL))
    said = table.say("Of {pairs count sum} best heads; luck gives {pairs count luck}.")
    answer = f"Published gains: {beyond} beat chance"
    so = "More than selection alone." if many else "Selection alone gives as many."
    yield Verdict("published", "▲" if many else "!", answer, said, Sentence(so))


def _told(
    rows: Sequence[Source], nothing: str, better: str, worse: str, of: str = ""
) -> tuple[str, Source, str]:
    """Return what the intervals of a column `of` show together: mark, row to report, answer."""
    low, high = (f"{of}_{end}".lstrip("_") for end in ("low", "high"))
    marks = [row.direction(low, high) for row in rows]
    wins, losses = marks.count("▲"), marks.count("▼")
    mark, row = next(
        (pair for pair in zip(marks, rows, strict=True) if pair[0] != "–"), ("–", rows[0])
    )
    if wins and losses:
        return "!", row, f"{better} on {wins}, worse on {losses}"
    share = f" on {wins or losses} of {len(rows)}" if len(rows) > 1 else ""
    return mark, row, {"▲": better + share, "▼": worse + share, "–": nothing}[mark]
