"""What the verdict on a compression says of its tables."""

import re
from contextlib import chdir
from functools import cache

import pandas as pd
import pytest

import simulated_studies
import simulation
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_csv
from headsweep.page.blocks import Section
from headsweep.page.compression_section import compression
from headsweep.results import jobs
from headsweep.results.facts import Source
from headsweep.results.marks import Mark
from headsweep.results.verdicts import verdicts
from headsweep.store.layout import Store

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
    return write_tables(made)


def write_tables(made):
    """Write the tables of a run of these compressions without the papers; return its config."""
    gone = {key: {} for key in ("sweeps", "selectors", "frontiers", "comparisons")}
    studies = {results.name: results.study for results in made}
    changes = {**gone, "papers": False, "compressions": studies}
    config = simulation.whole().model_copy(update=changes)
    for results in made:
        simulated_studies.write(Store(config), results)
    jobs.write_compression_tables(Store(config), simulation.PUBLISHED)
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
    return next(each for each in verdicts(Store(config)) if each.section == "compression")


KNOWN = {"change_trained": -0.035, "change_trained_low": -0.08, "change_trained_high": 0.005}
KNOWN |= {"change": -0.06, "change_low": -0.11, "change_high": -0.01, "whole_removed": 0.05}
WORSE = KNOWN | {"change_trained_high": -0.01}
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
        (timed(0.87, 0.84, 0.91), "– no loss", "", "Test time: ×0.87."),
        (timed(1.02, 0.98, 1.06), "– no loss", "", "Test time: ×1.02."),
        (timed(0.92, 0.8, 1.05), "– no loss", "", "5.0% fewer parameters."),
        (timed(0.92, 0.8, 1.05) | {"whole_removed": None}, "– no loss", "", ""),
        # What it saves matters less than which part costs, which two arms cannot tell.
        (timed(0.92, 0.8, 1.05) | WORSE, "▼ worse", "", "The teacher's part is untested."),
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
    assert (str(verdict.mark), verdict.answer.partition(": ")[0]) == (mark, "25% of heads gone")
    assert verdict.answer.partition(": ")[2].startswith(told)
    assert said in str(verdict.effect)
    if so is not None:
        assert str(verdict.so) == so
    assert "nan" not in str(verdict)


WITHOUT = "without a teacher"
ALONE = ("change_trained", "change_trained_low", "change_trained_high", "gap_low", "gap_high")
PARTS = [
    # Without a teacher, against training as long; its accuracy minus that with one.
    ((0.0, -0.056, 0.056, 0.05, 0.168), f"Distillation costs: {WITHOUT} 0.0."),
    ((-0.1, -0.15, -0.05, -0.05, 0.05), f"Removal costs: {WITHOUT} −10.0."),
    (
        (-0.1, -0.15, -0.05, 0.05, 0.15),
        f"Removal and distillation both cost: {WITHOUT} −10.0.",
    ),
    # Each alone is shown, and not both together: two parts are tested.
    (
        (-0.05, -0.098, -0.002, 0.002, 0.098),
        f"Which part costs is not shown: {WITHOUT} −5.0.",
    ),
    ((-0.05, None, None, None, None), "The teacher's part is untested."),
]


@pytest.mark.parametrize(("alone", "so"), PARTS)
def test_a_worse_verdict_names_the_part_that_costs(compressed, alone, so):
    file = Store(compressed).path(paths.COMPRESSION_TABLE, exhibit="table4", suffix="csv")
    table = pd.read_csv(file)
    row = table.iloc[[-1]].assign(arm="pruning_only", **dict(zip(ALONE, alone, strict=True)))
    write_csv(file, pd.concat([table, row], ignore_index=True))
    write_record(file, Stopwatch(), {})
    verdict = change_method(compressed, WORSE)
    assert verdict.mark is Mark.WORSE
    assert str(verdict.so) == so
    assert "teacher" not in str(change_method(compressed, KNOWN).so)


@pytest.mark.parametrize(("examples", "drawn"), [(11, 0), (97, 1)])
def test_few_questions_are_told_and_drawn_without_intervals(write, examples, drawn):
    config = write(examples)
    verdict = next(each for each in verdicts(Store(config)) if each.section == "compression")
    assert verdict.answer.endswith("too few questions to tell") == (not drawn)
    assert (
        "points against training as long, 11 questions, one seed." in str(verdict.effect)
    ) != drawn
    compression(Store(config), section := Section("compression", ""))
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
    compression(Store(config), section := Section("compression", ""))
    (shown,) = section.blocks
    rows = {str(row[0]): dict(zip(shown.titles, row, strict=True)) for row in shown.rows}
    told = [each for each in verdicts(Store(config)) if each.section == "compression"]
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
        drawn = {"▲": "dot up", "▼": "dot down", "–": "ring"}[str(verdict.mark)]
        assert f'circle class="{drawn}"' in row["points"]
    mixed = "training as long, or else the original"
    assert f"Drawn: points against {mixed if lone else 'training as long'}." in shown.caption


CAUSAL = {"variations": {"by.loss-1": {"importance": {"criterion": "causal"}}}}


def test_causal_scores_stand_beside_a_worse_verdict_and_are_explained_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = [
        simulated_studies.results(_study(**CAUSAL, title=f"Study {place}"), name=f"study{place}")
        for place in range(2)
    ]
    config = write_tables(made)
    table = Source.read(Store(config), paths.COMPRESSION_TABLE, exhibit="variations")
    row = table.where(compression="study0", arm="by.loss-1")
    causal = row.number("change_trained", "points")
    assert "Causal" not in str(change_method(config, KNOWN).effect)
    worse = change_method(config, WORSE)
    assert str(worse.effect).endswith(f" Causal scores, taken once: {causal}.")
    assert len(re.findall(r"\w\S*", str(worse))) <= 32
    compression(Store(config), section := Section("compression", ""))
    rows = [row[0] for row in section.blocks[-1].rows]
    own = ("25% gone, taught", "25% gone by causal scores", "all kept, trained as long")
    assert rows == [f"Study {place}: {name}" for place in range(2) for name in own]
    (explained,) = section.lead
    assert explained.startswith("Causal scores")
