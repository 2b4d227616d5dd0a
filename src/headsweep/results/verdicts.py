"""A run's verdicts, one per question, shown on the page and in the terminal.

A verdict says *helps* or *hurts* only if its test is significant; otherwise it says that no effect
is shown, and what the interval leaves open. What the test could have seen belongs before a run
(`headsweep.statistics.power`). A verdict on several entries of the config is corrected for their
number: the chance that it names any entry without an effect stays at 5%.
"""

from collections.abc import Iterator

from headsweep.config import Config
from headsweep.config.compression import is_narrow
from headsweep.config.experiments import METHOD
from headsweep.config.titles import title
from headsweep.experiments.sprint import evaluation, methods
from headsweep.experiments.sprint.evaluation import MEAN
from headsweep.experiments.sprint.methods import COVER, SPRINT
from headsweep.files import paths, tables
from headsweep.results.comparisons import (
    TESTED_AT_BUDGET,
    Comparison,
    Together,
    against_sampling,
    with_joint_interval,
    with_rivals,
)
from headsweep.results.compression_results import ARM_ACCURACY, causal_arm, control
from headsweep.results.facts import Cell, Number, Sentence, Source, p_template, widened
from headsweep.results.gains import HEADS, shown, shown_by_cut_answers
from headsweep.results.map_verdicts import map_verdicts
from headsweep.results.report_verdict import ReportVerdict
from headsweep.results.truncation import NOTABLE_SHARE
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import plural
from headsweep.variants import BASE

_DIFFERENCE = Cell("difference", "points", "low", "high")


