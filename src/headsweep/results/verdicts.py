"""A run's verdicts in words, one per question, shown on the page and in the terminal.

What is shown is decided in `found`. A verdict says *helps* or *hurts* only of what is shown there;
otherwise it says that no effect is shown, and what the interval leaves open. What the test could
have seen belongs before a run (`headsweep.statistics.power`).
"""

from dataclasses import dataclass

from headsweep.config import Config
from headsweep.config.titles import title
from headsweep.experiments.maps import outcomes
from headsweep.experiments.sprint import methods
from headsweep.files import tables
from headsweep.results import found
from headsweep.results.comparisons import (
    Comparison,
    Together,
    against_sampling,
    with_joint_interval,
    with_rivals,
)
from headsweep.results.facts import Cell, Number, Sentence, Source, p_template
from headsweep.results.found import CostlyPart
from headsweep.results.marks import Mark
from headsweep.results.truncation import NOTABLE_SHARE
from headsweep.statistics import SIGNIFICANCE
from headsweep.store.layout import Store
from headsweep.text import plural

_DIFFERENCE = Cell("difference", "points", "low", "high")


@dataclass(frozen=True)
class ReportVerdict:
    """The answer to one question."""

    section: str
    """Anchor of the page's section with its evidence."""
    mark: Mark
    answer: str
    effect: Sentence
    so: Sentence

    def __str__(self) -> str:
        return f"{self.answer}. {self.effect} {self.so}".strip()  # the last may be empty


