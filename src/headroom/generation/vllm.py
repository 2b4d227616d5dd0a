"""vLLM as a second backend: the interface of the engine, for clusters that have it.

Greedy decoding only; one load serves all heads. vLLM packs the tokens of all rows into one axis, so
a head mask holds for a whole pass: variants are answered one after the other. The mask is a
pre-hook on the output projection, because vLLM repacks weights, and editing them afterwards has no
effect on a CPU; hooks need `enforce_eager`. Prefixes are cached within a variant, never across:
keys and values above the pruned layer differ.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from headroom.config import Decoding
from headroom.errors import ModelError
from headroom.generation.requests import Answer, Request, StopReason
from headroom.variants import Variant

_PROJECTION = "model.layers.{layer}.self_attn.o_proj"


class VllmEngine:
    """Answers requests to one model, any number of variants, under one greedy decoding.

    Args:
        folder: the model in the hub's format, of a layout that names its output projections as
            Llama and Qwen2 do.
        decoding: greedy; how many tokens at most.
        eos_token_ids: the ids that end an answer (see `LoadedModel`).
        dtype: float32, bfloat16 or float16.
        margins: find the margin of every answer; without, it is NaN, and decoding a little faster.

    Raises:
        ModelError: vLLM is not installed or cannot serve the model, or decoding is not greedy.
    """

    def __init__(
        self,
        folder: str,
        decoding: Decoding,
        eos_token_ids: Sequence[int],
        dtype: str = "float32",
        *,
        margins: bool = True,
    ) -> None:
        if not decoding.greedy:
            raise ModelError(
                f"vLLM draws other samples than the engine, so temperature {decoding.temperature} "
                f"is refused; use the engine, or temperature 0"
            )
        # In this process, so that the hook's mask can be set here.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            from vllm import LLM, SamplingParams
        except ImportError as error:
            raise ModelError(
                f"vLLM cannot be imported ({error}); install headroom[vllm]"
            ) from error
        try:
            self._llm = LLM(
                folder, dtype=dtype, enforce_eager=True, skip_tokenizer_init=True, seed=0
            )
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"vLLM cannot serve {folder} ({reason}); use the engine") from error
        self._params = SamplingParams(
            temperature=0,
            max_tokens=decoding.max_new_tokens,
            detokenize=False,
            ignore_eos=True,  # vLLM's own idea of it
            stop_token_ids=list(eos_token_ids),
            logprobs=2 if margins else None,
        )
        self._pruned: Variant = Variant()
        self._heads: int = self._llm.model_config.hf_text_config.num_attention_heads
        self._llm.apply_model(self._hook)

    def run(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answer requests, variant after variant; answers come in no particular order.

        Raises:
            ModelError: a head that the model does not have.
        """
        variants: dict[Variant, list[Request]] = defaultdict(list)
        for request in requests:
            self._check(request.variant)
            variants[request.variant].append(request)
        for variant, members in variants.items():
            self._pruned = variant
            self._llm.reset_prefix_cache()
            prompts = [{"prompt_token_ids": list(request.prompt)} for request in members]
            outputs = self._llm.generate(prompts, self._params, use_tqdm=False)
            for request, output in zip(members, outputs, strict=True):
                yield _answer(request, output.outputs[0])

    def _check(self, variant: Variant) -> None:
        if variant.layer is None or variant.head is None:
            return
        if variant.noise:
            raise ModelError(f"{variant}: noise is not served by vLLM; use the engine")
        if variant.layer not in self._layers or variant.head >= self._heads:
            raise ModelError(
                f"{variant} is not in the model: layers with heads are {sorted(self._layers)}, "
                f"query heads 0 to {self._heads - 1}"
            )

    def _hook(self, model: Any) -> None:
        modules = dict(model.named_modules())
        depth = self._llm.model_config.hf_text_config.num_hidden_layers
        self._layers = {
            layer for layer in range(depth) if _PROJECTION.format(layer=layer) in modules
        }
        if not self._layers:
            raise ModelError(
                f"{type(model).__name__} has no {_PROJECTION.format(layer=0)} to hang a mask on; "
                f"use the engine"
            )
        for layer in self._layers:
            projection = modules[_PROJECTION.format(layer=layer)]
            projection.register_forward_pre_hook(partial(self._mask, layer))

    def _mask(self, layer: int, _: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._pruned.layer != layer:
            return None
        joined, *rest = inputs  # [tokens, query_heads * head_dim]
        joined = joined.clone()
        joined.view(len(joined), self._heads, -1)[:, self._pruned.head] = 0
        return (joined, *rest)


def _answer(request: Request, output: Any) -> Answer:
    tokens = list(output.token_ids)
    reason: StopReason = "eos" if output.finish_reason == "stop" else "length"
    margin = float("nan")
    if output.logprobs is not None:
        margin = min(_gap(choices) for choices in output.logprobs)
    return Answer(request, tuple(tokens[:-1] if reason == "eos" else tokens), reason, margin)


def _gap(choices: dict[int, Any]) -> float:
    best, second, *_ = sorted((choice.logprob for choice in choices.values()), reverse=True)
    return float(best - second)
