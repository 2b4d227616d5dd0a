"""Is the fast path right? The model's own modules say so while it answers.

In float32 on a CPU a trial is enough (`Decoder.of`). Elsewhere code may run that was never run
before, and half precision rounds so much that mistakes hide. There two things are checked:

- The logits of the first tokens of some first rows. The truth are the logits that the modules
  compute in float32. The fast path may be off by little more than the modules are in the model's
  own type. A pruned row must also lie nearer to the truth of its variant than to that of the base
  model: a wrong head shows nowhere else.
- The tokens of greedy answers. The modules score one answer in 64 again: the logit of each of its
  tokens must lie within a bound of the best.

Answers leave in groups; if one of a group is wrong, none leaves.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.generation.modules import ModuleRows, Modules
from headsweep.generation.requests import NEAR_TIE, Answer, Request, Row
from headsweep.models.loaded import LoadedModel, dtype_name
from headsweep.variants import BASE, Variant

GROUP = 64
"""Most answers that leave together. One of so many is scored."""
_SECONDS = 20.0
"""An older group leaves with its next answer: a kill must not lose what a slow model has given."""
_ROWS = {"cuda": 16, "cpu": 4}
"""How many first rows are watched, and how many answers the first group has."""
_FIRST_TOKENS = 32  # of a row that is watched
_COLUMNS = 512  # logits of a place that are kept
_SCORED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
"""Logits of answers that are scored in one pass take no more; a longer answer has its own pass."""
_SLACK = 1.5  # error of the fast path, in root mean square, over that of the modules


class WrongAnswers(Exception):  # noqa: N818  # it never leaves the engine
    """The fast path gives answers that the model does not."""


class _Comparison(NamedTuple):
    """How watched logits of one answer compare with the truth, in norms over places and logits."""

    error: float  # of the fast path
    noise: float  # of the modules in the model's type
    effect: float  # of the variant: its truth against the base model's; 0 for the base model
    largest: float  # logit of the truth
    widest: float  # difference of a logit of the modules from the truth
    logits: int  # that were compared


@dataclass
class _Counts:
    """What was held so far, of all weights that a model has had."""

    scored: int = 0
    worst: float = 0.0  # gap of a token, in logits
    bound: float = 0.0  # the widest that a gap was held against
    seconds: float = 0.0


class Check:
    """Holds answers of a fast path against the model's own modules.

    Sampled tokens are not the best ones: of sampled answers only logits are held. All is compared
    where the model is, and numbers are read, not logits.
    """

    def __init__(self, loaded: LoadedModel, *, greedy: bool = True) -> None:
        self._loaded = loaded
        self._greedy = greedy
        self._random = random.Random(0)
        place = "cpu" if loaded.device.type == "cpu" else "cuda"
        self._rows = _ROWS[place]
        embeddings = loaded.model.get_input_embeddings()
        self._places = _SCORED_BYTES[place] // (4 * embeddings.num_embeddings)
        """Logits of so many tokens are held in one pass."""
        self._watched: dict[Request, dict[int, Tensor]] = {}
        self._variants: Counter[Variant] = Counter()
        self._bound = NEAR_TIE[dtype_name(loaded.dtype)]
        self._counts = _Counts(bound=self._bound)
        self._has_scored = False
        self.watching = True
        """Whether logits of some row are still to be kept."""

    @property
    def facts(self) -> dict[str, float]:
        """Return the bound, how many answers were scored again, their worst gap, and the time."""
        counts = self._counts
        return {
            "bound": counts.bound,
            "audited": counts.scored,
            "worst": counts.worst,
            "seconds": round(counts.seconds, 2),
        }

    def of_other_weights(self) -> Check:
        """Return a check that begins anew, and counts on from this one: its model has changed."""
        other = Check(self._loaded, greedy=self._greedy)
        other._counts = self._counts
        return other

    def wants(self, row: Row, number: int) -> bool:
        """Tell whether to keep the logits that chose a row's token of this number.

        They are those of the first tokens of the first rows, of unlike variants. It is decided once
        for each row: this is asked at each step.
        """
        if number >= _FIRST_TOKENS:
            return False
        if row.watched is None:
            row.watched = self._admits(row.request)
        return row.watched

    def keep(self, row: Row, number: int, logits: Float[Tensor, " vocabulary"]) -> None:
        """Keep some of the logits."""
        # A verified row comes here twice with tokens after its first own one; the last counts.
        self._watched[row.request][number] = self._thinned(logits).clone()

    def groups(self, answers: Iterator[Answer]) -> Iterator[Answer]:
        """Yield answers once their group has been checked.

        All of the first group are scored. Of `GROUP` later ones one is, drawn before they come:
        some of them may have left by then.

        Raises:
            WrongAnswers: some are not the model's; their group is not yielded.
        """
        if not self._has_scored:
            first = list(islice(answers, self._rows))
            yield from self._checked(first, first)
        group: list[Answer] = []
        scored: list[Answer] = []
        place = 0  # among as many answers as one is drawn from
        drawn = self._random.randrange(GROUP)
        begin = time.monotonic()
        for answer in answers:
            if not group:
                begin = time.monotonic()
            group.append(answer)
            if place == drawn:
                scored.append(answer)
            place += 1
            if place == GROUP:
                place = 0
                drawn = self._random.randrange(GROUP)
            if len(group) == GROUP or time.monotonic() - begin >= _SECONDS:
                yield from self._checked(group, scored)
                group, scored = [], []
        if place <= drawn:  # the answer that was drawn has not come
            scored += group[-1:]
        yield from self._checked(group, scored)

    def _checked(self, group: Sequence[Answer], scored: Sequence[Answer]) -> Sequence[Answer]:
        """Return a group after it has been held against the modules."""
        begin = time.perf_counter()
        self._hold(
            [
                answer
                for answer in group
                if (self._greedy and answer in scored) or self._watched.get(answer.request)
            ]
        )
        self._counts.seconds += time.perf_counter() - begin
        return group

    def _admits(self, request: Request) -> bool:
        """Tell whether a row of a request is watched, and remember that it is."""
        if request in self._watched:
            return True
        often = self._variants[request.variant] >= max(1, self._rows // 4)
        if often or len(self._watched) == self._rows:
            return False
        self._watched[request] = {}
        self._variants[request.variant] += 1
        return True

    def _hold(self, answers: Sequence[Answer]) -> None:
        """Hold answers against the modules: logits first, as each may widen the bound of tokens."""
        scores = {}
        gaps: list[tuple[Answer, Float[Tensor, ""]]] = []
        watched = [answer for answer in answers if self._watched.get(answer.request)]
        for together in self._passes(answers):
            longest = len(together[-1].token_ids)
            variants = [answer.request.variant for answer in together]
            padded = self._scores(together, variants, longest + 1)
            for answer, with_padding in zip(together, padded, strict=True):
                logits = with_padding[longest - len(answer.token_ids) :]
                if answer in watched:
                    scores[answer] = self._thinned(logits[:_FIRST_TOKENS]).float()
                self._has_scored = True
                self._counts.scored += 1
                if self._greedy and (gap := self._gap(answer, logits)) is not None:
                    gaps.append((answer, gap))
        self._hold_logits(watched, scores)
        if not gaps:
            return
        read = torch.stack([gap for _, gap in gaps]).tolist()
        for (answer, _), gap in zip(gaps, read, strict=True):
            self._counts.worst = max(self._counts.worst, gap)
            if not gap <= self._bound:
                request = answer.request
                raise WrongAnswers(
                    f"a token of {request.variant} on question {request.question_id!r} lies "
                    f"{gap:.3g} below the best; {self._bound:.3g} is allowed"
                )

    def _passes(self, answers: Sequence[Answer]) -> Iterator[list[Answer]]:
        """Yield answers that the modules score in one pass, the longest last."""
        together: list[Answer] = []
        for answer in sorted(answers, key=lambda answer: len(answer.token_ids)):
            places = (len(together) + 1) * (len(answer.token_ids) + 1)
            if together and places > self._places:
                yield together
                together = []
            together.append(answer)
        if together:
            yield together

    def _hold_logits(self, answers: Sequence[Answer], scores: Mapping[Answer, Tensor]) -> None:
        """Compare watched logits with the truth, and widen the bound by the modules' own error."""
        kept = self._taken(answers)
        if not kept:
            return
        for answer, comparison in self._comparisons(kept, scores).items():
            _judge(answer.request, comparison)
            # The bound follows the modules' own error: no wrong engine widens it.
            self._bound = max(self._bound, 4 * comparison.widest)
        self._counts.bound = max(self._counts.bound, self._bound)

    def _taken(self, answers: Sequence[Answer]) -> dict[Answer, dict[int, Tensor]]:
        """Take the logits that were kept of answers, by token; watching ends with the last row."""
        taken = {}
        for answer in answers:
            logits = self._watched[answer.request]
            self._watched[answer.request] = {}
            within = {n: rows for n, rows in logits.items() if n <= len(answer.token_ids)}
            if within:
                taken[answer] = dict(sorted(within.items()))
        if len(self._watched) == self._rows and not any(self._watched.values()):
            self.watching = False
        return taken

    def _comparisons(
        self, kept: Mapping[Answer, Mapping[int, Tensor]], scores: Mapping[Answer, Tensor]
    ) -> dict[Answer, _Comparison]:
        """Compare what was kept of answers with the truth, which takes one pass for all of them."""
        first = {
            answer: replace(answer, token_ids=answer.token_ids[: max(logits)])
            for answer, logits in kept.items()
        }
        pruned = [answer for answer in kept if not answer.request.variant.is_base]
        texts = [*first.values(), *(first[answer] for answer in pruned)]
        variants = [answer.request.variant for answer in kept] + [BASE] * len(pruned)
        longest = max(len(text.token_ids) for text in texts)
        with in_float32(self._loaded.model):
            exact = self._thinned(self._scores(texts, variants, longest + 1))
        truths = dict(zip(kept, exact[: len(kept)], strict=True))
        bases = truths | dict(zip(pruned, exact[len(kept) :], strict=True))
        norms = []
        for answer, logits in kept.items():
            # Texts end at the same place: an answer's first token stands behind its padding.
            padding = longest - len(first[answer].token_ids)
            numbers = torch.tensor(list(logits), device=exact.device)
            of_answer = _norms(
                fast=torch.stack(list(logits.values())).float(),
                rounded=scores[answer][numbers],
                truth=truths[answer][padding:][numbers],
                base=bases[answer][padding:][numbers],
            )
            norms.append(of_answer)
        compared = {}
        for answer, read in zip(kept, torch.stack(norms).tolist(), strict=True):
            error, noise, effect, largest, widest = read
            count = sum(logits.numel() for logits in kept[answer].values())
            compared[answer] = _Comparison(error, noise, effect, largest, widest, count)
        return compared

    def _gap(
        self, answer: Answer, scores: Float[Tensor, "places vocabulary"]
    ) -> Float[Tensor, ""] | None:
        """Return by how much the least of an answer's tokens lies below the best, in logits."""
        count = len(answer.token_ids)
        best = scores.amax(-1).float()
        gaps = []
        if count:
            tokens = torch.tensor(answer.token_ids, device=scores.device)
            chosen = scores[:count].gather(-1, tokens[:, None])[:, 0]
            gaps.append((best[:count] - chosen.float()).amax())
        if answer.stop_reason == "eos":
            ends = torch.tensor(self._loaded.eos_token_ids, device=scores.device)
            gaps.append(best[count] - scores[count, ends].amax().float())
        return torch.stack(gaps).amax() if gaps else None

    @torch.inference_mode()
    def _scores(
        self, answers: Sequence[Answer], variants: Sequence[Variant], keep: int
    ) -> Float[Tensor, "answers keep vocabulary"]:
        """Return the modules' logits at the last tokens of answers, and behind the last.

        Answers end at the same place; each is scored by its variant.
        """
        with Modules(self._loaded) as modules:
            rows = [
                Row(replace(answer.request, variant=variant), 0, ())
                for answer, variant in zip(answers, variants, strict=True)
            ]
            texts = [(*answer.request.prompt, *answer.token_ids) for answer in answers]
            logits = ModuleRows(modules).feed(0, rows, texts, keep)
        return logits.unflatten(0, (len(answers), -1))

    def _thinned(self, logits: Tensor) -> Tensor:
        """Return evenly spaced columns of logits, `_COLUMNS` at most."""
        return logits[..., :: math.ceil(logits.shape[-1] / _COLUMNS)]