def verdicts(config: Config) -> list[ReportVerdict]:
    """Return the verdicts of a finished run, in the order of the page.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    makers = (_heads, map_verdicts, _sampling, _question, _families, _compression, _published)
    return [verdict for make in makers for verdict in make(config)]


def _heads(config: Config) -> Iterator[ReportVerdict]:
    """Does a sweep show a head that helps when it is lost?"""
    for sweep in config.sweeps:
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
        counts = f"{{questions}} {plural('question', best.value('n'))}; {{hurt}} hurt"
        cut, cut_answers = _cut(table, pruned)
        said = best.say(
            f"{named}{of_which}: {{gain}} points, {counts}{cut_answers}.",
            subject=title(config, "sweeps", sweep),
            gain=Cell("gain", "points", "band_low", "band_high"),
            questions=Cell("n", "count"),
            heads=pruned.number("variant", "count", "count"),
            hurt=hurts.number("variant", "count", "count"),
            cut=cut,
        )
        by_cut = pruned.of(shown_by_cut_answers(pruned.rows, 1))
        if helps:
            many = "1 head helps" if len(helps) == 1 else f"{len(helps)} heads help"
            so = "Its gain passes the corrected test."
            if by_cut:
                so += " {others} more may come from cut answers."
            others = by_cut.number("variant", "count", "count")
            yield ReportVerdict(
                "heads", "▲", f"{many} when lost", said, Sentence(so, others=others)
            )
        elif by_cut:
            many = "1 head's gain" if len(by_cut) == 1 else f"{len(by_cut)} heads' gains"
            without = by_cut.say("Without cut answers {gain}.", gain=Cell("uncut_gain", "points"))
            yield ReportVerdict("heads", "!", f"{many} may come from cut answers", said, without)
        else:
            none_helps = "No head is shown to help when lost"
            yield ReportVerdict("heads", "–", none_helps, said, _left_open(best, pruned))


def _cut(table: Source, pruned: Source) -> tuple[Number, str]:
    """Return the share of answers that were cut at the limit of tokens, of the base model or of all
    heads, whichever is larger, and what is said of it: nothing of a small one.
    """
    of_base = table.where(variant=str(BASE)).number("truncated", "percent")
    of_heads = pruned.number("truncated", "percent", "mean")
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


def _sampling(config: Config) -> Iterator[ReportVerdict]:
    """Does choosing heads beat sampling more answers?"""
    together = with_rivals(config)
    if not together.comparisons:
        return
    rivals = [comparison.row.first["method"] for comparison in together.comparisons]
    sampled = all(map(methods.is_sampling, rivals))
    other = "sampling" if sampled else "the other method"
    mark, answer = _joint_answer(
        together,
        f"Choosing heads is not shown to beat {other}",
        f"Choosing heads beats {other}",
        f"{other[0].upper()}{other[1:]} beats choosing heads",
    )
    reported = together.reported
    section = config.selectors[reported.entry]
    questions = Source.read(
        config,
        tables.ACCURACY,
        model=section.model,
        decoding=section.decoding,
        questions=section.test,
    )
    against = reported.row.first["method"].removeprefix("sampling ").replace("=", " = ")
    if reported.picked_of > 1:
        against += f", best of {reported.picked_of}, picked afterwards"
    answers = plural("answer", reported.row.value("n"))
    of_test = plural("question", len(questions))
    said = reported.row.jointly(together.tests).say(
        f"{{n}} {answers}, {{against}}: {{difference}} points, {{asked}} {of_test}.",
        n=Cell("n", "count"),
        against=against,
        difference=_DIFFERENCE,
        asked=questions.number("question_id", "count", "count"),
    )
    # A verdict is short: of a picked sampling that it is simpler is said on the page.
    ends = {
        "▲": "If answers can be checked, choose heads.",
        "▼": "If answers can be checked, sample.",
        "–": "Sampling remains the simpler way." if reported.picked_of == 1 else "",
        "!": "Neither is better throughout.",
    }
    if mark == "▲" and "–" in together.marks:
        ends["▲"] = "If answers can be checked, choose heads there."
    so = Sentence(ends[mark] if sampled else "")
    yield ReportVerdict("sampling", mark, answer, said, so)


def _question(config: Config) -> Iterator[ReportVerdict]:
    """Does it matter for which question heads are chosen?"""
    shuffled = []
    cover = {}
    for name in config.selectors:
        table = Source.read(config, paths.EMBEDDING_VALUE, evaluation.TESTED, selector=name)
        of_sprint = table.where(method=SPRINT, n=MEAN)
        shuffled.append(Comparison(name, of_sprint.where(against=evaluation.SHUFFLED)))
        cover[name] = of_sprint.where(against=COVER)
    if not shuffled:
        return
    together = Together(shuffled)
    mark, answer = _joint_answer(
        together,
        "The question is not shown to matter",
        "Knowing the question helps",
        "Knowing the question hurts",
    )
    reported = together.reported
    p = together.p(reported)
    said = reported.row.jointly(together.tests).say(
        f"Against shuffled questions: {{difference}} points, {p_template(p.value)}.",
        difference=_DIFFERENCE,
        p=p,
    )
    ends = {
        "▲": "Greedy cover does worse.",
        "▼": "Greedy cover does better.",
        "–": "Greedy cover: no difference shown.",
    }
    fixed = cover[reported.entry].jointly(together.tests).direction("low", "high", "adjusted")
    yield ReportVerdict("question", mark, answer, said, Sentence(ends[fixed]))


def _families(config: Config) -> Iterator[ReportVerdict]:
    """Do pruned heads beat sampling, and other families, at equal tokens?"""
    for name in config.frontiers:
        table = Source.read(config, paths.FRONTIER, frontier=name, table="paired")
        heads = table.query(TESTED_AT_BUDGET).where(family="head", outcome="pass")
        against = heads.where(versus="sampling")
        if not against:
            continue
        mark = against.direction("low", "high", "adjusted")
        answers = {"▲": "Heads beat sampling", "▼": "Sampling beats heads"}
        answer = answers.get(mark, "Heads are not shown to beat sampling")
        tested = against_sampling(config, name)
        named = "{subject}. " if len(config.frontiers) > 1 else ""
        of_answers = "answer's" if against.value("budget") == 1 else "answers'"
        effect = with_joint_interval(against, tested).say(
            f"{named}{{budget}} {of_answers} tokens: {{difference}} points.",
            subject=title(config, "frontiers", name),
            budget=Cell("budget", "count"),
            difference=_DIFFERENCE,
        )
        others = heads.query("versus != 'sampling'")
        consequence = Sentence("")
        if others:
            beaten = others.query(f"adjusted < {SIGNIFICANCE} and difference > 0")
            family = "family" if len(others) == 1 else "families"
            consequence = Sentence(
                f"Heads beat {{beaten}} of {{families}} {family}.",
                beaten=beaten.number("difference", "count", "count") if beaten else "none",
                families=others.number("difference", "count", "count"),
            )
        yield ReportVerdict("families", mark, answer, effect, consequence)


def _compression(config: Config) -> Iterator[ReportVerdict]:
    """What does a compression cost in accuracy and in time?"""
    if not config.compressions:
        return
    exhibits = ("table1", "table4", "variations")
    arms, ablation, variations = (
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
        outcome = {"▲": "better", "▼": "worse", "–": "no loss shown"}[mark]
        if not row.number(low):
            outcome = "too few questions to tell"
        asked = plural("question", row.value("n"))
        seeds = ", one seed" if len(study.seeds) == 1 else ""
        effect = row.say(
            f"{{subject}}: {{change}} points against {beside}, {{questions}} {asked}{seeds}.",
            subject=title(config, "compressions", name),
            change=Cell(column, "points", low, high),
            questions=Cell("n", "count"),
        )
        causal = variations.where(compression=name, arm=causal_arm(study))
        if causal and mark != "–":  # a verdict is short: the page has the rest
            once = ", taken once" if study.model else ""
            template = f"{{effect}} Causal scores{once}: {{change}}."
            change = causal.number(column, "points")
            effect = Sentence(template, effect=effect, change=change)
        so = _costly_part(ablation.where(compression=name)) if mark == "▼" else _saved(row)
        gone = row.value("heads_removed") / row.value("heads")  # less than the ratio if it stopped
        answer = f"{100 * gone:.0f}% of heads gone: {outcome}"
        yield ReportVerdict("compression", mark, answer, effect, so)


def _costly_part(ablation: Source) -> Sentence:
    """Say which part of a compression costs, given its rows of Table 4.

    The arm `pruning_only` removes as many heads and trains as long, without a teacher. Its change
    from training as long with all heads is removal's, what the method differs from it is
    distillation's. Both are tested together (Bonferroni), so that the chance of naming a part that
    costs nothing stays at 5%.
    """
    alone = ablation.where(arm="pruning_only")
    if not alone or not alone.number("change_trained_low") or not alone.number("gap_low"):
        return Sentence("The teacher's part is untested.")
    parts = 2
    _, highest = widened(
        alone.value("change_trained_low"), alone.value("change_trained_high"), parts
    )
    lowest, _ = widened(alone.value("gap_low"), alone.value("gap_high"), parts)
    removal_costs = highest < 0
    distillation_costs = lowest > 0  # without it, accuracy is higher
    if removal_costs and distillation_costs:
        told = "Removal and distillation both cost"
    elif removal_costs:
        told = "Removal costs"
    elif distillation_costs:
        told = "Distillation costs"
    else:
        told = "Which part costs is not shown"
    without = Cell("change_trained", "points")
    return alone.say(f"{told}: without a teacher {{change}}.", change=without)


def _saved(row: Source) -> Sentence:
    """Say what a compression saves: time where that is surely known, or else parameters."""
    if is_narrow(row.value("test_time"), row.value("test_time_high")):
        return row.say("Test time: ×{test_time}.", test_time=Cell("test_time", "ratio"))
    fewer = row.number("whole_removed", "percent")
    return Sentence("{fewer} fewer parameters.", fewer=fewer) if fewer else Sentence("")


def _published(config: Config) -> Iterator[ReportVerdict]:
    """How many of the published gains exceed luck?"""
    if not config.papers:
        return
    wanted = ["pairs", "beyond", "luck", "luck_high", "p"]
    table = Source.read(config, paths.AUDIT_TABLE, wanted, paper="total")
    said = table.say(
        "{beyond} of {pairs} best heads pass alone; luck gives {luck} on average, up to {most} in "
        "95% of draws.",
        beyond=Cell("beyond", "count"),
        pairs=Cell("pairs", "count"),
        luck=Cell("luck", "ratio"),
        most=Cell("luck_high", "count"),
    )
    many = table.value("beyond") > table.value("luck_high")
    answer = "Published gains: more than luck" if many else "Published gains: luck may suffice"
    # Of 25 simulated tables with such heads none had more than luck.
    unseen = Sentence("" if many else "Heads' specialities of 3 points stay unseen.")
    yield ReportVerdict("published", "▲" if many else "!", answer, said, unseen)


def _joint_answer(together: Together, nothing: str, better: str, worse: str) -> tuple[str, str]:
    """Return what several entries' comparisons show together: mark and answer."""
    marks = together.marks
    wins, losses = marks.count("▲"), marks.count("▼")
    if wins and losses:
        return "!", f"{better} on {wins}, worse on {losses}"
    if not wins and not losses:
        return "–", nothing
    share = f" on {wins or losses} of {len(marks)}" if len(marks) > 1 else ""
    return ("▲", better + share) if wins else ("▼", worse + share)
