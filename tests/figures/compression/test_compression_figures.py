import json
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import simulated_trials
from matplotlib.backends.backend_agg import FigureCanvasAgg

from conftest import PUBLISHED
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import read_trial, sources
from headroom.figures.compression.alpha import alpha
from headroom.figures.compression.importance import importance
from headroom.figures.compression.losses import losses
from headroom.figures.compression.pareto import pareto
from headroom.figures.drawing import EMPTY, SUFFIXES, save
from headroom.figures.style import theme

FIGURES = ("pareto", "importance", "losses", "alpha")


@pytest.fixture(scope="module")
def trial():
    return simulated_trials.trial()


def least():
    return simulated_trials.study(arms=["baseline", "full"], variations={}, seeds=[3], int8=[])


def drawn(draw, *arguments):
    with theme("light") as colors:
        return draw(*arguments, colors)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_files_words_and_numbers(compressed, name):
    folder = compressed[0] / "results/compressed/figures"
    for suffix in SUFFIXES:
        assert (folder / f"{name}_asdiv.{suffix}").stat().st_size > 0
    words = json.loads((folder / f"{name}_asdiv.json").read_text(encoding="utf-8"))
    assert len(words["alt"]) > 80
    for fact in ("tiny on asdiv_a", "interval", "test", "n = "):
        assert fact in words["caption"]
    assert len(words["sources"]) == 3
    assert all((compressed[0] / source).exists() for source in words["sources"])
    assert len(pd.read_csv(folder / f"{name}_asdiv.csv")) >= 10
    assert b"Date" not in (folder / f"{name}_asdiv.pdf").read_bytes()


def test_equal_data_give_equal_bytes(compressed, tmp_path, monkeypatch):
    monkeypatch.chdir(compressed[0])
    trial = read_trial(compressed[1], "asdiv")
    template = str(tmp_path / "pareto_asdiv.{suffix}")
    for file in save(template, partial(pareto, trial), sources(compressed[1], "asdiv")):
        first = compressed[0] / "results/compressed/figures" / file.name
        assert first.read_bytes() == file.read_bytes(), file.name


def test_where_there_is_nothing_to_draw_a_sentence_says_so():
    figure = drawn(alpha, simulated_trials.trial(least()), Published.read(PUBLISHED))
    assert figure.alt.startswith(EMPTY)
    assert figure.image.texts[0].get_text() == "No two arms of asdiv differ in alpha only."
    assert figure.data.empty
    assert len(figure.data.columns)


def test_no_arm_that_removes_heads_no_importance_and_no_losses():
    own = simulated_trials.study(arms=["baseline"], variations={}, int8=[])
    still = simulated_trials.trial(own, examples=30)
    for draw in (importance, losses):
        assert drawn(draw, still).alt.startswith(EMPTY)
    assert len(drawn(pareto, still).data) == 1


def test_labels_of_arms_and_ratios_do_not_overlap(trial):
    image = drawn(pareto, trial).image
    FigureCanvasAgg(image).draw()
    left, right = image.axes
    ratios = [text.get_window_extent() for text in left.texts]
    assert len(ratios) == 6
    assert not any(a.overlaps(b) for a, b in combinations(ratios, 2))
    baselines = [label.get_window_extent().x1 for label in right.get_xticklabels()]
    spacing = np.diff(baselines).min()
    height = 7 / 72 * image.dpi
    assert spacing * np.sin(np.radians(45)) > height  # between slanted lines of text


def test_pareto_draws_each_arm_with_its_interval_and_size(trial):
    data = drawn(pareto, trial).data.set_index(["arm", "quantised"])
    assert len(data) == len(trial.settings) + 2
    assert data.loc[("full", False), "whole"] == simulated_trials.whole(6)
    assert data.loc[("full", True), "whole"] == simulated_trials.whole(6)
    assert (data["low"] <= data["accuracy"]).all()
    assert data.loc[("small_from_scratch", False), "kind"] == "from scratch"
    assert data.loc[("joint_single_teacher", False), "kind"] == "first teacher"


def test_importance_says_when_each_head_went(trial):
    figure = drawn(importance, trial)
    removed = figure.data.dropna(subset="removed")
    rounds = trial.first_history("full")["rounds"]
    for number, each in enumerate(rounds, start=1):
        heads = {
            f"L{layer:02}H{head:02}"
            for layer, head in removed.loc[
                removed["removed"] == number, ["layer", "head"]
            ].to_numpy()
        }
        assert heads == {head for removal in each["removals"] for head in removal["heads"]}
    shown = [text.get_text() for text in figure.image.axes[0].texts]
    assert sorted(shown) == sorted(removed["removed"].astype(str))
    assert len(figure.data) == 24


def test_one_round_of_many_removals_is_counted_in_removals():
    own = simulated_trials.study(
        arms=["baseline", "full"], variations={}, int8=[], method={"schedule": "literal"}
    )
    literal = simulated_trials.trial(own, examples=30)
    for history in literal.histories["full"].values():
        (only,) = history["rounds"]
        (removal,) = only["removals"]
        only["removals"] = [
            {**removal, "step": 5 * place, "heads": [head]}
            for place, head in enumerate(removal["heads"])
        ]
    figure = drawn(importance, literal)
    assert sorted(figure.data["removed"].dropna()) == [1, 2, 3, 4, 5, 6]
    assert "removal that took" in figure.caption
    heads = drawn(losses, literal).image.axes[1].lines[0].get_ydata()
    assert list(heads) == [24, 23, 22, 21, 20, 19, 18, 18]


def test_losses_count_steps_over_all_rounds(trial):
    figure = drawn(losses, trial)
    task = figure.data[(figure.data["part"] == "task") & (figure.data["seed"] == 0)]
    assert list(task["step"]) == list(range(20, 241, 20))
    assert set(figure.data["part"]) == {"task", "response", "feature"}
    assert task["heads"].drop_duplicates().tolist() == [23, 21, 20, 18]
    assert figure.data["seed"].nunique() == 3
    steps = figure.image.axes[1].lines[0].get_xdata()
    assert list(steps) == [0, 0, 60, 120, 180, 240]


def test_mixtures_are_drawn_as_changes_with_the_paper_s_beside(trial):
    data = drawn(alpha, trial, Published.read(PUBLISHED)).data
    own = data[data["source"] == "this run"]
    assert own.groupby("distilled").size().to_dict() == {True: 5, False: 5}
    theirs = data[(data["source"] == "published") & data["distilled"]].set_index("alpha")["change"]
    assert 100 * theirs.to_numpy() == pytest.approx([-1.3, -0.6, -0.4, -0.9, -13.2])
    assert data.loc[data["source"] == "published", "change_low"].isna().all()
