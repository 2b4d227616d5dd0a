"""Encoders of labelled texts as learners: they classify texts, or find the words of an answer.

Both choose: a label of the labels, or the first and the last token of the answer among the tokens
of the context. So logits are [batch, choices to make, options] and all losses are the same.
"""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headroom.compression.learners.examples import (
    Batch,
    Example,
    answer_place,
    best_span,
)
from headroom.config.compression import Solver, Training
from headroom.config.texts import Task
from headroom.errors import ModelError
from headroom.models.attention import attention_maps
from headroom.models.checkpoints import read_pretrained
from headroom.models.encoders import new_config, word_tokenizer
from headroom.models.evaluation import answer_by_length, evaluating
from headroom.models.geometry import HeadGeometry
from headroom.models.learner import Verdict, divergence, move
from headroom.models.load import load_tokenizer
from headroom.models.quantisation import quantised
from headroom.models.source import fetch_model
from headroom.tables import write_json
from headroom.texts.scoring import exact_match, f1
from headroom.texts.text import Text

_KINDS: dict[Task, Any] = {
    "classification": AutoModelForSequenceClassification,
    "question_answering": AutoModelForQuestionAnswering,
}
_FACTS = "texts.json"
_LENIENT_FROM = 0.5
_EXCLUDED = -1e4  # a logit far below all others, of which differences are still numbers
_UNKNOWN = -100  # a label that no training text has; losses pass it over


class Output(NamedTuple):
    """What an encoder makes of a batch."""

    logits: Float[Tensor, "batch choices options"]
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]


@dataclass(frozen=True)
class TextLearner:
    """An encoder with a task: a `headroom.models.learner.Learner`."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    labels: tuple[str, ...]
    """Of the training texts; none in question answering."""
    settings: Solver

    @property
    def encoder(self) -> PreTrainedModel:
        """The whole network."""
        return self.network

    @property
    def at_once(self) -> int:
        """How many texts may lie side by side."""
        return 64

    @property
    def recipe(self) -> Training:
        """How it is trained from scratch."""
        return self.settings.training

    def prepare(self, rows: Sequence[Text]) -> list[Example]:
        """Return texts as the encoder reads them: what is longer than it reads is cut off.

        Question answering: if that cuts the answer off, the first token stands for it.
        """
        answering = self.task == "question_answering"
        texts = [row.text for row in rows]
        seconds = [row.second or "" for row in rows]
        pair = (seconds, texts) if answering else (texts, seconds) if any(seconds) else (texts,)
        encoded = self.tokenizer(
            *pair,
            truncation="only_second" if answering else True,
            max_length=self.tokenizer.model_max_length,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        examples = []
        for index, row in enumerate(rows):
            spans = np.empty((0, 2), dtype=np.int64)
            if answering:
                context = np.array([part == 1 for part in encoded.sequence_ids(index)])
                spans = np.where(context[:, None], encoded["offset_mapping"][index], -1)
            examples.append(
                Example(
                    row,
                    np.array(encoded["input_ids"][index], dtype=np.int64),
                    np.array(encoded["token_type_ids"][index], dtype=np.int64),
                    spans,
                    answer_place(row, spans) if answering else (self._number(row.answers[0]),),
                )
            )
        return examples

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Join examples to a batch."""
        shape = len(examples), max(len(example.input_ids) for example in examples)
        ids = torch.full(shape, self.tokenizer.pad_token_id)
        mask, types = torch.zeros((2, *shape), dtype=torch.long)
        options = torch.zeros(shape, dtype=torch.bool)
        options[:, 0] = True
        for row, example in enumerate(examples):
            length = len(example.input_ids)
            ids[row, :length] = torch.from_numpy(example.input_ids)
            types[row, :length] = torch.from_numpy(example.types)
            mask[row, :length] = 1
            options[row, : len(example.spans)] |= torch.from_numpy(example.spans[:, 0] >= 0)
        knows_types = getattr(self.network.config, "type_vocab_size", 0) > 1
        targets = torch.tensor([example.targets for example in examples])
        return Batch(ids, mask, types if knows_types else None, options, targets)

    def run(self, batch: Batch, *, attentions: bool = False) -> Output:
        """Return the logits of all options."""
        wanted = {"output_attentions": True} if attentions else {}
        output = self.network(**batch.inputs, **wanted)
        if self.task == "classification":
            logits = output.logits[:, None]
        else:
            both = torch.stack([output.start_logits, output.end_logits], dim=1)
            logits = both.masked_fill(~batch.options[:, None], _EXCLUDED)
        maps = tuple(attention_maps(self.network, output.attentions)) if attentions else ()
        return Output(logits, maps)

    def task_loss(self, output: Output, batch: Batch) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the choices."""
        logits = output.logits.float().flatten(0, 1)
        return cross_entropy(logits, batch.targets.flatten(), ignore_index=_UNKNOWN)

    def response_loss(
        self, student: Output, teacher: Output, batch: Batch, temperature: float
    ) -> Float[Tensor, ""]:
        """Return temperature² KL(teacher || student) of the softmax, mean over choices."""
        return divergence(student.logits.flatten(0, 1), teacher.logits.flatten(0, 1), temperature)

    def known_drops(self, geometry: HeadGeometry) -> None:
        """Nobody has measured what accuracy a head is worth."""

    @torch.inference_mode()
    def verdicts(self, examples: Sequence[Example]) -> list[Verdict]:
        """Choose labels, or answers, and judge them.

        Classification is judged by equality. An answer is strictly right if its words match a gold
        one's, leniently if their F1 is 0.5 at least.
        """

        def judge(some: Sequence[Example]) -> list[Verdict]:
            batch = move(self.collate(some), self.network.device)
            logits = self.run(batch).logits.float().cpu()
            return [self._verdict(*pair) for pair in zip(some, logits, strict=True)]

        with evaluating(self.network):
            return answer_by_length(
                examples, lambda example: len(example.input_ids), self.at_once, judge
            )

    def with_network(self, network: PreTrainedModel) -> "TextLearner":
        """Return the learner with another network."""
        return replace(self, network=network)

    def untrained(self, seed: int) -> "TextLearner":
        """Return the learner with random weights, and with all heads."""
        config = copy.deepcopy(self.network.config)
        config.kept_heads = {}
        return self.with_network(_made(self.task, config, seed).to(self.network.device))

    def quantised(self) -> "TextLearner":
        """Return a copy with weights of eight bits."""
        return self.with_network(quantised(self.network))

    def save(self, folder: Path) -> None:
        """Write network and tokenizer in the hub's format, labels and settings beside them."""
        self.network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        facts = {
            "task": self.task,
            "labels": self.labels,
            "settings": self.settings.model_dump(mode="json"),
        }
        write_json(folder / _FACTS, facts)

    def _number(self, label: str) -> int:
        return self.labels.index(label) if label in self.labels else _UNKNOWN

    def _verdict(self, example: Example, logits: Float[Tensor, "choices options"]) -> Verdict:
        row = example.row
        if self.task == "classification":
            answer = self.labels[int(logits[0].argmax())]
            right = answer == row.answers[0]
            return Verdict(row.example_id, row.stratum, answer, right, right)
        answer = best_span(logits, example)
        lenient = f1(answer, row.answers) >= _LENIENT_FROM
        return Verdict(
            row.example_id, row.stratum, answer, exact_match(answer, row.answers), lenient
        )


