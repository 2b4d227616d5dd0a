"""What a model takes where it is loaded: bytes, GPUs, main memory, and how many rows fit beside."""

import math

from headsweep.config import Model
from headsweep.planning import rows_at_once
from headsweep.planning.assumptions import HEAD_DIM
from headsweep.planning.cards import ANY_CARD, CARDS, Card
from headsweep.planning.host import host_cores

_SHARE_OF_WEIGHTS = 0.6  # the rest of a GPU holds keys, values and activations
_ANSWER = 1000  # tokens of the answers that a model's memory is stated for

_BESIDE = 4000  # MB of a job, beside what its model takes
_LOADED = 2500  # MB a GB of weights that go through main memory to a GPU
_REARRANGED = 2700  # the same on a CPU, where a copy and a quarter of the whole come on top
_WIDENED = 6000
"""The same in half precision: the engine keeps a copy in float32, twice the weights, only where it
is less than a third of the memory; otherwise it converts weights at each product."""


def is_gpu(card: Card) -> bool:
    """Tell whether a card is a GPU."""
    return card in CARDS.values()


def width(model: Model) -> int:
    """Return the bytes of a number in a model's dtype."""
    return 4 if model.dtype == "float32" else 2


def weight_bytes(model: Model) -> float:
    """Return the bytes of a model's weights."""
    return 1e9 * model.billions * width(model)


def token_bytes(model: Model) -> int:
    """Return the bytes of a token's keys and values."""
    return 2 * model.layers * model.kv_heads * HEAD_DIM * width(model)


def is_heavy(model: Model) -> bool:
    """Tell whether a layer's products take longer than what surrounds them."""
    return 1e9 * model.billions / model.layers > rows_at_once.HEAVY


def usual_cpu_rows(model: Model) -> int:
    """Return the most rows that a CPU's worker decodes together, whatever the memory."""
    return rows_at_once.HEAVY_CPU_ROWS if is_heavy(model) else rows_at_once.CPU_ROWS


def gpus_of(model: Model, card: Card = ANY_CARD) -> int:
    """Return how many GPUs hold one copy of a model; 0 if it is on the CPU.

    With device `balanced` they are as many as leave room for keys and values.
    """
    if model.device == "cpu":
        return 0
    if model.device == "balanced":
        return math.ceil(weight_bytes(model) / (_SHARE_OF_WEIGHTS * 1e9 * card.gigabytes))
    return model.tensor_parallel


def decoded_rows(model: Model, new_tokens: int, card: Card) -> int:
    """Return how many rows are decoded together on a card, if no others fit beside them.

    GPUs that share a model have a part of its weights each. Ranks of vLLM have a part of the keys
    and values, too; with device `balanced` the engine looks at one GPU, and counts them whole.
    """
    if model.batch_size is not None:
        return model.batch_size
    if not is_gpu(card):
        most = usual_cpu_rows(model)
        if not card.gigabytes:
            return most
        memory = rows_at_once.cpu_memory(1e9 * card.gigabytes, host_cores())
        return rows_at_once.fitting(memory, token_bytes(model), new_tokens, most)
    total = 1e9 * card.gigabytes
    weights = weight_bytes(model) / max(1, gpus_of(model, card))
    memory = rows_at_once.gpu_memory(total - weights, total)
    token = token_bytes(model) / model.tensor_parallel
    return rows_at_once.fitting(memory, token, new_tokens, rows_at_once.GPU_ROWS)


def gigabytes_of(model: Model, card: Card) -> float:
    """Return the GB that a model takes on a card with a batch of answers of 1,000 tokens.

    Cards that share a model take the same each. On a CPU all workers share the weights and a second
    copy of them, rearranged, or in float32 where half precision is computed so; each of the
    process's cores has a worker with keys and values of its own.
    """
    weights = weight_bytes(model)
    answer = _ANSWER * token_bytes(model)
    if is_gpu(card):  # stated for a CPU's rows: where memory is left, more are decoded at once
        cached = (model.batch_size or rows_at_once.CPU_ROWS) * answer
        return (weights + cached) / max(1, gpus_of(model, card)) / 1e9
    widened = model.dtype != "float32" and card.half < 1
    copies = 3 if widened else 2
    workers = host_cores()
    return (copies * weights + workers * decoded_rows(model, _ANSWER, card) * answer) / 1e9


def host_megabytes(model: Model) -> int:
    """Return the MB of main memory that a job with a model asks for.

    Weights are loaded through it; a model on a CPU stays in it.
    """
    if model.device == "cpu":
        return _BESIDE + cpu_megabytes(model)
    return int(_BESIDE + _LOADED * weight_bytes(model) / 1e9)


def cpu_megabytes(model: Model) -> int:
    """Return the MB that a model takes on a CPU: its weights, a copy of them, keys and values."""
    per_gigabyte = _REARRANGED if model.dtype == "float32" else _WIDENED
    return int(per_gigabyte * weight_bytes(model) / 1e9)
