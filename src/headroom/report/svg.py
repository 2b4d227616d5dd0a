"""Figures of the page as inline SVG: x in percent of the width, y in pixels.

So one copy fits every width without scaling its text, and style sheets colour it for both themes.
`page.css` styles the classes named here.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from headroom.analysis.text import points

_ROW = 22
"""Height of a strip in pixels."""
_LINE = 14
"""Smallest vertical distance of two labels in pixels."""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; values outside are placed at its ends."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], limit: float = math.inf) -> "Scale":
        """Return a scale that covers some values and zero, clipped at ±limit."""
        found = [value for value in values if not math.isnan(value)]
        low, high = max(-limit, min([0.0, *found])), min(limit, max([0.0, *found]))
        space = 0.06 * (high - low or 1)
        return cls(low - space * (low < 0), high + space * (high > 0 or low == high))

    def share(self, value: float) -> float:
        """Return the position of a value in percent of the axis."""
        low, high, value = (
            math.log(each) if self.log else each for each in (self.low, self.high, value)
        )
        return round(min(100.0, max(0.0, 100 * (value - low) / (high - low))), 2)

    def ticks(self) -> list[float]:
        """Return about five round values; on a logarithmic axis, doublings."""
        if self.log:
            doublings = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            return [2.0**power for power in doublings]
        rough = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(rough))
        step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [step * number for number in range(first, last + 1)]


def strip(scale: Scale, marks: Mapping[str, float], interval: tuple[float, float]) -> Markup:
    """Return a row of marks with an interval, hidden from screen readers.

    Args:
        scale: shared by the rows of a table.
        marks: values by their class: dot, ring, diamond, bar.
        interval: its ends; NaN if there is none.
    """
    middle = _ROW / 2
    parts = [_line(scale.share(0), 0, scale.share(0), _ROW, "zero")]
    if not any(map(math.isnan, interval)):
        low, high = map(scale.share, interval)
        parts.append(_line(low, middle, high, middle, "interval"))
    for kind, value in marks.items():
        if math.isnan(value):
            continue
        at = scale.share(value)
        if not scale.low <= value <= scale.high:
            arrow, anchor = ("◂", "start") if value < scale.low else ("▸", "end")
            parts.append(_text(at, middle + 4, arrow, f"arrow {anchor}"))
        elif kind == "bar":
            parts.append(_line(at, 3, at, _ROW - 3, "bar"))
        else:
            parts.append(_mark(kind, at, middle))
    return _svg(_ROW, parts, "strip")


def ruler(scale: Scale, form: Callable[[float], str] = points) -> Markup:
    """Return the ticks below a table of strips."""
    labels = [
        _text(scale.share(tick), 11, form(tick).removesuffix(".0"), "middle")
        for tick in scale.ticks()
    ]
    return _svg(14, labels, "strip ruler")


@dataclass
class Line:
    """A curve with its label and the class (`kind`) that styles it."""

    label: str
    kind: str
    points: Sequence[Sequence[float]]
    band: Sequence[Sequence[float]] = ()
    """The interval's band as (x, low, high)."""


