"""What the verdict on a compression says of its tables."""

import re
from contextlib import chdir
from functools import cache

import pandas as pd
import pytest

import simulated_studies
import simulation
from headsweep import paths
from headsweep.analysis import jobs
from headsweep.analysis.verdicts import verdicts
from headsweep.planning.store import Store
from headsweep.record import Stopwatch, write_record
from headsweep.report.blocks import Section
from headsweep.report.compressions import compression
from headsweep.safe_files import write_csv

OF_MODEL = {"solver": None, "data": None, "model": "reasoner"}
OF_MODEL |= {"train": "math_train", "test": "math_test", "seeds": [2], "int8": []}
OF_MODEL |= {"arms": ["baseline", "full", "trained_on"], "variations": {}}


def written(examples, lone):
    """Write the tables of a run with a compression of a model, and return its config.

    There are further ones, of so many examples each, without training as long.
    """
    made = [simulated_studies.results(_study(), name="model", examples=examples)]
    for place, size in enumerate(lone):
        arms = {"arms": ["baseline", "full"], "title": f"Alone {place}"}
        made.append(simulated_studies.results(_study(**arms), name=f"alone{place}", examples=size))
    gone = {key: {} for key in ("sweeps", "selectors", "frontiers", "comparisons")}
    studies = {results.name: results.study for results in made}
    config = simulation.whole().model_copy(update=gone | {"compressions": studies})
    for results in made:
        simulated_studies.write(Store(config), results)
    jobs.write_compression_tables(config, simulation.PUBLISHED)
    jobs.write_audit(config, simulation.PUBLISHED)
    return config


def _study(**changes):
    return simulated_studies.study(**OF_MODEL | changes)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return what writes a run, once for all tests: its folder and its config."""

    @cache
    def make(examples, lone):
        with chdir(folder := tmp_path_factory.mktemp("run")):
            config = written(examples, lone)
        return folder, config

    return make


@pytest.fixture
def write(once, enter_copy):
    def copied(examples, lone=()):
        folder, config = once(examples, lone)
        enter_copy(folder)
        return config

    return copied


@pytest.fixture
def compressed(write):
    return write(97)


def change_method(config, changes):
    """Change the method's row of Table 1, and return its verdict."""
    file = Store(config).path(paths.COMPRESSION_TABLE, exhibit="table1", suffix="csv")
    table = pd.read_csv(file)
    table.loc[table["arm"] == "full", list(changes)] = list(changes.values())
    write_csv(file, table)
    write_record(file, Stopwatch(), {})
    return next(each for each in verdicts(config) if each.section == "compression")


KNOWN = {"change_trained": -0.035, "change_trained_low": -0.08, "change_trained_high": 0.005}
KNOWN |= {"change": -0.06, "change_low": -0.11, "change_high": -0.01, "whole_removed": 0.05}
WORSE = KNOWN | {"change_trained_high": -0.01}
# 1.96 + 0.842 standard errors of the interval against training as long.
SHOWN = "Differences of 6.1 points would likely show."
TIME = ("test_time", "test_time_low", "test_time_high")


def timed(*ends):
    return KNOWN | dict(zip(TIME, ends, strict=True))


