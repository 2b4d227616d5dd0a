"""A causal language model as a learner, trained on the unpruned model's own correct answers.

Gold solutions have another style. A model trained on them would also learn that style, and its
effect could not be separated from that of pruning. If a decoder loses nothing, its own answers
leave it nothing to learn.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from headsweep.benchmarks.prompts import encode_prompt
from headsweep.config import Decoding, GraderName
from headsweep.config.solvers import Training
from headsweep.engine.engine import Engine
from headsweep.engine.requests import Answer, Request
from headsweep.errors import ModelError
from headsweep.experiments.compression.criteria import accuracy_drops
from headsweep.files.safe_files import remove_folder
from headsweep.grading.distinct import grade_texts
from headsweep.grading.extraction import gradable
from headsweep.models.checkpoints import plainest_form, save_pruned
from headsweep.models.geometry import HeadGeometry, evaluating, find_heads
from headsweep.models.learner import (
    WHOLE,
    JudgedAnswer,
    Terms,
    attention_maps,
    divergence,
    map_terms,
    padded,
)
from headsweep.models.loaded import LoadedModel
from headsweep.models.model_card import Pruning
from headsweep.variants import BASE


class Question(NamedTuple):
    """A question, and if it is for training, the answer to learn."""

    question_id: str
    subject: str
    text: str
    gold: str
    taught: tuple[int, ...] = ()  # token ids of the unpruned model's own correct answer
    ended: bool = True  # whether that answer ended before the token limit


def to_answer(questions: pd.DataFrame) -> list[Question]:
    """Return the rows of a question set (`tables.QUESTIONS`) as questions without answers."""
    return [
        Question(row["question_id"], row["subject"] or "all", row["question"], row["answer"])
        for row in questions.astype(object).where(questions.notna(), None).to_dict("records")
    ]


def to_learn(
    questions: pd.DataFrame, answers: pd.DataFrame, graded: pd.DataFrame
) -> list[Question]:
    """Return the training questions that the unpruned model answers correctly, with its answers.

    Raises:
        ModelError: no answer is correct.
    """
    right = set(graded[(graded["variant"] == str(BASE)) & graded["correct"]]["question_id"])
    given = {row["question_id"]: row for row in answers.to_dict("records")}
    lessons = [
        row._replace(
            taught=tuple(map(int, given[row.question_id]["token_ids"])),
            ended=given[row.question_id]["stop_reason"] == "eos",
        )
        for row in to_answer(questions)
        if row.question_id in right
    ]
    if not lessons:
        raise ModelError(
            f"none of {len(questions)} training questions is answered correctly, so there is "
            f"nothing to learn from; use easier questions or a better model"
        )
    return lessons


class TokenizedQuestion(NamedTuple):
    """A question as token ids: the prompt, then the answer to learn if there is one."""

    question: Question
    example_id: str
    input_ids: Int[np.ndarray, " tokens"]
    prompt: int  # number of prompt tokens


@dataclass(frozen=True)
class AnswerBatch:
    """Questions with their answers, padded on the right, so that no token attends to padding."""

    inputs: dict[str, Int[Tensor, "batch tokens"]]  # the decoder's
    predicting: Bool[Tensor, "batch tokens"]  # positions whose next token belongs to the answer
    targets: Int[Tensor, " answer_tokens"]  # the tokens of all answers, one after the other

    @property
    def judged(self) -> int:
        """How many tokens the loss is averaged over."""
        return len(self.targets)

    @property
    def terms(self) -> Terms:
        """Numbers of terms that the losses are averaged over."""
        mask = self.inputs["attention_mask"]
        queries, entries = map_terms(mask)
        return Terms(self.judged, self.judged, len(mask), queries, entries)


class DecoderOutput(NamedTuple):
    """A decoder's output for a batch."""

    logits: Float[Tensor, "answer_tokens vocabulary"]
    attentions: tuple[Float[Tensor, "batch heads tokens tokens"], ...]


