"""The embedded reasoner, a Qwen2 of about a million parameters: how it is trained and recorded.

``python -m headsweep.experiments.reasoner``, or ``make reasoner``, trains the one that ships with
the package again, in minutes on a CPU. Next to its weights are a record, with the mean loss of each
50 steps, and answers to the first test questions.
"""

import argparse
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from headsweep.benchmarks import generated
from headsweep.benchmarks.templates import Problem
from headsweep.files.record import Stopwatch, read_record, replace_record, write_record
from headsweep.grading.distinct import grade_texts
from headsweep.models.source import BUILTIN, fingerprint

_LOG = logging.getLogger(__name__)

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}" + USER + "{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    + (ASSISTANT + "{{ message['content'] }}" + END)
    + "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
"""System messages are left out: the reasoner knows only one task, and every token costs time."""

MUON_RATE = 0.02
ADAM_RATE = 3e-3
DECAY = 0.5  # share of the steps, at the end, over which both rates fall linearly to zero

FOLDER = BUILTIN["builtin:reasoner"]
QUESTIONS = 200  # of the test split, with recorded answers
LONGEST = 128  # tokens of an answer
_BATCH = 50  # of answers
_TOKENIZER_DOCUMENTS = 4000
_BUCKETS = 16  # number of batches whose documents are sorted by length together
_CONTEXT = 512
_STEPS_BETWEEN_REPORTS = 50
_IGNORED = -100


class Settings(NamedTuple):
    """The reasoner's shape, and how it is trained; by default the one that ships."""

    steps: int = 1500
    layers: int = 6
    hidden: int = 128  # width of the residual stream
    query_heads: int = 4
    kv_heads: int = 4
    head_dim: int = 32
    intermediate: int = 256  # width of the feed-forward layers
    vocabulary: int = 640  # entries of the byte-level BPE tokenizer
    batch_size: int = 32  # documents of a step
    seed: int = 0  # of data order and initial weights


SETTINGS = Settings()


def make(folder: Path = FOLDER, settings: Settings = SETTINGS) -> None:
    """Train the reasoner, save it in a folder, and record how, and its answers."""
    stopwatch = Stopwatch()
    losses = train_reasoner(folder, settings)
    recorded = answers(folder)
    lines = (json.dumps(answer, separators=(",", ":")) for answer in recorded)
    (folder / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    facts = {
        "settings": settings._asdict(),
        "fingerprint": fingerprint(folder),
        "threads": len(os.sched_getaffinity(0)),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "losses": [round(part.mean().item(), 4) for part in torch.tensor(losses).split(50)],
        "test_questions": len(recorded),
        "right": right(recorded),
    }
    weights = folder / "model.safetensors"
    write_record(weights, stopwatch, facts, folder)
    of_this_machine = {"host", "process"}  # the record is published
    published = {k: v for k, v in read_record(weights).items() if k not in of_this_machine}
    replace_record(weights, published)
    _LOG.info("%d of %d test questions are answered right", facts["right"], len(recorded))


@torch.inference_mode()
def answers(folder: Path) -> list[dict[str, Any]]:
    """Answer the first test questions greedily with transformers' `generate`, in float32.

    The token ids are without the end token; margin: smallest gap of best to second-best logit.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    questions = generated.generate("generated_math", "test", QUESTIONS, seed=0, apart=False)
    recorded = []
    for start in range(0, QUESTIONS, _BATCH):
        rows = questions[start : start + _BATCH]
        chats = [[{"role": "user", "content": text}] for text in rows["question"]]
        prompts = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
        )
        out = model.generate(
            **prompts,
            do_sample=False,
            max_new_tokens=LONGEST,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.stack(out.logits, dim=1).topk(2).values
        gaps = best[..., 0] - best[..., 1]
        width = prompts["input_ids"].shape[1]
        written = out.sequences[:, width:].tolist()
        for question, tokens, gap in zip(rows["question_id"], written, gaps, strict=True):
            length = [*tokens, tokenizer.eos_token_id].index(tokenizer.eos_token_id)
            recorded.append(
                {
                    "question_id": question,
                    "token_ids": tokens[:length],
                    "text": tokenizer.decode(tokens[:length], skip_special_tokens=True),
                    "margin": round(gap[: length + 1].min().item(), 6),
                }
            )
    return recorded


def right(answers: Sequence[dict[str, Any]]) -> int:
    """Return the number of right answers to the first test questions."""
    questions = generated.generate("generated_math", "test", len(answers), seed=0, apart=False)
    gold_of = dict(zip(questions["question_id"], questions["answer"], strict=True))
    texts = [answer["text"] for answer in answers]
    golds = [gold_of[answer["question_id"]] for answer in answers]
    _, judgements = grade_texts(texts, golds, "math", "default")
    return sum(judgement.correct for judgement in judgements)


def train_reasoner(output: Path, settings: Settings) -> list[float]:
    """Train the reasoner; save it in half precision in a folder in transformers' format.

    The same settings and number of threads on the same machine give the same weights.

    Returns:
        The loss of each step, in nats per token of the solutions.
    """
    documents = list(generated.corpus(settings.steps * settings.batch_size, settings.seed))
    texts = (text for document in documents[:_TOKENIZER_DOCUMENTS] for text in document[:2])
    tokenizer = train_tokenizer(texts, settings.vocabulary)
    model = new_model(settings, tokenizer)
    _LOG.info("training %d parameters on %d documents", model.num_parameters(), len(documents))
    losses = _fit(model, list(_batches(documents, tokenizer, settings)))
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)
    _LOG.info("saved the reasoner in %s", output)
    return losses


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> Qwen2Tokenizer:
    """Train the tokenizer on texts; its entries include the 256 bytes and 4 special tokens.

    Its class is Qwen2's, which splits digits and which every version of `AutoTokenizer` chooses for
    a Qwen2 model.
    """
    untrained = Qwen2Tokenizer(
        unk_token=PAD,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        padding_side="left",
    )
    tokenizer = untrained.train_new_from_iterator(texts, vocabulary, show_progress=False)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def new_model(settings: Settings, tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """Return an untrained model of the given shape."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.query_heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        # On rows this short SDPA is slower: a step takes 1.75 times as long.
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def _batches(
    documents: Sequence[Problem], tokenizer: Qwen2Tokenizer, settings: Settings
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield token ids and labels, both [batch, position], padded on the right.

    Documents of similar length share a batch. Labels are the next tokens in solutions and
    `_IGNORED` elsewhere.
    """
    chats = [
        [{"role": "user", "content": d.question}, {"role": "assistant", "content": d.solution}]
        for d in documents
    ]
    rows = tokenizer.apply_chat_template(chats, return_dict=True)["input_ids"]
    assistant = tokenizer.convert_tokens_to_ids(ASSISTANT)
    generator = torch.Generator().manual_seed(settings.seed)
    size = settings.batch_size
    for start in range(0, len(rows), size * _BUCKETS):
        bucket = sorted(rows[start : start + size * _BUCKETS], key=len)
        batches = [bucket[i : i + size] for i in range(0, len(bucket), size)]
        for order in torch.randperm(len(batches), generator=generator).tolist():
            texts = [*map(torch.tensor, batches[order])]
            ids = pad_sequence(texts, batch_first=True, padding_value=tokenizer.pad_token_id)
            following = pad(ids[:, 1:], (0, 1), value=tokenizer.pad_token_id)
            answering = (ids == assistant).cumsum(dim=1) > 0
            learned = answering & (following != tokenizer.pad_token_id)
            yield ids, following.where(learned, _IGNORED)


def _fit(model: Qwen2ForCausalLM, batches: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """Train on each batch once, matrices by Muon and the rest by AdamW; return the losses."""
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    others = [p for p in model.parameters() if p.ndim != 2 or p is embedding]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        torch.optim.Muon(matrices, lr=MUON_RATE),
    ]
    steps = len(batches)
    rate = partial(LambdaLR, lr_lambda=lambda step: min(1, (steps - step) / (DECAY * steps)))
    schedules = [*map(rate, optimizers)]
    model.train()
    curve: list[float] = []
    begin = time.monotonic()
    for step, (ids, labels) in enumerate(batches, start=1):
        loss = _loss(model, ids, labels)
        model.zero_grad()
        loss.backward()
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        curve.append(loss.item())
        if step % _STEPS_BETWEEN_REPORTS == 0:
            left = (time.monotonic() - begin) / step * (steps - step)
            _LOG.info("step %d of %d, loss %.3f, %.0f s left", step, steps, curve[-1], left)
    model.eval()
    return curve


def _loss(model: Qwen2ForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the solutions' tokens; only these get logits.

    Padding is on the right, where causal attention does not look, so that no mask is needed.
    """
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = labels != _IGNORED
    return cross_entropy(model.lm_head(hidden[wanted]), labels[wanted])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the reasoner that ships with the package.")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to fill")
    logging.basicConfig(level=logging.INFO, format="headsweep: %(message)s")
    make(parser.parse_args().output)
