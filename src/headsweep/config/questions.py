"""Config sections of models, embedders and question sets, and of how answers are generated."""

from os.path import normpath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headsweep.choices import BenchmarkGrader, GraderName, described_graders
from headsweep.config.section import (
    DEVICE,
    DISTINCT,
    SPLIT,
    Count,
    Depth,
    NotNegative,
    Positive,
    Section,
    Seed,
    ShareAboveZero,
    unquoted,
)

Dtype = Literal["float32", "bfloat16", "float16"]
Benchmark = Literal["math500", "math_train", "gsm8k", "generated_math", "generated_gsm8k", "custom"]
Preset = Literal["default", "authors"]
Published = Literal[
    "Meta-Llama-3-8B-Instruct",
    "Qwen2.5-Math-1.5B-Instruct",
    "Qwen2.5-Math-7B-Instruct",
    "Qwen2.5-7B-Instruct",
]
"""The models of the SPRINT paper's Tables 1-4."""

_MOST_GENERATED = 1_000_000
_CLUSTERS = 7  # one for each subject of MATH, as in the SPRINT authors' code
QUESTION = "{question}"
"""Stands for the question in a prompt's template."""
SYSTEM_PROMPT = r"Please reason step by step, and put your final answer within \boxed{}."


class Model(Section):
    """A model: on the Hugging Face hub, in a local folder, or in this package."""

    source: str
    """Hub id, local folder in the hub's format, GGUF file, or builtin:reasoner, which ships with
    headsweep."""
    gguf_file: str | None = None
    """File to take from a repository of GGUF files on the hub."""
    revision: str | None = None
    """Hub: commit hash, pinned; for a GGUF file, its sha256 is enough. Folder: its fingerprint;
    file: its sha256; both are filled in when absent."""
    layers: Depth
    """Number of layers; checked against the model's own config.json."""
    heads: Depth
    """Query heads a layer."""
    kv_heads: Depth
    """Key/value heads a layer."""
    layer_heads: tuple[Depth, ...] | None = None
    """Query heads of each layer of a pruned model whose layers differ; null: `heads` each."""
    billions: Positive
    """Parameters in billions, for planning only."""
    dtype: Dtype = "bfloat16"
    """Type of weights and activations."""
    device: Annotated[str, Field(pattern=DEVICE)] = "auto"
    """auto: the GPU if there is one; balanced: spread over all GPUs by accelerate."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of transformers."""
    batch_size: Count | None = None
    """Sequences decoded together; null: as many as the model's shape and the memory allow. It
    changes speed and memory; in float32 it changes no answer whose margins exceed 1e-3."""
    backend: Literal["headsweep", "vllm"] = "headsweep"
    """Software that answers. headsweep: this package's engine, made for sweeps. vllm: vLLM, which
    needs the package vllm; it prunes and scales heads and leaves layers out, but has no placebos.
    The store keeps the answers of both apart."""
    tensor_parallel: Count = 1
    """vllm: how many GPUs hold one copy of the model together, each a part of every layer."""
    graphs: Annotated[Literal["auto", "off"], unquoted("off")] = "auto"
    """auto: on a GPU, with flash attention, decoding steps are captured as CUDA graphs, each held
    against the plain step first; at any doubt plain steps go on."""
    title: str | None = None
    """What the report calls it; null: its name."""
    beside: Published | None = None
    """A model of the SPRINT paper whose printed accuracies the page shows beside those of this
    model, although it is another one; null: the paper's model of the same name."""

    @model_validator(mode="after")
    def _possible(self) -> "Model":
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        counts = self.layer_heads
        if counts is not None and (len(counts) != self.layers or max(counts) > self.heads):
            raise ValueError(
                f"layer_heads: {list(counts)}; give each of {self.layers} layers 1 to {self.heads}"
            )
        if self.backend == "vllm" and self.device == "balanced":
            raise ValueError(
                "backend vllm spreads a model by `tensor_parallel`, not by device `balanced`"
            )
        if self.tensor_parallel > 1:
            self._check_spread()
        on_disk = self.source.startswith((".", "/", "~", "builtin:"))
        if self.gguf_file is not None and on_disk:
            raise ValueError(
                "`gguf_file` names a file of a repository on the hub; for one on the disk, give "
                "its path as `source`"
            )
        return self

    def _check_spread(self) -> None:
        where = f"tensor_parallel: {self.tensor_parallel}"
        if self.backend != "vllm":
            raise ValueError(
                f"{where}, but only backend vllm spreads a model so; with backend headsweep, "
                f"device: balanced does"
            )
        if self.heads % self.tensor_parallel:
            raise ValueError(f"{where} does not divide {self.heads} heads; give a divisor")
        if self.device.startswith("cuda"):
            raise ValueError(f"{where} takes several GPUs, not {self.device}; give device: auto")

    def heads_in(self, layer: int) -> range:
        """Return the numbers of a layer's query heads."""
        return range(self.layer_heads[layer] if self.layer_heads else self.heads)


