"""`headsweep peek`: the heads of a run's sweeps so far, while it answers.

It is a look, not a verdict: it makes no test, and says of no head that it helps. It reads tables
and journals of the store, takes no lock and writes nothing, so engines may be at work.

A group of heads answers together, and the next group begins when it is done. When a group has just
begun, few questions are answered by the heads of all groups. So finished heads and those at work
are shown apart, each on the questions that all of them, and the base model, have answered.
"""

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.answers.work import Work
from headsweep.config import Config, load
from headsweep.errors import ConfigError, HeadsweepError
from headsweep.files import paths
from headsweep.files.safe_files import read_table
from headsweep.files.tables import ANSWERS, QUESTIONS
from headsweep.grading.matrix import accuracy_matrix, grade_answers
from headsweep.results.run import CONFIG, find, report_of, runs_here
from headsweep.statistics.anytime import anytime_interval
from headsweep.store.batches import Batch, batches, pool
from headsweep.store.layout import Store
from headsweep.text import aligned, percent, points
from headsweep.variants import BASE, Variant

_RUNS = ("run", "models that have answered", "report")
TITLES = ("variant", "right", "gained", "lost", "gain", "from", "to")
NOTES = """\
gain, from, to: points; intervals of 95% for all heads of a sweep together, at any time of looking
(Waudby-Smith and Ramdas 2024), for questions like those answered. Where some are left, these are no
random part: questions come in the order of their names, and of those at work at once short answers
end first, as a rule. The rest may tell another story."""


def look(run: str | None) -> str:
    """Return what is known so far of a run's sweeps, as text; without a run, of the runs here.

    Args:
        run: its folder, its name under results/, or a folder that holds it; None: a list of the
            runs here, and the sweeps of the only unfinished one.

    Raises:
        ConfigError: there is no such run, or it has no sweep.
        TableError: a table is damaged.
        GradingError: no grading worker can be started.
    """
    if run is not None:
        return _of_run(find(run))
    states = _states()
    listed = _listed(states)
    unfinished = [state.folder for state in states if state.lacks_answers]
    if len(unfinished) == 1:
        return "\n\n".join([*([listed] if len(states) > 1 else []), _of_run(unfinished[0])])
    shown = next((state.name for state in states if state.has_sweeps), None)
    if shown is None:
        return listed
    return f"{listed}\n\nthe heads of one: `{shlex.join(['headsweep', 'peek', shown])}`"


def only_unfinished() -> Path:
    """Return the folder of the only run here whose sweeps lack answers.

    Raises:
        ConfigError: there is none, or there are several.
    """
    states = _states()
    unfinished = [state.folder for state in states if state.lacks_answers]
    if len(unfinished) == 1:
        return unfinished[0]
    named = ", ".join(state.name for state in states)
    raise ConfigError(f"{len(unfinished)} runs here are unfinished; name one of {named}")


class _State(NamedTuple):
    """How far a run is."""

    folder: Path
    name: str
    """What names it here: that of a run in results/, or the folder of one below."""
    has_sweeps: bool
    lacks_answers: bool
    """Whether one of its sweeps lacks tables of answers."""
    cells: tuple[str, ...]
    """Its row in the list of runs."""


def _states() -> list[_State]:
    """Return how far the runs here are.

    Raises:
        ConfigError: there is none.
    """
    folders = runs_here()
    if not folders:
        raise ConfigError(
            f"no run is in {Path(paths.RESULTS).absolute()}, nor in those of folders beside it; "
            f"name the folder of one, or the --out of a sweep"
        )
    return [_state(folder) for folder in folders]


def _state(folder: Path) -> _State:
    is_here = folder.parent in (Path(), Path(paths.RESULTS))
    name = folder.name if is_here else str(folder)
    try:
        store = Store(load(folder / CONFIG))
    except HeadsweepError as error:
        row = (name, "", str(error))
        return _State(folder, name, has_sweeps=False, lacks_answers=False, cells=row)
    with contextlib.chdir(folder.absolute().parents[1]):
        answered = [
            Path(file).exists() for each in batches(store).values() for file in each.answers
        ]
        lacks_answers = any(
            not store.of_sweep(sweep, ANSWERS, variant=variant).exists()
            for sweep in store.config.sweeps
            for variant in _shown(store.config, sweep)
        )
    page = report_of(folder)
    there = f"report: {page}" if page else "no report yet"
    row = (name, f"{sum(answered)} of {len(answered)}", there)
    return _State(folder, name, bool(store.config.sweeps), lacks_answers, row)


def _listed(states: Sequence[_State]) -> str:
    return aligned([_RUNS, *(state.cells for state in states)], left=3)


