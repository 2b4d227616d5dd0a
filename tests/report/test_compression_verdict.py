"""What the verdict on a compression says of its tables."""

import pandas as pd
import pytest

import simulated_trials
import simulation
from headsweep import paths
from headsweep.analysis import jobs
from headsweep.analysis.verdicts import verdicts
from headsweep.planning.store import Store
from headsweep.record import Stopwatch, write_record
from headsweep.report.blocks import Section
from headsweep.report.page import compression
from headsweep.tables import write_csv

OF_MODEL = {"solver": None, "data": None, "model": "reasoner"}
OF_MODEL |= {"train": "math_train", "test": "math_test", "seeds": [2], "int8": []}
OF_MODEL |= {"arms": ["baseline", "full", "trained_on"], "variations": {}}


def write(tmp_path, monkeypatch, *, examples):
    """Write the tables of a run with one compression of a model, and return its config."""
    monkeypatch.chdir(tmp_path)
    trial = simulated_trials.trial(
        simulated_trials.study(**OF_MODEL), name="model", examples=examples
    )
    gone = {key: {} for key in ("sweeps", "selectors", "frontiers", "comparisons")}
    config = simulation.whole().model_copy(update=gone | {"compressions": {"model": trial.study}})
    simulated_trials.write(Store(config), trial)
    jobs.write_compression_tables(config, simulation.PUBLISHED)
    jobs.write_audit(config, simulation.PUBLISHED)
    return config


@pytest.fixture
def compressed(tmp_path, monkeypatch):
    return write(tmp_path, monkeypatch, examples=97)


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
TIME = ("test_time", "test_time_low", "test_time_high")


def timed(*ends):
    return KNOWN | dict(zip(TIME, ends, strict=True))


@pytest.mark.parametrize(
    ("changes", "answer", "said", "so"),
    [
        # Worse than the unpruned model, and not shown to be worse than training alone.
        (KNOWN, "– no loss is shown", "−3.5 (−8.0 to +0.5) points against training as long", None),
        (KNOWN | {"change_trained_high": -0.01}, "▼ worse", "−3.5 (−8.0 to −1.0) points", None),
        # A time is told where its interval is narrow.
        (timed(0.87, 0.84, 0.91), "– no loss", "", "Whole test: 0.87 of the time."),
        (timed(1.02, 0.98, 1.06), "– no loss", "", "Whole test: 1.02 of the time."),
        (timed(0.92, 0.8, 1.05), "– no loss", "", "5.0% fewer parameters."),
        (
            KNOWN | {"change_trained_low": None, "change_trained_high": None},
            "– too few questions to tell",
            "MATH-like: −3.5 points against",
            None,
        ),
        (
            KNOWN | dict.fromkeys(("change_trained", "change_trained_low", "change_trained_high")),
            "▼ worse",
            "−6.0 (−11.0 to −1.0) points against the unpruned model",
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
def test_few_questions_are_told_and_drawn_without_intervals(tmp_path, monkeypatch, examples, drawn):
    config = write(tmp_path, monkeypatch, examples=examples)
    verdict = next(each for each in verdicts(config) if each.section == "compression")
    assert verdict.answer.endswith("too few questions to tell") == (not drawn)
    assert ("points against training as long, 11 questions." in str(verdict.effect)) != drawn
    compression(config, section := Section("compression", ""))
    chart, rows = section.blocks
    arms = len(rows.rows)
    assert chart.svg.count('class="interval"') == drawn * arms and arms == 2
    assert rows.rows[0][1].count('class="interval"') == drawn
    assert "nan" not in str(chart.svg) + str(rows.rows)