class Embedder(Section):
    """A sentence-embedding model (phi of the SPRINT paper)."""

    source: str | None = None
    """sentence-transformers model, of a transformer, pooling and normalisation, or a plain
    transformer: hub id or local folder."""
    revision: str | None = None
    """Hub: commit hash, pinned."""
    model: str | None = None
    """Name under `models`: its transformer embeds, with mean pooling."""

    @model_validator(mode="after")
    def _one_origin(self) -> "Embedder":
        if (self.source is None) == (self.model is None):
            raise ValueError("give either `source` or `model`")
        if self.model is not None and self.revision is not None:
            raise ValueError("`revision` belongs to `source`; `model` has its own")
        return self


class Columns(Section):
    """Which columns of a custom benchmark hold what."""

    question: str = "question"
    """The question's text."""
    answer: str = "answer"
    """The gold answer: a text or a number."""
    id: str | None = None
    """A unique id of the question; default: the row's number."""
    subject: str | None = None
    """Subject, by which tables and figures are split."""
    level: str | None = None
    """Difficulty, 1 to 5."""
    solution: str | None = None
    """The worked solution, for maps and for examples in a prompt."""
    split: str | None = None
    """Name of the row's split, in a file with several; rows of other splits are left out."""


class Questions(Section):
    """A question set: questions of one benchmark's split."""

    benchmark: Benchmark
    """The benchmark; decides hub id, columns and grading. custom: your own file or dataset."""
    split: Annotated[str, Field(pattern=SPLIT)]
    """train or test; custom: any name. math500 has only test, math_train only train. Of a file
    without `columns.split` it is only a label: all rows are drawn from."""
    file: str | None = None
    """Local .jsonl or .csv (or .gz of it) in the hub's own columns, instead of the hub."""
    dataset: str | None = None
    """custom: a dataset on the hub, by id; takes `revision`."""
    subset: str | None = None
    """custom: name of the dataset's config, where it has several."""
    columns: Columns | None = None
    """custom: names of the columns."""
    grader: Annotated[
        BenchmarkGrader | None,
        Field(description=f"custom: answers are compared as {described_graders()}; default: math."),
    ] = None
    revision: str | None = None
    """Hub: commit hash (default: the pinned one). File: its sha256, filled in when absent."""
    n: Count | None = None
    """Number of questions; default: all. A larger n keeps finished answers."""
    sampling: Literal["first", "uniform", "clusters", "stratified"] = "uniform"
    """How the n are drawn: the first n, uniformly, from clusters of question embeddings, or
    stratified: each subject and level in proportion."""
    embedder: str | None = None
    """Embedder whose vectors are clustered; needed by `clusters`."""
    clusters: Count = _CLUSTERS
    """Number of clusters; for `sampling: clusters`."""
    seed: Seed = 0
    """Seed of the draw, and of generated benchmarks."""
    leave_out: Annotated[tuple[Annotated[int, Field(ge=0, strict=True)], ...], DISTINCT] = ()
    """Rows of the source that are not asked, numbered from 0, as those that a prompt shows."""
    templates: Literal["apart", "shared"] = "apart"
    """Of generated benchmarks. apart: of each subject's templates some make test questions and the
    others training questions, so that no test question is a training question with other numbers.
    shared: all templates make both."""
    title: str | None = None
    """What the report calls it, such as MATH-like; null: by its benchmark or file."""

    @property
    def grader_name(self) -> GraderName:
        """Which prompt and grading rules apply."""
        if self.grader is not None:
            return self.grader
        return "gsm8k" if "gsm8k" in self.benchmark else "math"

    @property
    def home(self) -> tuple[str, GraderName]:
        """The benchmark that the questions are of, whatever their split, and its grader.

        MATH has a name for each of its splits. Two custom benchmarks are not known to be one, nor
        two: they count as one if their grader is.
        """
        benchmark = "math" if self.benchmark in ("math500", "math_train") else self.benchmark
        return benchmark, self.grader_name

    @property
    def origin(self) -> str:
        """What the questions are drawn from, for a message."""
        return self.file or self.dataset or f"{self.benchmark} {self.split}"

    def may_share(self, other: "Questions") -> bool:
        """Return whether this set and another are drawn from the same questions.

        The split of a file without a column of splits is only a label: all its rows are drawn from.
        Files of equal content are one, whatever their names, once their revisions are known.
        """
        splits = {self._real_split, other._real_split}
        copies = None not in (self.file, other.file, self.revision)
        one_source = self._source == other._source or (copies and self.revision == other.revision)
        return one_source and (len(splits) == 1 or None in splits)

    @property
    def _source(self) -> tuple[object, ...]:
        """What holds all splits."""
        if self.file is not None:
            return (normpath(self.file),)
        return (self.benchmark, self.dataset, self.subset, self.seed if self.generated else None)

    @property
    def _real_split(self) -> str | None:
        """The split that rows are drawn from; None: they are drawn from all of a file."""
        has_column = self.columns is not None and self.columns.split is not None
        return self.split if self.file is None or has_column else None

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
        if self.generated and (self.n or 0) > _MOST_GENERATED:
            raise ValueError(f"n: {self.n} questions; at most {_MOST_GENERATED:,} are generated")
        if (self.sampling == "clusters") != (self.embedder is not None):
            raise ValueError("`embedder` and `sampling: clusters` go together")
        if self.sampling != "clusters" and self.clusters != _CLUSTERS:
            raise ValueError(
                f"`clusters` belongs to sampling: clusters, not {self.sampling}; leave it out"
            )
        if not self.generated and self.templates != "apart":
            raise ValueError(
                f"`templates` belongs to generated benchmarks, not {self.benchmark}; leave it out"
            )
        return self


