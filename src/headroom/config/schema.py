"""The sections of a config and the rules they keep.

The description under each key is its documentation: `config/README.md` is made from it. The
sections of compression have a file of their own.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from headroom.config.compression import Solver, WordProblems
from headroom.config.section import Count, Name, Section, Seed
from headroom.config.study import Study
from headroom.config.texts import Texts

Layers = Literal["all"] | tuple[Annotated[int, Field(ge=0, strict=True)], ...]
Dtype = Literal["float32", "bfloat16", "float16"]
Benchmark = Literal["math500", "math_train", "gsm8k", "generated_math", "generated_gsm8k", "custom"]
Grader = Literal["math", "numeric", "choice", "exact"]
Preset = Literal["default", "authors"]
Family = Grader | Literal["gsm8k"]

_TAKEN = ("store", "gallery")  # folders of results/ that are no runs
_CLAIMS, _COMPRESSION = "claims", "compression_"  # files of a run's tables that are no sweep's

SYSTEM_PROMPT = r"Please reason step by step, and put your final answer within \boxed{}."


class Reasoner(Section):
    """How the embedded reasoner is trained."""

    steps: Count = 1500
    """Optimiser steps."""
    layers: Count = 6
    """Decoder layers."""
    hidden: Count = 128
    """Width of the residual stream."""
    query_heads: Count = 8
    """Query heads a layer."""
    kv_heads: Count = 4
    """Key/value heads a layer; divides `query_heads`."""
    head_dim: Count = 32
    """Width of a head."""
    intermediate: Count = 256
    """Width of the feed-forward layers."""
    vocabulary: Count = 640
    """Entries of the byte-level BPE tokenizer."""
    batch_size: Count = 32
    """Documents a step."""
    seed: Seed = 0
    """Seed of data order and initial weights."""


class Model(Section):
    """A model: on the Hugging Face hub, in a local folder, or trained here."""

    source: str | None = None
    """Hub id or local folder in the hub's format."""
    revision: str | None = None
    """Hub: commit hash, pinned. Folder: its fingerprint, filled in when absent."""
    train: Reasoner | None = None
    """Train the embedded reasoner in place of loading a model."""
    layers: Count
    """Number of layers; checked against the model's own config.json."""
    heads: Count
    """Query heads a layer."""
    kv_heads: Count
    """Key/value heads a layer."""
    billions: Annotated[float, Field(gt=0)]
    """Parameters in billions, for planning only."""
    dtype: Dtype = "bfloat16"
    """Type of weights and activations."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|balanced)$")] = "auto"
    """auto: the GPU if there is one; balanced: spread over all GPUs by accelerate."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of transformers."""
    batch_size: Count = 64
    """Sequences decoded together; changes speed and memory, not answers (in fp32)."""
    backend: Literal["headroom", "vllm"] = "headroom"
    """What answers. headroom: the engine, made for sweeps. vllm: vLLM, where headroom[vllm] is
    installed; no placebos, one process, a GPU each. Their answers lie apart in the store."""

    @model_validator(mode="after")
    def _for_vllm(self) -> "Model":
        if self.backend == "vllm" and self.device == "balanced":
            raise ValueError("backend vllm takes a GPU for each copy of the model, not `balanced`")
        return self

    @model_validator(mode="after")
    def _one_origin(self) -> "Model":
        if (self.source is None) == (self.train is None):
            raise ValueError("give either `source` (hub id or folder) or `train`, not both or none")
        if self.train is not None and self.revision is not None:
            raise ValueError("`revision` belongs to `source`; a model that is trained has none")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if self.train is not None:
            own = (self.train.layers, self.train.query_heads, self.train.kv_heads)
            if own != (self.layers, self.heads, self.kv_heads):
                raise ValueError(
                    f"layers, heads, kv_heads are {(self.layers, self.heads, self.kv_heads)}, "
                    f"but `train` makes {own}"
                )
        return self


class Columns(Section):
    """Which columns of a custom benchmark hold what."""

    question: str = "question"
    """The question's text."""
    answer: str = "answer"
    """The gold answer: a text or a number."""
    id: str | None = None
    """Unlike for every question; by default the number of the row."""
    subject: str | None = None
    """What tables and figures are split by."""
    level: str | None = None
    """Difficulty, 1 to 5."""


