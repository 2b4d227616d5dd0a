"""What pruning cost and what recovery gave back: perplexity, sizes, speed of generation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, PreTrainedModel

from headsweep.experiments.compression import savings
from headsweep.experiments.recovery.benchmark import Right, accuracies
from headsweep.experiments.recovery.texts import Piece
from headsweep.models.geometry import evaluating, find_heads
from headsweep.models.learner import move, padded
from headsweep.models.timing import ANSWER_TOKENS, PROMPT_TOKENS, TURNS, seconds_of
from headsweep.statistics.intervals import Estimate, ratio_of_sums
from headsweep.text import percent, percentage, points, with_interval

_BATCHES = (1, 8)


class Losses(NamedTuple):
    """A model's loss on each of some texts."""

    nats: Float[np.ndarray, " texts"]  # sums over a text's tokens
    tokens: Int[np.ndarray, " texts"]  # predicted ones


def text_losses(model: PreTrainedModel, pieces: Sequence[Piece], at_once: int) -> Losses:
    """Return a decoder's loss on texts, in evaluation mode, `at_once` pieces at a time."""
    ordered = sorted(pieces, key=lambda piece: len(piece.input_ids))
    counts = [piece.targets for piece in ordered]
    nats = [torch.empty(0, dtype=torch.float64)]
    with torch.inference_mode(), evaluating(model):
        for start in range(0, len(ordered), at_once):
            logits, targets = predictions(model, ordered[start : start + at_once])
            nats.append(cross_entropy(logits.float(), targets, reduction="none").double().cpu())
    sums = [float(nats_of_piece.sum()) for nats_of_piece in torch.cat(nats).split(counts)]
    _, text = np.unique([piece.text for piece in ordered], return_inverse=True)
    return Losses(np.bincount(text, sums), np.bincount(text, counts).astype(np.int64))


def predictions(
    model: PreTrainedModel, pieces: Sequence[Piece], device: torch.device | None = None
) -> tuple[Float[Tensor, "targets vocabulary"], Int[Tensor, " targets"]]:
    """Return a decoder's logits that predict the texts' tokens, and these tokens, row after row.

    `device` is the decoder's, where a wrapper does not say it.
    """
    device = device or model.device
    inputs = move(padded([piece.input_ids for piece in pieces]), device)
    predicted = inputs["attention_mask"][:, 1:].bool()
    logits = model(**inputs, use_cache=False).logits
    return logits[:, :-1][predicted], inputs["input_ids"][:, 1:][predicted]


def perplexity(losses: Losses, beside: Losses | None = None) -> Estimate:
    """Return the perplexity on texts, or its ratio to that of another model on the same texts.

    Perplexity is exp(mean loss of a token); the interval is that of other such texts.
    """
    nats = losses.nats - (beside.nats if beside else 0.0)
    with np.errstate(over="ignore"):  # two texts that differ much leave no upper end
        value, low, high = np.exp(ratio_of_sums(nats, losses.tokens))
    return Estimate(float(value), float(low), float(high))


def generated_per_second(models: Sequence[PreTrainedModel], device: str) -> list[dict[str, float]]:
    """Return how many tokens a second each decoder generates, at several batch sizes.

    Greedy, 32 tokens after 16 random ones, median of 3 turns that alternate between models. The
    models wait on the CPU: one at a time is on the device.
    """
    plain = GenerationConfig(
        max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, do_sample=False, pad_token_id=0
    )

    @torch.inference_mode()
    def seconds(model: PreTrainedModel, batch: int) -> float:
        model.to(device)
        inputs = savings.dummy_texts(model, batch, PROMPT_TOKENS)
        call = partial(model.generate, **inputs, generation_config=plain)
        call()  # warms up
        spent = seconds_of(call)
        model.to("cpu")
        return spent

    speeds: list[dict[str, float]] = [{} for _ in models]
    for batch in _BATCHES:
        turns = [[seconds(model, batch) for model in models] for _ in range(TURNS)]
        for speed, spent in zip(speeds, np.median(turns, axis=0), strict=True):
            speed[f"tokens_per_second_batch_{batch}"] = float(batch * ANSWER_TOKENS / spent)
    return speeds


def _as_number(value: Mapping[str, float]) -> str:
    estimate = Estimate(**value)
    return with_interval("{:.4g}".format, estimate.value, estimate.low, estimate.high)


def _as_share(value: Mapping[str, float]) -> str:
    share = Estimate(**value)
    return f"{percent(share.value)} ({percentage(share.low)} to {percentage(share.high)})"


