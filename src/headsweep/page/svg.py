"""Figures of the page as inline SVG: x in percent of the width, y in pixels.

In this way one copy fits every width without scaling its text, and style sheets colour it for both
themes. `page.css` styles the classes named here.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

_ROW = 22  # height of a strip in pixels
_LINE = 14  # smallest vertical distance of two labels in pixels

Points = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; values outside are placed at its ends."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], limit: float = math.inf) -> "Scale":
        """Return a scale that covers some values and zero, clipped at ±limit."""
        numbers = [value for value in values if not math.isnan(value)]
        low = max(-limit, min([0.0, *numbers]))
        high = min(limit, max([0.0, *numbers]))
        space = 0.06 * (high - low or 1)
        if high > 0 or low == high:
            high += space
        if low < 0:
            low -= space
        return cls(low, high)

    @classmethod
    def doublings(cls, values: Iterable[float]) -> "Scale":
        """Return a logarithmic scale that covers some values; others than positive ones lie low."""
        above = [value for value in values if value > 0] or [1.0]
        return cls(min(above), max(above), log=True)

    def share(self, value: float) -> float:
        """Return the position of a value in percent of the axis."""
        place = math.log if self.log else float
        low, high = place(self.low), place(self.high)
        within = max(value, self.low) if self.log else value
        share = 100 * (place(within) - low) / (high - low or 1)
        return round(min(100.0, max(0.0, share)), 2)

    def ticks(self) -> list[float]:
        """Return about five round values; on a logarithmic axis, doublings."""
        if self.log:
            doublings = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            return [2.0**power for power in doublings]
        rough = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [step * number for number in range(first, last + 1)]


def strip(scale: Scale, marks: Mapping[str, float], interval: tuple[float, float]) -> Markup:
    """Return a row of marks, values by their class, with an interval; NaN is left out.

    What lies beyond the scale, a mark or an end of the interval, is an arrow at its end. The row is
    hidden from screen readers.
    """
    middle = _ROW / 2
    parts = [_line(scale.share(0), 0, scale.share(0), _ROW, "zero")]
    if not any(map(math.isnan, interval)):
        low, high = map(scale.share, interval)
        parts.append(_line(low, middle, high, middle, "interval"))
    beyond = [end for end in interval if end < scale.low or end > scale.high]
    for kind, value in marks.items():
        if math.isnan(value):
            continue
        at = scale.share(value)
        if not scale.low <= value <= scale.high:
            beyond.append(value)
        elif kind == "bar":
            parts.append(_line(at, 3, at, _ROW - 3, "bar"))
        else:
            parts.append(_mark(kind, at, middle))
    if any(value < scale.low for value in beyond):
        parts.append(_text(0, middle + 4, "◂", "arrow start"))
    if any(value > scale.high for value in beyond):
        parts.append(_text(100, middle + 4, "▸", "arrow end"))
    return _svg(_ROW, parts, "strip")


def ruler(scale: Scale, form: Callable[[float], str]) -> Markup:
    """Return the ticks below a table of strips."""
    ticks = {tick: form(tick).removesuffix(".0") for tick in scale.ticks()}
    labels = [_text(scale.share(tick), 11, text, "middle") for tick, text in ticks.items()]
    return _svg(14, labels, "strip ruler")


@dataclass
class Chart:
    """A figure with two axes.

    `alt` is its alternative text; `form` has a format of the ticks for each axis. Marks and labels
    have a class (`kind`) that styles them.
    """

    x: Scale
    y: Scale
    height: int
    alt: str
    form: tuple[str, str]
    parts: list[Markup] = field(default_factory=list)
    labels: list[tuple[float, str, str]] = field(default_factory=list)

    def curve(self, points: Points, label: str, kind: str, band: Points = ()) -> None:
        """Draw a curve with its label at its end, and its band as (x, low, high)."""
        lower = [(x, low) for x, low, _ in band]
        upper = [(x, high) for x, _, high in band]
        around = self._path([*lower, *reversed(upper)], f"band {kind}") if band else ""
        # The curve is stretched to the width; the style sheet keeps its stroke width.
        box = 'width="100%" height="{0}" viewBox="0 0 100 {0}" preserveAspectRatio="none"'
        path = self._path(points, f"line {kind}")
        self.parts.append(Markup(f"<svg {box}>{{1}}{{2}}</svg>").format(self.height, around, path))
        for point in points:
            x, y = self._at(*point)
            self.parts.append(_mark(f"dot {kind}", x, y))
        self.labels.append((self._at(*points[-1])[1], label, kind))

    def level(self, y: float, label: str) -> None:
        """Draw a dashed horizontal line with its label."""
        at = self._at(self.x.high, y)[1]
        self.parts.append(_line(0, at, 100, at, "level"))
        self.labels.append((at, label, "level"))

    def svg(self) -> Markup:
        """Return the figure; labels stand right of the plot."""
        grid = []
        for tick in self.y.ticks():
            at = self._at(self.x.low, tick)[1]
            grid.append(_line(0, at, 100, at, "zero" if tick == 0 else "grid"))
            text = self.form[1].format(tick).replace("-", "−")
            grid.append(_text(0, at + 4, text, "end", dx=-8))
        for tick in self.x.ticks():
            text = self.form[0].format(tick)
            grid.append(_text(self.x.share(tick), self.height + 17, text, "middle"))
        return _svg(self.height, [*grid, *self.parts, *self._labels()], "plot", self.alt)

    def _labels(self) -> list[Markup]:
        """Return the labels, moved down where they would overlap."""
        baseline = -math.inf
        texts = []
        for y, label, kind in sorted(self.labels):
            baseline = max(y, baseline + _LINE)
            texts.append(_text(100, baseline + 4, label, f"start label {kind}", dx=8))
        return texts

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.share(x), round(self.height * (1 - self.y.share(y) / 100), 1)

    def _path(self, points: Points, kind: str) -> Markup:
        steps = "L".join("{:g} {:g}".format(*self._at(*point)) for point in points)
        return Markup('<path class="{}" d="M{}"/>').format(kind, steps)


def _svg(height: float, parts: Sequence[Markup], kind: str, alt: str = "") -> Markup:
    role = Markup('aria-hidden="true"')
    if alt:
        role = Markup('role="img" aria-label="{}"').format(alt)
    text = Markup('<svg class="{}" width="100%" height="{:g}" {}>{}</svg>')
    return text.format(kind, height, role, Markup("").join(parts))


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    text = Markup('<line class="{}" x1="{:g}%" y1="{:g}" x2="{:g}%" y2="{:g}"/>')
    return text.format(kind, x1, y1, x2, y2)


def _mark(kind: str, x: float, y: float) -> Markup:
    if kind.startswith("diamond"):
        return _text(x, y + 5, "◇", f"{kind} middle")
    return Markup('<circle class="{}" cx="{:g}%" cy="{:g}" r="4"/>').format(kind, x, y)


def _text(x: float, y: float, text: str, kind: str, dx: float = 0) -> Markup:
    return Markup('<text class="{}" x="{:g}%" y="{:g}" dx="{:g}">{}</text>').format(
        kind, x, y, dx, text
    )
