"""The page's section on heads that are removed for good: what that costs, and what it saves."""

from collections.abc import Iterable, Mapping

import numpy as np

from headsweep.config import Study
from headsweep.config.experiments import METHOD
from headsweep.config.titles import title
from headsweep.files import paths
from headsweep.page.blocks import Section, marks
from headsweep.page.declarations import Marks
from headsweep.results.compression_arms import ARM_ACCURACY, TRAINED_ON, causal_arm, control
from headsweep.results.facts import Cell, Columns, Sentence, Source
from headsweep.store.layout import Store

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


def compression(store: Store, section: Section) -> None:
    """Show what removing heads for good costs, and saves, by the arms that tell most."""
    config = store.config
    tables = [
        Source.read(store, paths.COMPRESSION_TABLE, ARM_ACCURACY, exhibit=exhibit)
        for exhibit in ("table4", "table1", "variations", "quantisation")
    ]
    labels: dict[Source, str] = {}
    scored_once = False
    for name, study in config.compressions.items():
        compression_title = title(config, "compressions", name)
        row_of_arm = _rows_of_arms(tables, name)
        names = _names_of_arms(study)
        most = max(2, _ROWS // len(config.compressions))
        for quantised, arm in _most_telling(row_of_arm, names)[:most]:
            label = _label(study, arm, names, quantised=quantised)
            labels[row_of_arm[quantised, arm]] = f"{compression_title}: {label}"
        # A solver's scores are taken before each round.
        if study.model and (False, causal_arm(study)) in row_of_arm:
            scored_once = True
    if scored_once:
        section.lead.append(_SCORED_ONCE)
    drawn = {_held(row): label for row, label in labels.items()}
    beside = _beside(labels)
    caption = f"Drawn: points against {beside}. The test time of the original is 1."
    section.blocks += marks(list(drawn), _MARKS, _COLUMNS, caption, label=drawn.__getitem__)


def _rows_of_arms(tables: Iterable[Source], compression: str) -> dict[tuple[bool, str], Source]:
    """Return the first row of each arm whose change is known, by whether its weights have 8 bits
    and by its name.
    """
    rows: dict[tuple[bool, str], Source] = {}
    for table in tables:
        for row in table.where(compression=compression):
            if row.number("change"):
                rows.setdefault((_is_quantised(row), row.first["arm"]), row)
    return rows


def _names_of_arms(study: Study) -> dict[str, str]:
    """Return the names of a compression's arms on the page, the most informative first."""
    names = {METHOD: _NAMES[METHOD]}
    causal = causal_arm(study)
    if causal is not None:
        names[causal] = _CAUSAL
    return names | _NAMES


def _most_telling(
    arms: Iterable[tuple[bool, str]], names: Mapping[str, str]
) -> list[tuple[bool, str]]:
    """Return arms in the order of their names; unnamed and then quantised ones come last."""
    order = {arm: place for place, arm in enumerate(names)}
    return sorted(arms, key=lambda arm: (arm[0], order.get(arm[1], len(order))))


def _label(study: Study, arm: str, names: Mapping[str, str], *, quantised: bool) -> str:
    """Return what a row of an arm is called."""
    unnamed = "{ratio} gone" if "ratio" in arm else arm.replace("_", " ")
    label = names.get(arm, unnamed).format(ratio=f"{100 * study.settings[arm].ratio:g}%")
    return f"{label}, 8 bits" if quantised else label


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
    controls = {control(row.first)[1] for row in rows if row.first["arm"] != TRAINED_ON}
    if len(controls) > 1:
        return "training as long, or else the original"
    return "".join(controls) or "training as long"


def _is_quantised(row: Source) -> bool:
    return bool(row.first.get("quantised", False))
