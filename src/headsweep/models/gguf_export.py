"""Decoders written as GGUF, for llama.cpp: pruned ones, too, whose layers differ.

llama.cpp builds the graph of the architecture that a file names. That of `deci` (Llama-Nemotron)
reads the number of heads of each layer, and takes biases; so it stands in for Llama and Qwen2 where
their own graphs do not fit. Names of tensors and fields are those of the package gguf
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from headsweep.errors import ModelError
from headsweep.files.safe_files import atomic, check_writable, written_to
from headsweep.models import llamacpp
from headsweep.models.checkpoints import stated_config
from headsweep.models.geometry import HeadGeometry, find_heads
from headsweep.models.gguf import Kind
from headsweep.models.gguf_vocabulary import add_vocabulary, vocabulary
from headsweep.models.load import load_checkpoint, load_tokenizer
from headsweep.models.source import fetch_model, stated_geometry

_GRAPHS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Graphs of llama.cpp by class of transformers."""
_UNEVEN = "deci"
_INTERLEAVED = ("llama", "deci")
"""Graphs that turn entries 2i and 2i + 1 of a head together; transformers turns i and i + d/2."""
_ROPES = ("default", "linear", "llama3")  # whose frequencies are the same at every length
_OUT = "the GGUF file"  # what an error calls it
_BLOCK = 32  # entries that q8_0 gives one scale


@dataclass(frozen=True)
class Exported:
    """A decoder in a GGUF file."""

    file: Path
    graph: str  # llama.cpp's name of the architecture
    kind: Kind
    weight_bytes: int
    cache_bytes_per_token: int  # of keys and values in llama.cpp's float16
    tokens_per_second: float | None  # in llama.cpp, batch 1; None where it is not installed

    def __str__(self) -> str:
        tried = "not loaded for a test, as llama-cpp-python is not installed"
        if self.tokens_per_second is not None:
            tried = f"llama.cpp loads it: {self.tokens_per_second:.1f} tokens/s"
        return (
            f"{self.file}: {self.kind}, graph {self.graph}, {self.weight_bytes:,} bytes of weights,"
            f" {self.cache_bytes_per_token:,} bytes of keys and values a token; {tried}"
        )


def export_gguf(
    source: str | Path, out: str | Path, *, kind: Kind = "f16", tokenizer: Path | None = None
) -> Exported:
    """Write a decoder, pruned or not, as a GGUF file that llama.cpp loads.

    Args:
        source: hub id or local folder of a Llama, Mistral, Qwen2 or Qwen3. Qwen3's layers must have
            equally many heads.
        out: file to write.
        kind: type of the matrices. `q4_k_m` is made by llama-cpp-python.
        tokenizer: GGUF file, such as one of the unpruned model, whose tokenizer is taken instead of
            the folder's.

    Raises:
        ConfigError: the file cannot be written.
        ModelError: llama.cpp has no graph for the decoder or cannot load the file, which then is
            not written, the tokenizer cannot be written, or a package is missing.
    """
    folder, out = fetch_model(source), Path(out)
    _check_export(folder, out, kind, tokenizer)
    model = load_checkpoint(str(folder), device="cpu")
    geometry = find_heads(model)
    decoder = _Decoder(model, geometry, _graph_of(model, geometry))
    words = vocabulary(load_tokenizer(folder), model.config.vocab_size, folder, tokenizer)
    plain: Kind = "f32" if kind == "q4_k_m" else kind
    with written_to(_OUT, out), atomic(out) as made:
        whole = made.with_suffix(".whole") if plain != kind else made
        try:
            _write(decoder, folder.name, words, whole, plain)
            if plain != kind:
                llamacpp.quantise(whole, made)
        finally:
            if plain != kind:
                whole.unlink(missing_ok=True)
        weights = _weight_bytes(made)
        speed = llamacpp.tokens_per_second(made)
    cache = geometry.cached_numbers * torch.float16.itemsize
    return Exported(out, decoder.graph, kind, weights, cache, speed)


def _weight_bytes(file: Path) -> int:
    from gguf import GGUFReader

    return sum(int(tensor.n_bytes) for tensor in GGUFReader(file).tensors)


def _check_export(folder: Path, out: Path, kind: Kind, tokenizer: Path | None) -> None:
    """Refuse what cannot be exported, before any weights are read."""
    if out.exists():
        raise ModelError(f"{out} exists; remove it, or name another file")
    check_writable(_OUT, out)
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            "GGUF is written by the package gguf; install it: pip install 'gguf>=0.17'"
        )
    if kind == "q4_k_m" and not llamacpp.installed():
        raise ModelError(
            "q4_k_m is made by llama-cpp-python; install it: pip install llama-cpp-python, or "
            "write q8_0"
        )
    config = stated_config(folder)
    layers = {*stated_geometry(folder).get("layer_heads", ())}
    _graph(config, even=len(layers) <= 1, as_wide=False)
    vocabulary(load_tokenizer(folder), config.vocab_size, folder, tokenizer)


def _graph_of(model: PreTrainedModel, geometry: HeadGeometry) -> str:
    shapes = {(layer.query_heads, layer.kv_heads) for layer in geometry.layers}
    wide = geometry.layers[0].width == model.config.hidden_size
    return _graph(model.config, even=len(shapes) == 1, as_wide=wide)


