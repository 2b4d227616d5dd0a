"""What figures count, held against plain loops and libraries, and what they are saved as."""

import io
import itertools
import json
import re
import zlib

import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from fontTools.ttLib import TTFont
from matplotlib.colors import to_rgba
from sklearn.decomposition import PCA

import simulated_studies
import simulation
from headsweep.errors import ConfigError
from headsweep.experiments.maps.outcomes import HEADS as OUTCOMES_OF_HEADS
from headsweep.experiments.sprint.methods import ORACLE, RANDOM, SPRINT, is_sampling
from headsweep.page.figures import style
from headsweep.page.figures.curves import curves, frontier, losses, spaced
from headsweep.page.figures.draw import SUFFIXES, draw, draw_exhibit
from headsweep.page.figures.gains import levels, violins
from headsweep.page.figures.heatmaps import agreement, heatmap, scored_map, space
from headsweep.page.figures.shared import strongest
from headsweep.page.figures.style import BLUE, ONE_COLUMN, SHEET, SURFACE, TWO_COLUMNS
from headsweep.results.exhibits import EMPTY, find_exhibit
from headsweep.results.gains import controls
from headsweep.results.published import LAYERS, head_pruning
from headsweep.store.layout import Store
from headsweep.text import points, short
from headsweep.variants import BASE, heads

DRAWN = ("violins", "levels", "heatmap_demo_L05", "pass_at_n_math", "agreement_demo")
DRAWN += ("space_math", "losses_asdiv")
VARIANTS = [BASE, *heads([1, 4], range(3))]
NAMES = [str(variant) for variant in VARIANTS]


@pytest.fixture
def z():
    table = simulation.simulated_z(119, NAMES, np.random.default_rng(7))
    table["L04H02"] = np.int8(0)  # surely hurts
    return table


def gained(z, sweep="math", title=None):
    graded = simulation.graded(z, NAMES)
    gains = controls(z, graded, VARIANTS, [], noise=1e-3, seed=0)["gains"]
    return gains.assign(sweep=sweep, title=title or sweep)


def drawn(draw, *needs, **names):
    with matplotlib.style.context(SHEET):
        return draw(*needs, **names)


@pytest.mark.parametrize(("subject", "name"), [("sweeps", "demo"), ("head", ""), ("sweep", "no")])
def test_a_subject_that_has_no_figures_is_refused_in_a_line(subject, name):
    with pytest.raises(ConfigError, match=r"choose run, sweep, |'no' is not in the config: demo"):
        draw(Store(simulation.demo()), subject, name)


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_has_its_files_words_and_numbers(simulated, name):
    root, folder = simulated("whole")[0].parents[1], simulated("whole")[0] / "figures"
    wanted = {f"{name}.{suffix}" for suffix in SUFFIXES} | {f"{name}.json.run.json"}
    assert {file.name for file in folder.glob(f"{name}.*")} == wanted
    words = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert all(fact in words["caption"] for fact in ("interval", "test", "n = "))
    assert "…" not in words["title"] + words["caption"]
    assert len(words["caption"].replace("n = ", "").split()) <= 45
    assert 15 < len(words["alt"].split()) <= 50
    assert all((root / source).exists() for source in words["sources"])
    assert len(pd.read_csv(folder / f"{name}.csv")) >= 10
    pdf = (folder / f"{name}.pdf").read_bytes()
    assert [part in pdf for part in (b"/FontFile2", b"/Type3", b"Date")] == [True, False, False]


def test_fonts_in_a_pdf_have_glyphs_and_nothing_that_places_them(simulated):
    content = (simulated("whole")[0] / "figures/levels.pdf").read_bytes()
    found = re.findall(rb"/FlateDecode.*?stream\n(.*?)\nendstream", content, re.DOTALL)
    streams = list(map(zlib.decompress, found))
    fonts = [TTFont(io.BytesIO(each)) for each in streams if each[:4] == b"\0\1\0\0"]
    assert fonts
    for font in fonts:
        assert 1 < len(font["glyf"].keys()) < 200
        assert not {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys())
    maps = b"".join(each for each in streams if b"beginbf" in each)
    assert len(maps) > 100  # glyphs are characters again where text is selected


