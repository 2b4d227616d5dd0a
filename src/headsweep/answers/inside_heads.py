"""A look inside heads: what each reads and writes where the answer without it first differs.

The whole model reads its own answer once more, up to the last token before that place. There a
head's attention weights are those of `transformers`' eager attention, and its direct effect on the
logits of both tokens is that of `headsweep.models.direct_path`. One pass of a question serves all
heads: up to the first difference the answer without a head is the base model's.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.answers.exclusive import with_model
from headsweep.answers.work import Work
from headsweep.benchmarks.prompts import encode_prompt, prompt_text
from headsweep.engine.weights import fast_linear
from headsweep.errors import BenchmarkError, ModelError
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import read_arrow, write_table
from headsweep.files.tables import ANSWERS, LOOKS
from headsweep.models.direct_path import DirectPath, States
from headsweep.models.geometry import AttentionLayer
from headsweep.models.loaded import LoadedModel
from headsweep.store.batches import Batch
from headsweep.store.looks import heads_of_key
from headsweep.text import shared_length
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_QUESTIONS = 500  # that are looked at, at most
_SEED = 0  # of their choice
_READ = 6  # tokens read most that a look keeps
_CELLS = 1 << 24  # attention weights of a layer and of the rows that are read at once

END = -1
"""In place of a token: the answer ended."""


class Site(NamedTuple):
    """A place where the answer without a head first differs from the base model's."""

    question: str
    head: Variant
    shared: int
    """Tokens of the answer before it."""
    base_token: int
    own_token: int


class Look(NamedTuple):
    """What a head does at a site, in the whole model."""

    site: Site
    token_ids: tuple[int, int]
    """The base model's token and the variant's; for `END` the likeliest that ends an answer."""
    effects: tuple[float, float]
    """The head's direct effects on their logits."""
    rank: int
    """Of the effects' difference among all heads of the layer, by size, from 1."""
    read: list[int]
    """Positions of the tokens read most, from 0, prompt included."""
    weights: list[float]
    """Of their attention, descending."""


def run(batch: Batch, heads: str) -> None:
    """Look inside the heads of a sweep of a batch, given their key.

    Writes `tables.LOOKS` and its record. If the model cannot be looked into, the table is empty and
    says why.

    Raises:
        ModelError: the model cannot be loaded.
        TableError: the questions or answers are missing or damaged.
    """
    stopwatch = Stopwatch()
    work = Work(batch)
    base = work.base()
    members = heads_of_key(batch, heads)
    sites = list(_sites(work, base, members))
    measure = partial(_measured, work, base, sites)
    table, refused = with_model(batch.store, batch.model, measure, attention="eager")
    output = batch.path(LOOKS, heads=heads)
    facts: dict[str, Any] = {
        **batch.keys._asdict(),
        "heads": [str(head) for head in members],
        "refused": refused,
    }
    write_table(output, table, LOOKS, facts)
    facts |= {"questions_read": len({site.question for site in sites}), "looks": len(table)}
    write_record(output, stopwatch, facts)
    _LOG.info("%s: %d looks%s", batch.model, len(table), f"; {refused}" if refused else "")


def _sites(
    work: Work, base: Mapping[str, Sequence[int]], heads: Sequence[Variant]
) -> Iterator[Site]:
    """Yield where the answers without each head differ, of at most `_QUESTIONS` questions."""
    sites: dict[str, list[Site]] = {}
    for head in heads:
        columns = ["question_id", "token_ids"]
        for row in read_arrow(work.output(head), ANSWERS, columns=columns).to_pylist():
            question, own = row["question_id"], row["token_ids"]
            before = base[question]
            if own != before:
                shared = shared_length(before, own)
                tokens = [ids[shared] if shared < len(ids) else END for ids in (before, own)]
                site = Site(question, head, shared, base_token=tokens[0], own_token=tokens[1])
                sites.setdefault(question, []).append(site)
    questions = list(sites)
    if len(questions) > _QUESTIONS:
        order = np.random.default_rng(_SEED).permutation(len(questions))
        questions = [questions[place] for place in sorted(order[:_QUESTIONS])]
    for question in questions:
        yield from sites[question]


def _measured(
    work: Work, base: Mapping[str, Sequence[int]], sites: Sequence[Site], loaded: LoadedModel
) -> tuple[pd.DataFrame, str]:
    """Return `tables.LOOKS`, and why it is empty if the model cannot be looked into."""
    try:
        texts = {
            question: _Text(loaded, work, question, base[question])
            for question in dict.fromkeys(site.question for site in sites)
        }
        prompts = {question: text.prompt_ids for question, text in texts.items() if text.is_whole}
        shown = [site for site in sites if site.question in prompts]
        looks = look_inside(loaded, prompts, base, shown)
        rows = [texts[look.site.question].row(look) for look in looks]
    except (ModelError, BenchmarkError) as error:
        return pd.DataFrame(columns=LOOKS.columns), str(error)
    except torch.OutOfMemoryError:
        return pd.DataFrame(columns=LOOKS.columns), "attention weights do not fit beside the model"
    return pd.DataFrame(rows, columns=LOOKS.columns), ""


