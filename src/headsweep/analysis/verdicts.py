"""A run's verdicts, one per question, shown on the page and in the terminal.

A verdict says *helps* or *hurts* only if its test is significant; otherwise it says that no effect
is shown, and what the interval leaves open. A verdict on several entries of the config is corrected
for their number: the chance that it names any entry without an effect stays at 5%.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from headsweep import paths, tables
from headsweep.analysis.facts import SIGNIFICANCE, Cell, Sentence, Source
from headsweep.analysis.gains import HEADS, shown
from headsweep.analysis.powers import seen, unless_shown
from headsweep.analysis.trials import ARM_ACCURACY, METHOD, causal_arm, control
from headsweep.config import Config
from headsweep.config.compression import is_narrow
from headsweep.maps import outcomes
from headsweep.planning.titles import title
from headsweep.sprint import evaluation, methods
from headsweep.sprint.evaluation import MEAN, PAIRED
from headsweep.sprint.methods import COVER, SPRINT
from headsweep.statistics.intervals import holm
from headsweep.variants import BASE

_DIFFERENCE = Cell("difference", "points", "low", "high")
_TESTED = "order == 'ordered' and adjusted == adjusted"
"""Rows of a frontier's differences that are tested: at one number of tokens."""


@dataclass(frozen=True)
class ReportVerdict:
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