class Questions(Section):
    """A question set: questions of one benchmark's split."""

    benchmark: Benchmark
    """Which benchmark; decides hub id, columns and grading. custom: your own file or dataset."""
    split: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
    """train or test; custom: any name. math500 has only test, math_train only train."""
    file: str | None = None
    """Local .jsonl or .csv (or .gz of it) in the hub's own columns, instead of the hub."""
    dataset: str | None = None
    """custom: a dataset on the hub, by id; takes `revision`."""
    subset: str | None = None
    """custom: name of the dataset's config, where it has several."""
    columns: Columns | None = None
    """custom: names of the columns."""
    grader: Grader | None = None
    """custom: math (default) compares mathematical expressions, numeric numbers, choice letters,
    exact texts."""
    revision: str | None = None
    """Hub: commit hash (default: the pinned one). File: its sha256, filled in when absent."""
    n: Count | None = None
    """How many questions; all by default. Growing n keeps finished answers."""
    sampling: Literal["first", "uniform", "clusters"] = "uniform"
    """How n are drawn: the first n, uniformly, or spread over clusters of question embeddings."""
    embedder: str | None = None
    """Embedder whose vectors are clustered; needed by `clusters`."""
    seed: Seed = 0
    """Seed of the draw, and of generated benchmarks."""

    @property
    def family(self) -> Family:
        """Which prompt and grading rules apply."""
        if self.grader is not None:
            return self.grader
        return "gsm8k" if "gsm8k" in self.benchmark else "math"

    @property
    def generated(self) -> bool:
        """Whether the benchmark is made here, without download."""
        return self.benchmark.startswith("generated_")

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("benchmark") == "custom":
            return {"columns": {}, "grader": "math", **values}
        return values

    @model_validator(mode="after")
    def _possible(self) -> "Questions":
        if self.benchmark == "custom":
            if (self.file is None) == (self.dataset is None):
                raise ValueError("a custom benchmark has a `file` or a `dataset`, and not both")
            if self.dataset is None and self.subset is not None:
                raise ValueError("`subset` is a part of a `dataset`; a file has none")
        else:
            if self.split not in ("train", "test"):
                raise ValueError(f"split {self.split!r}: {self.benchmark} has train and test")
            for name in ("dataset", "subset", "columns", "grader"):
                if getattr(self, name) is not None:
                    raise ValueError(f"`{name}` belongs to benchmark: custom, not {self.benchmark}")
        only = {"math500": "test", "math_train": "train"}.get(self.benchmark)
        if only and self.split != only:
            raise ValueError(f"{self.benchmark} has only split {only!r}, not {self.split!r}")
        if self.generated and (self.file or self.revision):
            raise ValueError(f"{self.benchmark} is generated: it takes no `file` or `revision`")
        if self.generated and self.n is None:
            raise ValueError(f"{self.benchmark} is generated: give `n`")
        if (self.sampling == "clusters") != (self.embedder is not None):
            raise ValueError("`embedder` and `sampling: clusters` go together")
        return self


class Decoding(Section):
    """How answers are generated."""

    prompt: Preset = "default"
    """default: the model's own chat template. authors: the paper's hand-written chat prompt."""
    system: str | None = SYSTEM_PROMPT
    """System line of the default prompt; null for none."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy decoding."""
    top_k: Count | None = None
    """Sample from the k best tokens only."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the smallest set of tokens with this probability."""
    samples: Count = 1
    """Answers a question."""
    max_new_tokens: Count = 2048
    """Token limit of an answer."""
    seed: Seed = 0
    """Seed of sampling; ignored by greedy decoding."""

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0

    @model_validator(mode="after")
    def _possible(self) -> "Decoding":
        if self.greedy and (self.samples > 1 or self.top_k or self.top_p < 1):
            raise ValueError("temperature 0 is greedy: samples, top_k and top_p do not apply")
        return self