def test_labels_are_moved_apart_as_little_as_needed():
    wanted = np.array([0.1, 0.5, 0.51, 0.52, 0.9])
    placed = spaced(wanted, 0.06)
    assert np.all(np.diff(placed) >= 0.06 - 1e-12)
    assert placed == pytest.approx([0.1, 0.45, 0.51, 0.57, 0.9])


def test_pass_at_n_has_the_paper_s_methods_and_compares_nothing_with_fewer_answers():
    table, paired = simulation.simulated_curves()
    short = paired["method"].eq("random heads") & paired["n"].gt(4)
    figure = drawn(curves, table, paired[~short], 61, "ball, λ = 0.1")
    left, right = figure.image.axes
    printed = {"SPRINT: ball, λ = 0.1", "random heads"} | {
        f"sampling T={t}" for t in (0.1, 0.6, 0.9)
    }
    assert {text.get_text() for text in left.texts} == printed
    assert (len(left.lines), len(left.collections)) == (5, 2)
    fewer = paired["method"].isin(["base greedy", "best single head"]) & (paired["n"] > 1)
    shown = paired[paired["n"].isin([1, 4, 16]) & ~short & ~fewer & (paired["method"] != ORACLE)]
    assert len([line for line in right.lines if len(line.get_xdata()) == 2]) - 1 == len(shown)
    assert "SPRINT 84.0%" in figure.alt
    rows = [label.get_text() for label in right.get_yticklabels()]
    assert [row for row in rows if "one answer" in row] == [
        "best single head (one answer)",
        "base greedy (one answer)",
    ]


def test_curves_of_one_answer_have_room_around_it():
    table, paired = simulation.simulated_curves()
    left = drawn(curves, table[table["n"] == 1], paired[paired["n"] == 1], 61, "").image.axes[0]
    assert left.get_xlim() == (0.5, 2)


def test_a_long_subject_leaves_the_columns_their_titles(z):
    long = z.assign(subject="a" * 45 + "b" * 45)
    image = drawn(heatmap, long, VARIANTS, 4).image
    image.savefig(io.BytesIO())  # here a layout that collapses is an error
    titles = [label.get_text() for label in image.axes[0].get_xticklabels()]
    assert f"{'a' * 23}…, n = 119" in titles


@pytest.mark.filterwarnings("default:Glyph:UserWarning")
def test_warnings_of_drawing_stand_in_the_log(z, tmp_path, monkeypatch, caplog, recwarn):
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "headsweep.page.figures")
    needs = z.assign(subject="数"), VARIANTS
    draw_exhibit(find_exhibit("heatmap"), "r", "demo", needs, [], layer=4)
    [record] = caplog.records
    assert record.levelname == "INFO"
    assert record.message.startswith("Glyph 25968")
    assert not recwarn.list


def test_a_curve_that_ends_early_is_named_where_it_ends():
    table, paired = simulation.simulated_curves()
    beyond = table["method"].eq("random heads") & table["n"].gt(4)
    figure = drawn(curves, table[~beyond], paired, 61, "")
    last = 100 * table[table["method"].eq("random heads") & table["n"].eq(4)]["pass_at_n"].iloc[0]
    assert f"random heads {last:.1f}% with 4" in figure.alt
    assert "At N = 16" in figure.alt
    (named,) = [text for text in figure.image.axes[0].texts if text.get_text() == "random heads"]
    assert named.xy == (4, pytest.approx(last))


def test_the_largest_gains_are_named_with_their_heads_and_no_median_stretches_the_axis(z):
    figure = drawn(violins, gained(z))
    left, right = figure.image.axes
    found = [label.get_text() for label in right.get_yticklabels()]
    wanted = []
    for subject, part in z.groupby("subject"):
        for layer in (1, 4):
            shares = {name: part[name].mean() for name in NAMES if name.startswith(f"L0{layer}")}
            best = max(shares, key=shares.get)
            label = f"{best} {short(subject, 24)}, n = {len(part)}"
            wanted.append((part["base"].mean() - shares[best], label))
    wanted.sort(key=lambda row: row[0])
    assert sorted(found) == sorted(label for _, label in wanted[: len(found)]) and len(found) == 12
    assert "median head" in left.get_xticklabels()[0].get_text()
    drawn_values = figure.data[["gain", "by_chance"]].to_numpy()
    low, high = left.get_ylim()
    assert low > 100 * drawn_values.min() - 10 and high < 100 * drawn_values.max() + 10