def verdicts(store: Store) -> list[ReportVerdict]:
    """Return the verdicts of a finished run, in the order of the page.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    config = store.config
    told = [_heads(config, sweep) for sweep in found.heads(store)]
    told += [_mapped_heads(config, one) for one in found.mapped_heads(store)]
    rivals = with_rivals(store)
    if rivals.comparisons:
        told.append(_sampling(store, rivals))
    shuffled = found.shuffled_questions(store)
    if shuffled:
        told.append(_question(shuffled))
    told += [_families(store, family) for family in found.head_families(store)]
    told += [_compression(config, compressed) for compressed in found.compressions(store)]
    if config.papers:
        told.append(_published(found.published_gains(store)))
    return told


def _heads(config: Config, sweep: found.SweptHeads) -> ReportVerdict:
    """Does a sweep show a head that helps when it is lost?"""
    pruned, best = sweep.pruned, sweep.best
    # The best is picked among all heads, so its interval is the one that holds for all.
    of_which = "Best of {heads}" if sweep.best_is_largest else "Best shown, of {heads}"
    if len(pruned) == 1:
        of_which = "One head"
    named = "{subject}: " if len(config.sweeps) > 1 else ""
    counts = f"{{questions}} {plural('question', best.value('n'))}; {{hurt}} hurt"
    cut, cut_answers = _cut(sweep)
    effect = best.say(
        f"{named}{of_which}: {{gain}} points, {counts}{cut_answers}.",
        subject=title(config, "sweeps", sweep.sweep),
        gain=Cell("gain", "points", "band_low", "band_high"),
        questions=Cell("n", "count"),
        heads=pruned.number("variant", "count", "count"),
        hurt=sweep.hurting.number("variant", "count", "count"),
        cut=cut,
    )
    by_cut = sweep.by_cut_answers
    if sweep.mark is Mark.BETTER:
        many = "1 head helps" if len(sweep.helping) == 1 else f"{len(sweep.helping)} heads help"
        answer = f"{many} when lost"
        told = "Its gain passes the corrected test."
        if by_cut:
            told += " {others} more may come from cut answers."
        so = Sentence(told, others=by_cut.number("variant", "count", "count"))
    elif sweep.mark is Mark.LOOK:
        many = "1 head's gain" if len(by_cut) == 1 else f"{len(by_cut)} heads' gains"
        answer = f"{many} may come from cut answers"
        so = by_cut.say("Without cut answers {gain}.", gain=Cell("uncut_gain", "points"))
    else:
        answer = "No head is shown to help when lost"
        so = _left_open(best, pruned)
    return ReportVerdict("heads", sweep.mark, answer, effect, so)


def _cut(sweep: found.SweptHeads) -> tuple[Number, str]:
    """Return the share of answers that were cut at the limit of tokens, of the base model or of all
    heads, whichever is larger, and what is said of it: nothing of a small one.
    """
    of_base = sweep.base.number("truncated", "percent")
    of_heads = sweep.pruned.number("truncated", "percent", "mean")
    if max(of_base.value, of_heads.value) <= NOTABLE_SHARE:
        return of_base, ""
    if of_base.value > of_heads.value:
        return of_base, "; {cut} of the base model's answers cut"
    return of_heads, "; {cut} of answers cut"


def _left_open(best: Source, pruned: Source) -> Sentence:
    """Say which gains are unlikely, where no head is shown to help."""
    if best.value("band_low") > 0:  # the exact test may ask for more than the interval
        told = f"Over all heads {p_template(best.value('adjusted'))}."
        return best.say(told, p=Cell("adjusted", "p"))
    bound = pruned.number("band_high", "points", "max")
    return Sentence("Gains above {bound} are unlikely.", bound=bound)


def _mapped_heads(config: Config, mapped: found.MappedHeads) -> ReportVerdict:
    """Does a map show a head whose loss favours what is right?"""
    best = mapped.best
    unit = outcomes.UNIT_OF_OUTCOME[best.first["outcome"]]
    of_which = "Best of {heads}" if mapped.best_is_largest else "Best shown, of {heads}"
    asked = plural("question", best.value("n"))
    said = f"{of_which}: {{change}} {unit}, {{questions}} {asked}"
    if not mapped.helping and mapped.changes.query(f"adjusted < {SIGNIFICANCE} and change > 0"):
        said += "; noise in its layer: {noise}"
    if mapped.likelihood:
        said += "; {matter} matter"
        if mapped.placebos:
            said += f" beyond {_whose_noise(mapped.likelihood, mapped.placebos)}"
    named = "{subject}. " if len(config.maps) > 1 else ""
    effect = best.say(
        f"{named}{said}.",
        subject=title(config, "maps", mapped.map),
        heads=mapped.changes.number("variant", "count", "count"),
        change=Cell("change", unit, "band_low", "band_high"),
        questions=Cell("n", "count"),
        noise=mapped.noise.number("noise", unit),
        matter=mapped.mattering.number("variant", "count", "count"),
    )
    if mapped.helping:
        many = "1 head's" if len(mapped.helping) == 1 else f"{len(mapped.helping)} heads'"
        does = "favours right answers" if mapped.prefers else "makes reference solutions likelier"
        answer = f"{many} loss {does}"
    else:
        favoured = "right answers" if mapped.prefers else "reference solutions"
        answer = f"No head's loss is shown to favour {favoured}"
    return ReportVerdict("heads", mapped.mark, answer, effect, _foretells(mapped))


def _whose_noise(heads: Source, placebos: Source) -> str:
    """Say how strong the noise is that a map's heads are held against."""
    if len(placebos) == len(heads):
        return "noise as strong as each"
    in_layer = placebos.rows.groupby("layer").size().max()
    return "one head's noise" if in_layer == 1 else f"{in_layer} heads' noise"


def _foretells(mapped: found.MappedHeads) -> Sentence:
    """Say whether a map's outcomes rank measured gains, on the first questions that tell."""
    if not mapped.ranking:
        return Sentence("That it ranks gains is not shown." if mapped.is_ranked else "")
    correlation = Cell("correlation", "ratio")
    parts = [row.say("{outcome} {correlation}", correlation=correlation) for row in mapped.ranking]
    joined = Sentence("{first}, {second}", first=parts[0], second=parts[-1])
    ranks = joined if len(parts) > 1 else parts[0]
    return Sentence("The map ranks gains (ρ): {ranks}.", ranks=ranks)


