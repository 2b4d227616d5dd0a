"""vLLM as a second backend, with the interface of the engine: for models larger than a GPU.

vLLM packs the tokens of all rows into one axis, so a change of the model holds for a whole pass:
variants are answered one after the other. With `tensor_parallel` the model is spread over several
GPUs, and each changes its own part (see `vllm_ranks`). Prefixes are cached within a variant, never
across variants, because keys and values above the changed layer differ. vLLM draws the samples:
they differ from the engine's, but have the same distribution.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headsweep.config import Decoding
from headsweep.engine import vllm_ranks
from headsweep.engine.devices import visible_devices
from headsweep.engine.requests import Answer, Request, StopReason
from headsweep.engine.vllm_ranks import LayerEdit, RankLayers
from headsweep.errors import ModelError, cause_of
from headsweep.store.keys import digest
from headsweep.variants import BASE, FAMILIES, IN_VLLM, Variant


class VllmModel:
    """A model in vLLM, any of whose heads can be pruned or scaled, and whose layers left out.

    The folder holds it in the hub's format, of a layout that names its projections as Llama and
    Qwen2 do.

    Args:
        folder: of the model.
        dtype: float32, bfloat16 or float16.
        device: ``cuda:N``, or ``cuda:M,N`` for as many GPUs as ranks; others are vLLM's own choice.
        tensor_parallel: how many processes, each with a GPU, hold the model together.

    Raises:
        ModelError: vLLM is not installed or cannot serve the model.
    """

    def __init__(self, folder: str | Path, dtype: str, device: str, tensor_parallel: int) -> None:
        # The scheduler in this process; a single rank, too.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        if device.startswith("cuda:"):
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(device.removeprefix("cuda:"))
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
                str(folder),
                dtype=dtype,
                tensor_parallel_size=tensor_parallel,
                # Changes in place would allow captured graphs; on no GPU has that been tried.
                enforce_eager=True,
                skip_tokenizer_init=True,
                seed=0,
            )
        except Exception as error:  # of many kinds, from vLLM and what it calls
            raise ModelError(
                f"vLLM cannot serve {folder} ({cause_of(error, 200)}); use backend headsweep"
            ) from error
        from headsweep.models.load import end_token_ids, load_tokenizer

        self.tokenizer = load_tokenizer(Path(folder))
        self._variant: Variant = BASE
        model_config = self.llm.model_config
        self._query_heads: int = model_config.hf_text_config.num_attention_heads
        depth = model_config.hf_text_config.num_hidden_layers
        self._layers = self._prepared(depth)
        stated = model_config.try_get_generation_config().get("eos_token_id")
        self.eos_token_ids = end_token_ids(stated, self.tokenizer)
        """The ids that end an answer, as `transformers.generate` knows them."""

    def prune(self, variant: Variant) -> None:
        """Answer as this variant from now on.

        Raises:
            ModelError: a head or a layer that the model does not have, another kind of variant, or
                vLLM has kept keys and values of the variant before.
        """
        self._check(variant)
        if not self.llm.reset_prefix_cache():
            raise ModelError(
                f"vLLM has not dropped the keys and values of {self._variant}; {variant} would be "
                f"answered with them: run again, or use backend headsweep"
            )
        family = FAMILIES[variant.kind]
        factors = family.edit(variant).factors
        edits = {layer: LayerEdit(dict(factors), family.skips) for layer in variant.layers}
        changed = sum(self.llm.collective_rpc(vllm_ranks.edit, args=(edits,)))
        if changed != len(factors) * len(edits):
            raise ModelError(
                f"{changed} heads were changed for {variant}, by all ranks of vLLM together; "
                f"use backend headsweep, and please report this"
            )
        self._variant = variant

    def _prepared(self, depth: int) -> RankLayers:
        """Make all ranks ready for changes; return the layers in which they can make some."""
        told: list[RankLayers] = self.llm.collective_rpc(
            vllm_ranks.prepare, args=(self._query_heads, depth)
        )
        layers = told[0]
        if not layers.with_heads:
            raise ModelError(
                f"{layers.model} has no output projection that is named as Llama's is; "
                f"use backend headsweep"
            )
        return layers

    def _check(self, variant: Variant) -> None:
        if variant.kind not in IN_VLLM:
            raise ModelError(
                f"{variant}: vLLM prunes and scales heads and leaves layers out, no more; "
                f"use backend headsweep"
            )
        skips = FAMILIES[variant.kind].skips
        layers = self._layers.skippable if skips else self._layers.with_heads
        if not layers.issuperset(variant.layers) or (variant.head or 0) >= self._query_heads:
            raise ModelError(
                f"{variant} is not in the model: layers are {sorted(layers)}, "
                f"query heads 0 to {self._query_heads - 1}"
            )


class VllmEngine:
    """Answers requests to one model, any number of variants, under one decoding."""

    def __init__(self, model: VllmModel, decoding: Decoding) -> None:
        self._model = model
        self._decoding = decoding
        self.facts: dict[str, Any] = {}
        """What a record says beyond the backend's name."""

    def run(self, requests: Iterable[Request], *_: object) -> Iterator[Answer]:
        """Answer requests, variant after variant, as `prune`; drafts are of no use here."""
        variants: dict[Variant, list[Request]] = defaultdict(list)
        for request in requests:
            variants[request.variant].append(request)
        for variant, members in variants.items():
            self._model.prune(variant)
            prompts = [{"prompt_token_ids": list(request.prompt)} for request in members]
            params = [self._params(request) for request in members]
            outputs = self._model.llm.generate(prompts, params, use_tqdm=False)
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
    gaps = []
    for choices in output.logprobs:  # at each token: the best, the second, and the chosen one
        logprobs = sorted(choice.logprob for choice in choices.values())
        gaps.append(float(logprobs[-1] - logprobs[-2]))
    return Answer(request, tuple(tokens[:-1] if reason == "eos" else tokens), reason, min(gaps))
