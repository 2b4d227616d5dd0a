"""The work that a config asks for: batches of answers to generate, arms of compressions to run.

Only the config is read. The workflow turns both into jobs, and ``headsweep plan`` into an estimate.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, product
from pathlib import Path
from typing import Any, TypeVar

from headsweep.config import Config, Frontier, Layers, Selector, Study, Sweep, TopHeads
from headsweep.config.compression import Compression
from headsweep.config.experiments import METHOD
from headsweep.config.solvers import Encoder
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.paths import BatchKeys
from headsweep.files.tables import ANSWERS, FileKind
from headsweep.store.keys import digest, encoder_key, study_keys
from headsweep.store.layout import Store
from headsweep.variants import BASE, FAMILIES, Pool, Variant, numeric

GROUP = 64
"""Most variants of a job group: `group-components` in workflow/profiles/slurm lets one allocation
answer for so many, and no group is spread over several."""

_Names = tuple[str, str, str]  # config names of model, decoding and question set
_T = TypeVar("_T")


@dataclass(frozen=True)
class Batch:
    """Variants of one model that answer one question set under one decoding.

    It is what a config plans, a job asks for, and an engine answers; its keys tell it from others.
    Variants are sorted, base first.
    """

    store: Store = field(repr=False)
    model: str
    """Name in the config, as the two below."""
    decoding: str
    questions: str
    variants: tuple[Variant, ...] = (BASE,)

    @cached_property
    def keys(self) -> BatchKeys:
        """The keys of model, decoding and questions, as in the paths of its files."""
        return BatchKeys(
            self.store.key("model", self.model),
            self.store.key("decoding", self.decoding),
            self.store.key("questions", self.questions),
        )

    def path(self, kind: FileKind, /, **values: object) -> Path:
        """Return the path of one of its files; `values` fill wildcards besides its keys."""
        return self.store.path(
            kind, model=self.model, decoding=self.decoding, questions=self.questions, **values
        )

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of model, decoding and questions in the config."""
        return self.model, self.decoding, self.questions

    @property
    def answers(self) -> list[str]:
        """The files of its answers, one per variant."""
        return [str(self.path(ANSWERS, variant=variant)) for variant in self.variants]

    @cached_property
    def groups(self) -> dict[Variant, str]:
        """The job group of each variant, which one SLURM allocation answers for: its layer's.

        Variants that differ in all layers have one, too. Groups above `GROUP` are divided.
        """
        group_of = dict[Variant, str]()
        members = Counter[int | None]()
        for variant in self.variants:
            number = members[variant.layer] // GROUP
            members[variant.layer] += 1
            group_of[variant] = f"{variant.layer}.{number}" if number else str(variant.layer)
        return group_of


def at_home(config: Config, name: str) -> list[str]:
    """Return the selectors that one is held against which learnt from another benchmark.

    They have its model, decoding and test questions, and learnt from the benchmark that these are
    of. A selector that did so itself has none.
    """

    def learnt_there(selector: Selector) -> bool:
        train, test = config.questions[selector.train], config.questions[selector.test]
        return train.home == test.home

    transferred = config.selectors[name]
    if learnt_there(transferred):
        return []
    return [
        other
        for other, selector in config.selectors.items()
        if learnt_there(selector)
        and (selector.model, selector.decoding, selector.test)
        == (transferred.model, transferred.decoding, transferred.test)
    ]


def pool(config: Config, experiment: Sweep | Selector) -> list[Variant]:
    """Return the head-pruned variants of a sweep or selector, sorted."""
    model = config.models[experiment.model]
    layers = sorted({*expand(experiment.layers, model.layers)})
    heads = experiment.heads
    if isinstance(heads, TopHeads):
        return sorted(map(Variant.parse, heads.chosen or ()), key=Variant.order)
    return [
        Variant(layer, head)
        for layer in layers
        for head in sorted({*(model.heads_in(layer) if heads == "all" else heads)})
    ]


def placebos(config: Config, sweep: Sweep) -> list[Variant]:
    """Return a sweep's placebos.

    Noise: one per head, or `noise_placebos` per layer. Numeric: as many as heads are pruned in the
    layer with most.
    """
    variants = list[Variant]()
    by_layer = groupby(pool(config, sweep), key=lambda variant: variant.layer)
    layers = [list(variants_of_layer) for _, variants_of_layer in by_layer]
    if sweep.placebos in ("noise", "both"):
        for members in layers:
            variants += noise_placebos(members, sweep.noise_placebos or len(members))
    if sweep.placebos in ("numeric", "both"):
        variants += numeric(max(map(len, layers)))
    return variants


