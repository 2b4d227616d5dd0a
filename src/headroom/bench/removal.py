"""How much of the time that removed heads should save is saved: RoBERTa's shape, random weights."""

import copy
import time
from collections.abc import Sequence

import torch
from transformers import RobertaConfig, RobertaModel

from headroom.compression.measurement import closed_form_flops, model_latencies
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.removal import remove_heads
from headroom.variants import Variant

_HEADS = 12
_WARM_UPS = 2


def run(
    *, tokens: Sequence[int], batch: int, ratio: float, layers: int, repeats: int, threads: int
) -> None:
    """Print how long a pass takes with all heads and without some of them, by length of text.

    The model is RoBERTa-base, or so many layers of it, on the GPU if there is one. Both take turns.
    One thread of a CPU is timed in its own time, which other processes hardly touch.

    Args:
        tokens: lengths of the texts.
        batch: texts at a time.
        ratio: part of each layer's heads that is removed; rounded down to whole heads.
        layers: of the encoder.
        repeats: how often each pass is timed.
        threads: CPU threads.

    Raises:
        ModelError: the ratio removes no head of a layer, or all.
    """
    gone = int(ratio * _HEADS)
    if not 0 < gone < _HEADS:
        raise ModelError(
            f"ratio {ratio} removes {gone} of a layer's {_HEADS} heads; name at least "
            f"1/{_HEADS} and less than 1"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    whole, cut = _models(layers, gone, device)
    geometries = [(model, find_heads(model)) for model in (whole, cut)]
    print(
        f"RoBERTa-base, {layers} layers, {_HEADS - gone} of {_HEADS} heads left in each, "
        f"batch {batch}, {device}, {threads} threads, median of {repeats}"
    )
    own_time = device == "cpu" and threads == 1
    for length in tokens:
        times = model_latencies(
            {"whole": whole, "cut": cut},
            length,
            threads=threads,
            batches=(batch,),
            repeats=repeats,
            warm_ups=_WARM_UPS,
            clock=time.process_time if own_time else time.perf_counter,
        )[batch]
        flops = [closed_form_flops(*one, length) for one in geometries]
        expected = 1 - flops[1] / flops[0]
        saved = 1 - times["cut"].median / times["whole"].median
        ranges = (f"{times[name].low:.3f} to {times[name].high:.3f} s" for name in times)
        print(
            f"{length} tokens: {times['whole'].median:.3f} s with all heads, "
            f"{times['cut'].median:.3f} s without (quartiles {', '.join(ranges)}); "
            f"FLOPs cut {expected:.1%}, time cut {saved:.1%}: {saved / expected:.0%} of it"
        )


def _models(layers: int, gone: int, device: str) -> tuple[RobertaModel, RobertaModel]:
    """Return an encoder with random weights, and a copy without some heads of each layer."""
    config = RobertaConfig(
        vocab_size=50_265,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        intermediate_size=3072,
        max_position_embeddings=514,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = RobertaModel(config, add_pooling_layer=False).eval()
    cut = copy.deepcopy(whole)
    heads = [Variant(layer, head) for layer in range(layers) for head in range(gone)]
    remove_heads(cut, find_heads(cut), heads)
    return whole.to(device), cut.to(device)
