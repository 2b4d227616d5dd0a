"""The heads of sweeps that a map or another sweep of the run chooses, on other questions."""

import csv
import logging
from typing import Any

from headsweep import paths
from headsweep.config import Config, Sweep, TopHeads
from headsweep.errors import ConfigError
from headsweep.planning.batches import expand
from headsweep.planning.store import Store
from headsweep.record import read_text
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)


def with_chosen_heads(config: Config) -> Config:
    """Return a config whose sweeps have the heads that a map or another sweep chooses for them.

    A sweep whose source has no table yet is left out, and named in a warning.

    Raises:
        ConfigError: the source has none of the heads in a sweep's layers.
        TableError: the source's table is damaged.
    """
    sweeps: dict[str, Sweep] = {}
    for name, sweep in config.sweeps.items():
        wanted = sweep.heads
        if not isinstance(wanted, TopHeads) or wanted.chosen is not None:
            sweeps[name] = sweep
            continue
        if (ranked := _ranked(config, wanted)) is None:
            _LOG.warning(
                "sweeps.%s waits for %s.%s: run this, then give the same command again",
                name,
                wanted.section,
                wanted.source,
            )
            continue
        layers = expand(sweep.layers, config.models[sweep.model].layers)
        variants = [variant for variant in ranked if Variant.parse(variant).layer in layers]
        if not variants:
            what = "gain" if wanted.section == "sweeps" else wanted.outcome
            raise ConfigError(
                f"sweeps.{name}.heads: {wanted.section.removesuffix('s')} {wanted.source!r} has no "
                f"{what} of a head in the sweep's layers; name other layers, or another outcome"
            )
        heads = wanted.model_copy(update={"chosen": tuple(variants[: wanted.top])})
        sweeps[name] = sweep.model_copy(update={"heads": heads})
    return config.model_copy(update={"sweeps": sweeps})


def _ranked(config: Config, wanted: TopHeads) -> list[str] | None:
    """Return a map's or sweep's pruned heads, best first; None: it has no table yet.

    Of heads that gained alike, the first in the model stands first.
    """
    store = Store(config)
    if wanted.section == "maps":
        file = store.path(paths.MAP, map=wanted.source, table="heads")
        column = "change"
    else:
        file = store.path(paths.CONTROLS, sweep=wanted.source, table="heads")
        column = "gain"
    if not file.exists():
        return None
    rows = [*csv.DictReader(read_text(file).splitlines())]
    if wanted.section == "maps":
        rows = [row for row in rows if (row["kind"], row["outcome"]) == ("head", wanted.outcome)]
    else:
        rows = [row for row in rows if row["head"]]

    def best_first(row: dict[str, Any]) -> tuple[Any, ...]:
        return -float(row[column]), Variant.parse(row["variant"]).order()

    return [row["variant"] for row in sorted(rows, key=best_first)]