def test_a_heatmap_has_the_colours_of_all_layers_and_bold_where_a_difference_is_shown(z):
    shown = []
    for layer in (1, 4):
        axes, _ = drawn(heatmap, z, VARIANTS, layer).image.axes
        (mesh,) = axes.images
        shown.append(mesh.get_clim())
        assert mesh.colorbar.extend == "both"
        assert not [text for text in axes.texts if text.get_fontweight() == "bold"]
    assert shown[0] == shown[1]
    everywhere = z.assign(**dict.fromkeys(NAMES[:-1], 0), L04H02=1)
    axes, _ = drawn(heatmap, everywhere, VARIANTS, 4).image.axes
    bold = {text.get_position()[1] for text in axes.texts if text.get_fontweight() == "bold"}
    assert bold == {3}  # head 2; No Prune is never bold


def test_equal_gains_no_levels_and_a_single_head_are_drawn_and_names_are_no_formulas(z):
    equal = z.assign(**dict.fromkeys(NAMES, z["base"]), level=None)
    gains = gained(equal, r"$\bad{")
    figure = drawn(violins, gains)
    assert (figure.data["gain"] == 0).all()
    with matplotlib.style.context(SHEET):
        figure.image.savefig(svg := io.StringIO(), format="svg")
    assert r"$\bad{" in svg.getvalue()
    assert drawn(levels, gains).alt == f"{EMPTY} No question of this run has a level."
    alone = [BASE, *heads([4], [2])]
    alt = drawn(heatmap, z, alone, layer=4).alt
    assert "1 head." in alt and alt.count("head 2 ") == 1
    assert "One head" in drawn(agreement, z, alone).alt
    losing = simulated_studies.study(arms=["baseline"], variations={}, int8=[])
    assert drawn(losses, simulated_studies.results(losing, examples=30)).alt.startswith(EMPTY)


def test_a_single_level_is_told_of_once(z):
    alt = drawn(levels, gained(z.assign(level=3))).alt
    assert alt.count("at Level 3") == 1 and " from " not in alt


def test_levels_are_told_of_in_their_order(z):
    numbers = np.where(z.index < 60, 2, 10)
    alt = drawn(levels, gained(z.assign(level=numbers))).alt
    assert alt.index("at Level 2") < alt.index("at Level 10")


def test_placebos_of_some_layers_only_are_drawn_and_have_a_median(z):
    gains = gained(z).assign(numeric=[*[np.nan] * 3, *np.linspace(0.01, 0.05, len(gained(z)) - 3)])
    figure = drawn(violins, gains)
    texts = [text.get_text() for text in figure.image.axes[0].texts]
    assert not [text for text in texts if "nan" in text]
    assert len(texts) == 3  # best, numeric, median


def test_a_map_without_an_outcome_says_so():
    heads = pd.DataFrame(columns=OUTCOMES_OF_HEADS)
    assert "Fewer than two questions" in drawn(scored_map, heads).alt


def test_the_colours_of_a_map_say_that_they_end_before_its_heads_do():
    rows = [("likelihood", "head", 0, head, f"L00H{head:02}", head / 10) for head in range(12)]
    heads = pd.DataFrame(rows, columns=["outcome", "kind", "layer", "head", "variant", "change"])
    figure = drawn(scored_map, heads.assign(shown=None, n=9))
    (mesh,) = figure.image.axes[0].images
    assert mesh.colorbar.extend == "both"
    assert mesh.norm.vmax == pytest.approx(0.99) == strongest(heads["change"])


def test_agreement_is_the_share_of_equal_outcomes(z):
    figure = drawn(agreement, z, VARIANTS)
    found = figure.data.set_index(["first", "second"])
    assert len(found) == 21
    for first, second in itertools.combinations(NAMES, 2):
        p, q = z[first].mean(), z[second].mean()
        wanted = [(z[first] == z[second]).mean(), p * q + (1 - p) * (1 - q)]
        assert found.loc[(first, second)].tolist() == pytest.approx(wanted)
    assert f"on {figure.facts['median']} of the questions" in figure.alt
    alike = pd.DataFrame({name: [1, 0, 1] for name in NAMES})
    assert (drawn(agreement, alike, VARIANTS).data["agreement"] == 1).all()


