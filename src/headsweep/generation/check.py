"""Is the fast path right? The model's own modules, in float32, say so while it answers.

In float32 on a CPU a trial is enough (`Decoder.of`). Elsewhere code may run that was never run
before, and rounding hides mistakes. So some first rows are watched: their logits are held against
the truth, by the error that the modules have themselves in the model's type. A row of the wrong
head shows only there: it must lie nearer to its own variant's truth than to the base model's. And
answers leave in groups, after some were scored again: every token within the bound of the best.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.generation.requests import NEAR_TIE, Answer, Request, Row
from headsweep.models.geometry import LoadedModel
from headsweep.models.masks import pruned
from headsweep.variants import BASE, Variant

GROUP = 256  # answers that leave together
_COLUMNS = 512  # logits of a place that are kept
_SLACK = 1.5  # error of the fast path, in root mean square, over that of the modules


class WrongAnswers(Exception):  # noqa: N818  # it never leaves the engine
    """The fast path gives answers that the model does not."""


class Check:
    """Holds answers of a fast path against the model's own modules."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._random = random.Random(0)
        self._first = 32 if loaded.device.type == "cuda" else 8
        """Answers scored before any leaves, and rows that are watched."""
        self._watched: dict[Request, dict[int, Tensor]] = {}
        self._variants: Counter[Variant] = Counter()
        self._bound = NEAR_TIE[str(loaded.dtype).removeprefix("torch.")]
        self._audited, self._worst = 0, 0.0

    @property
    def facts(self) -> dict[str, float]:
        """Return the bound, how many answers were scored again, and their worst gap."""
        return {"bound": self._bound, "audited": self._audited, "worst": self._worst}

    def watch(self, row: Row, number: int, logits: Float[Tensor, " vocabulary"]) -> None:
        """Keep some logits of the first rows, of unlike variants."""
        request = row.request
        if request not in self._watched:
            rare = self._variants[request.variant] < 1 + self._first // 8
            if not rare or len(self._watched) == self._first:
                return
            self._watched[request] = {}
            self._variants[request.variant] += 1
        # A verified row comes here twice with tokens after its first own one; the last counts.
        self._watched[request][number] = self._thinned(logits).clone().cpu()

    def groups(self, answers: Iterator[Answer]) -> Iterator[Answer]:
        """Yield answers once their group has been checked.

        Raises:
            WrongAnswers: some are not the model's; their group is not yielded.
        """
        size = self._first
        while group := list(islice(answers, size)):
            begun, size = self._audited >= self._first, GROUP
            chosen = [self._random.choice(group)] if begun else group
            watched = [answer for answer in group if answer.request in self._watched]
            for answer in watched:  # first, as each may widen the bound
                self._hold_logits(answer)
            for answer in group:
                if answer in chosen or answer in watched:
                    self._hold_tokens(answer)
            yield from group

    def _hold_logits(self, answer: Answer) -> None:
        """Compare watched logits with the truth, and widen the bound by the modules' own error."""
        variant, kept = answer.request.variant, self._watched[answer.request]
        self._watched[answer.request] = {}  # so that no other row takes its place
        numbers = [number for number in sorted(kept) if number <= len(answer.token_ids)]
        if not numbers:
            return
        truth, base, own = (
            self._thinned(self._scores(answer, each, exact=exact)[numbers])
            for each, exact in ((variant, True), (BASE, True), (variant, False))
        )
        found = torch.stack([kept[number] for number in numbers]).float()
        error, noise = (found - truth).norm(), (own - truth).norm()
        floor = math.sqrt(found.numel()) * 1e-3 * NEAR_TIE["float32"] * truth.abs().max()
        if not error <= _SLACK * noise + 100 * floor:
            raise WrongAnswers(
                f"logits of {variant} on question {answer.request.question_id!r} are "
                f"{error / max(noise, floor):.1f} times as far from the truth as the modules'"
            )
        effect = (truth - base).norm()
        if effect > 4 * noise + 100 * floor and not error < effect / 2:
            raise WrongAnswers(f"{variant} is not what was pruned")
        # The bound follows the modules' own error: no wrong engine widens it.
        self._bound = max(self._bound, 4 * (own - truth).abs().max().item())

    def _hold_tokens(self, answer: Answer) -> None:
        """Score an answer's tokens again."""
        request, tokens = answer.request, list(answer.token_ids)
        truth = self._scores(answer, request.variant, exact=True)
        if answer.stop_reason == "eos":
            ends = list(self._loaded.eos_token_ids)
            tokens.append(ends[truth[len(tokens), ends].argmax()])
        below = truth[: len(tokens)].amax(-1) - truth[range(len(tokens)), tokens]
        gap = below.max().item() if tokens else 0.0
        self._audited += 1
        self._worst = max(self._worst, gap)
        if not gap <= self._bound:
            raise WrongAnswers(
                f"a token of {request.variant} on question {request.question_id!r} lies {gap:.3g} "
                f"below the best; {self._bound:.3g} is allowed"
            )

    @torch.inference_mode()
    def _scores(
        self, answer: Answer, variant: Variant, *, exact: bool
    ) -> Float[Tensor, "places vocabulary"]:
        """Return the modules' logits at each token of an answer, and behind the last."""
        loaded, prompt = self._loaded, answer.request.prompt
        ids = torch.tensor([[*prompt, *answer.token_ids]], device=loaded.device)
        with ExitStack() as stack:
            if exact and loaded.dtype != torch.float32:
                stack.enter_context(in_float32(loaded.model))
            stack.enter_context(pruned(loaded.model, loaded.geometry, variant))
            logits = loaded.model(input_ids=ids, use_cache=False).logits
        return logits[0, len(prompt) - 1 :].float().cpu()

    def _thinned(self, logits: Tensor) -> Tensor:
        return logits[..., :: -(-logits.shape[-1] // _COLUMNS)]


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Let a model compute in float32; only the module that runs has its parameters twice."""
    kept: dict[nn.Parameter, Tensor] = {}

    def cast(module: nn.Module, _: object) -> None:
        for parameter in module.parameters(recurse=False):
            kept[parameter] = parameter.data
            parameter.data = parameter.data.float()

    def restore(module: nn.Module, *_: object) -> None:
        for parameter in module.parameters(recurse=False):
            parameter.data = kept.pop(parameter, parameter.data)

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(cast).remove)
            hooks.callback(module.register_forward_hook(restore, always_call=True).remove)
        yield
