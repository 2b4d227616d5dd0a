"""What is to be generated: which variants answer which questions under which decoding.

Only the config is read. The workflow turns batches into jobs, ``headroom plan`` into an estimate.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from headroom.config import Config, Layers, Model, Selector, Sweep
from headroom.variants import BASE, Variant, heads, matched_noise, numeric

_Names = tuple[str, str, str]  # of a model, a decoding and a question set


@dataclass(frozen=True)
class Batch:
    """The variants of one model that answer one question set under one decoding.

    Names are config names. Variants are sorted, base first.
    """

    model: str
    decoding: str
    questions: str
    variants: tuple[Variant, ...]

    @property
    def names(self) -> dict[str, str]:
        """The config names that `headroom.planning.store.Store` fills paths from."""
        return {"model": self.model, "decoding": self.decoding, "questions": self.questions}


def pool(config: Config, of: Sweep | Selector) -> list[Variant]:
    """Return the pruned variants of a sweep or selector, sorted; no base, no placebo."""
    model: Model = config.models[of.model]
    return heads(_expand(of.layers, model.layers), _expand(of.heads, model.heads))


def placebos(config: Config, sweep: Sweep) -> list[Variant]:
    """Return the placebos of a sweep, sorted: noise for each head, numeric ones as a layer has."""
    noise = matched_noise(pool(config, sweep)) if sweep.placebos in ("noise", "both") else []
    if sweep.placebos not in ("numeric", "both"):
        return noise
    return noise + numeric(len(set(_expand(sweep.heads, config.models[sweep.model].heads))))


def without_numeric(config: Config) -> list[str]:
    """Return the sweeps in half precision that have no numeric placebos."""
    return [
        name
        for name, sweep in config.sweeps.items()
        if sweep.placebos not in ("numeric", "both")
        and config.models[sweep.model].dtype != "float32"
    ]


def batches(config: Config) -> list[Batch]:
    """Return what has to be generated, in the order of the config, without repetition."""
    wanted: dict[_Names, set[Variant]] = {}
    for names, variants in _requests(config):
        wanted.setdefault(names, {BASE}).update(variants())
    return [_batch(names, variants) for names, variants in wanted.items()]


def find_batch(config: Config, model: str, decoding: str, questions: str) -> Batch:
    """Return the batch of the given config names, which something in the config asks for."""
    names = (model, decoding, questions)
    asked = [variants() for other, variants in _requests(config) if other == names]
    assert asked, names
    return _batch(names, {BASE}.union(*asked))


def _batch(names: _Names, variants: Iterable[Variant]) -> Batch:
    return Batch(*names, tuple(sorted(variants, key=Variant.order)))


def _requests(config: Config) -> Iterator[tuple[_Names, Callable[[], list[Variant]]]]:
    """Yield which batches are asked for, each with what lists its variants: thousands, maybe."""
    for sweep in config.sweeps.values():
        names = (sweep.model, sweep.decoding, sweep.questions)
        yield names, partial(pool, config, sweep)
        yield names, partial(placebos, config, sweep)
    for selector in config.selectors.values():
        for questions in (selector.train, selector.test):
            names = (selector.model, selector.decoding, questions)
            yield names, partial(pool, config, selector)
        for decoding in selector.sampling:
            yield (selector.model, decoding, selector.test), list
    for comparison in config.comparisons.values():
        for decoding in comparison.decodings:
            yield (comparison.model, decoding, comparison.questions), list
    for study in config.compressions.values():
        if study.model is not None and study.train is not None:
            names = (study.model, study.decoding, study.train)
            model = config.models[study.model]
            yield names, partial(every_head, model) if study.causal else list


def every_head(model: Model) -> list[Variant]:
    """Return the variants that lack one head of a model, sorted: one for each of its heads."""
    return heads(range(model.layers), range(model.heads))


def _expand(chosen: Layers, count: int) -> tuple[int, ...]:
    return tuple(range(count)) if chosen == "all" else chosen