def _as_points(value: Mapping[str, float]) -> str:
    gain = Estimate(**value)
    return with_interval(points, gain.value, gain.low, gain.high)


_ROWS: dict[str, tuple[str, Callable[..., str]]] = {
    "perplexity": ("perplexity (95% interval)", _as_number),
    "ratio": ("ratio to before", _as_number),
    "ratio_to_control": ("ratio to control", _as_number),
    "accuracy": ("right answers (95% interval)", _as_share),
    "gain": ("points more than before", _as_points),
    "gain_on_control": ("points more than control", _as_points),
    "parameters": ("parameters", "{:,}".format),
    "weight_bytes": ("bytes of weights", "{:,}".format),
    "cache_bytes_per_token": ("bytes of keys and values a token", "{:,}".format),
    "tokens_per_second_batch_1": ("tokens/s, batch 1", "{:.1f}".format),
    "tokens_per_second_batch_8": ("tokens/s, batch 8", "{:.1f}".format),
}
"""Of each measurement: what the table calls it, and how it is written."""
_WHOLE = ("before", "control")  # models with all heads
_SIZES = ("parameters", "weight_bytes", "cache_bytes_per_token")


def measured(
    load: Mapping[str, Callable[[str], PreTrainedModel]],
    pieces: Sequence[Piece],
    at_once: int,
    device: str,
    answer: Callable[[PreTrainedModel], Right] | None,
    once: Callable[[str, Callable[[], Any]], Any],
) -> dict[str, dict[str, Any]]:
    """Return the measurements of a decoder `before`, `pruned`, `recovered`, and of a `control`.

    They are loaded one after another, on the device that `load` gets: training had room for two.
    `pruned` and `recovered` have the same shapes, so that they are timed once, as are the others.
    `answer` returns which questions of a benchmark a decoder answers correctly. `once` gets a name
    and what measures: it returns what it has kept of an earlier call, or measures.
    """
    facts = {}
    for name, load_one in load.items():
        measure = partial(_facts, load_one, pieces, at_once, device, answer)
        facts[name] = once(f"measured_{name}", measure)
        clear_device_cache(garbage_collection=True)
    timed = (load["before"], load["recovered"])
    whole, smaller = once(
        "speeds", lambda: generated_per_second([load_one("cpu") for load_one in timed], device)
    )
    return {
        name: result | (whole if name in _WHOLE else smaller)
        for name, result in _compared(facts).items()
    }


def _compared(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each decoder's results, with its ratios and differences to others."""
    losses = {}
    right = {}
    for name, measured_facts in facts.items():
        texts = measured_facts["texts"]
        losses[name] = Losses(np.array(texts["nats"]), np.array(texts["tokens"]))
        if "right" in measured_facts:
            right[name] = np.array(measured_facts["right"])
    solved = accuracies(right)
    results = {}
    for name, measured_facts in facts.items():
        results[name] = {
            "perplexity": perplexity(losses[name])._asdict(),
            "ratio": perplexity(losses[name], losses["before"])._asdict(),
            **{size: measured_facts[size] for size in _SIZES},
            "texts": measured_facts["texts"],
            **solved.get(name, {}),
        }
    if "control" in losses:
        beside = perplexity(losses["recovered"], losses["control"])
        results["recovered"]["ratio_to_control"] = beside._asdict()
    return results


def _facts(
    load: Callable[[str], PreTrainedModel],
    pieces: Sequence[Piece],
    at_once: int,
    device: str,
    answer: Callable[[PreTrainedModel], Right] | None,
) -> dict[str, Any]:
    """Return what is measured of one decoder, as JSON: losses, sizes, right answers."""
    model = load(device)
    losses = text_losses(model, pieces, at_once)
    facts: dict[str, Any] = {
        "parameters": savings.parameters(model),
        "weight_bytes": savings.weight_bytes(model),
        "cache_bytes_per_token": savings.cache_bytes(model, find_heads(model)),
        "texts": {"nats": losses.nats.tolist(), "tokens": losses.tokens.tolist()},
    }
    return {**facts, "right": answer(model).tolist()} if answer else facts


def as_rows(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return measurements as a table: what is measured, and its value for each model."""
    rows = []
    for key, (title, told) in _ROWS.items():
        values = [told(result[key]) if key in result else "" for result in results.values()]
        if any(values):
            rows.append((title, values))
    return rows