def verdicts(config: Config) -> list[ReportVerdict]:
    """Return the verdicts of a finished run, in the order of the page.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    makers = (_heads, _map, _sampling, _question, _families, _compression, _published)
    return [verdict for make in makers for verdict in make(config)]


def rival(config: Config, selector: str) -> tuple[str, int]:
    """Return the method that SPRINT is held against, "" if there is none, and SPRINT's largest N.

    The method is the selector's `versus`, or else the sampling with the highest Pass@N at that N
    (of equals the last in the table): picked afterwards, which favours sampling.
    """
    curves = Source.read(config, tables.CURVES, selector=selector).rows
    largest_n = int(curves.loc[curves["method"] == SPRINT, "n"].max())
    section = config.selectors[selector]
    if section.versus:
        names = methods.sampling(config, section.sampling)
        return names.get(section.versus, section.versus), largest_n
    samplings = curves[(curves["n"] == largest_n) & curves["method"].map(methods.is_sampling)]
    ranked = samplings.sort_values("pass_at_n", kind="stable")["method"]
    return next(reversed(ranked.tolist()), ""), largest_n


def against_sampling(config: Config, frontier: str) -> tuple[Source, int]:
    """Return how each family differs from sampling at the tokens of a frontier's tests, by any
    answer, and over how many tests these are corrected: with those of votes.
    """
    table = Source.read(config, paths.FRONTIER, frontier=frontier, table="paired")
    tested = table.query(_TESTED).where(versus="sampling")
    return tested.where(outcome="pass"), len(tested)


def _heads(config: Config) -> Iterator[ReportVerdict]:
    """Does a sweep show a head that helps when it is lost?"""
    for sweep, section in config.sweeps.items():
        table = Source.read(config, paths.CONTROLS, HEADS, sweep=sweep, table="heads")
        pruned = table.of(table.rows[table.rows["variant"] != str(BASE)])
        helps, hurts = (pruned.of(shown(pruned.rows, sign)) for sign in (1, -1))
        best = helps or pruned.of(pruned.rows.loc[[pruned.rows["gain"].idxmax()]])
        # The best is picked among all heads, so its interval is the one that holds for all.
        of_which = "Best of {heads}"
        if len(pruned) == 1:
            of_which = "One head"
        elif best.value("gain") < pruned.rows["gain"].max():
            of_which = "Best shown, of {heads}"
        named = "{subject}: " if len(config.sweeps) > 1 else ""
        said = best.say(
            named + f"{of_which}: {{gain}} points, {{questions}} questions; {{hurt}} hurt.",
            subject=title(config, "sweeps", sweep),
            gain=Cell("gain", "points", "band_low", "band_high"),
            questions=Cell("n", "count"),
            heads=pruned.number("variant", "count", "count"),
            hurt=hurts.number("variant", "count", "count"),
        )
        limit = config.decodings[section.decoding].max_new_tokens
        if helps:
            many = "1 head helps" if len(helps) == 1 else f"{len(helps)} heads help"
            told = "Its gain passes the corrected test."
            cut = pruned.rows[pruned.rows["cut_decides"].eq(True)]
            decided = pruned.of(shown(cut.assign(cut_decides=False), 1))
            if len(decided):
                told += " {others} more may come from answers that were cut."
            so = Sentence(told, others=decided.number("variant", "count", "count"))
            yield ReportVerdict("heads", "▲", f"{many} when lost", said, so)
        elif best.first["cut_decides"]:
            told = "Answers cut at {limit} tokens may make it: {gain} without them."
            so = best.say(told, limit=f"{limit:,}", gain=Cell("uncut_gain", "points"))
            yield ReportVerdict("heads", "!", "No head is shown to help when lost", said, so)
        else:
            bound = pruned.number("band_high", "points", "max")
            told = "Gains above {bound} are unlikely. {seen}"
            so = Sentence(told, bound=bound, seen=seen(pruned))
            yield ReportVerdict("heads", "–", "No head is shown to help when lost", said, so)


def _map(config: Config) -> Iterator[ReportVerdict]:
    """Does a map show a head whose loss makes right answers more likely than wrong ones?"""
    for name in config.maps:
        table = Source.read(config, paths.MAP, outcomes.HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        preference = pruned.where(outcome=outcomes.PREFERENCE)
        changes = preference or pruned.where(outcome=outcomes.SOLUTIONS)
        if not changes:
            continue
        helps = changes.query(f"adjusted < {SIGNIFICANCE} and change > 0")
        best = changes.of(changes.rows.loc[[changes.rows["change"].idxmax()]])
        matter = pruned.query(f"outcome == '{outcomes.LIKELIHOOD}' and adjusted < {SIGNIFICANCE}")
        unit = "nats" if preference else "nats a token"
        said = f"Best of {{heads}}: {{change}} {unit}, {{questions}} questions"
        said += "; {matter} matter." if pruned.where(outcome=outcomes.LIKELIHOOD) else "."
        if len(config.maps) > 1:
            said = "{subject}. " + said
        sentence = best.say(
            said,
            subject=title(config, "maps", name),
            heads=changes.number("variant", "count", "count"),
            change=Cell("change", "nats", "band_low", "band_high"),
            questions=Cell("n", "count"),
            matter=matter.number("variant", "count", "count"),
        )
        mark = "–"
        answer = "No head's loss is shown to favour right answers"
        if helps:
            mark = "▲"
            many = "1 head's" if len(helps) == 1 else f"{len(helps)} heads'"
            answer = f"{many} loss favours right answers"
        yield ReportVerdict("heads", mark, answer, sentence, _foretells(config, name))


def _foretells(config: Config, name: str) -> Sentence:
    """Say whether a map's outcomes rank measured gains, on the first questions that tell."""
    table = Source.read(config, paths.MAP, map=name, table="foretold").where(estimate="scored")
    parts = []
    looked_at = (outcomes.PREFERENCE, outcomes.LIKELIHOOD)
    for outcome in looked_at:
        row = table.where(outcome=outcome).query("low == low").jointly(len(looked_at))
        if row and row.value("low") > 0:
            correlation = Cell("correlation", "ratio")
            parts.append(row.say("{outcome} {correlation}", correlation=correlation))
    if parts:
        joined = Sentence("{first}, {second}", first=parts[0], second=parts[-1])
        return Sentence(
            "The map ranks gains (ρ): {ranks}.", ranks=joined if len(parts) > 1 else parts[0]
        )
    ranked = table.query("low == low")
    return Sentence("That it ranks gains is not shown." if ranked else "")


