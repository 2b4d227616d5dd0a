import inspect
import io
import json
import zlib
from functools import partial
from pkgutil import resolve_name
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import simulation
from fontTools.ttLib import TTFont
from matplotlib.colors import to_hex

from headroom.analysis.gains import cells, gains
from headroom.figures.curves import curves, spaced
from headroom.figures.draw import READERS
from headroom.figures.drawing import SUFFIXES, save
from headroom.figures.levels import levels
from headroom.figures.style import THEMES, contrast, diverging, legible, method_line, theme
from headroom.figures.violins import violins
from headroom.planning.exhibits import EXHIBITS
from headroom.variants import BASE, heads

FIGURES = ("violins", "levels", "heatmap_demo_L05", "pass_at_n_math", "forest_demo")
FIGURES += ("agreement_demo", "components_demo", "space_math", "cost_demo")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_files_words_and_numbers(run, name):
    folder = run[0] / "results/simulated/figures"
    for suffix in SUFFIXES:
        assert (folder / f"{name}.{suffix}").stat().st_size > 0
    words = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert len(words["alt"]) > 40
    n = {"violins": "21 pairs", "cost_demo": "4,800"}.get(name, "200")
    for fact in ("interval", "test", n):
        assert fact in words["caption"]
    for source in words["sources"]:
        assert (run[0] / source).exists()
    assert len(pd.read_csv(folder / f"{name}.csv")) >= (3 if name.startswith("co") else 15)


@pytest.mark.parametrize("name", FIGURES)
def test_pdf_embeds_truetype_fonts_and_no_date(run, name):
    content = (run[0] / f"results/simulated/figures/{name}.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/FontFile2" in content
    assert b"Date" not in content


def test_fonts_in_a_pdf_have_glyphs_and_nothing_that_places_them(run):
    content = (run[0] / "results/simulated/figures/levels.pdf").read_bytes()
    streams = [
        zlib.decompress(part.partition(b"\nendstream")[0])
        for part in content.split(b"/FlateDecode")[1:]
        for part in [part.partition(b"stream\n")[2]]
    ]
    fonts = [TTFont(io.BytesIO(each)) for each in streams if each[:4] == b"\0\1\0\0"]
    assert fonts
    for font in fonts:
        assert 1 < len(font["glyf"].keys()) < 200
        assert not {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys())
    maps = b"".join(each for each in streams if b"beginbfchar" in each or b"beginbfrange" in each)
    assert len(maps) > 100  # glyphs are characters again where text is selected


def test_equal_data_give_equal_bytes(tmp_path):
    table, paired = simulation.simulated_curves()
    made = []
    for name in ("first", "second"):
        draw = partial(curves, table, paired, "math", 61)
        made.append(save(str(tmp_path / name / "figure.{suffix}"), draw, []))
    for first, second in zip(*made, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


@pytest.mark.parametrize("name", ["light", "dark"])
def test_every_colour_of_text_and_lines_is_legible(name):
    colors = THEMES[name]
    assert contrast(colors.ink, colors.surface) > 7
    assert contrast(colors.muted, colors.surface) > 4.5
    for method in simulation.METHODS:
        assert contrast(method_line(method, colors).color, colors.surface) > 3
    for position in np.linspace(0, 1, 41):
        cell = diverging(colors)(position)[:3]
        assert contrast(legible(cell), to_hex(cell)) > 4.5


def test_contrast_is_that_of_wcag():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_no_two_methods_look_the_same():
    lines = [method_line(method, THEMES["light"]) for method in simulation.METHODS]
    assert len({(line.color, line.dashes) for line in lines}) == len(lines)
    hues = {method_line(f"sampling T={t}", THEMES["light"]).color for t in (0.1, 0.6, 0.9)}
    assert hues == set(THEMES["light"].orange)
    assert max(lines, key=lambda line: line.width) is lines[0]


def test_labels_are_moved_apart_as_little_as_needed():
    wanted = np.array([0.1, 0.5, 0.51, 0.52, 0.9])
    placed = spaced(wanted, 0.06)
    assert np.all(np.diff(placed) >= 0.06 - 1e-12)
    assert placed == pytest.approx([0.1, 0.45, 0.51, 0.57, 0.9])


def test_subjects_with_dollar_signs_are_no_formulas(tmp_path):
    variants = [BASE, *heads([0], range(2))]
    subjects = (r"$\frac{", "$x$ & <b>")
    rng = np.random.default_rng(2)
    names = [str(variant) for variant in variants]
    z = simulation.simulated_z(23, names, rng, subjects)
    gained = {r"$\bad{": gains(cells(z, variants))}
    files = save(str(tmp_path / "f.{suffix}"), partial(violins, gained), [])
    svg = ElementTree.fromstring(files[2].read_text(encoding="utf-8"))
    assert r"$\bad{" in "".join(svg.itertext())


def test_gains_that_are_all_equal_are_drawn_without_a_violin():
    variants = [BASE, *heads([0], range(3))]
    z = simulation.simulated_z(40, [str(variant) for variant in variants], np.random.default_rng(1))
    for variant in variants:
        z[str(variant)] = z["base"]
    with theme("light") as colors:
        figure = violins({"flat": gains(cells(z, variants))}, colors)
    assert (figure.data["best_gain"] == 0).all()


def test_questions_without_levels_get_a_figure_that_says_so():
    variants = [BASE, *heads([0], range(3))]
    z = simulation.simulated_z(40, [str(variant) for variant in variants], np.random.default_rng(1))
    z["level"] = None
    with theme("light") as colors:
        figure = levels({"gsm8k": gains(cells(z, variants))}, colors)
    assert "has a level" in figure.image.texts[0].get_text()


def test_every_file_made_together_is_in_one_record(run):
    folder = run[0] / "results/simulated"
    record = json.loads((folder / "figures/levels.json.run.json").read_text(encoding="utf-8"))
    assert record["files"] == [f"levels.{suffix}" for suffix in SUFFIXES]


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_a_declared_figure_names_what_draws_it_and_what_that_takes(exhibit):
    *takes, colors = inspect.signature(resolve_name(f"headroom.{exhibit.draw}")).parameters
    assert colors == "colors"
    assert len(takes) == len(exhibit.needs)
    assert set(exhibit.needs) <= {*READERS, "layer"}
