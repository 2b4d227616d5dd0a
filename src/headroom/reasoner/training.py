"""Training of the embedded reasoner: a Qwen2 of about a million parameters, in minutes on a CPU."""

import contextlib
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from headroom.benchmarks import generated
from headroom.benchmarks.problem import Problem
from headroom.config import Reasoner

log = logging.getLogger(__name__)

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
"""Jinja chat template. System messages are left out: the reasoner knows only one task, and every
token costs time."""

MUON_RATE = 0.02
ADAM_RATE = 3e-3
DECAY = 0.5
"""Share of the steps, at the end, over which both rates fall linearly to zero."""

MOMENTUM = 0.95
WEIGHT_DECAY = 0.1
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7

_MOST_WORKERS = 4
"""More threads would mostly wait for Python's global interpreter lock."""
_TOKENIZER_DOCUMENTS = 4000
_BUCKETS = 16  # number of batches whose documents are sorted by length together
_CONTEXT = 512
_SECONDS_BETWEEN_REPORTS = 5
_IGNORED = -100


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, like `torch.optim.Muon`, but faster.

    torch's version processes one matrix after another, always in bfloat16, which is ten times
    slower than float32 on a CPU without bfloat16 instructions. Here matrices of one shape, or of
    its transpose, are orthogonalised as one stack.
    Source: https://kellerjordan.github.io/posts/muon/.

    Args:
        matrices: parameters with two axes.
        lr: learning rate; times sqrt(rows / columns) for a matrix with more rows than columns.
        dtype: dtype of the matrix products.
    """

    def __init__(
        self, matrices: Iterable[torch.nn.Parameter], lr: float, dtype: torch.dtype
    ) -> None:
        stacks: dict[tuple[int, ...], list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            stacks.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)
        super().__init__([{"params": stack} for stack in stacks.values()], {"lr": lr})
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update each matrix by its orthogonalised momentum."""
        for group in self.param_groups:
            gradients = torch.stack([_wide(matrix.grad) for matrix in group["params"]])
            state = self.state[group["params"][0]]
            if not state:
                state["momentum"] = torch.zeros_like(gradients)
            momentum = state["momentum"].lerp_(gradients, 1 - MOMENTUM)
            updates = orthogonal(gradients.lerp(momentum, MOMENTUM).to(self._dtype))
            for matrix, update in zip(group["params"], updates, strict=True):
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * WEIGHT_DECAY)
                rate = group["lr"] * math.sqrt(max(1, rows / columns))
                matrix.add_(update if rows <= columns else update.T, alpha=-rate)