class _Text:
    """A prompt and the base model's answer, by tokens and as text."""

    def __init__(
        self, loaded: LoadedModel, work: Work, question: str, answer: Sequence[int]
    ) -> None:
        tokenizer = loaded.tokenizer
        if not tokenizer.is_fast:
            raise ModelError("its tokenizer does not say where in a text each token stands")
        asked = work.texts[question]
        self.prompt_ids = encode_prompt(tokenizer, asked, work.decoding, work.grader_name)
        self._prompt = prompt_text(tokenizer, asked, work.decoding, work.grader_name)
        self._before, found, self._after = self._prompt.partition(asked)
        self.is_whole = bool(found)
        """Whether the prompt has the question as it stands."""
        self._answer = answer
        self._tokenizer = tokenizer
        named = tokenizer(self._prompt, add_special_tokens=False, return_offsets_mapping=True)
        spans = [tuple(span) for span in named["offset_mapping"]]
        opening = len(self.prompt_ids) - len(spans)  # tokens that stand for no text
        self._spans = [(0, 0)] * opening + spans
        self._whole = self._decoded(len(answer))
        self._lengths: dict[int, int] = {}

    def row(self, look: Look) -> dict[str, Any]:
        """Return a look as a row of `tables.LOOKS`."""
        spans = [self._span(position) for position in look.read]
        base_token, own_token = (self._tokenizer.decode([token]) for token in look.token_ids)
        base_effect, own_effect = look.effects
        return {
            "question_id": look.site.question,
            "variant": str(look.site.head),
            "before": self._before,
            "after": self._after,
            "shared": look.site.shared,
            "end": len(self._prompt) + self._length(look.site.shared),
            "base_token": base_token,
            "own_token": own_token,
            "base_effect": base_effect,
            "own_effect": own_effect,
            "rank": look.rank,
            "starts": [start for start, _ in spans],
            "lengths": [end - start for start, end in spans],
            "weights": look.weights,
        }

    def _span(self, position: int) -> tuple[int, int]:
        """Return where a token begins and ends in the prompt and the answer."""
        place = position - len(self.prompt_ids)
        if place < 0:
            return self._spans[position]
        begin, end = (len(self._prompt) + self._length(count) for count in (place, place + 1))
        return begin, end

    def _length(self, tokens: int) -> int:
        """Return how long the answer's first tokens are; half a character counts for nothing."""
        if tokens not in self._lengths:
            self._lengths[tokens] = shared_length(self._decoded(tokens), self._whole)
        return self._lengths[tokens]

    def _decoded(self, tokens: int) -> str:
        text: str = self._tokenizer.decode(self._answer[:tokens], skip_special_tokens=True)
        return text


class _Placed(NamedTuple):
    """A site in rows of token ids that are read at once."""

    site: Site
    row: int
    position: int
    """Of the token before the first that differs."""


@torch.inference_mode()
def look_inside(
    loaded: LoadedModel,
    prompts: Mapping[str, Sequence[int]],
    answers: Mapping[str, Sequence[int]],
    sites: Sequence[Site],
) -> Iterator[Look]:
    """Yield what heads do at sites.

    Args:
        loaded: with eager attention, which alone returns its weights.
        prompts: token ids, by question.
        answers: those of the base model, likewise.
        sites: of any heads, in any order.

    Raises:
        ModelError: heads have no direct effects, see `DirectPath`, or attention returns no weights.
    """
    if not sites:
        return
    path = DirectPath(loaded.model, loaded.geometry)
    sites_of: dict[str, list[Site]] = {}
    for site in sites:
        sites_of.setdefault(site.question, []).append(site)
    ids = {
        question: [*prompts[question], *answers[question]][
            : len(prompts[question]) + max(site.shared for site in there)
        ]
        for question, there in sites_of.items()
    }
    with fast_linear(loaded.model):
        for batch in _batches(ids, max(layer.query_heads for layer in loaded.geometry.layers)):
            placed = [
                _Placed(site, row, len(prompts[question]) + site.shared - 1)
                for row, question in enumerate(batch)
                for site in sites_of[question]
            ]
            yield from _looks(loaded, path, [ids[question] for question in batch], placed)


def _batches(ids: Mapping[str, Sequence[int]], heads: int) -> Iterator[list[str]]:
    """Yield questions that are read at once, the shortest first."""
    batch: list[str] = []
    for question in sorted(ids, key=lambda question: len(ids[question])):
        if batch and (len(batch) + 1) * heads * len(ids[question]) ** 2 > _CELLS:
            yield batch
            batch = []
        batch.append(question)
    yield batch


