"""Batches by their names in a config: jobs and engines name them by their keys."""

from headsweep.store.batches import Batch, find_batch
from headsweep.store.layout import Store


def batch_of(config, model, decoding, questions):
    """Return a batch with all variants that a config has answer it."""
    store = Store(config)
    return find_batch(store, Batch(store, model, decoding, questions).keys)
