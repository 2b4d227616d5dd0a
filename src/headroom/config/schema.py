"""The whole config: its sections, the checks of references between them, and reading it.

The description under each key is its documentation: `config/reference.md` is made from it.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import Field, ValidationError, model_validator

from headroom.config.compression import Solver, WordProblems
from headroom.config.experiments import Comparison, Frontier, Selector, Sweep
from headroom.config.models import Embedder, Model
from headroom.config.questions import Decoding, Preset, Questions
from headroom.config.section import Name, Section, Seed
from headroom.config.study import Study
from headroom.errors import ConfigError
from headroom.variants import FAMILIES

_RIVALS = ("greedy cover", "best single head", "random heads")
_TAKEN = ("store", "gallery")  # folders of results/ that are not runs
_CLAIMS, _COMPRESSION = "claims", "compression_"  # names of other tables


class Config(Section):
    """A run: what is generated, graded, trained and drawn."""

    run: Name
    """Name of the run: results are written to results/<run>/."""
    seed: Seed = 0
    """Seed of statistics and figures."""
    grading: Preset = "default"
    """default: last boxed answer, math-verify. authors: first boxed answer, PRM800K's rules."""
    engine: Literal["server", "inline"] = "server"
    """server: one process loads a model once and answers for all jobs; inside a SLURM job, for all
    jobs in it. inline: each job loads the model itself."""
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
            raise ValueError(
                f"run: results/{self.run} is taken; call it anything but {' or '.join(_TAKEN)}"
            )
        for kind, keys in _REFERENCES.items():
            for name, entry in getattr(self, kind).items():
                for key, section in keys.items():
                    value = getattr(entry, key)
                    for named in value if isinstance(value, tuple) else filter(None, [value]):
                        _known(f"{kind}.{name}.{key}", named, getattr(self, section))
        for name, sweep in self.sweeps.items():
            if name == _CLAIMS or name.startswith(_COMPRESSION):
                kind = "claims" if name == _CLAIMS else "compressions"
                raise ValueError(
                    f"sweeps.{name}: tables/{name}.csv is the table of {kind}; rename the sweep"
                )
            self._check_heads(f"sweeps.{name}", sweep)
            if sweep.placebos != "none" and self.models[sweep.model].backend == "vllm":
                raise ValueError(
                    f"sweeps.{name}.placebos: {sweep.placebos!r}, but models.{sweep.model} has "
                    f"backend vllm, which answers none; write `placebos: none`, or backend headroom"
                )
        for name, selector in self.selectors.items():
            where = f"selectors.{name}"
            self._check_heads(where, selector)
            if selector.train == selector.test:
                raise ValueError(
                    f"{where}: train and test are both {selector.test!r}; "
                    f"a selector is tested on questions that it has not seen"
                )
            rivals = [*selector.sampling, *_RIVALS]
            if selector.versus not in (None, *rivals):
                raise ValueError(
                    f"{where}.versus: {selector.versus!r} is not compared with SPRINT; give one of "
                    f"{', '.join(rivals)}"
                )
            for decoding in selector.sampling:
                if self.decodings[decoding].samples < selector.max_n:
                    raise ValueError(
                        f"{where}: decoding {decoding!r} has "
                        f"{self.decodings[decoding].samples} samples, fewer than "
                        f"max_n = {selector.max_n}"
                    )
        for name, frontier in self.frontiers.items():
            self._check_frontier(f"frontiers.{name}", frontier)
        for name, comparison in self.comparisons.items():
            for decoding in comparison.decodings:
                self._check_greedy(f"comparisons.{name}.decodings", decoding)
        for name, study in self.compressions.items():
            self._check_study(f"compressions.{name}", study)
        return self

    def _check_frontier(self, where: str, frontier: Frontier) -> None:
        """Refuse a comparison of families that cannot be made."""
        self._check_greedy(f"{where}.decoding", frontier.decoding)
        model = self.models[frontier.model]
        known = [kind for kind, family in FAMILIES.items() if family.title]
        for kind in (*frontier.families, *frontier.scales):
            if kind not in known:
                raise ValueError(f"{where}: {kind!r} is no family; there are {', '.join(known)}")
        if frontier.train == frontier.test:
            raise ValueError(
                f"{where}: train and test are both {frontier.test!r}; scales and orders are chosen "
                f"on other questions than they are tested on"
            )
        if frontier.layers != "all" and (
            not frontier.layers or max(frontier.layers) >= model.layers
        ):
            raise ValueError(
                f"{where}.layers: {list(frontier.layers)}; {frontier.model} has {model.layers} "
                f"layers, numbered 0 to {model.layers - 1}"
            )
        if frontier.max_n > frontier.members:
            raise ValueError(
                f"{where}: max_n = {frontier.max_n} exceeds members = {frontier.members}"
            )
        if model.backend == "vllm" and {*frontier.families} != {"head"}:
            raise ValueError(
                f"{where}.families: models.{frontier.model} has backend vllm, which prunes heads "
                f"and no more; write `families: [head]`, or backend headroom"
            )
        for decoding in frontier.sampling:
            samples = self.decodings[decoding].samples
            if samples < frontier.members:
                raise ValueError(
                    f"{where}: decoding {decoding!r} has {samples} samples, fewer than "
                    f"members = {frontier.members}"
                )

    def _check_study(self, where: str, study: Study) -> None:
        """Refuse a compression whose parts do not fit together."""
        if study.solver is not None:
            encoder = self.solver_of(study).encoder
            if encoder.source is not None:
                return  # its shape is known only once it is fetched
            shape = (encoder.layers, encoder.heads, encoder.heads)
        else:
            if study.train == study.test:
                raise ValueError(
                    f"{where}: train and test are both {study.train!r}; hold some back"
                )
            self._check_greedy(f"{where}.decoding", study.decoding)
            model = self.models[str(study.model)]
            shape = (model.layers, model.heads, model.kv_heads)
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

    def _check_heads(self, where: str, pool: Sweep | Selector) -> None:
        self._check_greedy(f"{where}.decoding", pool.decoding)
        model = self.models[pool.model]
        for key, chosen, limit in (
            ("layers", pool.layers, model.layers),
            ("heads", pool.heads, model.heads),
        ):
            if chosen != "all" and (not chosen or max(chosen) >= limit):
                raise ValueError(
                    f"{where}.{key}: {list(chosen)}; {pool.model} has {limit} {key}, "
                    f"numbered 0 to {limit - 1}"
                )

    def _check_greedy(self, where: str, decoding: str) -> None:
        _known(where, decoding, self.decodings)
        if not self.decodings[decoding].greedy:
            raise ValueError(f"{where}: {decoding!r} samples; pruned heads are decoded greedily")