def _looks(
    loaded: LoadedModel, path: DirectPath, ids: Sequence[list[int]], placed: Sequence[_Placed]
) -> Iterator[Look]:
    """Read rows of token ids at once, and yield what heads do at the sites in them.

    Rows are padded behind their end, where causal attention does not see it.
    """
    length = max(map(len, ids))
    padded = [row + [loaded.pad_token_id] * (length - len(row)) for row in ids]
    sights = [
        _Sight(layer, [one for one in placed if one.site.head.layer == layer.index], len(ids))
        for layer in loaded.geometry.layers
    ]
    streams: list[Tensor] = []
    final_norm = loaded.model.get_submodule(path.final_norm)
    with ExitStack() as hooks:
        hook = final_norm.register_forward_pre_hook(lambda _, given: streams.append(given[0]))
        hooks.callback(hook.remove)
        for sight in sights:
            hooks.enter_context(sight.watching(loaded))
        loaded.model.base_model(
            input_ids=torch.tensor(padded, device=loaded.device),
            use_cache=False,
            output_attentions=True,
        )
    for sight in sights:
        if sight.placed:
            last = streams[0][sight.rows, sight.positions]
            yield from sight.looks(path, last, loaded.eos_token_ids)


class _Sight:
    """What is seen of a layer's heads at some sites, in one pass."""

    def __init__(self, layer: AttentionLayer, placed: Sequence[_Placed], rows: int) -> None:
        self.placed = placed
        self.rows = torch.tensor([one.row for one in placed], dtype=torch.long)
        self.positions = torch.tensor([one.position for one in placed], dtype=torch.long)
        self._numbers = torch.tensor([one.site.head.head for one in placed], dtype=torch.long)
        self._layer = layer
        self._all_rows = rows
        self._heads: Tensor | None = None
        self._projected: Tensor | None = None
        self._attention: Tensor | None = None

    @contextmanager
    def watching(self, loaded: LoadedModel) -> Iterator[None]:
        """Watch a pass inside a ``with`` block, and free its attention weights on the way."""
        parts = self._layer.name.split(".")
        outer = len(self._layer.block.split("."))
        with ExitStack() as hooks:
            projection = loaded.model.get_submodule(self._layer.name)
            hooks.callback(projection.register_forward_hook(self._see_output).remove)
            for end in range(len(parts) - 1, outer, -1):
                around = loaded.model.get_submodule(".".join(parts[:end]))
                hooks.callback(around.register_forward_hook(self._see_attention).remove)
            yield

    def _see_output(self, _: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        joined = given[0][self.rows, self.positions]
        self._heads = joined.unflatten(-1, (self._layer.query_heads, -1))
        self._projected = output[self.rows, self.positions]

    def _see_attention(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        """Keep the weights of the sites; pass on the rest without weights, which are large."""
        if not isinstance(output, tuple):
            return None
        shape = (self._all_rows, self._layer.query_heads)
        kept = []
        for part in output:
            if isinstance(part, Tensor) and part.ndim == 4 and part.shape[:2] == shape:
                self._attention = part[self.rows, self._numbers, self.positions].float().cpu()
                part = None
            kept.append(part)
        return tuple(kept)

    def looks(
        self, path: DirectPath, last: Float[Tensor, "sites residual"], ends: Sequence[int]
    ) -> Iterator[Look]:
        """Yield what heads do at the sites; `last` is the stream's last state there.

        Raises:
            ModelError: attention returned no weights.
        """
        if self._heads is None or self._projected is None or self._attention is None:
            raise ModelError("its attention returns no weights in transformers")
        wanted = torch.tensor(
            [[one.site.base_token, one.site.own_token] for one in self.placed], dtype=torch.long
        )
        if ends:
            end = path.likeliest(last, torch.tensor(ends))  # on the CPU, as `wanted`
            wanted = torch.where(wanted == END, end[:, None], wanted)
        states = States(self._heads, self._projected, last)
        effects = path.effects(self._layer.index, states, wanted).cpu()
        sizes = (effects[..., 0] - effects[..., 1]).abs()
        weights, read = self._attention.topk(min(_READ, self._attention.shape[1]))
        for place, one in enumerate(self.placed):
            head = int(self._numbers[place])
            seen = int((weights[place] > 0).sum())
            base_token, own_token = wanted[place].tolist()
            base_effect, own_effect = effects[place, head].tolist()
            yield Look(
                one.site,
                (base_token, own_token),
                (base_effect, own_effect),
                rank=1 + int((sizes[place] > sizes[place, head]).sum()),
                read=read[place, :seen].tolist(),
                weights=weights[place, :seen].tolist(),
            )
