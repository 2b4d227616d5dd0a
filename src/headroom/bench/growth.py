"""How the time of a sweep grows with heads, questions and the length of answers."""

from dataclasses import replace
from pathlib import Path

from headroom.bench.measure import REFERENCE, TORCH, Bench, Measurements
from headroom.bench.rivals import RIVALS
from headroom.bench.work import Work
from headroom.tables import atomic

_FRACTIONS = (0.125, 0.25, 0.5, 1.0)
_COMPARED = (REFERENCE, "engine")

Curves = dict[str, dict[str, list[tuple[int, float]]]]
"""(size, seconds), by what grows and by rival."""


def measure(bench: Bench, found: Measurements, work: Work) -> Curves:
    """Time parts of a sweep with the published way and the engine, at their best settings."""
    curves: Curves = {}
    for axis, parts in _parts(work).items():
        curves[axis] = {}
        for name in _COMPARED:
            row = found.row(name)
            if row is None:
                continue
            crew = bench.crew(TORCH, row.best)
            curves[axis][name] = [
                (size, crew.measure(name, part, RIVALS[name].split).seconds) for size, part in parts
            ]
    return curves


def _parts(work: Work) -> dict[str, list[tuple[int, Work]]]:
    def sizes(whole: int) -> list[int]:
        return sorted({max(1, round(fraction * whole)) for fraction in _FRACTIONS})

    return {
        "heads": [(n, work.first(variants=n + 1)) for n in sizes(len(work.variants) - 1)],
        "questions": [(n, work.first(questions=n)) for n in sizes(len(work.prompts))],
        "tokens an answer at most": [
            (n, replace(work, max_new_tokens=n)) for n in sizes(work.max_new_tokens)
        ],
    }


def draw(curves: Curves, output: Path) -> None:
    """Draw one panel for each thing that grows; the file's suffix decides the format."""
    from matplotlib.figure import Figure

    from headroom.figures.style import TWO_COLUMNS, theme

    with theme("light") as colors:
        figure = Figure(figsize=(TWO_COLUMNS, TWO_COLUMNS / 3), layout="constrained")
        panels = figure.subplots(1, len(curves), sharey=True)
        for axes, (axis, rivals) in zip(panels, curves.items(), strict=True):
            for (name, points), color in zip(
                rivals.items(), (colors.vermillion, colors.blue), strict=False
            ):
                axes.plot(*zip(*points, strict=True), marker="o", color=color, label=name)
            axes.set_xlabel(axis)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel("seconds")
        panels[0].legend()
        output.parent.mkdir(parents=True, exist_ok=True)
        with atomic(output) as temporary:
            figure.savefig(temporary, format=output.suffix[1:])
