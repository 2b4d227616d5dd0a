"""Model variants, their names, and the families that they belong to.

A variant is the base model, the base model with one change, or a placebo: a control that prunes
nothing. Its name is used in file names, columns and wildcards:

| name | what |
|---|---|
| ``base`` | the model as it is |
| ``L05H03`` | layer 5 without its query head 3 |
| ``L05N03`` | layer 5 with noise as strong as head 3: the matched placebo of ``L05H03`` |
| ``L05R00`` | the model as it is, verified as a pruned head of layer 5 is |
| ``placebo02`` | the model as it is, decoded with other numerics: other batches, no verification |
| ``L05X03P150`` | layer 5 with the output of its query head 3 scaled to 150% |
| ``L05K02`` | the model without 2 layers from layer 5 on: their output is their input |
| ``W17S20`` | all weights with Gaussian noise of seed 17, standard deviation 20e-4 |

Numbers have at least two digits; variants sort by value, not by text.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from headsweep.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Variant:
    """One model variant: ``Variant()`` is the base model, ``Variant(5, 3)`` lacks a head.

    Layers and query heads count from 0: the latter is the model without head 3 of layer 5.
    """

    layer: int | None = None  # the first that differs; None: all do, or none
    head: int | None = None  # the query head
    kind: str = ""  # of `FAMILIES`; by default ``head`` where a layer is given, else ``base``
    scale: int = 0  # percent of a scaled head, layers left out, or 1e-4 of noise on weights
    seed: int = 0  # of noise on weights; number of a numeric placebo, from 1 on

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "base" if self.layer is None else "head")

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name.

        Raises:
            ConfigError: no variant has this name.
        """
        for family in FAMILIES.values():
            if match := re.fullmatch(family.pattern(named=True), name):
                numbers = {part: int(number) for part, number in match.groupdict().items()}
                variant = cls(kind=family.kind, **numbers)
                # 'L005H03' would be a second name of 'L05H03', 'L05X03P00' one, too.
                if str(variant) == name and variant.order()[-1] not in family.idle:
                    return BASE if variant == BASE else variant
        examples = ", ".join(family.example for family in FAMILIES.values())
        raise ConfigError(
            f"variant {name!r} is not known; write 'base' or layer and head as in 'L05H03', "
            f"or a placebo as in 'L05N03' or 'placebo01'; there are: {examples}"
        )

    @property
    def is_base(self) -> bool:
        """Whether this is the base model itself; a placebo is not."""
        return self == BASE

    @cached_property
    def layers(self) -> range:
        """The layers that this variant changes one by one."""
        if self.layer is None:
            return range(0)
        return range(self.layer, self.layer + (self.scale if FAMILIES[self.kind].skips else 1))

    def __str__(self) -> str:
        return FAMILIES[self.kind].name.format_map(vars(self))

    def __lt__(self, other: "Variant") -> bool:
        return self.order() < other.order()

    def order(self) -> tuple[int, ...]:
        """Return the sort key; `key=Variant.order` is faster than comparing variants."""
        family = FAMILIES[self.kind]
        return (family.place, *(getattr(self, number) for number in family.numbers))


BASE = Variant()
"""The unpruned model."""


class Edit(NamedTuple):
    """What a variant changes in one layer."""

    factors: Mapping[int, float] = MappingProxyType({})
    """What the outputs of query heads are multiplied by, by head."""
    noise: int | None = None
    """A head h. Before the output projection W, d ‖W_h a_h‖ / ‖W d‖ is added at each token: W_h are
    the columns of W that read the head's output a_h, d is `noise_direction`."""


@dataclass(frozen=True)
class Pool:
    """What members of a family are drawn from."""

    heads: Mapping[int, Sequence[int]]  # query heads that may be changed, by layer
    depth: int  # layers of the model


class Family:
    """One kind of variant: its name, its members, and what they change.

    A family that only changes outputs of heads or leaves layers out gives `edit` and `members`; the
    engine, its verification and `headsweep.models.masks.edited_weights` follow from these.
    """

    kind: str  # what `Variant.kind` says
    name: str  # template: letters, and fields of `Variant` with two digits or more
    example: str
    title: str = ""  # what a comparison of families calls it
    scales: tuple[int, ...] = (0,)  # to choose from where a config names none
    on_weights = False  # all weights change, so that rows of a batch cannot carry the change
    skips = False  # `scale` layers are left out: their output is their input
    idle: tuple[int, ...] = ()  # values of a name's last number that no variant has

    def __init__(self) -> None:
        fields = Formatter().parse(self.name)
        self.numbers = tuple(part for _, part, _, _ in fields if part)

    @cached_property
    def place(self) -> int:
        """The place of its variants among those of other families."""
        return [*FAMILIES].index(self.kind)

    def pattern(self, *, named: bool = False) -> str:
        """Return the regular expression of a name, with a group for each number if asked."""
        digits = r"(?P<\1>[0-9]{2,})" if named else r"\\d\\d+"
        return re.sub(r"\{(\w+):02d\}", digits, self.name)

    def edit(self, variant: Variant) -> Edit:
        """Return what a variant changes in each layer."""
        return Edit()

    def members(self, pool: Pool, scale: int, count: int, seed: int) -> list[Variant]:
        """Draw `count` variants of a scale, fewer where there are not as many."""
        return []

    def work(self, variant: Variant, depth: int) -> float:
        """Return the work of one token as a share of the base model's, whose layers are `depth`."""
        skipped = len(variant.layers) if self.skips else 0
        return (depth - skipped) / depth


