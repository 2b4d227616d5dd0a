"""The palette for colour-blind readers and for print in grey."""

import itertools

import numpy as np
import pytest
import simulation
from matplotlib.colors import to_rgb

from headroom.figures.style import THEMES, diverging, method_line, sequential

# Machado, Oliveira and Fernandes 2009, table 1: severity 1, for linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array(
    [[0.412391, 0.357584, 0.180481], [0.212639, 0.715169, 0.072192], [0.019331, 0.119195, 0.950532]]
)


def lab(color, vision: str) -> np.ndarray:
    """Return CIE L*a*b* of an sRGB colour as somebody sees it."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / (XYZ @ np.ones(3))
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(first, second, vision: str) -> float:
    """Return ΔE (CIE 1976); 2.3 is just noticeable."""
    return float(np.linalg.norm(lab(first, vision) - lab(second, vision)))


def test_lab_is_that_of_the_standard():
    assert lab("#ffffff", "usual") == pytest.approx([100, 0, 0], abs=0.01)
    assert lab("#ff0000", "usual") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("name", THEMES)
def test_colours_that_mean_different_things_stay_apart(name, vision):
    colors = THEMES[name]
    meanings = (colors.blue, colors.vermillion, colors.muted)  # helps, hurts, neither
    for first, second in itertools.combinations(meanings, 2):
        assert distance(first, second, vision) > 15


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("name", THEMES)
def test_methods_differ_in_colour_or_in_dashes_and_marks(name, vision):
    lines = [method_line(method, THEMES[name]) for method in simulation.METHODS]
    for first, second in itertools.combinations(lines, 2):
        apart = distance(first.color, second.color, vision) > 10
        assert apart or (first.dashes, first.marker) != (second.dashes, second.marker)


@pytest.mark.parametrize("name", THEMES)
def test_methods_can_be_told_apart_in_grey(name):
    lines = [method_line(method, THEMES[name]) for method in simulation.METHODS]
    for first, second in itertools.combinations(lines, 2):
        grey = abs(lab(first.color, "usual")[0] - lab(second.color, "usual")[0])
        looks = [(line.dashes, line.marker, line.width > 2) for line in (first, second)]
        assert grey > 10 or looks[0] != looks[1]


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("name", THEMES)
def test_worse_and_better_stay_apart_on_the_map_of_differences(name, vision):
    colormap = diverging(THEMES[name])
    for reach in (0.25, 0.5):
        worse, better = (colormap(0.5 + sign * reach)[:3] for sign in (-1, 1))
        assert distance(worse, better, vision) > 15
        assert distance(worse, colormap(0.5)[:3], vision) > 8
        assert distance(better, colormap(0.5)[:3], vision) > 8


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("name", THEMES)
def test_lightness_alone_orders_the_map_of_amounts(name, vision):
    colormap = sequential(THEMES[name])
    lightness = [lab(colormap(amount)[:3], vision)[0] for amount in np.linspace(0, 1, 21)]
    steps = np.diff(lightness) * (-1 if name == "light" else 1)
    assert (steps > 1).all()
