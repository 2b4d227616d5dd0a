"""What page_tables.py declares is in the run's tables, or the page is not written."""

import math
import re
from contextlib import chdir

import numpy as np
import pandas as pd
import pytest

import simulation
from headsweep.config import parse
from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.page.blocks import Section, _smaller, fill, marks
from headsweep.page.declarations import Marks
from headsweep.page.head_grid import placed
from headsweep.page.page_tables import PAGE_TABLES
from headsweep.page.report import _versions
from headsweep.page.sections import sampling
from headsweep.page.svg import Scale, strip
from headsweep.results.facts import Cell, Source
from headsweep.store.layout import Store


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder and the config of a run that is filled once for all tests."""
    config = simulation.demo().model_copy(update={"sweeps": {}, "comparisons": {}})
    with chdir(folder := tmp_path_factory.mktemp("run")):
        simulation.fill(config)
    return folder, config


@pytest.fixture
def config(once, enter_copy):
    folder, config = once
    enter_copy(folder)
    return config


def file_of(config, template):
    return Store(config).path(template, selector="math")


def filled(config, *anchors):
    sections = [Section(anchor, "") for anchor in anchors]
    for section in sections:
        fill(Store(config), section)
    return sections


@pytest.mark.parametrize(
    ("template", "column", "anchor"),
    [
        (paths.EMBEDDING_VALUE, "adjusted", "question"),  # the end of a chart's interval
        (paths.EMBEDDING_VALUE, "p", "question"),  # a cell
        (paths.PAIRED, "low_apart", "sampling"),  # the end of a cell's interval
        (paths.PAIRED, "method", "sampling"),  # of a label
        (paths.ABLATION, "against", "sampling"),
    ],
)
def test_a_declared_column_that_a_table_lacks_is_an_error(config, template, column, anchor):
    assert filled(config, anchor)[0].blocks
    file = file_of(config, template)
    pd.read_csv(file).drop(columns=column).to_csv(file, index=False)
    with pytest.raises(TableError, match=rf"math/{file.name} lacks \['{column}'\]"):
        filled(config, anchor)


def test_a_declared_interval_begins_at_its_low_end():
    cells = [cell for table in PAGE_TABLES for cell in table.columns.values() if cell.low]
    assert len(cells) > 10
    assert [cell.high for cell in cells] == [cell.low.replace("low", "high") for cell in cells]


def test_a_table_whose_column_is_empty_is_shown_without_it(config):
    file = file_of(config, paths.PAIRED)
    table = pd.read_csv(file)
    (section,) = filled(config, "sampling")
    assert "apart" not in section.blocks[0].titles
    assert section.blocks[0].caption.endswith("corrected over selectors and temperatures.")
    table.assign(difference_apart=0.1, low_apart=0.0, high_apart=0.2).to_csv(file, index=False)
    (section,) = filled(config, "sampling")
    assert "apart" in section.blocks[0].titles
    assert section.blocks[0].caption.endswith(
        " Apart: on questions that resemble no training question."
    )


def test_only_what_holm_s_correction_leaves_is_filled(config):
    file = file_of(config, paths.EMBEDDING_VALUE)
    for adjusted, mark in ((0.04, "dot up"), (0.06, "ring")):
        pd.read_csv(file).assign(adjusted=adjusted).to_csv(file, index=False)
        (section,) = filled(config, "question")
        strips = [row[1] for row in section.blocks[0].rows]
        assert len(strips) == 3
        assert all(f'class="{mark}"' in strip for strip in strips)


def test_rows_that_are_left_out_are_counted_in_the_caption():
    gains = np.linspace(-0.4, 0.3, 15)
    table = Source("some.csv", pd.DataFrame({"name": [f"n{i}" for i in range(15)], "gain": gains}))
    table.rows["low"], table.rows["high"] = gains - 0.1, gains + 0.1
    wanted = Marks("{name}", {"sign": "gain"}, "low", "high")
    (block,) = marks(list(table), wanted, {"gain": Cell("gain", "points")}, "Gains.")
    assert len(block.rows) == 12
    assert str(block.caption) == "Gains. The highest 12 of 15 rows; some.csv has all."


def test_numbers_of_an_image_are_rounded_where_they_are_places_and_not_where_they_are_read():
    svg = '<svg><path d="M 1.234 5.678"/><text x="0.75">−0.75</text><text>0.05</text></svg>'
    found = "<svg><path d='M 1.2 5.6'/><text x='0.7'>−0.75</text><text>0.05</text></svg>"
    assert _smaller(svg) == found


@pytest.mark.parametrize(
    ("value", "interval", "arrows"),
    [
        (0.1, (0.0, 0.2), []),
        (0.1, (-0.4, 0.2), ["◂"]),
        (0.1, (-0.4, 0.6), ["◂", "▸"]),
        (0.5, (0.2, 0.6), ["▸"]),  # its mark and its end share one
        (-0.4, (math.nan, math.nan), ["◂"]),
    ],
)
def test_what_lies_beyond_the_scale_is_an_arrow_at_its_end(value, interval, arrows):
    drawn = strip(Scale(-0.25, 0.25), {"ring": value}, interval)
    assert re.findall("[◂▸]", drawn) == arrows
    assert drawn.count("<circle") == (-0.25 <= value <= 0.25)


def test_columns_of_a_grid_are_numbers_of_heads_and_some_are_named_where_there_are_many():
    few = placed({"layer": layer, "head": head} for layer, head in ((5, 9), (0, 9), (0, 2)))
    assert few.labels == ["2", "9"]
    places = [(layer, [head and head["head"] for head in heads]) for layer, heads in few.rows]
    assert places == [(0, [2, 9]), (5, [None, 9])]
    many = placed({"layer": 1, "head": head} for head in range(28))
    assert (many.width, many.labels[:3]) == (28, ["0", "", "2"])


def test_the_page_says_how_many_questions_look_alike_or_that_it_is_unknown(config):
    file = file_of(config, paths.OVERLAP)
    table = pd.read_csv(file)
    equal = pd.Series(table.index < 30).astype(int)
    for changes, words in (
        ({"equal": equal, "resembles": 1}, "200 test questions 15.0% equal"),
        ({"equal": None, "resembles": None, "degree": "unknown"}, "is unknown"),
        (
            {"equal": table["equal"].where(table.index < 50), "resembles": equal.where(equal == 1)},
            "Of the others it is unknown",
        ),
    ):
        table.assign(**changes).to_csv(file, index=False)
        section = Section("sampling", "")
        sampling(Store(config), section)
        assert words in str(section.lead[0])
        assert "nan" not in str(section.lead[0])


def test_a_model_and_questions_of_one_name_both_have_their_revision():
    values = simulation.demo().model_dump(mode="json")
    parts = ("sweeps", "selectors", "frontiers", "comparisons", "compressions", "maps")
    parts += ("embedders", "problems")
    model = {**next(iter(values["models"].values())), "source": "some/model", "revision": "a" * 40}
    questions = {"benchmark": "math500", "n": 5, "split": "test", "revision": "b" * 40}
    values |= {part: {} for part in parts}
    values |= {"models": {"same": model}, "questions": {"same": questions}}
    versions = _versions(Store(parse(values)))
    assert (versions["same"], versions["questions.same"]) == ("a" * 40, "b" * 40)