class Sweep(Section):
    """A sweep whose table, violins and heatmaps are drawn: heads pruned one at a time."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    layers: Layers
    """Layers whose heads are pruned, from 0; or all."""
    heads: Layers = "all"
    """Query heads pruned in each layer, from 0; or all."""
    placebos: Literal["none", "numeric", "noise", "both"] = "none"
    """Variants that prune nothing, as many as heads in a layer: what the best head of a layer
    gains is held against the best placebo. numeric: the base model decoded again in other batches,
    without verification. noise: for each head a random direction of the norm that pruning the head
    takes away, added at the same place; as many answers as the heads give. both: both."""


class Embedder(Section):
    """A sentence-embedding model (phi of the SPRINT paper)."""

    source: str | None = None
    """sentence-transformers model: hub id or local folder."""
    revision: str | None = None
    """Hub: commit hash, pinned."""
    model: str | None = None
    """Name under `models`: its transformer with mean pooling."""

    @model_validator(mode="after")
    def _one_origin(self) -> "Embedder":
        if (self.source is None) == (self.model is None):
            raise ValueError("give either `source` or `model`")
        if self.model is not None and self.revision is not None:
            raise ValueError("`revision` belongs to `source`; `model` has its own")
        return self


class Selector(Section):
    """A SPRINT head selector: trained on one question set, tested on another."""

    model: str
    """Name under `models`."""
    train: str
    """Question set that the selector learns from."""
    test: str
    """Question set that it is tested on."""
    embedder: str
    """Name under `embedders`."""
    layers: Layers
    """Layers whose heads are in the pool."""
    heads: Layers = "all"
    """Query heads of each layer that are in the pool."""
    decoding: str = "greedy"
    """Name under `decodings`; greedy."""
    sampling: tuple[str, ...] = ()
    """Sampling decodings to compare with, on the test questions."""
    include_base: bool = False
    """Whether the base model is a member of the pool (not in the paper)."""
    geometry: Annotated[tuple[Literal["sphere", "ball", "literal"], ...], Field(min_length=1)] = (
        "sphere",
        "ball",
    )
    """Readings of the loss: unit sphere with learned temperature, unit ball, or as printed."""
    dimension: Annotated[tuple[Count, ...], Field(min_length=1)] = (32,)
    """p, the dimension of the shared space."""
    diversity: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = (
        0.0,
        0.1,
        1.0,
    )
    """lambda, the weight of the diversity term; 0 is the ablation."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-2
    """AdamW learning rate."""
    weight_decay: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = (
        0.01,
        3.0,
    )
    """AdamW weight decay of theta."""
    epochs: Count = 200
    """Passes over the training questions."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training questions held out to choose among the settings above."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0, 1, 2)
    """Seeds of initial weights and of the held-out part."""
    shortlist: Annotated[tuple[Count, ...], Field(min_length=1)] = (4, 8, 16)
    """K of the random-heads baseline; chosen on held-out training questions."""
    max_n: Count = 16
    """Largest N of the Pass@N curves."""
    bootstrap: Count = 2000
    """Resamples over questions behind each interval."""


class Comparison(Section):
    """The authors' prompt and grading rules against the default ones, on the base model."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`."""
    decodings: tuple[str, str] = ("greedy", "authors")
    """The two decodings; each is graded under both rules."""


