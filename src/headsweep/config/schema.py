"""The whole config: its sections, the checks of references between them, and reading it.

The description under each key is its documentation: `config/reference.md` is made from it.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from headsweep.config.experiments import (
    Comparison,
    Frontier,
    Layers,
    Selector,
    Study,
    Sweep,
    TopHeads,
)
from headsweep.config.maps import HeadMap
from headsweep.config.questions import Decoding, Embedder, Model, Preset, Questions
from headsweep.config.section import Name, Section, Seed
from headsweep.config.solvers import CONTEXT, Solver, WordProblems
from headsweep.errors import nearest
from headsweep.variants import FAMILIES, IN_VLLM, Variant

_RIVALS = ("greedy cover", "best single head", "random heads")
_NAME_SPLITS = "where a file has several splits, name their column: columns.split"
_TAKEN = ("store", "gallery")  # folders of results/ that are not runs
_CLAIMS, _COMPRESSION = "claims", "compression_"  # names of other tables

EXPERIMENTS = ("sweeps", "maps", "selectors", "frontiers", "comparisons", "compressions")
"""The sections of experiments."""

_REFERENCES = {"solver": "solvers", "data": "problems", "model": "models"}
_REFERENCES |= dict.fromkeys(("questions", "train", "test"), "questions")
_REFERENCES |= {"embedder": "embedders", "sampling": "decodings"}
"""Keys that name entries of a section."""

_DECODINGS = ("decoding", "decodings", "sampling")
"""Keys of experiments that name decodings."""


def _number_as_text(value: object) -> object:
    """Return a whole number as text: `run: 20261126` is a name, and Snakemake reads it as one."""
    return str(value) if type(value) is int else value


class Config(Section):
    """A run: what is generated, graded, trained and drawn."""

    run: Annotated[Name, BeforeValidator(_number_as_text)]
    """Name of the run: results are written to results/<run>/."""
    seed: Seed = 0
    """Seed of statistics and figures."""
    grading: Preset = "default"
    """default: last boxed answer, read as mathematics. authors: first boxed, PRM800K's rules."""
    papers: bool = True
    """Whether the report shows the two papers' numbers and judges their claims. With false it is
    about this run alone."""
    models: dict[Name, Model] = Field({})
    """The models, by name."""
    questions: dict[Name, Questions] = Field({})
    """The question sets, by name."""
    decodings: dict[Name, Decoding] = Field({})
    """The ways to decode, by name."""
    embedders: dict[Name, Embedder] = Field({})
    """The sentence-embedding models, by name."""
    sweeps: dict[Name, Sweep] = Field({})
    """The sweeps, by name."""
    waiting: dict[Name, Sweep] = Field({})
    """Filled in: sweeps whose heads another section has still to choose. The same command, given
    again, adds them to the run."""
    maps: dict[Name, HeadMap] = Field({})
    """Maps of every head, by name."""
    selectors: dict[Name, Selector] = Field({})
    """The head selectors, by name."""
    frontiers: dict[Name, Frontier] = Field({})
    """Families of variants compared at equal tokens, by name."""
    comparisons: dict[Name, Comparison] = Field({})
    """Prompt and grading comparisons, by name."""
    problems: dict[Name, WordProblems] = Field({})
    """The datasets of word problems, by name."""
    solvers: dict[Name, Solver] = Field({})
    """The solvers of word problems, by name."""
    compressions: dict[Name, Study] = Field({})
    """The compressions, by name."""

    @model_validator(mode="after")
    def _references(self) -> "Config":
        if self.run in _TAKEN:
            others = " or ".join(_TAKEN)
            raise ValueError(f"run: results/{self.run} is taken; call it anything but {others}")
        for kind in ("questions", "embedders", *EXPERIMENTS, "waiting"):
            # How questions are drawn is their `sampling`, too.
            keys = _REFERENCES if kind != "questions" else ["embedder"]
            for (name, entry), key in product(getattr(self, kind).items(), keys):
                for referred in _names_in(getattr(entry, key, None)):
                    _known(f"{kind}.{name}.{key}", referred, getattr(self, _REFERENCES[key]))
        for name in self.sweeps:
            if name == _CLAIMS or name.startswith(_COMPRESSION):
                kind = "claims" if name == _CLAIMS else "compressions"
                raise ValueError(
                    f"sweeps.{name}: tables/{name}.csv is the table of {kind}; rename the sweep"
                )
        for kind in (*EXPERIMENTS, "waiting"):
            for name, entry in getattr(self, kind).items():
                self._check(f"{kind}.{name}", entry)
        return self

    def _check(
        self,
        where: str,
        entry: Sweep | HeadMap | Selector | Frontier | Comparison | Study,
    ) -> None:
        """Refuse an experiment whose keys do not fit together, or do not fit its model."""
        self._check_stops(where, entry)
        if isinstance(entry, Comparison):
            for decoding in entry.decodings:
                self._check_greedy(f"{where}.decodings", decoding)
            return
        if isinstance(entry, Selector | Frontier | Study):
            self._check_apart(where, entry)
        if entry.model is not None:
            self._check_greedy(f"{where}.decoding", entry.decoding)
        if isinstance(entry, Study):
            self._check_study(where, entry)
            return
        self._check_places(where, entry)
        match entry:
            case Sweep() if entry.placebos != "none":
                self._check_backend(entry.model, f"{where}.placebos: {entry.placebos!r}")
            case HeadMap():
                self._check_map(where, entry)
            case Frontier():
                if not {*entry.families} <= {*IN_VLLM}:
                    self._check_backend(entry.model, f"{where}.families: {list(entry.families)}")
                self._check_families(where, entry)
            case Selector():
                self._check_selector(where, entry)

    def _check_places(self, where: str, entry: Sweep | HeadMap | Selector | Frontier) -> None:
        """Refuse layers and heads that the model of an experiment does not have."""
        model = self.models[entry.model]
        if entry.layers != "all":
            there = f"{entry.model} has {model.layers} layers"
            _check_numbers(f"{where}.layers", entry.layers, model.layers, there)
        heads: Layers | TopHeads = getattr(entry, "heads", "all")
        if isinstance(heads, TopHeads):
            assert isinstance(entry, Sweep)
            self._check_top(where, entry, heads)
        elif heads != "all":
            there = f"{entry.model} has {model.heads} heads"
            _check_numbers(f"{where}.heads", heads, model.heads, there)
            layers = range(model.layers) if entry.layers == "all" else entry.layers
            smallest = min(layers, key=lambda layer: len(model.heads_in(layer)))
            if max(heads) not in model.heads_in(smallest):
                raise ValueError(
                    f"{where}.heads: {list(heads)}; layer {smallest} of {entry.model} has "
                    f"{len(model.heads_in(smallest))}; name fewer, or all"
                )

    def _check_stops(self, where: str, entry: Any) -> None:
        """Refuse texts that end answers where vLLM answers, which is not told of them."""
        names = [name for key in _DECODINGS for name in _names_in(getattr(entry, key, None))]
        for name in names:
            decoding = self.decodings.get(name)
            has_stops = decoding is not None and decoding.stop
            if has_stops and entry.model and self.models[entry.model].backend == "vllm":
                raise ValueError(
                    f"{where}: decodings.{name} has `stop`, and models.{entry.model} backend vllm, "
                    f"which takes none; leave out one of them"
                )

    def _check_backend(self, model: str, asked: str) -> None:
        """Refuse what vLLM cannot change in a model."""
        if self.models[model].backend == "vllm":
            raise ValueError(
                f"{asked}, but models.{model} has backend vllm, which prunes and scales heads and "
                f"leaves layers out ({', '.join(IN_VLLM[1:])}), no more; ask for these alone, or "
                f"write backend headsweep"
            )

    def _check_apart(self, where: str, entry: Selector | Frontier | Study) -> None:
        if entry.test is None or entry.train is None:
            return
        if entry.train == entry.test:
            raise ValueError(
                f"{where}: train and test are both {entry.test!r}; test on questions that nothing "
                f"is learnt from or chosen on"
            )
        testing = self.questions[entry.test]
        if self.questions[entry.train].may_share(testing):
            raise ValueError(
                f"{where}: train {entry.train!r} and test {entry.test!r} are both drawn from "
                f"{testing.origin}; test on questions that nothing is learnt from or chosen on "
                f"({_NAME_SPLITS})"
            )

    def _check_top(self, where: str, sweep: Sweep, wanted: TopHeads) -> None:
        """Refuse heads chosen for another model, or on the questions that test them."""
        if (wanted.map is None) == (wanted.sweep is None):
            raise ValueError(
                f"{where}.heads: name either a map or a sweep, as in {{sweep: NAME, top: 1}}"
            )
        if wanted.sweep is not None and wanted.outcome != "likelihood":
            raise ValueError(
                f"{where}.heads.outcome: {wanted.outcome!r} belongs to a map; a sweep ranks its "
                f"heads by their gain: leave it out"
            )
        kind = wanted.section.removesuffix("s")
        name = wanted.source
        _known(f"{where}.heads.{kind}", name, getattr(self, wanted.section))
        chosen_by: HeadMap | Sweep = getattr(self, wanted.section)[name]
        if chosen_by.model != sweep.model:
            raise ValueError(
                f"{where}.heads: {kind} {name!r} is of model {chosen_by.model!r}, the sweep of "
                f"{sweep.model!r}; name a {kind} of the same model"
            )
        testing = self.questions[sweep.questions]
        if self.questions[chosen_by.questions].may_share(testing):
            raise ValueError(
                f"{where}.heads: {kind} {name!r} and the sweep have questions drawn from "
                f"{testing.origin}; choose heads on questions that they are not tested on "
                f"({_NAME_SPLITS})"
            )
        has_no_samples = isinstance(chosen_by, HeadMap) and not chosen_by.sampling
        if has_no_samples and wanted.outcome != "solutions":
            raise ValueError(
                f"{where}.heads.outcome: {wanted.outcome!r} is of samples, and map {name!r} scores "
                f"none; write `outcome: solutions`, or give the map a `sampling`"
            )
        if isinstance(chosen_by, Sweep) and isinstance(chosen_by.heads, TopHeads):
            raise ValueError(
                f"{where}.heads: sweep {name!r} takes its own heads from another; name one whose "
                f"heads stand in the config"
            )
        offered = self._heads_of(chosen_by) & self._heads_of(sweep)
        if not offered:
            raise ValueError(
                f"{where}.layers: {kind} {name!r} has none of these layers; name layers that both "
                f"have"
            )
        if wanted.top > len(offered):
            raise ValueError(
                f"{where}.heads.top: {wanted.top}, but {kind} {name!r} has {len(offered)} heads in "
                f"the sweep's layers; take fewer"
            )
        if wanted.chosen is None:
            return
        if len(set(wanted.chosen)) != wanted.top or not offered.issuperset(wanted.chosen):
            raise ValueError(
                f"{where}.heads.chosen: {list(wanted.chosen)} are not {wanted.top} heads of {kind} "
                f"{name!r}; leave `chosen` out, and the run fills it in"
            )

    def _heads_of(self, experiment: Sweep | HeadMap) -> set[str]:
        """Return the names of the heads that a map or sweep has; all, if others choose them."""
        model = self.models[experiment.model]
        layers = range(model.layers) if experiment.layers == "all" else experiment.layers
        heads = getattr(experiment, "heads", "all")
        names: set[str] = set()
        for layer in layers:
            numbers = heads if isinstance(heads, tuple) else model.heads_in(layer)
            names.update(str(Variant(layer, head)) for head in numbers)
        return names

    def _check_map(self, where: str, entry: HeadMap) -> None:
        for name in entry.sampling:
            if self.decodings[name].greedy:
                raise ValueError(
                    f"{where}.sampling: {name!r} is greedy; name decodings that draw samples, "
                    f"of which some are right and some wrong"
                )

    def _check_selector(self, where: str, selector: Selector) -> None:
        rivals = [*selector.sampling, *_RIVALS]
        if selector.versus not in (None, *rivals):
            raise ValueError(
                f"{where}.versus: {selector.versus!r} is not compared with SPRINT; give one of "
                f"{', '.join(rivals)}"
            )
        self._check_samples(where, selector, "max_n")

    def _check_families(self, where: str, frontier: Frontier) -> None:
        kinds = [kind for kind, family in FAMILIES.items() if family.title]
        for kind in (*frontier.families, *frontier.scales):
            if kind not in kinds:
                raise ValueError(f"{where}: {kind!r} is no family; there are {', '.join(kinds)}")
        scalable = [kind for kind in kinds if any(FAMILIES[kind].scales)]
        for kind, scales in frontier.scales.items():
            if kind not in frontier.families:
                raise ValueError(
                    f"{where}.scales: {kind!r} is not among its families; add it there, or leave "
                    f"its scales out"
                )
            if kind not in scalable:
                raise ValueError(f"{where}.scales: {kind!r} has none; {', '.join(scalable)} have")
            if idle := set(scales) & set(FAMILIES[kind].idle):
                raise ValueError(f"{where}.scales: {kind} of {min(idle)} changes nothing")
        most, members = frontier.max_n, frontier.members
        if most > members:
            raise ValueError(f"{where}: max_n = {most} exceeds members = {members}")
        self._check_samples(where, frontier, "members")

    def _check_samples(self, where: str, entry: Selector | Frontier, key: str) -> None:
        for decoding in entry.sampling:
            samples = self.decodings[decoding].samples
            least = getattr(entry, key)
            if samples < least:
                raise ValueError(
                    f"{where}: decoding {decoding!r} has {samples} samples, fewer than "
                    f"{key} = {least}"
                )

    def _check_study(self, where: str, study: Study) -> None:
        """Refuse arms that the shape of what is compressed does not allow."""
        if study.model is not None:
            model = self.models[study.model]
            if model.layer_heads:
                return  # its layers differ: what cannot go is refused when heads are chosen
            shape = (model.layers, model.heads, model.kv_heads)
        elif (encoder := self.solver_of(study).encoder).source is None:
            shape = (encoder.layers, encoder.heads, encoder.heads)
            if max(study.tokens) > CONTEXT:
                raise ValueError(
                    f"{where}.tokens: {max(study.tokens)}; an encoder from scratch reads at most "
                    f"{CONTEXT}"
                )
        else:
            return  # its shape is known only once it is fetched
        for name, settings in study.settings.items():
            try:
                settings.check_shape(*shape)
            except ValueError as error:
                raise ValueError(f"{where}, {name}: {error}") from None

    def solver_of(self, study: Study) -> Solver:
        """Return the settings of a compression's solver on its data."""
        assert study.solver is not None and study.data is not None
        return self.solvers[study.solver].on(self.problems[study.data].dataset)

    def grading_of(self, sweep: str) -> Preset:
        """Return the rules that grade a sweep's answers."""
        return self.sweeps[sweep].grading or self.grading

    def _check_greedy(self, where: str, decoding: str) -> None:
        _known(where, decoding, self.decodings)
        if not self.decodings[decoding].greedy:
            raise ValueError(f"{where}: {decoding!r} samples; pruned heads are decoded greedily")


def _names_in(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names that a key refers to: none, one or several."""
    if isinstance(value, tuple):
        return value
    return () if value is None else (value,)


def _known(where: str, name: str, defined: Mapping[str, Any]) -> None:
    if name not in defined:
        there = ", ".join(defined) or "none"
        meant = nearest(name, defined)
        raise ValueError(f"{where}: {name!r} is not defined{meant}; there is {there}")


def _check_numbers(where: str, numbers: Sequence[int], count: int, there: str) -> None:
    """Refuse numbers of layers or heads beyond their `count`, which `there` tells, or repeated."""
    if not numbers or max(numbers) >= count:
        raise ValueError(f"{where}: {list(numbers)}; {there}; choose from 0 to {count - 1}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{where}: {list(numbers)} names one twice; name each once")
