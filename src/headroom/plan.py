"""What a config asks for: which variants answer which questions under which decoding.

Planning reads the config only. The Snakefile turns a plan into jobs, ``headroom plan`` into an
estimate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headroom import paths
from headroom.config import Config, Layers, Model, Selector, Sweep
from headroom.identity import key
from headroom.variants import BASE, Variant, heads, matched_noise, numeric


@dataclass(frozen=True)
class Batch:
    """The variants of one model that answer one question set under one decoding.

    Names are config names. Variants are sorted, base first.
    """

    model: str
    decoding: str
    questions: str
    variants: tuple[Variant, ...]

    def wildcards(self, config: Config) -> dict[str, str]:
        """Return the keys that fill this batch's path templates."""
        return {
            "model": key(config, "models", self.model),
            "decoding": key(config, "decodings", self.decoding),
            "questions": key(config, "questions", self.questions),
        }

    def answers(self, config: Config) -> list[str]:
        """Return the store's files, one a variant."""
        filled = self.wildcards(config)
        return [paths.ANSWERS.format(variant=variant, **filled) for variant in self.variants]


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


def batches(config: Config) -> list[Batch]:
    """Return what has to be generated, in the order of the config, without repetition."""
    wanted: dict[tuple[str, str, str], set[Variant]] = {}
    for model, decoding, questions, variants in _requests(config):
        wanted.setdefault((model, decoding, questions), {BASE}).update(variants)
    return [Batch(*names, tuple(sorted(variants))) for names, variants in wanted.items()]


def find_batch(config: Config, model: str, decoding: str, questions: str) -> Batch:
    """Return the batch of the given config names."""
    return next(
        batch
        for batch in batches(config)
        if (batch.model, batch.decoding, batch.questions) == (model, decoding, questions)
    )


def _requests(config: Config) -> Iterator[tuple[str, str, str, list[Variant]]]:
    for sweep in config.sweeps.values():
        variants = pool(config, sweep) + placebos(config, sweep)
        yield sweep.model, sweep.decoding, sweep.questions, variants
    for selector in config.selectors.values():
        for questions in (selector.train, selector.test):
            yield selector.model, selector.decoding, questions, pool(config, selector)
        for decoding in selector.sampling:
            yield selector.model, decoding, selector.test, []
    for comparison in config.comparisons.values():
        for decoding in comparison.decodings:
            yield comparison.model, decoding, comparison.questions, []


def _expand(chosen: Layers, count: int) -> tuple[int, ...]:
    return tuple(range(count)) if chosen == "all" else chosen
