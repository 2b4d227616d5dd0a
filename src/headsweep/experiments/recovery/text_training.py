"""Training of a pruned decoder on texts, taught by a decoder with more heads.

The loss is l1 response + l2 task (arXiv 2511.17577, eq. 6): response is temperature² KL(teacher ||
student) of the next token, task the cross-entropy of the texts. Both are means over tokens.

It runs in any number of processes that accelerate starts. Each takes its share of a step's texts; a
step's texts and their order depend on the seed only. Why learners have a loop of their own, says
`headsweep.experiments.compression.training_steps`.
"""

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from headsweep.errors import ModelError, cause_of
from headsweep.experiments.compression.checkpoint import (
    moments_of,
    read_state,
    set_moments,
    write_state,
)
from headsweep.experiments.compression.training_steps import (
    Reports,
    begin_step,
    check_finite,
    decay_groups,
    epoch_batches,
)
from headsweep.experiments.recovery.evaluation import predictions
from headsweep.experiments.recovery.settings import Recovery
from headsweep.experiments.recovery.texts import Piece
from headsweep.models.learner import divergence

_LOG = logging.getLogger(__name__)
_SECONDS_BETWEEN_STATES = 300
_WRITES_BETWEEN_STATES = 10
"""Training takes so many times as long as the last write of a state before the next one."""
_WEIGHT_DECAY, _CLIP, _WARM_UP = 0.01, 1.0, 0.1
_PARTS = ("task", "response")
_DISTRIBUTED = (DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)
_LAUNCH = (
    "launch plain processes: accelerate launch --multi_gpu --mixed_precision no "
    "--num_processes N -m headsweep prune ..."
)


@dataclass
class Progress:
    """How far the training of all rounds is."""

    step: int = 0  # steps done
    tokens: int = 0  # trained on
    seconds: float = 0.0  # of training, those of earlier attempts included
    losses: list[dict[str, float]] = field(default_factory=list)  # of each step, by part


def accelerator_for(settings: Recovery, device: str) -> Accelerator:
    """Return accelerate's view of this process, of one of several, and of the device.

    Mixed precision is `precision`'s, whatever the user's config of accelerate says.

    Raises:
        ModelError: the batch cannot be divided over processes and micro-batches, or accelerate was
            told to share the model over processes, or cannot start.
    """
    try:
        accelerator = Accelerator(cpu=device == "cpu", mixed_precision="no")
    except (ImportError, ValueError) as error:
        raise ModelError(f"accelerate cannot start ({cause_of(error, 100)}); {_LAUNCH}") from error
    if accelerator.distributed_type not in _DISTRIBUTED:
        raise ModelError(
            f"accelerate runs {accelerator.distributed_type.value}, but each process holds a whole "
            f"model here; {_LAUNCH}"
        )
    at_once = accelerator.num_processes * settings.micro_batch
    if settings.batch_size % at_once:
        raise ModelError(
            f"batch size {settings.batch_size} is no multiple of {at_once} (micro-batches of "
            f"{settings.micro_batch} times {accelerator.num_processes} processes); change one"
        )
    accelerator.gradient_accumulation_steps = settings.batch_size // at_once
    return accelerator


def train_round(
    student: PreTrainedModel,
    teacher: PreTrainedModel | None,
    pieces: Sequence[Piece],
    settings: Recovery,
    steps: range,
    before: Progress,
    accelerator: Accelerator,
    state: Path,
) -> tuple[PreTrainedModel, Progress]:
    """Train a decoder for the steps of one round; return it in evaluation mode, and the progress.

    The student is in float32; with `lora` in any type, and LoRA's matrices end merged into the
    weights. Without a teacher the texts alone teach. There are at least as many pieces as a step
    takes; `steps` are the round's among those of all rounds. Every five minutes, or less often
    where writing is slow, what is trained is written to the file `state`: an interrupted round
    resumes from it, and ends with the same weights as one that was not interrupted.

    Raises:
        ModelError: the loss is not finite, or the state is damaged.
    """
    model = _to_train(student, settings).to(accelerator.device).train()
    if teacher is not None:
        teacher.to(accelerator.device).requires_grad_(False).eval()
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    groups = decay_groups([*trained.values()], _WEIGHT_DECAY)
    optimizer = torch.optim.AdamW(groups, lr=settings.rate)
    progress = _resume(state, trained, optimizer) if state.exists() else deepcopy(before)
    whole, optimizer = accelerator.prepare(model, optimizer)
    first = progress.step
    spent = progress.seconds
    report = Reports(progress.step, settings.steps)
    saved = report.begun
    pause: float = _SECONDS_BETWEEN_STATES
    batches = _batches(pieces, settings, first)
    for step, batch in zip(range(first, steps.stop), batches, strict=False):
        rate = settings.rate * _share(step, steps, settings.steps)
        begin_step(optimizer, rate, settings.seed, step)
        losses = _step(whole, teacher, batch, settings, accelerator, optimizer)
        check_finite(losses, step + 1, f"the learning rate, now {settings.rate}")
        now = time.monotonic()
        progress.losses.append(losses)
        progress.step = step + 1
        progress.seconds = spent + now - report.begun
        progress.tokens += sum(piece.targets for piece in batch)
        if not accelerator.is_main_process:
            continue
        report(step + 1, losses)
        if now - saved >= pause:
            write_state(state, asdict(progress), trained=trained, moments=moments_of(optimizer))
            saved = time.monotonic()
            pause = max(_SECONDS_BETWEEN_STATES, _WRITES_BETWEEN_STATES * (saved - now))
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    return (model.merge_and_unload() if settings.lora else model).eval(), progress