class Config(Section):
    """A run: what is generated, graded, trained and drawn."""

    run: Name
    """Name of the run: results are written to results/<run>/."""
    seed: Seed = 0
    """Seed of statistics and figures."""
    grading: Preset = "default"
    """default: last boxed answer, math-verify. authors: first boxed answer, PRM800K's rules."""
    engine: Literal["server", "inline"] = "server"
    """server: one process loads a model once and answers for all jobs, or, inside a SLURM job, for
    all jobs in that. inline: each job loads the model for itself."""
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
    comparisons: dict[Name, Comparison] = Field({})
    """Prompt and grading comparisons, by name."""
    problems: dict[Name, WordProblems] = Field({})
    """The datasets of word problems, by name."""
    texts: dict[Name, Texts] = Field({})
    """The datasets of labelled texts, by name."""
    solvers: dict[Name, Solver] = Field({})
    """The encoders with what stands on them, by name: it follows from the data."""
    compressions: dict[Name, Study] = Field({})
    """What is compressed, by name."""

    @model_validator(mode="after")
    def _references(self) -> "Config":
        if self.run in _TAKEN:
            raise ValueError(
                f"run: results/{self.run} is taken; call it anything but {' or '.join(_TAKEN)}"
            )
        for name, questions in self.questions.items():
            if questions.embedder:
                _known(f"questions.{name}.embedder", questions.embedder, self.embedders)
        for name, embedder in self.embedders.items():
            if embedder.model:
                _known(f"embedders.{name}.model", embedder.model, self.models)
        for name, sweep in self.sweeps.items():
            if name == _CLAIMS or name.startswith(_COMPRESSION):
                kind = "claims" if name == _CLAIMS else "compressions"
                raise ValueError(
                    f"sweeps.{name}: tables/{name}.md is the table of {kind}; rename the sweep"
                )
            self._check_heads(f"sweeps.{name}", sweep)
            if sweep.placebos != "none" and self.models[sweep.model].backend == "vllm":
                raise ValueError(
                    f"sweeps.{name}.placebos: {sweep.placebos!r}, but models.{sweep.model} has "
                    f"backend vllm, which answers none; write `placebos: none`, or backend headroom"
                )
            _known(f"sweeps.{name}.questions", sweep.questions, self.questions)
            self._check_greedy(f"sweeps.{name}.decoding", sweep.decoding)
        for name, selector in self.selectors.items():
            where = f"selectors.{name}"
            self._check_heads(where, selector)
            _known(f"{where}.train", selector.train, self.questions)
            _known(f"{where}.test", selector.test, self.questions)
            if selector.train == selector.test:
                raise ValueError(
                    f"{where}: train and test are both {selector.test!r}; "
                    f"a selector is tested on questions that it has not seen"
                )
            _known(f"{where}.embedder", selector.embedder, self.embedders)
            self._check_greedy(f"{where}.decoding", selector.decoding)
            for decoding in selector.sampling:
                _known(f"{where}.sampling", decoding, self.decodings)
                if self.decodings[decoding].samples < selector.max_n:
                    raise ValueError(
                        f"{where}: decoding {decoding!r} has "
                        f"{self.decodings[decoding].samples} samples, fewer than "
                        f"max_n = {selector.max_n}"
                    )
        for name, comparison in self.comparisons.items():
            where = f"comparisons.{name}"
            _known(f"{where}.model", comparison.model, self.models)
            _known(f"{where}.questions", comparison.questions, self.questions)
            for decoding in comparison.decodings:
                self._check_greedy(f"{where}.decodings", decoding)
        for name in self.texts:
            if name in self.problems:
                raise ValueError(f"texts.{name}: {name!r} stands under `problems` too; rename one")
        for name, study in self.compressions.items():
            self._check_study(f"compressions.{name}", study)
        return self

    def _check_study(self, where: str, study: Study) -> None:
        if study.solver is not None:
            assert study.data is not None  # the section asks for it
            _known(f"{where}.solver", study.solver, self.solvers)
            _known(f"{where}.data", study.data, {**self.problems, **self.texts})
            encoder = self.solvers[study.solver].on(self.dataset(study.data)).encoder
            if encoder.source is None:
                _check_ratios(where, study, encoder.layers, encoder.heads, encoder.heads)
            return
        assert study.model is not None and study.train is not None and study.test is not None
        _known(f"{where}.model", study.model, self.models)
        for key, questions in (("train", study.train), ("test", study.test)):
            _known(f"{where}.{key}", questions, self.questions)
        if study.train == study.test:
            raise ValueError(f"{where}: train and test are both {study.train!r}; hold some back")
        self._check_greedy(f"{where}.decoding", study.decoding)
        model = self.models[study.model]
        _check_ratios(where, study, model.layers, model.heads, model.kv_heads)

    def dataset(self, data: str) -> str:
        """Return which dataset of word problems a name stands for, or that it is of texts."""
        return self.problems[data].dataset if data in self.problems else "texts"

    def _check_heads(self, where: str, pool: Sweep | Selector) -> None:
        _known(f"{where}.model", pool.model, self.models)
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


def _check_ratios(where: str, study: Study, layers: int, heads: int, kv_heads: int) -> None:
    for name, settings in study.settings.items():
        try:
            settings.check_shape(layers, heads, kv_heads)
        except ValueError as error:
            raise ValueError(f"{where}, {name}: {error}") from None


_Value = TypeVar("_Value")


def _known(where: str, name: str, defined: dict[str, _Value]) -> None:
    if name not in defined:
        raise ValueError(
            f"{where}: {name!r} is not defined; there is {', '.join(defined) or 'none'}"
        )