def test_what_differs_is_marked_and_few_groups_fit_into_a_column(z):
    figure = drawn(heatmap, z, VARIANTS, layer=4)
    marked = int((figure.data["q"] < 0.05).sum())
    assert len(figure.image.axes[0].collections) == marked > 1  # triangles
    few = drawn(heatmap, z.assign(subject="Algebra", level=None), VARIANTS, layer=1)
    widths = [each.image.get_figwidth() for each in (figure, few)]
    assert widths == [TWO_COLUMNS, ONE_COLUMN]


def test_principal_components_are_those_of_scikit_learn_up_to_sign():
    vectors = np.random.default_rng(3).normal(size=(37, 5)) * [5, 4, 3, 2, 1]
    names = [*NAMES[1:4], *(f"q{number}" for number in range(34))]
    points = pd.DataFrame({"kind": ["head"] * 3 + ["question"] * 34, "name": names})
    figure = drawn(space, points.assign(vector=list(vectors)), pd.Series({"q7": 0.25}))
    reference = PCA(2).fit(vectors)
    assert f"{100 * reference.explained_variance_ratio_.sum():.1f}%" == figure.facts["kept"]
    found = figure.data.set_index("name")
    assert np.abs(found[["x", "y"]].to_numpy()) == pytest.approx(
        np.abs(reference.transform(vectors))
    )
    assert found["layer"].dropna().tolist() == [1, 1, 1]
    assert found.loc["q7", "solved"] == 0.25
    assert [text.get_text() for text in figure.image.axes[0].texts] == ["0", "1", "2"]
    other = points.assign(vector=list(vectors)).replace(
        {"name": {NAMES[1]: "L09H05", NAMES[2]: "base"}}
    )
    (axes, *_) = drawn(space, other, pd.Series(dtype=float)).image.axes
    assert [text.get_text() for text in axes.texts] == ["9", "base", "1"]
    narrow = points.assign(vector=[[x] for x in vectors[:, 0]])
    assert (drawn(space, narrow, pd.Series(dtype=float)).data["y"] == 0).all()


def test_levels_draw_an_interval_for_each_layer_and_level(z):
    table = gained(z)
    (panel,) = drawn(levels, table).image.axes
    lines = [line[:, 1] for line in panel.collections[0].get_segments() if len(line)]
    ends = table.query("by == 'level'")[["low", "high"]].dropna()  # few have no held-out gain
    assert np.array(lines) == pytest.approx(100 * ends.to_numpy(float))


def test_sweeps_are_labelled_with_their_titles_whole_and_stay_apart(z):
    called = "qwen2.5-math-1.5b, authors' grading, layers 0, 5, 15, 27"
    parts = [gained(z, f"s{place}", called) for place in range(9)]
    image = drawn(violins, gains := pd.concat(parts)).image
    with matplotlib.style.context(SHEET):
        image.draw_without_rendering()
    ticks = image.axes[0].get_xticklabels()
    of_subjects = parts[0].query("by == 'subject'")
    pairs, median = len(of_subjects), points(of_subjects["median"].median())
    assert [" ".join(tick.get_text().split()) for tick in ticks] == [
        f"{called.replace('-math', '- math')} {pairs} pairs median head {median}"
    ] * 9
    boxes = [tick.get_window_extent() for tick in ticks]
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))
    panels = drawn(levels, gains).image.axes
    headings = [panel.get_title(loc="left").replace("\n", " ") for panel in panels[:9]]
    assert headings == [called] * 9


def test_layers_are_those_of_the_papers_tables():
    table = head_pruning(simulation.PUBLISHED).query("exhibit != 'Figure 5'")
    layers = table.groupby("model")["layer"].unique().map(sorted)
    assert layers.to_dict() == {model: list(own) for model, own in LAYERS.items()}