def _to_train(student: PreTrainedModel, settings: Recovery) -> Any:
    """Return what is trained of a decoder: itself, or it with LoRA's matrices."""
    model = _with_lora(student, settings.lora) if settings.lora else student
    if settings.gradient_checkpointing:
        # transformers renamed it in 5.2x.
        enable = getattr(student, "activation_checkpointing_enable", None)
        (enable or student.gradient_checkpointing_enable)({"use_reentrant": False})
    return model


def _resume(
    state: Path, trained: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> Progress:
    """Take over parameters and the optimizer's moments from a file, and return its progress."""
    facts, parts = read_state(state)
    progress = Progress(**facts)
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(parts["trained"][name])
    set_moments(optimizer, parts["moments"])
    _LOG.info("resuming after step %d", progress.step)
    return progress


def _share(step: int, steps: range, total: int) -> float:
    """Return the share of the highest rate: it rises at the start of a round, and falls overall."""
    rising = (step - steps.start + 1) / max(1.0, _WARM_UP * len(steps))
    return min(1.0, rising) * (1 - step / total)


def _step(
    model: PreTrainedModel,
    teacher: PreTrainedModel | None,
    batch: Sequence[Piece],
    settings: Recovery,
    accelerator: Accelerator,
    optimizer: torch.optim.Optimizer,
) -> dict[str, float]:
    """Do one step; return its weighted losses, means over the tokens of all processes."""
    world, rounds = accelerator.num_processes, accelerator.gradient_accumulation_steps
    tokens = sum(piece.targets for piece in batch)
    weight = settings.distill_weight if teacher is not None else 0.0
    sums = torch.zeros(len(_PARTS), device=accelerator.device)
    for number in range(accelerator.process_index, world * rounds, world):
        part = batch[number * settings.micro_batch : (number + 1) * settings.micro_batch]
        with accelerator.accumulate(model):
            with precision(settings, accelerator):
                logits, targets = predictions(model, part, accelerator.device)
                task = cross_entropy(logits.float(), targets, reduction="sum")
                response = torch.zeros_like(task)
                if teacher is not None:
                    with torch.no_grad():
                        taught, _ = predictions(teacher, part, accelerator.device)
                    response = divergence(logits, taught, settings.temperature) * len(targets)
                parts = torch.stack([(1 - weight) * task, weight * response])
            # accelerate takes means over processes and over accumulated passes; tokens count alike.
            accelerator.backward(parts.sum() * (world * rounds / tokens))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), _CLIP)
            optimizer.step()
            optimizer.zero_grad()
        sums += parts.detach()
    means = (accelerator.reduce(sums, "sum") / tokens).tolist()
    return dict(zip(_PARTS, means, strict=True))


def precision(settings: Recovery, accelerator: Accelerator) -> torch.autocast:
    """Return the context of a decoder's passes; accelerate's own cannot change between calls."""
    device = accelerator.device.type
    auto = device == "cuda" and torch.cuda.is_bf16_supported()
    half = settings.precision == "bf16" or (settings.precision == "auto" and auto)
    return torch.autocast(device, torch.bfloat16, enabled=half)


def _batches(pieces: Sequence[Piece], settings: Recovery, step: int) -> Iterator[list[Piece]]:
    """Yield the pieces of each step from `step` on, without end.

    What a pass over all texts leaves over is skipped; each pass has another order.
    """
    size = settings.batch_size
    epoch, place = divmod(step, len(pieces) // size)
    while True:
        batches = epoch_batches(pieces, size, settings.seed, epoch)
        for batch in [batch for batch in batches if len(batch) == size][place:]:
            yield [pieces[index] for index in batch]
        epoch = epoch + 1
        place = 0


def _with_lora(model: PreTrainedModel, rank: int) -> Any:
    from peft import LoraConfig, get_peft_model  # see `headsweep.experiments.recovery.checks`

    model.requires_grad_(False)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by old names
        torch.manual_seed(0)  # each process draws the same matrices, as does a resumed one
        return get_peft_model(model, config)