@dataclass(frozen=True)
class DecoderLearner:
    """A decoder with its prompts and its grader: a `headsweep.models.learner.Learner`."""

    loaded: LoadedModel  # the network is in float32 for training
    name: str  # hub id or folder of the unpruned model
    decoding: Decoding
    grader_name: GraderName  # selects the rules for prompts and grading
    grading: str = "default"  # preset
    matrix: pd.DataFrame | None = None
    """Accuracy matrix of a sweep over training questions, for the criterion causal."""
    at_once: int = 16  # batch size of passes without gradients
    batch_size: int | None = None
    """How many questions are answered together; affects only speed, memory and rounding."""
    dtype: torch.dtype = torch.float32  # in which it is tested, timed and saved

    @property
    def network(self) -> PreTrainedModel:
        """The network to train."""
        return self.loaded.model

    encoder = network
    """The whole network: any head may be cut."""

    def prepare(self, rows: Sequence[Question]) -> list[TokenizedQuestion]:
        """Return questions as token ids, prompt and answer."""
        tokenizer, ends = self.loaded.tokenizer, self.loaded.eos_token_ids
        end_token = tokenizer.eos_token_id
        # The tokenizer's end token, if it ends answers.
        end_tokens = (end_token,) if end_token in ends else ends[:1]
        examples = []
        for row in rows:
            prompt = encode_prompt(tokenizer, row.text, self.decoding, self.grader_name)
            ending = end_tokens if row.taught and row.ended else ()
            ids = np.array([*prompt, *row.taught, *ending], dtype=np.int64)
            examples.append(TokenizedQuestion(row, row.question_id, ids, len(prompt)))
        return examples

    def collate(self, examples: Sequence[TokenizedQuestion]) -> AnswerBatch:
        """Join examples that have answers to learn."""
        rows = [example.input_ids for example in examples]
        fill = self.loaded.tokenizer.pad_token_id
        inputs = padded(rows, fill)
        ids, mask = inputs.values()
        prompts = torch.tensor([example.prompt for example in examples])[:, None]
        places = torch.arange(ids.shape[1])
        predicting = (places >= prompts - 1) & (places < mask.sum(1, True) - 1)
        return AnswerBatch(inputs, predicting, ids[:, 1:][predicting[:, :-1]])

    def run(self, batch: AnswerBatch, *, attentions: bool = False) -> DecoderOutput:
        """Return the logits that predict the answers' tokens."""
        options: dict[str, object] = {"output_attentions": True} if attentions else {}
        predicting = batch.predicting
        if "logits_to_keep" in inspect.signature(self.network.forward).parameters:
            # Vocabularies are large: compute logits only where some text has an answer token next.
            columns = predicting.any(0).nonzero()[:, 0]
            options["logits_to_keep"] = columns
            predicting = predicting[:, columns]
        output = self.network(**batch.inputs, use_cache=False, **options)
        maps = tuple(attention_maps(self.network, output.attentions)) if attentions else ()
        return DecoderOutput(output.logits[predicting], maps)

    def task_loss(self, output: DecoderOutput, batch: AnswerBatch) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the answers' tokens."""
        return cross_entropy(output.logits.float(), batch.targets)

    def response_loss(
        self,
        student: DecoderOutput,
        teacher: DecoderOutput,
        batch: AnswerBatch,
        temperature: float,
        share: Terms = WHOLE,
    ) -> Float[Tensor, ""]:
        """Return temperature² KL(teacher || student) of the next token, mean over answer tokens."""
        return divergence(student.logits, teacher.logits, temperature) * share.candidates

    def known_drops(self, geometry: HeadGeometry) -> Mapping[int, Float[Tensor, " heads"]]:
        """Return the accuracy that the unpruned model loses without each head, by the matrix."""
        assert self.matrix is not None  # each head of such an arm has answered
        return accuracy_drops(self.matrix, geometry, self.loaded.geometry)

    def verdicts(self, examples: Sequence[TokenizedQuestion]) -> list[JudgedAnswer]:
        """Answer questions greedily and grade the answers by one rule, strict and lenient alike.

        An answer that is cut before a final one is wrong, as in a sweep.
        """
        answers = self.answers(examples)
        tokens = [answer.token_ids for answer in answers]
        decoded = self.loaded.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        texts = [
            gradable(text, answer.stop_reason, self.grading)
            for text, answer in zip(decoded, answers, strict=True)
        ]
        golds = [example.question.gold for example in examples]
        graded = grade_texts(texts, golds, self.grader_name, self.grading)
        verdicts = []
        for example, reading, judgement in zip(examples, *graded, strict=True):
            named = example.example_id, example.question.subject
            right = judgement.correct
            verdicts.append(JudgedAnswer(*named, reading.answer, right, right))
        return verdicts

    def with_network(self, network: PreTrainedModel) -> "DecoderLearner":
        """Return the decoder with another network."""
        return replace(self, loaded=replace(self.loaded, model=network))

    def untrained(self, seed: int) -> tuple["DecoderLearner", Training]:
        """Raise ModelError: a decoder has no recipe from scratch."""
        raise ModelError("a decoder has no recipe from scratch; leave `scratch` out")

    def finished(self) -> "DecoderLearner":
        """Round the weights to the decoder's own type; a CPU computes float16's in float32."""
        round_weights(self.network, self.dtype)
        if self.dtype == torch.float16 and self.network.device.type == "cpu":
            round_weights(self.network, torch.float32)
        return self

    def save(self, folder: Path) -> None:
        """Write the decoder, in its own type, in place of what the folder holds.

        Plain `from_pretrained` loads it where all layers kept equal numbers of heads, else
        `headsweep.load_model`; the model card says so, and what was not tried.
        """
        network = self.network
        geometry = find_heads(self.network)
        present = geometry.by_original_name()
        loaded_heads = self.loaded.geometry.by_original_name()
        removed = [head for name, head in loaded_heads.items() if name not in present]
        remove_folder(folder)
        about = "lowest scores in rounds of pruning and training"
        if network.dtype != self.dtype:
            network = round_weights(copy.deepcopy(network), self.dtype)
        pruning = Pruning(self.name, None, removed, about)
        form = plainest_form(network, geometry)
        save_pruned(network, geometry, folder, form, pruning, self.loaded.folder)

    @torch.inference_mode()
    def answers(self, examples: Sequence[TokenizedQuestion]) -> list[Answer]:
        """Answer questions greedily."""
        greedy = Decoding(max_new_tokens=self.decoding.max_new_tokens)
        requests = [
            Request(example.example_id, tuple(example.input_ids[: example.prompt].tolist()))
            for example in examples
        ]
        network = self.network
        loaded = replace(
            self.loaded,
            device=network.device,
            dtype=network.dtype,
            geometry=find_heads(network),
        )
        with evaluating(network):
            engine = Engine(loaded, greedy, self.batch_size)
            answer_of = {answer.request: answer for answer in engine.run(requests)}
        return [answer_of[request] for request in requests]


def round_weights(network: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Convert parameters in place; buffers, such as rotary frequencies, stay in float32."""
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)
    return network