def test_losses_count_steps_over_all_rounds():
    results = simulated_studies.results()
    figure = drawn(losses, results)
    task = figure.data[(figure.data["part"] == "task") & (figure.data["seed"] == 0)]
    assert list(task["step"]) == list(range(20, 241, 20))
    assert set(figure.data["part"]) == {"task", "response", "feature"}
    assert task["heads"].drop_duplicates().tolist() == [23, 21, 20, 18]
    assert figure.data["seed"].nunique() == 3
    left = figure.image.axes[1].lines[0]
    assert list(left.get_xdata()) == [0, 0, 60, 120, 180, 240]
    assert list(left.get_ydata()) == [24, 23, 21, 20, 18, 18]


def contrast(*colors):
    dark, light = sorted(map(style.luminance, colors))
    return (light + 0.05) / (dark + 0.05)


def test_methods_differ_in_colour_and_in_grey_and_all_text_and_lines_are_legible():
    line_of = {method: style.method_line(method) for method in simulation.METHODS}
    curves_of = [name for name in line_of if name in (SPRINT, RANDOM) or is_sampling(name)]
    lines = [line_of[name] for name in curves_of]
    assert {line.color for line in lines[1:4]} == set(style.ORANGE)
    assert max(lines, key=lambda line: line.width) is lines[0]
    for first, second in itertools.combinations(lines, 2):
        looks = [(line.dashes, line.marker, line.width > 2) for line in (first, second)]
        assert contrast(first.color, second.color) > 1.3 or looks[0] != looks[1]
    assert abs(contrast("#777777", "#ffffff") - 4.48) < 0.01  # by WCAG 2, of 1 to 21
    assert contrast(style.INK, style.SURFACE) > 7
    assert contrast(style.MUTED, style.SURFACE) > 4.5
    assert all(contrast(line.color, style.SURFACE) > 3 for line in line_of.values())
    for position in np.linspace(0, 1, 41):
        cell = style.DIVERGING(position)[:3]
        assert contrast(style.legible(cell), cell) > 4.5
    sheet = SHEET.read_text(encoding="utf-8")
    used = {"text.": style.INK, "axes.edge": style.MUTED, "grid.": style.GRID}
    assert all(f"{setting}color: {color[1:]}" in sheet for setting, color in used.items())


def test_families_are_drawn_as_in_their_tables_and_marks_filled_that_the_test_leaves(simulated):
    names, folder = ("curves", "paired", "families"), simulated("whole")[0] / "frontier/math"
    table, paired, families = (pd.read_csv(folder / f"{name}.csv") for name in names)
    tested = paired.query("order == 'ordered' and adjusted == adjusted and versus == 'sampling'")
    # Not the interval decides.
    paired.loc[tested.query("family == 'skip'").index, "adjusted"] = 0.2, 0.04
    figure = drawn(frontier, table, paired, families)
    left, right = figure.image.axes
    lines = [line for line in left.lines if len(line.get_xdata())]
    assert len(lines) == 2 * len(families)  # solved, and right by vote
    marks_of_color = {}
    for line in lines:
        marks_of_color.setdefault(line.get_color(), set()).add(line.get_marker())
    assert all(len(marks) == 1 for marks in marks_of_color.values())  # of both a family's curves
    assert len(set.union(*marks_of_color.values())) == len(families) == len(marks_of_color)
    heads = table.query("order == 'ordered' and family == 'head'")
    own = [line for line in lines if to_rgba(line.get_color()) == to_rgba(BLUE)]
    for line, outcome in zip(own, ("pass", "majority"), strict=True):
        assert line.get_xdata() == pytest.approx(heads["answers"])
        assert line.get_ydata() == pytest.approx(100 * heads[outcome])
    marks = {
        round(float(line.get_xdata()[0]), 6): line.get_markerfacecolor() != SURFACE
        for line in right.lines
        if len(line.get_xdata()) == 1
    }
    filled = paired.loc[tested.index, "adjusted"] < 0.05
    assert marks == dict(zip((100 * tested["difference"]).round(6), filled, strict=True))
    titles = families["title"].tolist()
    assert [text.get_text() for text in right.get_yticklabels()] == titles[:-1]
    assert "heads −20.0 (−25.5 to −14.1)" in figure.alt and "sampling 100.0%, " in figure.alt
    assert (set(figure.data["order"]), figure.facts["n"]) == ({"ordered"}, 200)
    alone = drawn(frontier, table, paired.head(0), families)  # without samples, nothing is paired
    assert not [line for line in alone.image.axes[1].lines if len(line.get_xdata()) == 1]
