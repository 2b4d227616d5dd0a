"""The palette for colour-blind readers and for print in grey."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import simulation
from headroom.figures import style

LINES = [style.method_line(method) for method in simulation.METHODS]

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
def test_colours_that_mean_different_things_stay_apart(vision):
    meanings = (style.BLUE, style.VERMILLION, style.MUTED)  # helps, hurts, neither
    for first, second in itertools.combinations(meanings, 2):
        assert distance(first, second, vision) > 15
    for first, second in itertools.combinations(LINES, 2):
        apart = distance(first.color, second.color, vision) > 10
        assert apart or (first.dashes, first.marker) != (second.dashes, second.marker)
    for reach in (0.25, 0.5):
        worse, better = (style.DIVERGING(0.5 + sign * reach)[:3] for sign in (-1, 1))
        assert distance(worse, better, vision) > 15
        assert distance(worse, style.DIVERGING(0.5)[:3], vision) > 8
        assert distance(better, style.DIVERGING(0.5)[:3], vision) > 8
    amounts = np.linspace(0, 1, 21)
    lightness = [lab(style.SEQUENTIAL(amount)[:3], vision)[0] for amount in amounts]
    assert (np.diff(lightness) < -1).all()


def test_no_two_methods_look_the_same_in_colour_or_in_grey():
    assert len({(line.color, line.dashes) for line in LINES}) == len(LINES)
    hues = {style.method_line(f"sampling T={t}").color for t in (0.1, 0.6, 0.9)}
    assert hues == set(style.ORANGE)
    assert max(LINES, key=lambda line: line.width) is LINES[0]
    for first, second in itertools.combinations(LINES, 2):
        grey = abs(lab(first.color, "usual")[0] - lab(second.color, "usual")[0])
        looks = [(line.dashes, line.marker, line.width > 2) for line in (first, second)]
        assert grey > 10 or looks[0] != looks[1]


def test_every_colour_of_text_and_lines_is_legible():
    assert style.contrast("#ffffff", "#000000") == pytest.approx(21)
    assert style.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert style.contrast(style.INK, style.SURFACE) > 7
    assert style.contrast(style.MUTED, style.SURFACE) > 4.5
    assert all(style.contrast(line.color, style.SURFACE) > 3 for line in LINES)
    for position in np.linspace(0, 1, 41):
        cell = style.DIVERGING(position)[:3]
        assert style.contrast(style.legible(cell), cell) > 4.5
    sheet = style.SHEET.read_text(encoding="utf-8")
    for setting, color in (("text", "INK"), ("axes.edge", "MUTED"), ("grid.", "GRID")):
        assert f"{setting}color: {getattr(style, color)[1:]}".replace("text", "text.") in sheet
