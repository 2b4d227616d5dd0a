"""A run's verdicts, one per question, shown on the page and in the terminal.

A verdict says *helps* or *hurts* only if its test is significant; otherwise it says that no effect
is shown, and what the interval leaves open.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headsweep import paths
from headsweep.analysis.facts import LEVEL, Sentence, Source
from headsweep.analysis.gains import HEADS, shown
from headsweep.analysis.powers import seen, unless_shown
from headsweep.analysis.trials import METHOD, causal_arm
from headsweep.config import Config
from headsweep.planning.titles import title
from headsweep.sprint import evaluation
from headsweep.sprint.evaluation import MEAN, PAIRED
from headsweep.sprint.methods import COVER, SPRINT, sampling
from headsweep.variants import BASE


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
            of=title(config, "sweeps", sweep),
            heads=table.of(rows).number("variant", "count", "count"),
            hurt=hurts.number("variant", "count", "count"),
        )
        answer, so = "No head is shown to help when lost", "Gains above {high points} are unlikely."
        if helps:
            many = "1 head helps" if len(helps) == 1 else f"{len(helps)} heads help"
            answer, so = f"{many} when lost", "Its gain passes the corrected test."
        told = best.say(so)
        if not helps:
            told = Sentence("{so} {seen}", so=told, seen=seen(table.of(rows)))
        yield Verdict("heads", "▲" if helps else "–", answer, said, told)


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
    told = unless_shown(mark, row, Sentence(so if sampled else ""))
    yield Verdict("sampling", mark, answer, said, told)


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
    yield Verdict("question", mark, answer, said, unless_shown(mark, row, Sentence(so)))


def _families(config: Config) -> Iterator[Verdict]:
    for name in config.frontiers:
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
            "{of}. " * (len(config.frontiers) > 1)
            + "{budget count} answers' tokens: {difference points low high} points.",
            of=title(config, "frontiers", name),
        )
        others = heads.query("versus != 'sampling'")
        won = others.query(f"adjusted < {LEVEL} and difference > 0")
        beaten = won.number("difference", "count", "count") if won else "none"
        so = others.say("Heads beat {won} of {difference count count} families.", won=beaten)
        told = unless_shown(mark, row, so if others else Sentence(""), tests=len(tested))
        yield Verdict("families", mark, answer, said, told)


def _compression(config: Config) -> Iterator[Verdict]:
    if not config.compressions:
        return
    exhibits = ("table1", "variations", "table4")
    tables = [Source.read(config, paths.COMPRESSION_TABLE, exhibit=each) for each in exhibits]
    for row in tables[0].where(arm=METHOD):
        if not row.number("change"):
            continue
        name = row.first["compression"]
        mark = row.direction("change_low", "change_high")
        told = {"▲": "better", "▼": "worse", "–": "no loss is shown"}[mark]
        said = row.say(
            "{of}: {change points change_low change_high} points, {n count} questions.",
            of=title(config, "compressions", name),
        )
        study = config.compressions[name]
        once = ", taken once" if study.model else ""
        for other in tables[1].where(compression=name, arm=causal_arm(study)):
            said = other.say(f"{{said}} Causal scores{once}: {{change points}}.", said=said)
        for kept in tables[2].where(compression=name, arm="trained_on"):
            # As many steps with nothing pruned: what pruning costs, training longer aside.
            said = kept.say("{said} Trained as long, all kept: {change points}.", said=said)
        so = row.say("{whole_removed percent} fewer parameters.")
        if row.value("test_time_high") < 1:
            so = row.say("Whole test: {test_time ratio} of the time.")
        elif row.value("test_time_high") >= 1:
            so = Sentence("The whole test is not shown to be faster.")
        answer = f"{100 * row.value('ratio'):g}% of heads gone: {told}"
        yield Verdict("compression", mark, answer, said, so)


def _published(config: Config) -> Iterator[Verdict]:
    table = Source.read(config, paths.AUDIT_TABLE, ["pairs", "beyond"], paper="sprint")
    beyond, luck = table.number("beyond", "count", "sum"), table.number("pairs", "count", "luck")
    many = beyond.value > luck.value + 1.645 * np.sqrt(luck.value * (1 - LEVEL))
    said = table.say("Of {pairs count sum} best heads; luck gives {pairs count luck}.")
    answer = f"Published gains: {beyond} beat chance"
    so = "More than selection alone." if many else "Selection alone gives as many."
    yield Verdict("published", "▲" if many else "!", answer, said, Sentence(so))


def _told(rows: Sequence[Source], nothing: str, better: str, worse: str) -> tuple[str, Source, str]:
    """Return what the rows' intervals show together: mark, row to report, answer."""
    marks = [row.direction("low", "high") for row in rows]
    wins, losses = marks.count("▲"), marks.count("▼")
    mark, row = next(
        (pair for pair in zip(marks, rows, strict=True) if pair[0] != "–"), ("–", rows[0])
    )
    if wins and losses:
        return "!", row, f"{better} on {wins}, worse on {losses}"
    share = f" on {wins or losses} of {len(rows)}" if len(rows) > 1 else ""
    return mark, row, {"▲": better + share, "▼": worse + share, "–": nothing}[mark]