def _sampling(config: Config) -> Iterator[ReportVerdict]:
    """Does choosing heads beat sampling more answers?"""
    held = {}
    for name in config.selectors:
        method, most = rival(config, name)
        if method:
            row = Source.read(config, paths.PAIRED, PAIRED, selector=name)
            held[row.where(method=method, n=most)] = name, method
    if not held:
        return
    sampled = all(methods.is_sampling(method) for _, method in held.values())
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
    questions = Source.read(config, tables.ACCURACY, **names)
    against = method.removeprefix("sampling ").replace("=", " = ")
    if section.versus is None and len(section.sampling) > 1:
        against += f", best of {len(section.sampling)}, picked afterwards"
    said = row.jointly(len(held)).say(
        "{n} answers, {against}: {difference} points, {asked} questions.",
        n=Cell("n", "count"),
        against=against,
        difference=_DIFFERENCE,
        asked=questions.number("question_id", "count", "count"),
    )
    ends = {"▲": "Choosing heads is worth its training.", "–": "Sampling remains the simpler way."}
    so = ends.get(mark, "If answers can be checked, sample.")
    told = unless_shown(mark, row, Sentence(so if sampled else ""), tests=len(held))
    yield ReportVerdict("sampling", mark, answer, said, told)


def _question(config: Config) -> Iterator[ReportVerdict]:
    """Does it matter for which question heads are chosen?"""
    held = {}
    for name in config.selectors:
        table = Source.read(config, paths.EMBEDDING_VALUE, evaluation.WORTH, selector=name)
        of_sprint = table.where(method=SPRINT, questions="test", pool=evaluation.WHOLE_POOL, n=MEAN)
        held[of_sprint.where(against=evaluation.SHUFFLED)] = of_sprint.where(against=COVER)
    if not held:
        return
    mark, row, answer = _told(
        list(held),
        "The question is not shown to matter",
        "Knowing the question helps",
        "Knowing the question hurts",
    )
    chance = "p {p}" if row.value("p") < 0.001 else "p = {p}"  # the first says "< 0.001"
    said = row.jointly(len(held)).say(
        f"Against shuffled questions: {{difference}} points, {chance}.",
        difference=_DIFFERENCE,
        p=Cell("p", "p"),
    )
    fixed = held[row].jointly(len(held)).value("low") > 0
    so = "Greedy cover does worse." if fixed else "Greedy cover: no difference shown."
    told = unless_shown(mark, row, Sentence(so), tests=len(held))
    yield ReportVerdict("question", mark, answer, said, told)


def _families(config: Config) -> Iterator[ReportVerdict]:
    """Do pruned heads beat sampling, and other families, at equal tokens?"""
    for name in config.frontiers:
        table = Source.read(config, paths.FRONTIER, frontier=name, table="paired")
        heads = table.query(_TESTED).where(family="head", outcome="pass")
        against = heads.where(versus="sampling")
        if not against:
            continue
        mark = against.direction("low", "high", "adjusted")
        answers = {"▲": "Heads beat sampling", "▼": "Sampling beats heads"}
        answer = answers.get(mark, "Heads are not shown to beat sampling")
        named = "{subject}. " if len(config.frontiers) > 1 else ""
        effect = against.say(
            named + "{budget} answers' tokens: {difference} points.",
            subject=title(config, "frontiers", name),
            budget=Cell("budget", "count"),
            difference=_DIFFERENCE,
        )
        others = heads.query("versus != 'sampling'")
        consequence = Sentence("")
        if others:
            beaten = others.query(f"adjusted < {SIGNIFICANCE} and difference > 0")
            consequence = Sentence(
                "Heads beat {beaten} of {families} families.",
                beaten=beaten.number("difference", "count", "count") if beaten else "none",
                families=others.number("difference", "count", "count"),
            )
        _, tests = against_sampling(config, name)
        consequence = unless_shown(mark, against, consequence, tests=tests)
        yield ReportVerdict("families", mark, answer, effect, consequence)


