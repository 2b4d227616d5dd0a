"""Looks inside the heads of a sweep: where they lie, and whether a run can have them."""

from pathlib import Path

from headsweep.config import Config
from headsweep.files import paths
from headsweep.files.tables import ANSWERS, LOOKS
from headsweep.store.batches import Batch, pool
from headsweep.store.keys import digest
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant


def heads_key(config: Config, sweep: str) -> str:
    """Return the key of a sweep's heads, which tells its looks from those of other heads."""
    return f"heads-{digest([str(head) for head in pool(config, config.sweeps[sweep])])}"


def looks_file(store: Store, sweep: str) -> Path:
    """Return the file of a sweep's looks; sweeps of the same heads share it."""
    return store.of_sweep(sweep, LOOKS, heads=heads_key(store.config, sweep))


def heads_of_key(batch: Batch, key: str) -> list[Variant]:
    """Return the heads with a key, of a sweep of a batch."""
    config = batch.store.config
    return next(
        pool(config, section)
        for name, section in config.sweeps.items()
        if (section.model, section.decoding, section.questions) == batch.names
        and heads_key(config, name) == key
    )


def looked_into(store: Store) -> list[str]:
    """Return the sweeps whose looks are there, or can be made.

    The others are those of an archived store, which has all answers and not the model: their run is
    made again without looks.
    """
    found = []
    for name, section in store.config.sweeps.items():
        variants = [BASE, *pool(store.config, section)]
        answers = [store.of_sweep(name, ANSWERS, variant=variant) for variant in variants]
        is_archived = all(file.exists() for file in answers)  # else the run fetches the model
        model = store.path(paths.MODEL, model=section.model)
        if not is_archived or model.exists() or looks_file(store, name).exists():
            found.append(name)
    return found