class Base(Family):
    """The model as it is."""

    kind, name, example = "base", "base", "base"


class Heads(Family):
    """A query head's output is zeroed (SPRINT, arXiv 2506.03978, section 3)."""

    kind, name, example = "head", "L{layer:02d}H{head:02d}", "L05H03"
    title = "heads"

    def edit(self, variant: Variant) -> Edit:
        """Zero the head's output."""
        return Edit({variant.head or 0: 0.0})

    def members(self, pool: Pool, scale: int, count: int, seed: int) -> list[Variant]:
        """Draw heads; families with the same seed change the same ones."""
        places = [(layer, head) for layer in sorted(pool.heads) for head in pool.heads[layer]]
        chosen = random.Random(seed).sample(places, min(count, len(places)))
        return [Variant(*place, self.kind, scale) for place in chosen]


class Noise(Heads):
    """A fixed random direction, as strong as a head at each token: does the head's identity count?

    It changes the output of the output projection by as much as pruning that head does: by a vector
    of the norm ‖W_h a_h‖ of what the head puts out there.
    """

    kind, name, example = "noise", "L{layer:02d}N{head:02d}", "L05N03"
    title = "matched noise"

    def edit(self, variant: Variant) -> Edit:
        """Add noise as strong as the head."""
        return Edit(noise=variant.head)


class Replay(Family):
    """Nothing changes; the answers are verified as those of the layer's heads are."""

    kind, name, example = "replay", "L{layer:02d}R{head:02d}", "L05R00"


class Numeric(Family):
    """Nothing changes but the numerics: other batches, no verification."""

    kind, name, example = "numeric", "placebo{seed:02d}", "placebo01"
    idle = (0,)


class Scaled(Heads):
    """A query head's output is multiplied: is it removal that counts, or any push?"""

    kind, name, example = "scaled", "L{layer:02d}X{head:02d}P{scale:02d}", "L05X03P150"
    title = "scaled heads"
    scales = (50, 150)
    idle = (0, 100)  # a pruned head, and the base model

    def edit(self, variant: Variant) -> Edit:
        """Multiply the head's output."""
        return Edit({variant.head or 0: variant.scale / 100})


class Skip(Family):
    """One or two successive layers are left out (as in CoLa, arXiv 2507.07996)."""

    kind, name, example = "skip", "L{layer:02d}K{scale:02d}", "L05K02"
    title = "skipped layers"
    skips = True
    idle = (0,)

    def members(self, pool: Pool, scale: int, count: int, seed: int) -> list[Variant]:
        """Draw from all layers of the model, whichever layers' heads are changed."""
        every = [
            Variant(first, None, self.kind, length)
            for length in (1, 2)[: pool.depth - 1]
            for first in range(pool.depth - length + 1)
        ]
        return random.Random(seed).sample(every, min(count, len(every)))


class NoisyWeights(Family):
    """All weights get Gaussian noise (RandOpt, arXiv 2603.12228): does structure count at all?"""

    kind, name, example = "weights", "W{seed:02d}S{scale:02d}", "W17S20"
    title = "noisy weights"
    scales = (5, 20)
    on_weights = True
    idle = (0,)

    def members(self, pool: Pool, scale: int, count: int, seed: int) -> list[Variant]:
        """Take successive seeds."""
        seeds = range(seed * count, (seed + 1) * count)
        return [Variant(None, None, self.kind, scale, member_seed) for member_seed in seeds]


_ORDERED = (Base, Heads, Noise, Replay, Numeric, Scaled, Skip, NoisyWeights)
FAMILIES: dict[str, Family] = {family.kind: family() for family in _ORDERED}
"""By kind, in the order in which variants sort; noise, replay and numeric are placebos."""

IN_VLLM = ("base", "head", "scaled", "skip")
"""Kinds that vLLM can answer: they multiply weights of some layers, and do no more."""


def pattern() -> str:
    """Return the regular expression of all names, as a Snakemake wildcard constraint needs it."""
    return "|".join(family.pattern() for family in FAMILIES.values())


def noise_direction(layer: int, head: int, width: int) -> "np.ndarray":
    """Return a random unit vector [width], fixed by layer and head."""
    import numpy as np  # names alone are read without it

    draw = np.random.default_rng([layer, head])
    direction = draw.standard_normal(width)
    return (direction / np.linalg.norm(direction)).astype(np.float32)


def heads(layers: Iterable[int], query_heads: Iterable[int]) -> list[Variant]:
    """Return one variant for each distinct (layer, query head), sorted."""
    query_heads = sorted(set(query_heads))
    return [Variant(layer, head) for layer in sorted(set(layers)) for head in query_heads]


def numeric(count: int) -> list[Variant]:
    """Return numeric placebos, numbered from 1."""
    return [Variant(kind="numeric", seed=number) for number in range(1, count + 1)]
