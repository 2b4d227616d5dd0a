"""Spot-checks the fast path against the model's own modules during generation.

In float32 on a CPU a trial is enough (`Decoder.of`). Elsewhere code may run that was never run
before, and half precision rounds so much that mistakes hide. There two things are checked:

- The logits of the first tokens of some first rows, or of the first new ones where a row goes on
  from tokens of another engine. They are compared with the truth: the logits that the modules
  compute in float32. The fast path may be off by little more than the modules are in the model's
  own type. A pruned row must also lie nearer to the truth of its variant than to that of the base
  model: a wrong head shows nowhere else.
- The tokens of greedy answers. The modules score one answer in 64 again, on average: the logit of
  each of its tokens must lie within a bound of the best.

Answers leave in groups; if one is found to be wrong, none of its group leaves.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headsweep.engine.other_architectures import ModuleRows, Modules
from headsweep.engine.requests import NEAR_TIE, Answer, Request, Row
from headsweep.engine.sampling import places_at_once
from headsweep.models.loaded import LoadedModel, dtype_name, in_float32
from headsweep.variants import BASE, Variant

GROUP = 64
"""Most answers that leave together. Of so many one is scored, on average."""
_SECONDS = 20.0
"""An older group leaves with its next answer: a kill must not lose what a slow model has given."""
_ROWS = {"cuda": 16, "cpu": 4}
"""How many first rows are watched, and how many answers the first group has."""
_FIRST_TOKENS = 32  # of a row that is watched, of those that are its own
_COLUMNS = 512  # logits of a place that are kept
_SLACK = 1.5  # error of the fast path, in root mean square, over that of the modules


class WrongAnswers(Exception):  # noqa: N818  # it never leaves the engine
    """The fast path gives answers that the model does not."""


class _Watched(NamedTuple):
    """What was kept of an answer, and what the modules compute the same logits from."""

    answer: Answer
    logits: dict[int, Tensor]  # of the fast path, thinned, by the number of the token chosen
    states: Float[Tensor, "places hidden"]  # of the modules; the last is that of the last logits

    @property
    def fed(self) -> Answer:
        """The answer up to where the last logits were computed."""
        return replace(self.answer, token_ids=self.answer.token_ids[: max(self.logits)])

    @property
    def fed_to_base(self) -> Answer:
        """The same tokens as an answer of the base model."""
        base = replace(self.answer.request, variant=BASE)
        return replace(self.fed, request=base)

    @property
    def places(self) -> list[int]:
        """Where the logits stand among those of `fed`, counted from the end."""
        last = max(self.logits)
        return [number - last - 1 for number in self.logits]


class _Comparison(NamedTuple):
    """How watched logits of one answer compare with the truth, in norms over places and logits."""

    error: float  # of the fast path
    noise: float  # of the modules in the model's type
    effect: float  # of the variant: its truth against the base model's; 0 for the base model
    largest: float  # logit of the truth
    widest: float  # difference of a logit of the modules from the truth
    logits: int  # that were compared


class Check:
    """Holds answers of a fast path against the model's own modules.

    Sampled tokens are not the best ones: of sampled answers only logits are held. All is compared
    where the model is, and numbers are read, not logits. A token's bound is 4 times the modules'
    own error, and `NEAR_TIE` at least. It has no upper limit: right decoders of some models in half
    precision need more than 4 times `NEAR_TIE`.
    """

    def __init__(self, loaded: LoadedModel, *, greedy: bool = True) -> None:
        self._loaded = loaded
        self._greedy = greedy
        self._random = random.Random(0)
        place = "cpu" if loaded.device.type == "cpu" else "cuda"
        self._rows = _ROWS[place]
        embeddings = loaded.model.get_input_embeddings()
        self._places = places_at_once(embeddings.num_embeddings, on_gpu=place != "cpu")
        """Logits of so many tokens are there at once; a longer answer has its own pass."""
        self._count = 0  # of answers that were scored
        self._worst = 0.0  # gap of a token, in logits
        self._widest = 0.0  # bound of gaps
        self._seconds = 0.0
        self.begin_anew()

    @property
    def facts(self) -> dict[str, float]:
        """Return the bound, how many answers were scored again, their worst gap, and the time."""
        return {
            "bound": self._widest,
            "audited": self._count,
            "worst": self._worst,
            "seconds": round(self._seconds, 2),
        }

    def begin_anew(self) -> None:
        """Hold first answers again: the model has other weights. What was counted stays."""
        self._watched: dict[Request, dict[int, Tensor]] = {}
        self._variants: Counter[Variant] = Counter()
        self._bound = NEAR_TIE[dtype_name(self._loaded.dtype)]
        self._widest = max(self._widest, self._bound)
        self.has_passed = False
        """Whether answers have been held, and were right."""
        self.watching = True
        """Whether logits of some row are still to be kept."""

    def wants(self, row: Row, number: int) -> bool:
        """Tell whether to keep the logits that chose a row's token of this number.

        They are those of the first tokens of the first rows, of unlike variants. It is decided once
        for each row: this is asked at each step.
        """
        if number - row.resumed >= _FIRST_TOKENS:
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

        All of the first group are scored, and later ones by lot, but one of them at least. A group
        may hold none that is scored.

        Raises:
            WrongAnswers: some are not the model's; their group is not yielded.
        """
        if not self.has_passed:
            first = list(islice(answers, self._rows))
            yield from self._checked(first, first)
        group: list[Answer] = []
        scored: list[Answer] = []
        has_scored = False
        begin = time.monotonic()
        for answer in answers:
            if not group:
                begin = time.monotonic()
            group.append(answer)
            if self._random.random() * GROUP < 1:
                scored.append(answer)
                has_scored = True
            if len(group) == GROUP or time.monotonic() - begin >= _SECONDS:
                yield from self._checked(group, scored)
                group, scored = [], []
        yield from self._checked(group, scored if has_scored else group[-1:])

    def _checked(self, group: Sequence[Answer], scored: Sequence[Answer]) -> Sequence[Answer]:
        """Return a group after it has been held against the modules."""
        begin = time.perf_counter()
        held = [
            answer
            for answer in group
            if (self._greedy and answer in scored) or self._watched.get(answer.request)
        ]
        self._hold(held)
        self.has_passed = self.has_passed or bool(held)
        self._seconds += time.perf_counter() - begin
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

    @torch.inference_mode()
    def _hold(self, answers: Sequence[Answer]) -> None:
        """Hold answers against the modules: logits first, as each may widen the bound of tokens."""
        watched: list[_Watched] = []
        gaps: list[tuple[Answer, Float[Tensor, ""]]] = []
        for answer, states in self._scored(answers):
            self._count += 1
            if logits := self._take(answer):
                of_logits = states[: max(logits) + 1][-_FIRST_TOKENS:].clone()
                watched.append(_Watched(answer, logits, of_logits))
            if self._greedy and (gap := self._gap(answer, states)) is not None:
                gaps.append((answer, gap))
        self._hold_logits(watched)
        if not gaps:
            return
        read = torch.stack([gap for _, gap in gaps]).tolist()
        for (answer, _), gap in zip(gaps, read, strict=True):
            self._worst = max(self._worst, gap)
            if not gap <= self._bound:
                request = answer.request
                raise WrongAnswers(
                    f"a token of {request.variant} on question {request.question_id!r} lies "
                    f"{gap:.3g} below the best; {self._bound:.3g} is allowed"
                )

    def _scored(
        self, answers: Sequence[Answer]
    ) -> Iterator[tuple[Answer, Float[Tensor, "places hidden"]]]:
        """Yield answers, and what the modules compute the logits of each of their tokens from.

        An answer has a place for each of its tokens, and one for what comes after the last.
        """
        for together in self._passes(answers):
            longest = len(together[-1].token_ids)
            rows = [Row(answer.request, 0, ()) for answer in together]
            texts = [(*answer.request.prompt, *answer.token_ids) for answer in together]
            with Modules(self._loaded) as modules:
                states = ModuleRows(modules).hidden(rows, texts, longest + 1)
            for answer, of_answer in zip(together, states, strict=True):
                # Texts end at the same place: an answer's first token stands behind its padding.
                yield answer, of_answer[longest - len(answer.token_ids) :]

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

    def _hold_logits(self, watched: Sequence[_Watched]) -> None:
        """Compare kept logits with the truth, and widen the bound by the modules' own error."""
        if len(self._watched) == self._rows and not any(self._watched.values()):
            self.watching = False
        if not watched:
            return
        fed = [kept.fed for kept in watched] + [kept.fed_to_base for kept in watched]
        truths = self._truths([*dict.fromkeys(fed)])  # one pass for all
        rounded = self._some_logits([kept.states for kept in watched])
        for kept, of_modules in zip(watched, rounded, strict=True):
            truth, base = truths[kept.fed], truths[kept.fed_to_base]
            comparison = _compared(kept, of_modules, truth, base)
            _judge(kept.answer.request, comparison)
            # The bound follows the modules' own error: no wrong engine widens it.
            self._bound = max(self._bound, 4 * comparison.widest)
        self._widest = max(self._widest, self._bound)

    def _take(self, answer: Answer) -> dict[int, Tensor]:
        """Return the logits that were kept of an answer, by token: `_FIRST_TOKENS` at most.

        They are let go of: watching ends with the last row.
        """
        logits = self._watched.get(answer.request)
        if not logits:
            return {}
        self._watched[answer.request] = {}
        within = sorted(number for number in logits if number <= len(answer.token_ids))
        first = within[-1] - _FIRST_TOKENS + 1 if within else 0
        return {number: logits[number] for number in within if number >= first}

    def _truths(self, answers: Sequence[Answer]) -> dict[Answer, Float[Tensor, "places columns"]]:
        """Return thinned logits at the last places of answers, by the modules in float32."""
        with in_float32(self._loaded.model):
            states = {
                answer: of_answer[-_FIRST_TOKENS:].clone()
                for answer, of_answer in self._scored(answers)
            }
            return dict(zip(states, self._some_logits([*states.values()]), strict=True))

    def _gap(
        self, answer: Answer, states: Float[Tensor, "places hidden"]
    ) -> Float[Tensor, ""] | None:
        """Return by how much the least of an answer's tokens lies below the best, in logits."""
        count = len(answer.token_ids)
        gaps = []
        if count:
            tokens = torch.tensor(answer.token_ids, device=states.device)
            slabs = zip(states[:count].split(self._places), tokens.split(self._places), strict=True)
            for of_slab, chosen in slabs:
                logits = self._logits(of_slab)
                gaps.append((logits.amax(-1) - logits.gather(-1, chosen[:, None])[:, 0]).amax())
        if answer.stop_reason == "eos":
            ends = torch.tensor(self._loaded.eos_token_ids, device=states.device)
            (logits,) = self._logits(states[count:])
            gaps.append(logits.amax() - logits[ends].amax())
        return torch.stack(gaps).amax() if gaps else None

    def _some_logits(self, states: Sequence[Tensor]) -> Sequence[Float[Tensor, "places columns"]]:
        """Return thinned logits at some texts' places, float32."""
        slabs = torch.cat([*states]).split(self._places)
        logits = torch.cat([self._thinned(self._logits(slab)) for slab in slabs])
        return logits.split([len(of_text) for of_text in states])

    def _logits(self, states: Float[Tensor, "places hidden"]) -> Float[Tensor, "places vocabulary"]:
        """Return the modules' logits, float32."""
        logits: Tensor = self._loaded.model.get_output_embeddings()(states)
        return logits.float()

    def _thinned(self, logits: Tensor) -> Tensor:
        """Return evenly spaced columns of logits, `_COLUMNS` at most."""
        return logits[..., :: math.ceil(logits.shape[-1] / _COLUMNS)]


def _compared(kept: _Watched, rounded: Tensor, truth: Tensor, base: Tensor) -> _Comparison:
    """Compare what was kept of an answer with the truth; numbers are read together.

    Args:
        kept: the logits of the fast path.
        rounded: those of the modules, in the model's type.
        truth: those of the modules, in float32.
        base: those of the modules, in float32, without the variant; of a base answer `truth`.
    """
    places = torch.tensor(kept.places, device=truth.device)
    fast = torch.stack([*kept.logits.values()]).float()
    rounded, truth, base = rounded[places], truth[places], base[places]
    norms = [(fast - truth).norm(), (rounded - truth).norm(), (truth - base).norm()]
    most = [truth.abs().max(), (rounded - truth).abs().max()]
    return _Comparison._make([*torch.stack(norms + most).tolist(), fast.numel()])


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