def _sampling(store: Store, together: Together) -> ReportVerdict:
    """Does choosing heads beat sampling more answers?"""
    rivals = [comparison.row.first["method"] for comparison in together.comparisons]
    sampled = all(map(methods.is_sampling, rivals))
    other = "sampling" if sampled else "the other method"
    answer = _joint_answer(
        together,
        f"Choosing heads is not shown to beat {other}",
        f"Choosing heads beats {other}",
        f"{other[0].upper()}{other[1:]} beats choosing heads",
    )
    reported = together.reported
    against = reported.row.first["method"].removeprefix("sampling ").replace("=", " = ")
    if reported.picked_of > 1:
        against += f", best of {reported.picked_of}, picked afterwards"
    answers = plural("answer", reported.row.value("n"))
    asked = _questions_of(store, reported)
    effect = reported.row.jointly(together.tests).say(
        f"{{n}} {answers}, {{against}}: {{difference}} points, {{asked}} "
        f"{plural('question', asked.value)}.",
        n=Cell("n", "count"),
        against=against,
        difference=_DIFFERENCE,
        asked=asked,
    )
    so = Sentence(_what_to_do(together) if sampled else "")
    return ReportVerdict("sampling", together.joint_mark, answer, effect, so)


def _questions_of(store: Store, comparison: Comparison) -> Number:
    """Return the number of a selector's test questions."""
    section = store.config.selectors[comparison.entry]
    asked = {"model": section.model, "decoding": section.decoding, "questions": section.test}
    return Source.read(store, tables.ACCURACY, **asked).number("question_id", "count", "count")


def _what_to_do(together: Together) -> str:
    """Say which of choosing and sampling to take. A verdict is short: of a picked sampling that it
    is simpler is said on the page.
    """
    match together.joint_mark:
        case Mark.BETTER:
            there = " there" if Mark.NOT_SHOWN in together.marks else ""
            return f"If answers can be checked, choose heads{there}."
        case Mark.WORSE:
            return "If answers can be checked, sample."
        case Mark.NOT_SHOWN:
            return "Sampling remains the simpler way." if together.reported.picked_of == 1 else ""
        case Mark.LOOK:
            return "Neither is better throughout."


def _question(shuffled: found.Shuffled) -> ReportVerdict:
    """Does it matter for which question heads are chosen?"""
    together = shuffled.together
    answer = _joint_answer(
        together,
        "The question is not shown to matter",
        "Knowing the question helps",
        "Knowing the question hurts",
    )
    p = together.p(together.reported)
    effect = together.reported.row.jointly(together.tests).say(
        f"Against shuffled questions: {{difference}} points, {p_template(p.value)}.",
        difference=_DIFFERENCE,
        p=p,
    )
    of_cover = {
        Mark.BETTER: "Greedy cover does worse.",
        Mark.WORSE: "Greedy cover does better.",
        Mark.NOT_SHOWN: "Greedy cover: no difference shown.",
    }
    so = Sentence(of_cover[shuffled.cover])
    return ReportVerdict("question", together.joint_mark, answer, effect, so)


def _families(store: Store, family: found.HeadFamily) -> ReportVerdict:
    """Do pruned heads beat sampling, and other families, at equal tokens?"""
    answers = {
        Mark.BETTER: "Heads beat sampling",
        Mark.WORSE: "Sampling beats heads",
        Mark.NOT_SHOWN: "Heads are not shown to beat sampling",
    }
    against = family.sampling
    tested = against_sampling(store, family.frontier)
    named = "{subject}. " if len(store.config.frontiers) > 1 else ""
    of_answers = "answer's" if against.value("budget") == 1 else "answers'"
    effect = with_joint_interval(against, tested).say(
        f"{named}{{budget}} {of_answers} tokens: {{difference}} points.",
        subject=title(store.config, "frontiers", family.frontier),
        budget=Cell("budget", "count"),
        difference=_DIFFERENCE,
    )
    so = Sentence("")
    if family.others:
        families = "family" if len(family.others) == 1 else "families"
        beaten = family.beaten
        so = Sentence(
            f"Heads beat {{beaten}} of {{families}} {families}.",
            beaten=beaten.number("difference", "count", "count") if beaten else "none",
            families=family.others.number("difference", "count", "count"),
        )
    return ReportVerdict("families", family.mark, answers[family.mark], effect, so)


