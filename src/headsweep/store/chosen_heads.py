"""The heads of sweeps that a map or another sweep of the run chooses, on other questions."""

import csv
import logging
from typing import Any

from headsweep.choices import GRADERS_VERSION
from headsweep.config import Config, Sweep, TopHeads
from headsweep.errors import ConfigError, TableError
from headsweep.files import paths
from headsweep.files.record import find_record, read_facts, read_text
from headsweep.store.batches import expand, pool
from headsweep.store.keys import digest, key
from headsweep.store.layout import Store
from headsweep.store.map_scores import map_layers, texts_key
from headsweep.text import counted
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

BASIS = "basis"
"""Of a table's record: what decided the table (`basis`)."""


def with_chosen_heads(config: Config) -> Config:
    """Return a config whose sweeps have the heads that a map or another sweep chooses for them.

    A sweep whose source has no table of today's settings yet stands under `waiting`, and is named
    in a warning.

    Raises:
        ConfigError: the source has fewer heads in a sweep's layers than the sweep takes.
    """
    sweeps: dict[str, Sweep] = {}
    waiting: dict[str, Sweep] = {}
    for name, sweep in {**config.sweeps, **config.waiting}.items():
        wanted = sweep.heads
        if not isinstance(wanted, TopHeads) or wanted.chosen is not None:
            sweeps[name] = sweep
        elif (ranked := _ranked(config, wanted)) is None:
            waiting[name] = sweep
            _LOG.warning(
                "sweeps.%s waits for %s.%s: run this, then give the same command again",
                name,
                wanted.section,
                wanted.source,
            )
        else:
            layers = expand(sweep.layers, config.models[sweep.model].layers)
            of_layers = [variant for variant in ranked if Variant.parse(variant).layer in layers]
            heads = wanted.model_copy(update={"chosen": _best(f"sweeps.{name}", wanted, of_layers)})
            sweeps[name] = sweep.model_copy(update={"heads": heads})
    return config.model_copy(update={"sweeps": sweeps, "waiting": waiting})


def _best(where: str, wanted: TopHeads, ranked: list[str]) -> tuple[str, ...]:
    """Return as many of the ranked heads, the best first, as a sweep takes; refuse too few.

    A sweep ranks all of its heads, and the config's schema has counted them.
    """
    if len(ranked) < wanted.top:
        raise ConfigError(
            f"{where}.heads: map {wanted.source!r} has {wanted.outcome} of "
            f"{counted(len(ranked), 'head')} in the sweep's layers, {wanted.top} are wanted; "
            f"name another outcome, or take fewer"
        )
    return tuple(ranked[: wanted.top])


def basis(config: Config, section: str, name: str) -> str:
    """Return a digest of what decides which heads a map or sweep ranks highest."""
    if section == "maps":
        return digest({"texts": texts_key(config, name), "layers": map_layers(config, name)})
    sweep = config.sweeps[name]
    facts: dict[str, Any] = {
        "model": key(config, "models", sweep.model),
        "questions": key(config, "questions", sweep.questions),
        "n": config.questions[sweep.questions].n,
        "decoding": key(config, "decodings", sweep.decoding),
        "grading": config.grading_of(name),
        "graders": GRADERS_VERSION,
        "heads": [str(variant) for variant in pool(config, sweep)],
    }
    return digest(facts)


def _ranked(config: Config, wanted: TopHeads) -> list[str] | None:
    """Return a map's or sweep's pruned heads, best first; None: it has no table of today.

    A damaged table is none: a kill may have left it, and the run makes it again, or says so. Of
    heads that gained alike, the first in the model stands first.
    """
    store = Store(config)
    if wanted.section == "maps":
        file = store.path(paths.MAP, map=wanted.source, table="heads")
        column = "change"
    else:
        file = store.path(paths.CONTROLS, sweep=wanted.source, table="heads")
        column = "gain"
    try:
        if (record := find_record(file)) is None:
            return None
        if read_facts(record[0]).get(BASIS) != basis(config, wanted.section, wanted.source):
            return None
        rows = [*csv.DictReader(read_text(file).splitlines())]
    except (OSError, TableError):
        return None
    if wanted.section == "maps":
        rows = [row for row in rows if (row["kind"], row["outcome"]) == ("head", wanted.outcome)]
    else:
        rows = [row for row in rows if row["head"]]

    def best_first(row: dict[str, Any]) -> tuple[Any, ...]:
        return -float(row[column]), Variant.parse(row["variant"]).order()

    return [row["variant"] for row in sorted(rows, key=best_first)]
