"""The page's section on heads that go for good: what that costs, and what it saves."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from headsweep import paths
from headsweep.analysis.facts import Cell, Columns, Sentence, Source
from headsweep.analysis.trials import ACCURACY, METHOD, TRAINED_ON, causal_arm, control
from headsweep.config import Config
from headsweep.config.compression import NOTABLE
from headsweep.planning.titles import title
from headsweep.report.blocks import Block, Picture, Section, marks
from headsweep.report.declarations import Marks
from headsweep.report.svg import Chart, Scale

_ROWS = 8  # arms of all compressions that are shown unfolded, but two of each at least

_NAMES = {
    METHOD: "{ratio} gone, taught",
    "pruning_only": "{ratio} gone, no teacher",
    TRAINED_ON: "all kept, trained as long",
}
"""Names of arms on the page, the most informative first; others go by their ratio or name."""

_CAUSAL = "{ratio} gone by causal scores"
_SCORED_ONCE = (
    "Causal scores, the accuracy lost on training questions without each head, were taken once, "
    "before the first round, and not each round."
)

_HELD = ["held", "held_low", "held_high"]  # against what, see `_held`
_MARKS = Marks(label="", drawn={"sign": "held"}, low="held_low", high="held_high")


def _gone(row: Source) -> Sentence:
    return row.say(
        "{gone} of {heads}", gone=Cell("heads_removed", "count"), heads=Cell("heads", "count")
    )


_COLUMNS: Columns = {
    "against training as long": Cell(
        "change_trained", "points", "change_trained_low", "change_trained_high"
    ),
    "against the original": Cell("change", "points", "change_low", "change_high"),
    "heads gone": _gone,
    "parameters saved": Cell("whole_removed", "percent"),
    "test time": Cell("test_time", "ratio", "test_time_low", "test_time_high"),
}
"""Numbers beside the marks."""


def compression(config: Config, section: Section) -> None:
    """Show what removing heads for good costs, and saves, by the arms that tell most."""
    exhibits = ("table4", "table1", "variations", "quantisation")
    tables = [
        Source.read(config, paths.COMPRESSION_TABLE, ACCURACY, exhibit=each) for each in exhibits
    ]
    names: dict[Source, str] = {}
    for name, study in config.compressions.items():
        called = title(config, "compressions", name)
        found = dict[tuple[bool, str], Source]()
        causal = causal_arm(study)
        told = {METHOD: _NAMES[METHOD]} | ({causal: _CAUSAL} if causal else {}) | _NAMES
        order = {arm: place for place, arm in enumerate(told)}
        for row in chain.from_iterable(each.where(compression=name) for each in tables):
            if row.number("change"):
                found.setdefault((_bits(row), row.first["arm"]), row)
        ranked = sorted(found, key=lambda key: (key[0], order.get(key[1], len(order))))
        for bits, arm in ranked[: max(2, _ROWS // len(config.compressions))]:
            own = told.get(arm, arm.replace("_", " ") if "ratio" not in arm else "{ratio} gone")
            own = own.format(ratio=f"{100 * study.settings[arm].ratio:g}%")
            if bits:
                own += ", 8 bits"
            names[found[bits, arm]] = f"{len(names) + 1}. {called}: {own}"
        whole = {arm: row for (bits, arm), row in found.items() if not bits}
        trained = whole.get(TRAINED_ON)
        arms = [arm for arm in told if arm in whole and arm != TRAINED_ON]
        if trained and arms:  # as many steps as the pruned ones
            said = "; ".join(f"{told[arm]} {{at{place}}}" for place, arm in enumerate(arms))
            changes = (whole[arm].number("change_trained", "points") for arm in arms)
            parts = {f"at{place}": change for place, change in enumerate(changes)}
            said = f"{{of}}, points against training as long: {said}. "
            said += "Training as long: {alone} against the original."
            alone = trained.number("change", "points")
            section.lead.append(Sentence(said, of=called, ratio="heads", alone=alone, **parts))
        if causal in whole and study.model:  # a solver's are measured before each round
            section.lead.append(_SCORED_ONCE)
    drawn = {_held(row): name for row, name in names.items()}
    beside = _beside(names)
    section.blocks += _against_time([*drawn], beside)
    caption = f"Drawn: points against {beside}. The test time of the original is 1."
    section.blocks += marks(list(drawn), _MARKS, _COLUMNS, caption, label=drawn.__getitem__)


def _held(row: Source) -> Source:
    """Add the change of accuracy that is drawn, with its interval: that of the verdict.

    Training as long has none, as it is what the others are held against.
    """
    column, _ = control(row.first)
    rows = row.rows.assign(**dict.fromkeys(_HELD, np.nan))
    if row.first["arm"] != TRAINED_ON:
        rows[_HELD] = rows[[column, f"{column}_low", f"{column}_high"]]
    return row.of(rows)


def _beside(rows: Iterable[Source]) -> str:
    """Return what arms are held against."""
    found = {control(row.first)[1] for row in rows if row.first["arm"] != TRAINED_ON}
    if len(found) > 1:
        return "training as long, or else the original"
    return "".join(found) or "training as long"


def _bits(row: Source) -> bool:
    return bool(row.first.get("quantised", False))


def _against_time(pruned: list[Source], beside: str) -> list[Block]:
    """Return a chart of the change of accuracy that is drawn against the time of the whole test."""
    known = {place: row for place, row in enumerate(pruned, 1) if row.number(_HELD[0])}
    timed = {place: row for place, row in known.items() if row.number("test_time")}
    if not timed:
        return []
    numbers = {place: [100 * row.value(name) for name in _HELD] for place, row in timed.items()}
    times = [1.0, *(row.value("test_time") for row in timed.values())]
    y = Scale.over([-100 * NOTABLE, *chain.from_iterable(numbers.values())])
    told = ", ".join(f"{place}: {own[0]:+.1f}" for place, own in numbers.items())
    alt = f"Change of accuracy in points against test time: {told}."
    x = Scale(min(times) - 0.05, max(times) + 0.05)
    chart = Chart(x, y, 280, alt, ("{:.2g}×", "{:g}"))
    for place, row in timed.items():
        way = {"▲": "up", "▼": "down", "–": "none"}[row.direction(*_HELD[1:])]
        kind = f"{'ring' if _bits(row) else 'dot'} {way}"
        chart.point(row.value("test_time"), numbers[place], kind, str(place))
    chart.level(-100 * NOTABLE, "−1.5")
    caption = (
        f"Accuracy in points against {beside}, with 95% interval, by the time of the whole test. "
        "Dashed: a loss of 1.5 points. Hollow: weights of eight bits. Numbers: rows below."
    )
    return [Picture(chart.svg(aside=False), caption)]