def _norms(
    fast: Float[Tensor, "places logits"],
    rounded: Float[Tensor, "places logits"],
    truth: Float[Tensor, "places logits"],
    base: Float[Tensor, "places logits"],
) -> Float[Tensor, 5]:
    """Return what a `_Comparison` begins with, as a tensor: it is read with those of other answers.

    Args:
        fast: logits of the fast path.
        rounded: those of the modules, in the model's type.
        truth: those of the modules, in float32.
        base: those of the modules, in float32, without the variant; of a base answer `truth`.
    """
    error = (fast - truth).norm()
    noise = (rounded - truth).norm()
    effect = (truth - base).norm()
    return torch.stack([error, noise, effect, truth.abs().max(), (rounded - truth).abs().max()])


def _judge(request: Request, comparison: _Comparison) -> None:
    """Raise `WrongAnswers` if logits are far from the truth, or another variant's."""
    floor = math.sqrt(comparison.logits) * 1e-3 * NEAR_TIE["float32"] * comparison.largest
    if not comparison.error <= _SLACK * comparison.noise + 100 * floor:
        times = comparison.error / max(comparison.noise, floor, sys.float_info.min)
        raise WrongAnswers(
            f"logits of {request.variant} on question {request.question_id!r} are {times:.1f} "
            f"times as far from the truth as the modules'"
        )
    shows = comparison.effect > 4 * comparison.noise + 100 * floor
    if shows and not comparison.error < comparison.effect / 2:
        raise WrongAnswers(f"{request.variant} is not what was pruned")


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