@pytest.mark.parametrize(
    ("changes", "answer", "said", "so"),
    [
        # Worse than the unpruned model, and not shown to be worse than training alone.
        (KNOWN, "– no loss shown", "−3.5 (−8.0 to +0.5) points against training as long", None),
        (WORSE, "▼ worse", "−3.5 (−8.0 to −1.0) points", None),
        # A time is told where its interval is narrow.
        (
            timed(0.87, 0.84, 0.91),
            "– no loss",
            "",
            f"Test time: ×0.87. {SHOWN}",
        ),
        (
            timed(1.02, 0.98, 1.06),
            "– no loss",
            "",
            f"Test time: ×1.02. {SHOWN}",
        ),
        (timed(0.92, 0.8, 1.05), "– no loss", "", f"5.0% fewer parameters. {SHOWN}"),
        (timed(0.92, 0.8, 1.05) | WORSE, "▼ worse", "", "5.0% fewer parameters."),
        (timed(0.92, 0.8, 1.05) | WORSE | {"whole_removed": None}, "▼ worse", "", ""),
        (
            KNOWN | {"change_trained_low": None, "change_trained_high": None},
            "– too few questions to tell",
            "MATH-like: −3.5 points against",
            None,
        ),
        (
            KNOWN | dict.fromkeys(("change_trained", "change_trained_low", "change_trained_high")),
            "▼ worse",
            "−6.0 (−11.0 to −1.0) points against the original",
            None,
        ),
    ],
)
def test_pruning_is_held_against_training_as_long(compressed, changes, answer, said, so):
    verdict = change_method(compressed, changes)
    mark, told = answer.split(" ", 1)
    assert (verdict.mark, verdict.answer.partition(": ")[0]) == (mark, "25% of heads gone")
    assert verdict.answer.partition(": ")[2].startswith(told)
    assert said in str(verdict.effect)
    if so is not None:
        assert str(verdict.so) == so
    assert "nan" not in str(verdict)


@pytest.mark.parametrize(("examples", "drawn"), [(11, 0), (97, 1)])
def test_few_questions_are_told_and_drawn_without_intervals(write, examples, drawn):
    config = write(examples)
    verdict = next(each for each in verdicts(config) if each.section == "compression")
    assert verdict.answer.endswith("too few questions to tell") == (not drawn)
    assert (
        "points against training as long, 11 questions, one seed." in str(verdict.effect)
    ) != drawn
    compression(config, section := Section("compression", ""))
    (rows,) = section.blocks
    # What was trained as long is that which the other is held against: it has no mark.
    assert len(rows.rows) == 2
    assert rows.rows[0][1].count('class="interval"') == drawn
    assert "circle" in rows.rows[0][1] and "circle" not in rows.rows[1][1]
    assert "nan" not in str(rows.rows)


INTERVAL = r"[+−]?[0-9.]+(?: \([+−]?[0-9.]+ to [+−]?[0-9.]+\))"


@pytest.mark.parametrize("lone", [(), (71, 53)])
def test_the_verdict_s_number_stands_in_the_row_beside_it_and_is_what_is_drawn(write, lone):
    config = write(97, lone)
    compression(config, section := Section("compression", ""))
    (shown,) = section.blocks
    rows = {str(row[0]): dict(zip(shown.titles, row, strict=True)) for row in shown.rows}
    told = [each for each in verdicts(config) if each.section == "compression"]
    assert len(told) == 1 + len(lone)
    for place, verdict in enumerate(told):
        (said,) = re.findall(INTERVAL, str(verdict.effect))
        of = str(verdict.effect).partition(": ")[0]
        row = rows[f"{of}: 25% gone, taught"]
        longer, unpruned = (str(row[title]) for title in shown.titles[2:4])
        if place:  # nothing was trained as long
            assert "against the original" in str(verdict.effect)
            assert (said, longer) == (unpruned, "")
        else:
            assert "against training as long" in str(verdict.effect)
            assert said == longer != unpruned
            # The lead repeats the row's numbers, and that of what was trained as long.
            alone = str(rows[f"{of}: all kept, trained as long"][shown.titles[3]])
            method, last = (each.partition(" (")[0] for each in (longer, alone))
            wanted = f"taught {method}. Training as long: {last} against the original."
            assert str(section.lead[0]).endswith(wanted)
        drawn = {"▲": "dot up", "▼": "dot down", "–": "ring"}[verdict.mark]
        assert f'circle class="{drawn}"' in row["points"]
    mixed = "training as long, or else the original"
    assert f"Drawn: points against {mixed if lone else 'training as long'}." in shown.caption