@dataclass
class Chart:
    """A figure with two axes.

    `alt` is its alternative text; `form` has a format of the ticks for each axis.
    """

    x: Scale
    y: Scale
    height: int
    alt: str
    form: tuple[str, str] = ("{:g}", "{:g}")
    parts: list[Markup] = field(default_factory=list)
    labels: list[tuple[float, float, str, str]] = field(default_factory=list)

    def lines(self, lines: Sequence[Line]) -> None:
        """Draw curves, each with its label at its end."""
        paths = []
        for line in lines:
            if line.band:
                there = [one[:2] for one in line.band]
                back = [one[::2] for one in reversed(line.band)]
                paths.append(self._path([*there, *back], f"band {line.kind}"))
            paths.append(self._path(line.points, f"line {line.kind}"))
        # The curves are stretched to the width; the style sheet keeps their stroke width.
        box = {"viewBox": f"0 0 100 {self.height}", "preserveAspectRatio": "none"}
        size = {"width": "100%", "height": str(self.height)}
        self.parts.append(_tag("svg", Markup("").join(paths), **box, **size))
        for line in lines:
            if line.kind != "flat":
                self.parts += [
                    _mark("dot " + line.kind, *self._at(one[0], one[1])) for one in line.points
                ]
            self.labels.append((*self._at(*line.points[-1]), line.label, line.kind))

    def point(
        self, x: float, y: float, kind: str, label: str, ends: tuple[float, float] | None = None
    ) -> None:
        """Draw a mark with its label and the ends of its interval on the y axis."""
        at = self._at(x, y)
        if ends:
            low, high = (self._at(x, end)[1] for end in ends)
            self.parts.append(_line(at[0], low, at[0], high, "interval"))
        self.parts.append(_mark(kind, *at))
        self.labels.append((*at, label, kind))

    def level(self, y: float, label: str) -> None:
        """Draw a dashed horizontal line with its label."""
        at = self._at(self.x.high, y)[1]
        self.parts.append(_line(0, at, 100, at, "level"))
        self.labels.append((100, at, label, "level"))

    def svg(self, aside: bool = True) -> Markup:
        """Return the figure.

        Args:
            aside: whether labels are to the right of the plot instead of beside their points.
        """
        grid = []
        for tick in self.y.ticks():
            at = self._at(self.x.low, tick)[1]
            grid.append(_line(0, at, 100, at, "zero" if tick == 0 else "grid"))
            text = self.form[1].format(tick).replace("-", "−")
            grid.append(_text(0, at + 4, text, "end", dx=-8))
        for tick in self.x.ticks():
            text = self.form[0].format(tick)
            grid.append(_text(self.x.share(tick), self.height + 17, text, "middle"))
        return _svg(self.height, [*grid, *self.parts, *self._labels(aside)], "plot", self.alt)

    def _labels(self, aside: bool) -> list[Markup]:
        """Return the labels, moved apart where they would overlap."""
        placed: list[tuple[float, float]] = []
        found = []
        for x, y, label, kind in sorted(self.labels, key=lambda each: each[1]):
            near = [other for at, other in placed if aside or abs(at - x) < 40]
            place = max([y, *(other + _LINE for other in near if other + _LINE > y)])
            placed.append((x, place))
            left = not aside and x > 55
            place -= 8 * (kind == "level" and not aside)
            anchor, away = ("end", -8) if left else ("start", 8)
            at = 100 if aside else x
            found.append(_text(at, place + 4, label, f"{anchor} label {kind}", dx=away))
        return found

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.share(x), round(self.height * (1 - self.y.share(y) / 100), 1)

    def _path(self, points: Sequence[Sequence[float]], kind: str) -> Markup:
        steps = "L".join("{:g} {:g}".format(*self._at(*point)) for point in points)
        return _tag("path", **{"class": kind, "d": f"M{steps}"})


def _svg(height: float, parts: Sequence[Markup], kind: str, alt: str = "") -> Markup:
    told = {"role": "img", "aria-label": alt} if alt else {"aria-hidden": "true"}
    text = Markup("").join(parts)
    return _tag("svg", text, **{"class": kind, "width": "100%", "height": f"{height:g}", **told})


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    ends = {"x1": f"{x1:g}%", "y1": f"{y1:g}", "x2": f"{x2:g}%", "y2": f"{y2:g}"}
    return _tag("line", **{"class": kind, **ends})


def _mark(kind: str, x: float, y: float) -> Markup:
    if kind.startswith("diamond"):
        return _text(x, y + 5, "◇", f"{kind} middle")
    return _tag("circle", **{"class": kind, "cx": f"{x:g}%", "cy": f"{y:g}", "r": "4"})


def _text(x: float, y: float, text: str, kind: str, dx: float = 0) -> Markup:
    place = {"x": f"{x:g}%", "y": f"{y:g}", **({"dx": f"{dx:g}"} if dx else {})}
    return _tag("text", escape(text), **{"class": kind, **place})


def _tag(name: str, content: str = "", **attributes: str) -> Markup:
    told = Markup("").join(Markup(' {}="{}"').format(*pair) for pair in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, told, content)