def _compression(config: Config, compressed: found.Compressed) -> ReportVerdict:
    """What does a compression cost in accuracy and in time?"""
    row = compressed.row
    study = config.compressions[compressed.compression]
    outcomes_in_words = {
        Mark.BETTER: "better",
        Mark.WORSE: "worse",
        Mark.NOT_SHOWN: "no loss shown",
    }
    outcome = outcomes_in_words[compressed.mark]
    if not compressed.is_tested:
        outcome = "too few questions to tell"
    asked = plural("question", row.value("n"))
    seeds = ", one seed" if len(study.seeds) == 1 else ""
    column = compressed.column
    effect = row.say(
        f"{{subject}}: {{change}} points against {compressed.beside}, {{questions}} "
        f"{asked}{seeds}.",
        subject=title(config, "compressions", compressed.compression),
        change=Cell(column, "points", f"{column}_low", f"{column}_high"),
        questions=Cell("n", "count"),
    )
    if compressed.causal and compressed.mark is not Mark.NOT_SHOWN:  # the page has the rest
        once = ", taken once" if study.model else ""
        change = compressed.causal.number(column, "points")
        effect = Sentence(
            f"{{effect}} Causal scores{once}: {{change}}.", effect=effect, change=change
        )
    so = _costly_part(compressed) if compressed.mark is Mark.WORSE else _saved(compressed)
    answer = f"{100 * compressed.share_removed:.0f}% of heads gone: {outcome}"
    return ReportVerdict("compression", compressed.mark, answer, effect, so)


_COSTLY_PARTS = {
    CostlyPart.BOTH: "Removal and distillation both cost",
    CostlyPart.REMOVAL: "Removal costs",
    CostlyPart.DISTILLATION: "Distillation costs",
    CostlyPart.NOT_SHOWN: "Which part costs is not shown",
}


def _costly_part(compressed: found.Compressed) -> Sentence:
    """Say which part of a compression costs."""
    part = compressed.costly_part
    if part is CostlyPart.UNTESTED:
        return Sentence("The teacher's part is untested.")
    without = Cell("change_trained", "points")
    told = f"{_COSTLY_PARTS[part]}: without a teacher {{change}}."
    return compressed.without_teacher.say(told, change=without)


def _saved(compressed: found.Compressed) -> Sentence:
    """Say what a compression saves: time where that is surely known, or else parameters."""
    row = compressed.row
    if compressed.time_is_known:
        return row.say("Test time: ×{test_time}.", test_time=Cell("test_time", "ratio"))
    fewer = row.number("whole_removed", "percent")
    return Sentence("{fewer} fewer parameters.", fewer=fewer) if fewer else Sentence("")


def _published(gains: found.PublishedGains) -> ReportVerdict:
    """How many of the published gains exceed luck?"""
    effect = gains.row.say(
        "{beyond} of {pairs} best heads pass alone; luck gives {luck} on average, up to {most} in "
        "95% of draws.",
        beyond=Cell("beyond", "count"),
        pairs=Cell("pairs", "count"),
        luck=Cell("luck", "ratio"),
        most=Cell("luck_high", "count"),
    )
    if gains.mark is Mark.BETTER:
        answer = "Published gains: more than luck"
        so = Sentence("")
    else:
        answer = "Published gains: luck may suffice"
        # Of 25 simulated tables with such heads none had more than luck.
        so = Sentence("Heads' specialities of 3 points stay unseen.")
    return ReportVerdict("published", gains.mark, answer, effect, so)


def _joint_answer(together: Together, nothing: str, better: str, worse: str) -> str:
    """Say what several entries' comparisons show together."""
    wins, losses = (together.marks.count(mark) for mark in (Mark.BETTER, Mark.WORSE))
    share = f" on {wins or losses} of {len(together.marks)}" if len(together.marks) > 1 else ""
    match together.joint_mark:
        case Mark.LOOK:
            return f"{better} on {wins}, worse on {losses}"
        case Mark.BETTER:
            return better + share
        case Mark.WORSE:
            return worse + share
        case Mark.NOT_SHOWN:
            return nothing
