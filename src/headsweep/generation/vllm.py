"""vLLM as a second backend: the interface of the engine, for clusters that have it.

vLLM packs the tokens of all rows into one axis, so a head mask holds for a whole pass: variants are
answered one after the other. The mask is a pre-hook on the output projection, because vLLM repacks
weights, and editing them afterwards has no effect on a CPU; hooks need `enforce_eager`. Prefixes
are cached within a variant, never across: keys and values above the pruned layer differ. Samples
are drawn by vLLM: they are other samples than the engine's, of the same distribution.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headsweep.config import Decoding
from headsweep.errors import ModelError
from headsweep.generation.requests import Answer, Request, StopReason
from headsweep.planning.store import digest
from headsweep.variants import BASE, Variant

_PROJECTION = "model.layers.{layer}.self_attn.o_proj"


class VllmModel:
    """A model in vLLM, any of whose heads can be masked.

    The folder holds it in the hub's format, of a layout that names its output projections as Llama
    and Qwen2 do. A device ``cuda:N`` is one GPU among several; others are vLLM's own choice.

    Raises:
        ModelError: vLLM is not installed or cannot serve the model.
    """

    def __init__(self, folder: str | Path, dtype: str = "float32", device: str = "auto") -> None:
        # In this process, so that the hook's mask can be set here.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if device.startswith("cuda:"):
            number = int(device.removeprefix("cuda:"))
            names = os.environ.get("CUDA_VISIBLE_DEVICES")  # of the GPUs that this process knows
            os.environ["CUDA_VISIBLE_DEVICES"] = names.split(",")[number] if names else str(number)
        try:
            from vllm import LLM, __version__
            from vllm.platforms import current_platform
        except ImportError as error:
            raise ModelError(
                f"vLLM cannot be imported ({error}); install it: pip install 'vllm>=0.20'"
            ) from error
        self.version = str(__version__)
        self.device = device if device.startswith("cuda:") else str(current_platform.device_type)
        try:
            self.llm = LLM(
                str(folder), dtype=dtype, enforce_eager=True, skip_tokenizer_init=True, seed=0
            )
        except Exception as error:  # of many kinds, from vLLM and what it calls
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"vLLM cannot serve {folder} ({reason}); use backend headsweep"
            ) from error
        from headsweep.models.load import load_tokenizer

        self.tokenizer = load_tokenizer(Path(folder))
        self._pruned: Variant = BASE
        self._heads: int = self.llm.model_config.hf_text_config.num_attention_heads
        self.llm.apply_model(self._hook)
        ends = self.llm.model_config.try_get_generation_config().get("eos_token_id")
        ends = self.tokenizer.eos_token_id if ends is None else ends
        ends = [ends] if isinstance(ends, int) else ends or []
        self.eos_token_ids = tuple(sorted(ends))
        """The ids that end an answer, as `transformers.generate` knows them."""

    def prune(self, variant: Variant) -> None:
        """Answer as this variant from now on.

        Raises:
            ModelError: a head that the model does not have, or another kind of variant.
        """
        if variant.kind not in ("base", "head"):
            raise ModelError(f"{variant}: vLLM prunes heads and no more; use backend headsweep")
        if not variant.is_base and (
            variant.layer not in self._layers or (variant.head or 0) >= self._heads
        ):
            raise ModelError(
                f"{variant} is not in the model: layers with heads are {sorted(self._layers)}, "
                f"query heads 0 to {self._heads - 1}"
            )
        if not self.llm.reset_prefix_cache():
            raise ModelError(
                f"vLLM has not dropped the keys and values of {self._pruned}; {variant} would be "
                f"answered with them: run again, or use backend headsweep"
            )
        self._pruned = variant

    def _hook(self, model: Any) -> None:
        modules = dict(model.named_modules())
        depth = self.llm.model_config.hf_text_config.num_hidden_layers
        names = {layer: _PROJECTION.format(layer=layer) for layer in range(depth)}
        self._layers = {layer for layer, name in names.items() if name in modules}
        if not self._layers:
            raise ModelError(
                f"{type(model).__name__} has no {names[0]} to hang a mask on; use backend headsweep"
            )
        for layer in self._layers:
            modules[names[layer]].register_forward_pre_hook(partial(self._mask, layer))

    def _mask(self, layer: int, _: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._pruned.layer != layer:
            return None
        joined, *rest = inputs  # [tokens, query_heads * head_dim]
        joined = joined.clone()
        joined.view(len(joined), self._heads, -1)[:, self._pruned.head] = 0
        return (joined, *rest)


class VllmEngine:
    """Answers requests to one model, any number of variants, under one decoding."""

    def __init__(self, model: VllmModel, decoding: Decoding) -> None:
        self._model = model
        self._decoding = decoding
        self.facts: dict[str, Any] = {}
        """What a record says beyond the backend's name."""

    def run(self, requests: Iterable[Request], _: object = None) -> Iterator[Answer]:
        """Answer requests, variant after variant, as `prune`; drafts are of no use here."""
        variants: dict[Variant, list[Request]] = defaultdict(list)
        for request in requests:
            variants[request.variant].append(request)
        for variant, members in variants.items():
            self._model.prune(variant)
            asked = [{"prompt_token_ids": list(request.prompt)} for request in members]
            params = [self._params(request) for request in members]
            outputs = self._model.llm.generate(asked, params, use_tqdm=False)
            for request, output in zip(members, outputs, strict=True):
                yield _answer(request, output.outputs[0])

    def _params(self, request: Request) -> Any:
        from vllm import SamplingParams

        decoding = self._decoding
        drawn = [decoding.seed, request.question_id, request.sample]
        return SamplingParams(
            temperature=decoding.temperature,
            top_k=decoding.top_k or 0,  # 0: all tokens
            top_p=decoding.top_p,
            seed=None if decoding.greedy else int(digest(drawn), 16),
            max_tokens=decoding.max_new_tokens,
            detokenize=False,
            ignore_eos=True,  # vLLM's own idea of it
            stop_token_ids=list(self._model.eos_token_ids),
            logprobs=2,  # of the best two, for the margin
        )


def _answer(request: Request, output: Any) -> Answer:
    tokens = list(output.token_ids)
    reason: StopReason = "eos" if output.finish_reason == "stop" else "length"
    choices = (sorted(choice.logprob for choice in each.values()) for each in output.logprobs)
    margin = min(float(best - second) for *_, second, best in choices)
    return Answer(request, tuple(tokens[:-1] if reason == "eos" else tokens), reason, margin)