def _graph(config: PretrainedConfig, *, even: bool, as_wide: bool) -> str:
    """Return the graph of llama.cpp that computes a decoder, or raise a ModelError.

    `even`: layers have equally many heads; `as_wide`: together these are as wide as the decoder.
    """
    name = (config.architectures or [type(config).__name__])[0]
    if name not in _GRAPHS:
        raise ModelError(
            f"{name} is not written as GGUF; {', '.join(_GRAPHS)} are: use llama.cpp's own "
            f"convert_hf_to_gguf.py for a zeroed model"
        )
    graph = _GRAPHS[name]
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    ropes = ("default",) if graph == "qwen3" else _ROPES
    problem = None
    if config.hidden_act != "silu":
        problem = f"activation {config.hidden_act}"
    elif rope not in ropes:
        problem = f"rotary embedding {rope}"
    elif _has_window(config):
        problem = "attention in a sliding window"
    elif graph == "qwen3" and not even:
        problem = "layers with different numbers of heads (use --uniform)"
    if problem is not None:
        raise ModelError(f"llama.cpp has no graph of {name} with {problem}; serve the folder")
    fits = even and (graph != "qwen2" or (as_wide and rope == "default"))
    return graph if fits else _UNEVEN


def _has_window(config: PretrainedConfig) -> bool:
    """Return whether a layer's tokens see the last ones only; a list of layers goes first."""
    layers = getattr(config, "layer_types", None)
    if layers:
        return any(kind != "full_attention" for kind in layers)
    return bool(getattr(config, "sliding_window", None))


class _Decoder(NamedTuple):
    """A decoder with the graph of llama.cpp that computes it."""

    model: PreTrainedModel
    geometry: HeadGeometry
    graph: str


class _Written(NamedTuple):
    """A tensor as it will lie in the file."""

    name: str
    weight: Tensor
    kind: Any  # gguf's number of its type


def _write(decoder: _Decoder, name: str, words: Mapping[str, Any], file: Path, kind: Kind) -> None:
    """Write a decoder under a name, with the fields of its tokenizer."""
    from gguf import GGUFWriter

    writer = GGUFWriter(file, decoder.graph)
    writer.add_name(name)
    _add_settings(writer, decoder, kind)
    add_vocabulary(writer, words)
    _write_tensors(writer, list(_tensors(decoder, kind)))
    writer.close()


def _add_settings(writer: Any, decoder: _Decoder, kind: Kind) -> None:
    """Add the fields from which llama.cpp builds its graph; `writer` is a GGUFWriter."""
    from gguf import LlamaFileType

    config = decoder.model.config
    layers = decoder.geometry.layers
    writer.add_block_count(len(layers))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_vocab_size(config.vocab_size)
    if decoder.graph == _UNEVEN:
        writer.add_feed_forward_length([config.intermediate_size] * len(layers))
        writer.add_head_count([layer.query_heads for layer in layers])
        writer.add_head_count_kv([layer.kv_heads for layer in layers])
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(layers[0].query_heads)
        writer.add_head_count_kv(layers[0].kv_heads)
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(layers[0].head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    types = {"f32": LlamaFileType.ALL_F32, "f16": LlamaFileType.MOSTLY_F16}
    writer.add_file_type(types.get(kind, LlamaFileType.MOSTLY_Q8_0))
    if kind == "q8_0":
        writer.add_quantization_version(2)


def _write_tensors(writer: Any, tensors: Sequence[_Written]) -> None:
    """Write all fields of a GGUFWriter, where each tensor will lie, then the tensors."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quant_shape_to_byte_shape, quantize

    for tensor in tensors:
        shape = tuple(tensor.weight.shape)
        byte_shape = None
        if tensor.kind == GGMLQuantizationType.Q8_0:
            byte_shape = quant_shape_to_byte_shape(shape, tensor.kind)
        width = {GGMLQuantizationType.F16: 2, GGMLQuantizationType.F32: 4}.get(tensor.kind, 1)
        size = width * int(np.prod(byte_shape or shape))
        dtype = np.dtype(np.uint8) if byte_shape else np.dtype(f"float{8 * width}")
        writer.add_tensor_info(tensor.name, byte_shape or shape, dtype, size, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(quantize(tensor.weight.float().contiguous().numpy(), tensor.kind))


def _tensors(decoder: _Decoder, kind: Kind) -> Iterator[_Written]:
    """Yield a decoder's tensors under llama.cpp's names, in its order of rotary entries."""
    from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, get_tensor_name_map

    model, geometry, graph = decoder
    numbers = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(numbers[graph], len(geometry.layers))
    plain = GGMLQuantizationType.F32
    most = GGMLQuantizationType[kind.upper()]
    heads = {
        f"{layer.block}.self_attn.{name}_proj": count
        for layer in geometry.layers
        for name, count in (("q", layer.query_heads), ("k", layer.kv_heads))
    }
    factors = _frequency_factors(model, geometry.layers[0].head_dim)
    if not torch.equal(factors, torch.ones_like(factors)):
        yield _Written("rope_freqs.weight", factors, plain)
    tied = model.config.tie_word_embeddings
    for name, weight in model.state_dict().items():
        if tied and name == "lm_head.weight":  # llama.cpp takes the embeddings
            continue
        module, _, part = name.rpartition(".")
        if module in heads and graph in _INTERLEAVED:
            rows = weight.unflatten(0, (heads[module], 2, -1))
            weight = rows.transpose(1, 2).reshape(weight.shape)
        kept = most if weight.ndim > 1 else plain
        if kept == GGMLQuantizationType.Q8_0 and weight.shape[-1] % _BLOCK:
            kept = GGMLQuantizationType.F16
        yield _Written(f"{names.get_name(module)}.{part}", weight, kept)


def _frequency_factors(model: PreTrainedModel, head_dim: int) -> Tensor:
    """Return what llama.cpp divides each rotary frequency by [head_dim / 2]."""
    base = model.config.rope_parameters["rope_theta"]
    plain = base ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    rotary: Any = model.get_submodule("model.rotary_emb")
    factors = plain / rotary.inv_freq.double()
    return torch.where((factors - 1).abs() < 1e-5, 1.0, factors).float()
