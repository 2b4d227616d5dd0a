"""The palette: legible, and distinct in colour and in print in grey."""

import itertools

import numpy as np

import simulation
from headroom.figures import style

LINES = [style.method_line(method) for method in simulation.METHODS]


def contrast(*colors) -> float:
    """Return the WCAG 2 contrast ratio of two colours, 1 to 21."""
    dark, light = sorted(map(style.luminance, colors))
    return (light + 0.05) / (dark + 0.05)


def test_no_two_methods_look_the_same_in_colour_or_in_grey():
    assert len({(line.color, line.dashes) for line in LINES}) == len(LINES)
    hues = {style.method_line(f"sampling T={t}").color for t in (0.1, 0.6, 0.9)}
    assert hues == set(style.ORANGE)
    assert max(LINES, key=lambda line: line.width) is LINES[0]
    for first, second in itertools.combinations(LINES, 2):
        looks = [(line.dashes, line.marker, line.width > 2) for line in (first, second)]
        assert contrast(first.color, second.color) > 1.3 or looks[0] != looks[1]


def test_every_colour_of_text_and_lines_is_legible():
    assert abs(contrast("#ffffff", "#000000") - 21) < 1e-9
    assert abs(contrast("#777777", "#ffffff") - 4.48) < 0.01
    assert contrast(style.INK, style.SURFACE) > 7
    assert contrast(style.MUTED, style.SURFACE) > 4.5
    assert all(contrast(line.color, style.SURFACE) > 3 for line in LINES)
    for position in np.linspace(0, 1, 41):
        cell = style.DIVERGING(position)[:3]
        assert contrast(style.legible(cell), cell) > 4.5
    sheet = style.SHEET.read_text(encoding="utf-8")
    for setting, color in (("text", "INK"), ("axes.edge", "MUTED"), ("grid.", "GRID")):
        assert f"{setting}color: {getattr(style, color)[1:]}".replace("text", "text.") in sheet
