"""`headsweep peek`: the heads of a run's sweeps so far, while it answers.

It is a look, not a verdict: it makes no test, and says of no head that it helps. It reads tables
and journals of the store, takes no lock and writes nothing, so engines may be at work.

A group of heads answers together, and the next group begins when it is done. When a group has just
begun, few questions are answered by the heads of all groups. So finished heads and those at work
are shown apart, each on the questions that all of them, and the base model, have answered.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.answers.work import Work
from headsweep.config import Config, load
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files import paths
from headsweep.files.safe_files import read_table
from headsweep.files.tables import QUESTIONS
from headsweep.grading.matrix import accuracy_matrix, grade_answers
from headsweep.results.run import CONFIG, find
from headsweep.statistics.anytime import anytime_interval
from headsweep.store.batches import pool
from headsweep.text import aligned, percent, points
from headsweep.variants import BASE, Variant

_TITLES = ("variant", "right", "gained", "lost", "gain", "from", "to")
_NOTES = """\
gain, from, to: points; intervals of 95% for all heads of a sweep together, at any time of looking
(Waudby-Smith and Ramdas 2024), for questions like those answered. Where some are left, these are no
random part: questions come in the order of their names, and of those at work at once short answers
end first, as a rule. The rest may tell another story."""


def look(run: str | None) -> str:
    """Return what is known so far of a run's sweeps, as text.

    Args:
        run: its folder or its name under results/; None: the only unfinished one.

    Raises:
        ConfigError: there is no such run, none or several are unfinished, or it has no sweep.
        TableError: a table is damaged.
        GradingError: no grading worker can be started.
    """
    folder = find(run or _only_unfinished())
    config = load(folder / CONFIG)
    if not config.sweeps:
        raise ConfigError(f"run {config.run!r} has no sweeps; name a run whose config has some")
    with contextlib.chdir(folder.absolute().parents[1]):
        looks = [_sweep(config, name) for name in config.sweeps]
    paragraphs = [f"run {config.run!r}: a look, not a verdict", *(look.text for look in looks)]
    if any(look.has_table for look in looks):
        paragraphs.append(_NOTES)
    return "\n\n".join(paragraphs)


def _only_unfinished() -> str:
    """Return the folder of the only run here whose sweeps lack answers.

    Raises:
        ConfigError: there is none, or there are several.
    """
    folders = [file.parent for file in sorted(Path(paths.RESULTS).glob("*/config.json"))]
    unfinished = [folder for folder in folders if _lacks_answers(folder)]
    if len(unfinished) == 1:
        return str(unfinished[0])
    there = ", ".join(folder.name for folder in unfinished or folders) or "none"
    which = "unfinished are" if unfinished else "none is unfinished; there are"
    raise ConfigError(f"which run? Name one, as in `headsweep peek NAME`; {which}: {there}")


def _lacks_answers(folder: Path) -> bool:
    """Return whether a sweep of a run lacks tables; a run that cannot be read is no candidate."""
    try:
        config = load(folder / CONFIG)
    except HeadsweepError:
        return False
    return any(
        not _work(config, name).output(variant).exists()
        for name in config.sweeps
        for variant in _shown(config, name)
    )


def _work(config: Config, sweep: str) -> Work:
    section = config.sweeps[sweep]
    return Work(config, section.model, section.decoding, section.questions)


def _shown(config: Config, sweep: str) -> list[Variant]:
    return [BASE, *pool(config, config.sweeps[sweep])]


class _Look(NamedTuple):
    """What is known of a sweep so far."""

    text: str
    has_table: bool


def _sweep(config: Config, name: str) -> _Look:
    """Return what is known of a sweep so far."""
    work = _work(config, name)
    title = f"sweep {name}: {work.model}, {work.decoding}, {work.questions}"
    file = Path(QUESTIONS.path.format(**work.keys))
    if not file.exists():
        return _Look(f"{title}: its questions are not drawn yet", has_table=False)
    questions = read_table(file, QUESTIONS)
    answers = {variant: work.so_far(variant).to_pandas() for variant in _shown(config, name)}
    done = sum(map(len, answers.values()))
    total = len(questions) * len(answers)
    heads = [variant for variant in answers if variant != BASE]
    begun = [head for head in heads if len(answers[head])]
    lines = [
        f"{title}: {len(begun)} of {len(heads)} heads have begun, {done:,} of {total:,} answers "
        f"({percent(done / total)})"
    ]
    has_table = False
    finished = [head for head in begun if len(answers[head]) == len(questions)]
    under_way = [head for head in begun if head not in finished]
    for kind, members in (("finished", finished), ("under way", under_way)):
        if not members:
            continue
        compared = {variant: answers[variant] for variant in (BASE, *members)}
        common = set.intersection(*(set(table["question_id"]) for table in compared.values()))
        common_questions = questions[questions["question_id"].isin(common)]
        lines.append(
            f"\n{kind}: {len(common_questions):,} of {len(questions):,} questions, which the base "
            f"model and all heads below have answered"
        )
        if common_questions.empty:
            lines.append(", ".join(map(str, members)))
            continue
        rules = config.grading_of(name)
        z = _right(common_questions, compared, config.questions[work.questions].grader_name, rules)
        lines.append(_table(z, len(heads)))
        has_table = True
    return _Look("\n".join(lines), has_table)


def _right(
    questions: pd.DataFrame, answers: Mapping[Variant, pd.DataFrame], grader_name: str, preset: str
) -> pd.DataFrame:
    """Return who has which question right: 0 or 1, a row a question, a column a variant."""
    given = {
        str(variant): table[table["question_id"].isin(questions["question_id"])]
        for variant, table in answers.items()
    }
    graded = grade_answers(questions, given, grader_name, preset)
    return accuracy_matrix(graded, questions)[[*given]]


def _table(z: pd.DataFrame, heads: int) -> str:
    """Return the table of a matrix whose first column is the base model's, by gain."""
    base, *pruned = z.columns
    change = z[pruned].sub(z[base], axis=0)
    gained, lost = (change > 0).sum(), (change < 0).sum()
    low, high = anytime_interval(gained.to_numpy(), lost.to_numpy(), len(z), heads)
    table = pd.DataFrame({"gained": gained, "lost": lost, "gain": change.mean()})
    table = table.assign(right=z[pruned].mean(), low=low, high=high)
    ordered: Any = table.sort_values("gain", ascending=False, kind="stable").itertuples()
    rows = [_TITLES, (base, percent(z[base].mean()), *[""] * 5)]
    for head in ordered:
        counts = (f"{head.gained:,}", f"{head.lost:,}")
        ends = (points(head.low), points(head.high))
        rows.append((head.Index, percent(head.right), *counts, points(head.gain), *ends))
    return aligned(rows, left=1)
