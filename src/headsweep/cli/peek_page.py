"""`headsweep peek --page`: the report of a run while it answers, made again every minute.

It is the report's own page, of those experiments whose tables are all there; what is missing, and
what is known of sweeps that still answer, stands on top. Nothing is computed for it but the look
that `headsweep peek` takes, and nothing is written but the page, so a run may be at work.
"""

import contextlib
import logging
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headsweep.cli.peek import NOTES, TITLES, SweepSoFar, only_unfinished, sweeps_so_far
from headsweep.cli.store import is_locked, what_works
from headsweep.config import EXPERIMENTS, Config, load
from headsweep.config.titles import title
from headsweep.errors import HeadsweepError
from headsweep.files import paths
from headsweep.page.blocks import Block, ShownTable
from headsweep.page.report import SoFar, write_so_far
from headsweep.results.exhibits import EXHIBITS, RunFiles
from headsweep.results.run import CONFIG, find, report_of
from headsweep.store.layout import Store
from headsweep.telling import told
from headsweep.text import counted

_SECONDS = 60.0
_FINISHED = "finished"
_LOG = logging.getLogger(__name__)


def follow(run: str | None, seconds: float = _SECONDS) -> None:
    """Write the page of a run so far, and again and again until the run has ended.

    Args:
        run: its folder, its name under results/, or a folder that holds it; None: the only
            unfinished one.
        seconds: from one page to the next.

    Raises:
        HeadsweepError: there is no such run, or the first page cannot be made.
    """
    folder = find(run) if run is not None else only_unfinished()
    with told("making the page"):
        page = write(folder)
    print(f"page so far: {page}; made again every {seconds:.0f} s, Ctrl-C ends that", flush=True)
    while _is_under_way(folder):
        time.sleep(seconds)
        try:
            write(folder)
        except HeadsweepError as error:  # a table may go while its job runs again
            _LOG.warning("the page stays as it was: %s", error)
    print(_ended(folder))


def _ended(folder: Path) -> str:
    """Say how far a run is at which nothing works any more, and how it goes on."""
    if report := report_of(folder):
        return f"the run is finished: {report}"
    root = folder.absolute().parents[1]
    with contextlib.chdir(root):
        _, states = finished_part(load(Path(paths.RESULTS, folder.name, CONFIG)))
        first = ", first with --unlock, as the run was killed" if is_locked() else ""
    if all(state == _FINISHED for _, _, state in states):
        again = shlex.join(["headsweep", "run", str(folder / CONFIG), "--directory", str(root)])
        return f"all tables are there; for figures and the report: {again}"
    return f"nothing is at work in this run's folder; to go on give its command again{first}"


def _is_under_way(folder: Path) -> bool:
    """Return whether something is at work in a run's folder, and the run is not finished."""
    with contextlib.chdir(folder.absolute().parents[1]):
        working = what_works()
    return working is not None and not report_of(folder)


def write(folder: Path) -> Path:
    """Write the page of a run so far, given the run's folder, and return its path."""
    store = Store(load(folder / CONFIG))
    with contextlib.chdir(folder.absolute().parents[1]):
        finished, states = finished_part(store.config)
        unfinished = [name for name in store.config.sweeps if name not in finished.sweeps]
        looks = sweeps_so_far(Path(paths.RESULTS, folder.name), store, unfinished)
        page = write_so_far(store, Store(finished), _on_top(states, looks))
    return folder / page.name


def _on_top(states: Sequence[Sequence[str]], looks: Sequence[SweepSoFar]) -> SoFar:
    """Return what the page says on top: how far each experiment is, and sweeps that still answer.

    Args:
        states: an experiment's kind, title and state each.
        looks: the sweeps that are not finished.
    """
    finished = sum(state == _FINISHED for _, _, state in states)
    now = time.strftime("%H:%M on %Y-%m-%d")
    lead = [
        f"This run is not finished: at {now} {finished} of {counted(len(states), 'part')} had "
        "ended. From the verdicts on, the page is about these alone."
    ]
    blocks: list[Block] = []
    if states:
        blocks.append(ShownTable(("part", "of", "state"), states, ""))
    for sweep in looks:
        compared = [group for group in sweep.groups if group.rows]
        if not compared:
            lead.append(f"{sweep.text}.")
        blocks += [
            ShownTable(TITLES, group.rows, f"{sweep.text}; {group.said}") for group in compared
        ]
    if looks:
        lead.append(NOTES)
    return SoFar(lead, blocks)


def finished_part(config: Config) -> tuple[Config, list[list[str]]]:
    """Return a run's config with the experiments whose tables are all there, and how far each is.

    That is its kind, its title, and its state. The papers' numbers are a part, too.
    """
    none: dict[str, Any] = {section: {} for section in EXPERIMENTS}
    kept: dict[str, dict[str, Any]] = {section: {} for section in EXPERIMENTS}
    states = []
    for section in EXPERIMENTS:
        entries = getattr(config, section)
        for name, entry in entries.items():
            sharing = entries if section == "compressions" else {name: entry}  # of their tables
            alone = {**none, section: sharing, "papers": False}
            state = _state(Store(config.model_copy(update=alone)))
            states.append([section.removesuffix("s"), title(config, section, name), state])
            if state == _FINISHED:
                kept[section][name] = entry
    finished = config.model_copy(update=kept)
    if config.papers:
        state = _state(Store(finished))
        states.append(["papers", "their numbers beside these", state])
        finished = finished.model_copy(update={"papers": state == _FINISHED})
    return finished, states


def _state(store: Store) -> str:
    """Say whether the tables of a config's report are there; figures are left out if not drawn."""
    files = RunFiles(store)
    drawn = {
        template.format(suffix=suffix)
        for exhibit in EXHIBITS
        for template in files.pictures(exhibit)
        for suffix in ("png", "json")
    }
    tables = [file for file in files.reported() if file not in drawn]
    there = sum(Path(file).exists() for file in tables)
    return _FINISHED if there == len(tables) else f"{there} of {len(tables)} tables are there"