def new_text_learner(settings: Solver, rows: Sequence[Text], seed: int) -> TextLearner:
    """Return an untrained learner for training texts: their labels, or words, are its own.

    Args:
        settings: the encoder, pretrained or from scratch, and the recipe; a thought head has no
            place here.
        rows: the training part.
        seed: decides the weights that are not pretrained.

    Raises:
        ModelError: the encoder cannot be loaded.
    """
    task: Task = "question_answering" if rows[0].starts else "classification"
    labels = () if rows[0].starts else tuple(sorted({row.answers[0] for row in rows}))
    named = {"num_labels": len(labels)} if labels else {}
    if settings.encoder.source is None:
        words = (text for row in rows for text in (row.text, row.second or ""))
        tokenizer = word_tokenizer(words, settings.encoder.min_count)
        config = new_config(settings.encoder, tokenizer)
        config.update(named)
        return TextLearner(_made(task, config, seed), tokenizer, task, labels, settings)
    folder = fetch_model(settings.encoder.source, settings.encoder.revision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the layer that chooses
        network, tokenizer, missing = _read(task, folder, **named)
    own = [name for name in missing if name.startswith(f"{network.base_model_prefix}.")]
    if any("pooler." not in name for name in own):
        raise ModelError(
            f"the weights in {settings.encoder.source} lack {len(own)} tensors, such as {own[0]}; "
            f"fetch them again"
        )
    return TextLearner(network, tokenizer, task, labels, settings)


def load_text_learner(folder: Path) -> TextLearner:
    """Read a learner that `TextLearner.save` wrote.

    Raises:
        ModelError: a part is missing, damaged, or does not fit the others.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        settings = Solver.model_validate(facts["settings"])
        network, tokenizer, missing = _read(facts["task"], folder)
        if missing:
            raise ValueError(f"it lacks {missing[0]}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{folder} is no encoder of texts ({reason:.200}); train it again"
        ) from None
    return TextLearner(network, tokenizer, facts["task"], tuple(facts["labels"]), settings)


def _made(task: Task, config: Any, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _KINDS[task].from_config(config).eval()


def _read(
    task: Task, folder: Path, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """Return a network with its tokenizer, and the names of the tensors that it lacked."""
    tokenizer = load_tokenizer(folder)
    tokenizer.padding_side = "right"
    try:
        network, info = read_pretrained(_KINDS[task], folder, **options)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"the model in {folder} cannot be loaded for {task} ({reason}); use an encoder that "
            f"transformers knows for it"
        ) from error
    positions = getattr(network.config, "max_position_embeddings", tokenizer.model_max_length)
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    return network.eval(), tokenizer, sorted(info["missing_keys"])
