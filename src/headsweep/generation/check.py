"""Is the fast path right? The model's own modules say so while it answers.

In float32 on a CPU a trial is enough (`Decoder.of`). Elsewhere code may run that was never run
before, and rounding hides mistakes. So the first tokens of some first rows are watched: their
logits are held against the truth, which the modules compute in float32, by the error that the
modules have themselves in the model's type. A row of the wrong head shows only there: it must lie
nearer to its own variant's truth than to the base model's. And greedy answers leave in groups,
after the modules scored one of each again: every token within a bound of the best.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.generation.requests import NEAR_TIE, Answer, Request, Row
from headsweep.models.geometry import LoadedModel
from headsweep.models.masks import pruned
from headsweep.variants import BASE, Variant

GROUP = 64  # answers that leave together
_ROWS = {"cuda": 16, "cpu": 4}
"""How many first rows are watched, and how many answers the first group has."""
_FIRST_TOKENS = 32  # of a row that is watched
_COLUMNS = 512  # logits of a place that are kept
_SLACK = 1.5  # error of the fast path, in root mean square, over that of the modules


class WrongAnswers(Exception):  # noqa: N818  # it never leaves the engine
    """The fast path gives answers that the model does not."""


class Check:
    """Holds answers of a fast path against the model's own modules.

    Sampled tokens are not the best ones: of sampled answers only logits are held.
    """

    def __init__(self, loaded: LoadedModel, *, greedy: bool = True) -> None:
        self._loaded = loaded
        self._greedy = greedy
        self._random = random.Random(0)
        self._rows = _ROWS["cuda" if loaded.device.type == "cuda" else "cpu"]
        self._watched: dict[Request, dict[int, Tensor]] = {}
        self._variants: Counter[Variant] = Counter()
        self._bound = NEAR_TIE[str(loaded.dtype).removeprefix("torch.")]
        self._scored, self._worst = 0, 0.0

    @property
    def facts(self) -> dict[str, float]:
        """Return the bound, how many answers were scored again, and their worst gap."""
        return {"bound": self._bound, "audited": self._scored, "worst": self._worst}

    def watch(self, row: Row, number: int, logits: Float[Tensor, " vocabulary"]) -> None:
        """Keep some logits of the first rows, of unlike variants."""
        if number >= _FIRST_TOKENS:
            return
        request = row.request
        if request not in self._watched:
            often = self._variants[request.variant] >= max(1, self._rows // 4)
            if len(self._watched) == self._rows or often:
                return
            self._watched[request] = {}
            self._variants[request.variant] += 1
        # A verified row comes here twice with tokens after its first own one; the last counts.
        self._watched[request][number] = self._thinned(logits).clone()

    def groups(self, answers: Iterator[Answer]) -> Iterator[Answer]:
        """Yield answers once their group has been checked.

        Raises:
            WrongAnswers: some are not the model's; their group is not yielded.
        """
        size = GROUP if self._scored else self._rows
        while group := list(islice(answers, size)):
            chosen = group if size == self._rows else [self._random.choice(group)]
            self._hold(
                answer
                for answer in group
                if (self._greedy and answer in chosen) or self._watched.get(answer.request)
            )
            yield from group
            size = GROUP

    def _hold(self, answers: Iterable[Answer]) -> None:
        """Hold answers against the modules: logits first, as each may widen the bound of tokens."""
        gaps = []
        for answer in answers:
            own = self._scores(answer, answer.request.variant)
            if kept := self._watched.get(answer.request):
                self._watched[answer.request] = {}  # so that no other row takes its place
                self._hold_logits(answer, kept, own)
            self._scored += 1
            if self._greedy:
                gaps.append((self._gap(answer, own), answer.request))
        for gap, request in gaps:
            self._worst = max(self._worst, gap)
            if not gap <= self._bound:
                raise WrongAnswers(
                    f"a token of {request.variant} on question {request.question_id!r} lies "
                    f"{gap:.3g} below the best; {self._bound:.3g} is allowed"
                )

    def _hold_logits(
        self, answer: Answer, kept: dict[int, Tensor], scores: Float[Tensor, "places vocabulary"]
    ) -> None:
        """Compare watched logits with the truth, and widen the bound by the modules' own error."""
        variant = answer.request.variant
        numbers = [number for number in sorted(kept) if number <= len(answer.token_ids)]
        if not numbers:
            return
        first = replace(answer, token_ids=answer.token_ids[: numbers[-1]])
        own = self._thinned(scores[numbers]).float()
        with in_float32(self._loaded.model):
            truth, base = (
                self._thinned(self._scores(first, each)[numbers]) for each in (variant, BASE)
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

    def _gap(self, answer: Answer, scores: Float[Tensor, "places vocabulary"]) -> float:
        """Return by how much the least of an answer's tokens lies below the best, in logits."""
        tokens = list(answer.token_ids)
        if answer.stop_reason == "eos":
            ends = list(self._loaded.eos_token_ids)
            tokens.append(ends[scores[len(tokens), ends].argmax()])
        if not tokens:
            return 0.0
        chosen = scores[range(len(tokens)), tokens]
        return (scores[: len(tokens)].amax(-1).float() - chosen.float()).max().item()

    @torch.inference_mode()
    def _scores(self, answer: Answer, variant: Variant) -> Float[Tensor, "places vocabulary"]:
        """Return the modules' logits at each token of an answer, and behind the last."""
        loaded, tokens = self._loaded, answer.token_ids
        ids = torch.tensor([[*answer.request.prompt, *tokens]], device=loaded.device)
        with pruned(loaded.model, loaded.geometry, variant):
            found = loaded.model(input_ids=ids, use_cache=False, logits_to_keep=len(tokens) + 1)
        return found.logits[0]

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
