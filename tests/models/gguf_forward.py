"""A GGUF decoder computed in NumPy, in float64, as llama.cpp does: each layer has its own heads."""

import numpy as np
from gguf import GGUFReader, dequantize


def read(file):
    """Return a file's fields without the architecture's name before them, and its tensors."""
    reader = GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    graph = fields["general.architecture"]
    fields = {name.removeprefix(f"{graph}."): value for name, value in fields.items()}
    tensors = {
        each.name: dequantize(each.data, each.tensor_type).astype(np.float64)
        for each in reader.tensors
    }
    return graph, fields, tensors


def logits(file, ids):
    """Return the logits of one text [tokens, vocabulary]."""
    graph, fields, tensors = read(file)
    embeddings = tensors["token_embd.weight"]
    x = embeddings[ids]
    for layer in range(fields["block_count"]):
        own = {
            name.removeprefix(f"blk.{layer}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"blk.{layer}.")
        }
        y = _normed(x, own["attn_norm.weight"], fields)
        x = x + _attention(y, own, layer, graph, fields, tensors.get("rope_freqs.weight"))
        y = _normed(x, own["ffn_norm.weight"], fields)
        gate = y @ own["ffn_gate.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (y @ own["ffn_up.weight"].T)
        x = x + inner @ own["ffn_down.weight"].T
    x = _normed(x, tensors["output_norm.weight"], fields)
    return x @ tensors.get("output.weight", embeddings).T


def _normed(x, weight, fields):
    scale = np.sqrt((x**2).mean(-1, keepdims=True) + fields["attention.layer_norm_rms_epsilon"])
    return x / scale * weight


def _attention(y, own, layer, graph, fields, factors):
    width, found = fields["attention.key_length"], {}
    counts = {"q": fields["attention.head_count"], "k": fields["attention.head_count_kv"]}
    counts = {
        name: each[layer] if isinstance(each, list) else each for name, each in counts.items()
    }
    for name, heads in (*counts.items(), ("v", counts["k"])):
        flat = y @ own[f"attn_{name}.weight"].T + own.get(f"attn_{name}.bias", 0.0)
        found[name] = flat.reshape(len(y), heads, width)
        if (norm := own.get(f"attn_{name}_norm.weight")) is not None:
            found[name] = _normed(found[name], norm, fields)
    half = np.arange(width // 2)
    angles = fields["rope.freq_base"] ** (-2.0 * half / width) / (1 if factors is None else factors)
    turn = np.exp(1j * np.outer(np.arange(len(y)), angles))[:, None]
    pairs = (2 * half, 2 * half + 1) if graph in ("llama", "deci") else (half, half + width // 2)
    for name in "qk":
        one, other = (found[name][..., each] for each in pairs)
        turned = (one + 1j * other) * turn
        for each, part in zip(pairs, (turned.real, turned.imag), strict=True):
            found[name][..., each] = part
    later = np.triu(np.full((len(y), len(y)), -np.inf), 1)
    joined = []
    for head in range(counts["q"]):
        shared = head * counts["k"] // counts["q"]
        scores = found["q"][:, head] @ found["k"][:, shared].T / np.sqrt(width) + later
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        joined.append(weights / weights.sum(-1, keepdims=True) @ found["v"][:, shared])
    return np.concatenate(joined, -1) @ own["attn_output.weight"].T + own.get("attn_output.bias", 0)