def orthogonal(stack: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, and singular values near 1.

    Five quintic Newton-Schulz iterations leave singular values between about 0.5 and 1.5.

    Args:
        stack: [matrices, rows, columns], no more rows than columns.
    """
    a, b, c = _COEFFICIENTS
    stack = stack / stack.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    for _ in range(_ITERATIONS):
        gram = stack @ stack.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        stack = torch.baddbmm(stack, polynomial, stack, beta=a)
    return stack


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def train_reasoner(
    output: Path,
    settings: Reasoner,
    threads: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[float]:
    """Train the embedded reasoner and save it in the format of transformers.

    The same settings and number of threads on the same machine give the same weights.

    Args:
        output: folder for weights, tokenizer, chat template and generation config.
        settings: the model's shape and the number of training steps.
        threads: number of CPU threads, at most 4; by default all that this process may use.
        dtype: dtype of the saved weights.

    Returns:
        The loss of each step, in nats per token of the solutions.
    """
    workers = min(threads or len(os.sched_getaffinity(0)), settings.batch_size, _MOST_WORKERS)
    documents = list(generated.corpus(settings.steps * settings.batch_size, settings.seed))
    texts = (text for document in documents[:_TOKENIZER_DOCUMENTS] for text in document[:2])
    tokenizer = train_tokenizer(texts, settings.vocabulary)
    model = new_model(settings, tokenizer)
    log.info(
        "training %s parameters on %s documents, %s threads",
        f"{model.num_parameters():,}",
        f"{len(documents):,}",
        workers,
    )
    with _one_thread_each():
        losses = _fit(model, list(_batches(documents, tokenizer, settings)), workers)
    model.to(dtype).save_pretrained(output)
    tokenizer.save_pretrained(output)
    log.info("saved the reasoner in %s", output)
    return losses


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> Qwen2Tokenizer:
    """Train the tokenizer on questions and solutions.

    Its class is Qwen2's, which splits digits and which every version of `AutoTokenizer` chooses for
    a Qwen2 model.

    Args:
        texts: texts from which merges are learned.
        vocabulary: number of entries, including the 256 bytes and 4 special tokens.
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


def new_model(settings: Reasoner, tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
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
    documents: Sequence[Problem], tokenizer: Qwen2Tokenizer, settings: Reasoner
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
            batch = batches[order]
            width = len(batch[-1])
            ids = torch.full((len(batch), width), tokenizer.pad_token_id)
            labels = torch.full((len(batch), width), _IGNORED)
            for row, tokens in enumerate(batch):
                ids[row, : len(tokens)] = torch.tensor(tokens)
                answer = tokens.index(assistant)
                labels[row, answer : len(tokens) - 1] = torch.tensor(tokens[answer + 1 :])
            yield ids, labels


def _fit(
    model: Qwen2ForCausalLM, batches: Sequence[tuple[Tensor, Tensor]], workers: int
) -> list[float]:
    """Train on each batch once; return the losses.

    Each worker thread takes a share of a batch's rows and of Muon's matrices. The operations are
    too small to split each over threads, which took 1.5 times the CPU time.
    """
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    others = [p for p in model.parameters() if p.ndim != 2 or p is embedding]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        *(Muon(matrices[n::workers], MUON_RATE, _product_type()) for n in range(workers)),
    ]
    steps = len(batches)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (steps - step) / (DECAY * steps))
        )
        for optimizer in optimizers
    ]
    model.train()
    curve: list[float] = []
    begin = reported = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for step, (ids, labels) in enumerate(batches, start=1):
            parts = [(ids[n::workers], labels[n::workers]) for n in range(workers)]
            losses, gradients = zip(*pool.map(partial(_gradients, model), parts), strict=True)
            tokens = (labels != _IGNORED).sum()
            curve.append((sum(losses) / tokens).item())
            for parameter, *shares in zip(model.parameters(), *gradients, strict=True):
                parameter.grad = sum(shares[1:], start=shares[0]) / tokens
            list(pool.map(lambda optimizer: optimizer.step(), optimizers))
            for schedule in schedules:
                schedule.step()
            now = time.monotonic()
            if step == steps or now - reported >= _SECONDS_BETWEEN_REPORTS:
                reported = now
                rate = step / (now - begin)
                log.info(
                    "step %d of %d, loss %.3f, %.1f steps/s, %.0f s left",
                    *(step, steps, curve[-1], rate, (steps - step) / rate),
                )
    model.eval()
    return curve


def _gradients(
    model: Qwen2ForCausalLM, part: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the loss of some rows and its gradient for each parameter."""
    with torch.autocast("cpu", torch.bfloat16, enabled=_product_type() == torch.bfloat16):
        loss = _loss(model, *part)
    return loss.detach(), torch.autograd.grad(loss, tuple(model.parameters()))


def _loss(model: Qwen2ForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy of the solutions' tokens; only these get logits.

    Padding is on the right, where causal attention does not look, so that no mask is needed.
    """
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = labels != _IGNORED
    return cross_entropy(model.lm_head(hidden[wanted]), labels[wanted], reduction="sum")


@cache
def _product_type() -> torch.dtype:
    """Return bfloat16 if the CPU has instructions for its products, else float32, then faster."""
    able = torch.cpu.get_capabilities()
    return torch.bfloat16 if able.get("avx512_bf16") or able.get("amx_bf16") else torch.float32


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Run each torch operation on one thread inside a ``with`` block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