def _of_run(folder: Path) -> str:
    """Return what is known so far of a run's sweeps, as text."""
    store = Store(load(folder / CONFIG))
    config = store.config
    looks = sweeps_so_far(folder, store, config.sweeps)
    if not looks:
        raise ConfigError(f"run {config.run!r} has no sweeps; name a run whose config has some")
    paragraphs = [f"run {config.run!r} in {folder}: a look, not a verdict"]
    for sweep in looks:
        paragraphs.append(sweep.text)
        paragraphs += (group.text for group in sweep.groups)
    if any(group.rows for sweep in looks for group in sweep.groups):
        paragraphs.append(NOTES)
    return "\n\n".join(paragraphs)


def sweeps_so_far(folder: Path, store: Store, names: Iterable[str]) -> list["SweepSoFar"]:
    """Return what is known of some sweeps of a run, given its folder.

    Raises:
        TableError: a table is damaged.
        GradingError: no grading worker can be started.
    """
    with contextlib.chdir(folder.absolute().parents[1]):
        return [_sweep(store, name) for name in names]


def _shown(config: Config, sweep: str) -> list[Variant]:
    return [BASE, *pool(config, config.sweeps[sweep])]


class Group(NamedTuple):
    """Heads that are finished, or under way."""

    said: str
    """Which they are, and on which questions they are compared."""
    rows: list[tuple[str, ...]]
    """Cells of `TITLES`, the base model first; none where no question is answered by all."""

    @property
    def text(self) -> str:
        """The group for a terminal."""
        return "\n".join(
            [self.said, *([aligned([TITLES, *self.rows], left=1)] if self.rows else [])]
        )


class SweepSoFar(NamedTuple):
    """What is known of a sweep so far."""

    name: str
    text: str
    """How many answers are there."""
    groups: list[Group]


def _sweep(store: Store, name: str) -> SweepSoFar:
    """Return what is known of a sweep so far."""
    config = store.config
    section = config.sweeps[name]
    work = Work(Batch(store, section.model, section.decoding, section.questions))
    title = f"sweep {name}: {work.told}"
    file = work.batch.path(QUESTIONS)
    if not file.exists():
        return SweepSoFar(name, f"{title}: its questions are not drawn yet", [])
    questions = read_table(file, QUESTIONS)
    answers = {variant: work.so_far(variant).to_pandas() for variant in _shown(config, name)}
    done = sum(map(len, answers.values()))
    total = len(questions) * len(answers)
    heads = [variant for variant in answers if variant != BASE]
    begun = [head for head in heads if len(answers[head])]
    text = (
        f"{title}: {len(begun)} of {len(heads)} heads have begun, {done:,} of {total:,} answers "
        f"({percent(done / total)})"
    )
    groups = []
    finished = [head for head in begun if len(answers[head]) == len(questions)]
    under_way = [head for head in begun if head not in finished]
    for kind, members in (("finished", finished), ("under way", under_way)):
        if not members:
            continue
        compared = {variant: answers[variant] for variant in (BASE, *members)}
        common = set.intersection(*(set(table["question_id"]) for table in compared.values()))
        common_questions = questions[questions["question_id"].isin(common)]
        said = (
            f"{kind}: {len(common_questions):,} of {len(questions):,} questions, which the base "
            f"model and all heads below have answered"
        )
        if common_questions.empty:
            groups.append(Group(f"{said}\n{', '.join(map(str, members))}", []))
            continue
        rules = config.grading_of(name)
        z = _right(common_questions, compared, work.grader_name, rules)
        groups.append(Group(said, _rows(z, len(heads))))
    return SweepSoFar(name, text, groups)


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


def _rows(z: pd.DataFrame, heads: int) -> list[tuple[str, ...]]:
    """Return cells of `TITLES` from a matrix whose first column is the base model's, by gain."""
    base, *pruned = z.columns
    change = z[pruned].sub(z[base], axis=0)
    gained, lost = (change > 0).sum(), (change < 0).sum()
    low, high = anytime_interval(gained.to_numpy(), lost.to_numpy(), len(z), heads)
    table = pd.DataFrame({"gained": gained, "lost": lost, "gain": change.mean()})
    table = table.assign(right=z[pruned].mean(), low=low, high=high)
    ordered: Any = table.sort_values("gain", ascending=False, kind="stable").itertuples()
    rows: list[tuple[str, ...]] = [(base, percent(z[base].mean()), *[""] * 5)]
    for head in ordered:
        counts = (f"{head.gained:,}", f"{head.lost:,}")
        ends = (points(head.low), points(head.high))
        rows.append((head.Index, percent(head.right), *counts, points(head.gain), *ends))
    return rows