def _compression(config: Config) -> Iterator[ReportVerdict]:
    """What does a compression cost in accuracy and in time?"""
    if not config.compressions:
        return
    exhibits = ("table1", "variations")
    arms, variations = (
        Source.read(config, paths.COMPRESSION_TABLE, ARM_ACCURACY, exhibit=exhibit)
        for exhibit in exhibits
    )
    for row in arms.where(arm=METHOD):
        name = row.first["compression"]
        study = config.compressions[name]
        column, beside = control(row.first)
        if not row.number(column):
            continue
        low, high = f"{column}_low", f"{column}_high"
        mark = row.direction(low, high)
        told = {"▲": "better", "▼": "worse", "–": "no loss shown"}[mark]
        if not row.number(low):
            told = "too few questions to tell"
        said = row.say(
            f"{{subject}}: {{change}} points against {beside}, {{questions}} questions.",
            subject=title(config, "compressions", name),
            change=Cell(column, "points", low, high),
            questions=Cell("n", "count"),
        )
        once = ", taken once" if study.model else ""
        causal = variations.where(compression=name, arm=causal_arm(study))
        if causal:
            change = causal.number(column, "points")
            template = f"{{said}} Causal scores{once}: {{change}}."
            said = Sentence(template, said=said, change=change)
        so = row.say("{saved} fewer parameters.", saved=Cell("whole_removed", "percent"))
        if is_narrow(row.value("test_time"), row.value("test_time_high")):
            so = row.say(
                "Test time: ×{test_time}.",
                test_time=Cell("test_time", "ratio"),
            )
        if causal and mark == "–" and row.number(low):  # a verdict is short: the page has the rest
            so = Sentence("")
        so = unless_shown(mark, row, so, ends=(low, high))
        answer = f"{100 * row.value('ratio'):g}% of heads gone: {told}"
        yield ReportVerdict("compression", mark, answer, said, so)


def _published(config: Config) -> Iterator[ReportVerdict]:
    """How many of the published gains exceed luck?"""
    wanted = ["pairs", "beyond", "luck", "luck_high", "p"]
    table = Source.read(config, paths.AUDIT_TABLE, wanted, paper="total")
    said = table.say(
        "Of {pairs} best heads; luck alone gives {luck} on average, up to {most} in 95% of draws.",
        pairs=Cell("pairs", "count"),
        luck=Cell("luck", "ratio"),
        most=Cell("luck_high", "count"),
    )
    many = table.value("beyond") > table.value("luck_high")
    so = "More than luck alone." if many else "Luck may suffice."
    answer = f"Published gains: {table.number('beyond', 'count')} beat chance"
    yield ReportVerdict("published", "▲" if many else "!", answer, said, Sentence(so))


def _told(rows: Sequence[Source], nothing: str, better: str, worse: str) -> tuple[str, Source, str]:
    """Return what several entries' intervals show together: mark, row to report, answer.

    An entry counts where Holm's test over all of them finds a difference. Reported is the one that
    is shown best, or else the first.
    """
    marks = _marks(rows)
    wins, losses = marks.count("▲"), marks.count("▼")
    first = int(np.argmin(_p(rows))) if wins or losses else 0
    mark, row = marks[first], rows[first]
    if wins and losses:
        return "!", row, f"{better} on {wins}, worse on {losses}"
    share = f" on {wins or losses} of {len(rows)}" if len(rows) > 1 else ""
    return mark, row, {"▲": better + share, "▼": worse + share, "–": nothing}[mark]


def _marks(rows: Sequence[Source]) -> list[str]:
    """Return each entry's mark: its direction, if Holm's test over all entries finds one."""
    adjusted = holm(_p(rows))
    return [
        row.direction("low", "high") if p < SIGNIFICANCE else "–"
        for row, p in zip(rows, adjusted, strict=True)
    ]


def _p(rows: Sequence[Source]) -> np.ndarray:
    """Return the two-sided p-values that belong to the rows' 95% intervals, by normal errors."""
    low, high = (np.array([row.value(end) for row in rows]) for end in ("low", "high"))
    half = np.maximum((high - low) / 2, np.finfo(float).tiny)
    return 2 * ndtr(-ndtri(1 - SIGNIFICANCE / 2) * np.abs(low + high) / 2 / half)