def noise_placebos(heads: Sequence[Variant], count: int) -> list[Variant]:
    """Return noise placebos of `count` of a layer's heads, spread evenly, at most one a head."""
    count = min(count, len(heads))
    chosen = [heads[place * len(heads) // count] for place in range(count)]
    return [Variant(head.layer, head.head, "noise") for head in chosen]


def family_members(config: Config, frontier: Frontier) -> dict[tuple[str, int], list[Variant]]:
    """Return the drawn members of each family of a frontier, by family and scale."""
    model = config.models[frontier.model]
    layers = expand(frontier.layers, model.layers)
    drawn_from = Pool({layer: model.heads_in(layer) for layer in layers}, model.layers)
    return {
        (kind, scale): FAMILIES[kind].members(drawn_from, scale, frontier.members, frontier.seed)
        for kind in frontier.families
        for scale in frontier.scales.get(kind, FAMILIES[kind].scales)
    }


def batches(store: Store) -> dict[BatchKeys, Batch]:
    """Return every batch to generate, once each, by its keys, in the order of the config."""
    wanted: dict[_Names, set[Variant]] = {}
    for names, variants in _requests(store):
        wanted.setdefault(names, {BASE}).update(variants)
    planned = [
        Batch(store, model, decoding, questions, tuple(sorted(variants, key=Variant.order)))
        for (model, decoding, questions), variants in wanted.items()
    ]
    return {batch.keys: batch for batch in planned}


def find_batch(store: Store, keys: BatchKeys) -> Batch:
    """Return the batch with some keys; of one that is not planned, the base model alone.

    Raises:
        ConfigError: the config has no model, decoding or question set with such a key.
    """
    planned = batches(store)
    if keys in planned:
        return planned[keys]
    config = store.config
    for model, decoding, questions in product(config.models, config.decodings, config.questions):
        alone = Batch(store, model, decoding, questions)
        if alone.keys == keys:
            return alone
    there = ", ".join(map("/".join, planned)) or "none"
    raise ConfigError(f"this config has no batch {'/'.join(keys)}; it plans {there}")


def _requests(store: Store) -> Iterator[tuple[_Names, list[Variant]]]:
    """Yield the names of requested batches, each with some of its variants; base is in all."""
    config = store.config
    for sweep in config.sweeps.values():
        names = (sweep.model, sweep.decoding, sweep.questions)
        yield names, pool(config, sweep) + placebos(config, sweep)
    for section in config.maps.values():
        for decoding in section.sampling:
            yield (section.model, decoding, section.questions), []
    for selector in config.selectors.values():
        for questions in (selector.train, selector.test):
            yield (selector.model, selector.decoding, questions), pool(config, selector)
        for decoding in selector.sampling:
            yield (selector.model, decoding, selector.test), []
    for frontier in config.frontiers.values():
        members = list(chain(*family_members(config, frontier).values()))
        for questions in (frontier.train, frontier.test):
            yield (frontier.model, frontier.decoding, questions), members
            for decoding in frontier.sampling:
                yield (frontier.model, decoding, questions), []
    for comparison in config.comparisons.values():
        for decoding in comparison.decodings:
            yield (comparison.model, decoding, comparison.questions), []
    for name, study in config.compressions.items():
        if study.model is None:
            continue
        for arm in arms(config, name):
            batch = arm.answered(store)
            yield batch.names, [*batch.variants]


def expand(chosen: Layers, count: int) -> tuple[int, ...]:
    """Return chosen layers, or heads, by number; `count` is how many there are."""
    return tuple(range(count)) if chosen == "all" else chosen


@dataclass(frozen=True)
class Arm:
    """One arm of a compression, with the keys of its files."""

    study: Study
    name: str
    settings: Compression
    subject: str
    """Key of the compressed solver or model."""
    data: str
    """Key of its data."""

    @property
    def key(self) -> str:
        """The arm's own key: its name, and a digest of the settings that have an effect.

        An arm from scratch has the heads that the same settings without `scratch` leave.
        """
        settings = self.settings
        values = settings.decisive().non_defaults()
        if settings.scratch:
            layout = self.study.pruned(settings).decisive().non_defaults()
            scratch = {name: value for name, value in values.items() if name.startswith("scratch")}
            values = {**scratch, "epochs": settings.training.epochs, "layout": layout}
        return f"{self.name}-{digest(values)}"

    @property
    def wildcards(self) -> dict[str, str]:
        """Values for the path templates of the arm's files; the seed is left open."""
        return {"subject": self.subject, "data": self.data, "arm": self.key}

    def file(self, template: str, seed: int) -> str:
        """Return the path of a file of the arm, or of the solver that it starts from."""
        return template.format(seed=seed, solver=self.subject, **self.wildcards)

    def layout(self) -> "Arm | None":
        """Return the arm whose remaining heads an arm from scratch has; None for other arms."""
        if not self.settings.scratch:
            return None
        pruned = self.study.pruned(self.settings)
        same_arms = [
            name
            for name, settings in self.study.settings.items()
            if settings.decisive() == pruned.decisive()
        ]
        return replace(self, name=same_arms[0] if same_arms else METHOD, settings=pruned)

    def answered(self, store: Store) -> Batch:
        """Return the answers to its training questions that a model's arm needs.

        Those without each head are among them if they rank the heads.
        """
        study = self.study
        assert study.model is not None and study.train is not None
        shape = store.config.models[study.model]
        layers = range(shape.layers) if self.settings.causal else ()
        heads = [Variant(layer, head) for layer in layers for head in shape.heads_in(layer)]
        return Batch(store, study.model, study.decoding, study.train, (BASE, *heads))


def arms(config: Config, compression: str) -> list[Arm]:
    """Return the arms of a compression, in the order of the config."""
    study = config.compressions[compression]
    keys = study_keys(config, study)
    return [Arm(study, name, settings, **keys) for name, settings in study.settings.items()]


def all_arms(config: Config) -> dict[tuple[str, str, str], Arm]:
    """Return every arm to run, once each, by its keys; of equal arms the first.

    Arms that only provide the heads of an arm from scratch are included.
    """
    first: dict[tuple[str, str, str], Arm] = {}
    for arm in _asked_arms(config):
        first.setdefault((arm.subject, arm.data, arm.key), arm)
    return first


def seeded_arms(config: Config) -> list[tuple[Arm, int]]:
    """Return every arm with each of its seeds, once each: equal arms may have different seeds."""
    trainings = {
        (arm.subject, arm.data, arm.key, seed): (arm, seed)
        for arm in _asked_arms(config)
        for seed in arm.study.seeds
    }
    return [*trainings.values()]


def _asked_arms(config: Config) -> list[Arm]:
    declared = [arm for name in config.compressions for arm in arms(config, name)]
    layouts = [arm.layout() for arm in declared]
    return declared + [layout for layout in layouts if layout is not None]


def arm_files(config: Config, compression: str, template: str = paths.HISTORY) -> list[str]:
    """Return a file of every arm and seed of a compression; histories mark arms as done."""
    seeds = config.compressions[compression].seeds
    return [arm.file(template, seed) for arm in arms(config, compression) for seed in seeds]


def solvers(config: Config) -> dict[tuple[str, str], Study]:
    """Return the studies that start from a solver, by the keys of solver and data: the first."""
    first: dict[tuple[str, str], Study] = {}
    for arm in all_arms(config).values():
        if arm.study.solver is not None:
            first.setdefault((arm.subject, arm.data), arm.study)
    return first


def encoders(config: Config) -> dict[str, Encoder]:
    """Return the pretrained encoders of solvers, by key."""
    declared = [solver.encoder for solver in config.solvers.values()]
    pretrained = [encoder for encoder in declared if encoder.source is not None]
    return {encoder_key(encoder): encoder for encoder in pretrained}


def find(compressed: Mapping[Any, _T], key: object) -> _T:
    """Return what `all_arms`, `solvers` or `encoders` of a config have under a key.

    Raises:
        ConfigError: there is nothing.
    """
    if key not in compressed:
        raise ConfigError(f"no compression of this config has {key}; there is {[*compressed]}")
    return compressed[key]
