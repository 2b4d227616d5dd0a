"""Tiny random models of many architectures, in memory only.

Sizes are pairwise different (2 kv heads, 4 layers, 6 query heads, head width 10 where it is free,
else 8), so that swapped axes cannot hide.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.pytorch_utils import Conv1D

from headsweep.variants import Variant, noise_direction

LAYERS, QUERY_HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4, 6, 2, 10, 97
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": QUERY_HEADS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {"num_key_value_heads": KV_HEADS}
_WIDE = {**_GROUPED, "head_dim": HEAD_DIM}
_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20}


@dataclass(frozen=True)
class Architecture:
    """An architecture, and the heads that its tiny model has by its config."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    kv_heads: int = QUERY_HEADS
    layers: tuple[int, ...] = tuple(range(LAYERS))
    auto: type = AutoModelForCausalLM

    @property
    def head_dim(self) -> int:
        return self.settings.get("head_dim", 8)

    def __str__(self) -> str:
        return self.name


def grouped(name: str, **settings: Any) -> Architecture:
    """A decoder whose query heads share key/value heads; head width bound to the hidden size."""
    return Architecture(name, {**_GROUPED, **settings}, KV_HEADS)


def wide(name: str, **settings: Any) -> Architecture:
    """A decoder with grouped queries whose heads together are wider than the hidden state."""
    return Architecture(name, {**_WIDE, **settings}, KV_HEADS)


def encoder(name: str, **settings: Any) -> Architecture:
    return Architecture(name, settings, auto=AutoModel)


DECODERS = [
    wide("Qwen2", head_dim=8),
    wide("Qwen3"),
    wide("Qwen3Moe", **_EXPERTS),
    wide("Llama"),
    wide("Mistral"),
    wide("Mixtral", num_local_experts=3),
    wide("Phimoe", head_dim=8, num_local_experts=3),  # its router is a linear module of tuples
    wide("Gemma"),
    wide("Gemma2", sliding_window=16),
    wide("Gemma3Text", sliding_window=16),
    wide("Glm"),
    wide("GptOss", num_local_experts=3, num_experts_per_tok=2, rope_parameters=None),
    wide("Granite", head_dim=8),
    wide("Olmo2", head_dim=8),
    wide("Cohere", head_dim=8),
    wide("SmolLM3", head_dim=8),
    grouped("Phi"),
    grouped("Phi3"),
    grouped("StableLm"),
    grouped("Starcoder2"),
    grouped("Falcon", new_decoder_architecture=True, num_kv_heads=KV_HEADS),
    Architecture("GPTBigCode", kv_heads=1),
    Architecture("GPT2"),
    Architecture("GPTJ", {"rotary_dim": 4}),
    Architecture("GPTNeo", {"attention_types": [[["global", "local"], LAYERS // 2]]}),
    Architecture("GPTNeoX"),
    Architecture("Bloom"),
    Architecture("Mpt"),
    Architecture("OPT", {"ffn_dim": 56, "word_embed_proj_dim": 48}),
    Architecture("XGLM", {"ffn_dim": 56}),
]
HYBRIDS = [
    # State-space and attention heads side by side in every layer. Texts are filled up to a chunk.
    wide(
        "FalconH1",
        mamba_n_heads=4,
        mamba_d_head=15,
        mamba_d_ssm=60,
        mamba_d_state=8,
        mamba_chunk_size=8,
    ),
    # Linear attention whose output projection is exactly as wide as that of the full attention.
    Architecture(
        "Qwen3Next",
        {
            **_WIDE,
            **_EXPERTS,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_num_key_heads": 3,
            "linear_num_value_heads": QUERY_HEADS,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": HEAD_DIM,
            "shared_expert_intermediate_size": 20,
        },
        KV_HEADS,
        layers=(1, 3),
    ),
    Architecture(
        "Lfm2",
        {**_GROUPED, "layer_types": ["conv", "conv", "full_attention", "conv"]},
        KV_HEADS,
        layers=(2,),
    ),
]
ENCODERS = [
    *map(encoder, ("Bert", "Roberta", "DistilBert", "Electra", "DebertaV2", "MPNet")),
    encoder("ModernBert", cls_token_id=1, sep_token_id=2),
]
ALL = DECODERS + HYBRIDS + ENCODERS


def build_config(architecture: Architecture) -> PretrainedConfig:
    kind = getattr(transformers, f"{architecture.name}Config")
    sizes = {**_SIZES, **architecture.settings}
    return kind(**{kind.attribute_map.get(name, name): value for name, value in sizes.items()})


def build(architecture: Architecture, attention: str = "sdpa") -> PreTrainedModel:
    """Make a tiny model with weights so large that every head counts."""
    config = build_config(architecture)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            model = architecture.auto.from_config(config, attn_implementation=attention)
        except ValueError:  # no scaled dot-product attention in this architecture
            model = architecture.auto.from_config(config, attn_implementation="eager")
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
    return model.eval()


def save_tokenizer(folder: Path, words: Sequence[str], **special: str) -> None:
    """Write a tokenizer of whole words; the first one stands for all that are not known."""
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token=words[0]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def save_qwen2(folder: Path, **special: str) -> Path:
    """Write a folder in the hub's format: the first decoder, with a tokenizer of 97 words."""
    build(DECODERS[0]).save_pretrained(folder)
    words = ["[PAD]", "[BOS]", "[EOS]", *(f"w{number}" for number in range(94))]
    save_tokenizer(folder, words, eos_token="[EOS]", **special)
    return folder


@contextmanager
def noisy(model: PreTrainedModel, geometry: Any, variant: Variant) -> Iterator[None]:
    """Add a placebo's noise to all rows alike, token by token: what pruning takes away in norm."""
    layer = geometry.layer(variant.layer)
    projection: Any = geometry.output_projection(model, layer.index)
    weight = projection.weight.detach().double()
    reads = weight if isinstance(projection, Conv1D) else weight.T  # [inputs, outputs]
    drawn = noise_direction(layer.index, variant.head, layer.width)
    direction = torch.from_numpy(drawn).double()

    def add(_: object, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        joined = inputs[0].double()
        for token in joined.flatten(0, -2):
            columns = layer.columns(variant.head)
            taken = (token[columns] @ reads[columns]).norm()
            token += direction * taken / (direction @ reads).norm()
        return (joined.to(inputs[0]), *inputs[1:])

    hook = projection.register_forward_pre_hook(add)
    yield
    hook.remove()


def named(name: str) -> Architecture:
    return next(one for one in ALL if one.name == name)


def prompts() -> dict[str, Tensor]:
    """Seven rows of one to seven tokens, padded on the left."""
    ids = torch.randint(3, VOCABULARY, (7, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids).triu()
    return {"input_ids": ids * mask, "attention_mask": mask}


def outputs(model: PreTrainedModel) -> Tensor:
    """Logits of a decoder or hidden states of an encoder [rows, tokens, width], 0 for padding."""
    with torch.no_grad():
        return model(**prompts())[0] * prompts()["attention_mask"][:, :, None]


def in_own_memory(model: PreTrainedModel) -> PreTrainedModel:
    """Copy the weights of a model that was read: in a file they lie at any multiple of 8 bytes.

    There MKL multiplies a matrix of one row in another order than at a multiple of 64, where
    PyTorch puts what it computes: equal weights then give outputs that differ in the last bit.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model