_REFERENCES = {
    "questions": {"embedder": "embedders"},
    "embedders": {"model": "models"},
    "sweeps": {"model": "models", "questions": "questions"},
    "selectors": {
        "model": "models",
        "train": "questions",
        "test": "questions",
        "embedder": "embedders",
        "sampling": "decodings",
    },
    "frontiers": {
        "model": "models",
        "train": "questions",
        "test": "questions",
        "sampling": "decodings",
    },
    "comparisons": {"model": "models", "questions": "questions"},
    "compressions": {
        "solver": "solvers",
        "data": "problems",
        "model": "models",
        "train": "questions",
        "test": "questions",
    },
}
"""The keys of each section's entries that name entries of another section."""


def _known(where: str, name: str, defined: Mapping[str, Any]) -> None:
    if name not in defined:
        raise ValueError(
            f"{where}: {name!r} is not defined; there is {', '.join(defined) or 'none'}"
        )


def parse(values: dict[str, Any], origin: str = "config") -> Config:
    """Check config values and return the typed config.

    Raises:
        ConfigError: one line naming the key, the value and what is allowed.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems = [_describe(problem) for problem in error.errors() if _is_meant(problem)]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{origin}: {problems[0]}{more}") from None


def load(path: Path) -> Config:
    """Read and check a config file (YAML, or the JSON that a run saved).

    Raises:
        ConfigError: the file is missing, is not YAML, or does not fit the schema.
    """
    try:
        read = json.loads if path.suffix == ".json" else yaml.safe_load  # YAML's reader is slow
        values = read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        first = " ".join(str(error).split())
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise ConfigError(f"config file {path} is not {kind}: {first}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"config file {path} holds no keys; see config/demo.yaml for an example")
    return parse(values, str(path))


def _is_meant(problem: Any) -> bool:
    """Tell whether a problem belongs to the branch of `Layers` that fits the value's type."""
    branch = "tuple[" if isinstance(problem["input"], str) else "literal['all']"
    return not any(str(part).startswith(branch) for part in problem["loc"][-1:])


def _describe(problem: Any) -> str:
    parts = (str(part) for part in problem["loc"])
    key = ".".join(part for part in parts if not part.startswith(("[key]", "literal[", "tuple[")))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        allowed = sorted(_section(problem["loc"][:-1]).model_fields)
        return f"unknown key {key!r}; allowed here: {', '.join(allowed)}"
    if problem["type"] == "missing":
        return f"key {key!r} is missing"
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {message}, not {problem['input']!r}"


def _section(location: tuple[Any, ...]) -> type[Section]:
    """Return the section class that a validation error's location points at."""
    section: type[Section] = Config
    parts = iter(location)
    for part in parts:
        field = section.model_fields.get(part)
        if field is not None:
            section = next(_sections(field.annotation), section)
            if get_origin(field.annotation) is dict:
                next(parts, None)  # a name that the user gave
    return section


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """Yield the section classes in a key's type."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