MOST_SAMPLES = 1 << 15
"""Tables of answers number a question's samples from 0 with 16 bits, one of them the sign."""


class Decoding(Section):
    """How answers are generated."""

    prompt: Preset = "default"
    """default: the model's own chat template; without one, the system line, `Question:` with the
    question, and `Answer:`. authors: the paper's hand-written chat prompt."""
    system: str | None = SYSTEM_PROMPT
    """System line of the default prompt; null for none."""
    template: str | None = None
    """A prompt of your own in place of the default one, as for a model without a chat template; the
    question takes the place of {question}. Nothing is added but the token that begins every text of
    the model's."""
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], DISTINCT] = ()
    """Texts before which an answer ends."""
    temperature: NotNegative = 0.0
    """0 is greedy decoding."""
    top_k: Count | None = None
    """Sample from the k best tokens only."""
    top_p: ShareAboveZero = 1.0
    """Sample from the smallest set of tokens with this probability."""
    samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES, strict=True)] = 1
    """Answers per question."""
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
        if self.template is not None:
            if self.prompt != "default":
                raise ValueError("`template` takes the place of the default prompt; leave out one")
            if (count := self.template.count(QUESTION)) != 1:
                raise ValueError(f"template: {QUESTION} stands in it {count} times; write it once")
        return self
