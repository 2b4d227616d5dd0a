"""Config sections of models that answer questions, and of those that embed them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headroom.config.section import DEVICE, Count, Section

Dtype = Literal["float32", "bfloat16", "float16"]


class Model(Section):
    """A model: on the Hugging Face hub, in a local folder, or in this package."""

    source: str
    """Hub id, local folder in the hub's format, GGUF file, or builtin:reasoner, which ships with
    headroom."""
    gguf_file: str | None = None
    """File to take from a repository of GGUF files on the hub."""
    revision: str | None = None
    """Hub: commit hash, pinned; for a GGUF file, its sha256 is enough. Folder: its fingerprint;
    file: its sha256; both are filled in when absent."""
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
    device: Annotated[str, Field(pattern=DEVICE)] = "auto"
    """auto: the GPU if there is one; balanced: spread over all GPUs by accelerate."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention implementation of transformers."""
    batch_size: Count | None = None
    """Sequences decoded together; null: as many as the model's shape and the memory allow. It
    changes speed and memory; in float32 it changes no answer whose margins exceed 1e-3."""
    backend: Literal["headroom", "vllm"] = "headroom"
    """Software that answers. headroom: this package's engine, made for sweeps. vllm: vLLM, which
    needs headroom[vllm]; it has no placebos, and runs as one process on one GPU. The store keeps
    the answers of both apart."""
    title: str | None = None
    """What the report calls it; null: its name."""

    @model_validator(mode="after")
    def _possible(self) -> "Model":
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if self.backend == "vllm" and self.device == "balanced":
            raise ValueError("backend vllm takes a GPU for each copy of the model, not `balanced`")
        on_disk = self.source.startswith((".", "/", "~", "builtin:"))
        if self.gguf_file is not None and on_disk:
            raise ValueError(
                "`gguf_file` names a file of a repository on the hub; for one on the disk, give "
                "its path as `source`"
            )
        return self


class Embedder(Section):
    """A sentence-embedding model (phi of the SPRINT paper)."""

    source: str | None = None
    """sentence-transformers model: hub id or local folder."""
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
