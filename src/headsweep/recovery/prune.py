"""`headsweep prune --recover`: heads removed in rounds, the rest trained after each, all measured.

Source: arXiv 2511.17577, Alg. 1 and 2. What a round makes is kept beside the result until that is
whole, so that an interrupted run goes on where it was.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel

from headsweep.compression.calibration import Scores, row_batches
from headsweep.compression.criteria import (
    Ranked,
    heads_due,
    loss_rises,
    lowest_heads,
    named,
    unprotected,
)
from headsweep.compression.decoder import round_weights
from headsweep.compression.pruning import revision_of
from headsweep.compression.rounds import removal_of
from headsweep.errors import ConfigError, ModelError, TableError
from headsweep.models.checkpoints import (
    LOADED_BY,
    Form,
    Pruning,
    check_target,
    plainest_form,
    save_pruned,
)
from headsweep.models.geometry import HeadGeometry, find_heads
from headsweep.models.load import load_checkpoint
from headsweep.models.removal import remove_heads
from headsweep.models.source import fetch_model
from headsweep.record import Stopwatch, damaged, read_json, record_path, write_record
from headsweep.recovery.benchmark import Benchmark, answered
from headsweep.recovery.card import chosen_by, measured_how
from headsweep.recovery.checks import check_model, enough_pieces, evenly
from headsweep.recovery.evaluation import as_rows, measured, text_losses
from headsweep.recovery.settings import Recovery, recovery
from headsweep.recovery.text_training import Progress, accelerator_for, precision, train_round
from headsweep.recovery.texts import Piece, Text, digest, tenth
from headsweep.tables import write_json
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)
_RESULT = "recovery.json"


@dataclass(frozen=True)
class Recovered:
    """A decoder that was pruned, trained and saved."""

    folder: Path
    form: Form
    removed: tuple[str, ...]  # names of heads, numbered as in the source
    measured: Mapping[str, Mapping[str, Any]]  # the decoder `before`, `pruned` and `recovered`

    def __str__(self) -> str:
        rows = [("", list(self.measured)), *as_rows(self.measured)]
        lines = [f"{name:<33}" + "".join(f"{value:>28}" for value in row) for name, row in rows]
        loads = LOADED_BY[self.form]
        lines += ["", f"{self.folder}: {len(self.removed)} heads removed; {loads}"]
        return "\n".join(lines)


def prune_and_recover(
    source: str,
    out: str | Path,
    texts: Sequence[Text],
    *,
    held_out: Sequence[Text] | None = None,
    revision: str | None = None,
    device: str = "auto",
    benchmark: Benchmark | None = None,
    control: bool = False,
    **settings: Any,
) -> Recovered | None:
    """Remove attention heads from a decoder in rounds and train the rest after each.

    Each round scores the heads that are left, removes those of lowest score and distils the decoder
    of before on the texts. The result is saved with its tokenizer, a model card and
    `recovery.json`, which has all numbers. The same call resumes after an interruption; started by
    `accelerate launch`, several processes share the work.

    Args:
        source: hub id or local folder of a decoder.
        out: folder to create; until it is there, `OUT.partial` beside it keeps what is done.
        texts: what to score and train on: texts, or lists of messages for the chat template.
        held_out: texts to measure perplexity on; by default a tenth of `texts`.
        revision: hub: a commit hash. Folder: its expected fingerprint.
        device: auto (the GPU if there is one) or cpu.
        benchmark: questions that the models answer in the end; see
            `headsweep.recovery.benchmark.read_benchmark`.
        control: also train the same with nothing removed, and measure that.
        settings: those of `headsweep.recovery.settings.Recovery`, by name: `ratio=0.3, steps=500`.

    Returns:
        The result, in the first of several processes; None in the others.

    Raises:
        ConfigError: a setting is unknown or not allowed.
        ModelError: texts do not suffice, the model cannot be loaded or pruned as asked, or
            `OUT.partial` is damaged or of another call.
    """
    chosen = recovery(**settings)
    out = Path(out)
    check_target(out)
    named(chosen.criterion)
    if device not in ("auto", "cpu"):
        raise ModelError(f"device {device!r} is not allowed; use auto or cpu")
    folder = fetch_model(source, revision)
    if control and not chosen.ratio:
        raise ConfigError("ratio 0 removes nothing: it is its own control; leave out control")
    if chosen.uniform:
        chosen = evenly(folder, chosen)
    check_model(folder, chosen)
    if held_out is None:
        held_out, texts = tenth(texts)
    training, testing = enough_pieces(texts, held_out, folder, chosen)
    call = {
        "source": source,
        "revision": revision_of(folder),
        "settings": chosen.model_dump(mode="json"),
        "texts": digest(training),
        "held_out": digest(testing),
    }
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        accelerator = accelerator_for(chosen, device)
        run = _Run(call, folder, out, chosen, training, accelerator)
        beside = run.control() if control else None
        run.to_the_end()
        if beside:
            beside.to_the_end()
        return run.finish(testing, benchmark, beside) if accelerator.is_main_process else None


@dataclass
class _Run:
    """The rounds of a call, and where their results are kept."""

    call: Mapping[str, Any]  # what identifies it
    folder: Path  # the source model's
    out: Path
    settings: Recovery
    pieces: Sequence[Piece]
    accelerator: Accelerator

    def __post_init__(self) -> None:
        self.stopwatch = Stopwatch()
        self.work = self.out.with_name(f"{self.out.name}.partial")
        self.device = str(self.accelerator.device)
        call = self.work / "call.json"
        if call.exists() and self.read(call) != self.call:
            raise ModelError(
                f"{self.work} is of a call with other texts or settings; remove it, or name "
                f"another folder"
            )
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            write_json(call, self.call)
            write_record(call, self.stopwatch, {})

    def control(self) -> "_Run":
        """Return the same training with nothing removed, kept beside this one."""
        settings = self.settings.model_copy(update={"ratio": 0.0})
        call = {**self.call, "settings": settings.model_dump(mode="json")}
        out = self.out.with_name(f"{self.out.name}.control")
        return replace(self, call=call, out=out, settings=settings)

    def to_the_end(self) -> None:
        """Do the rounds that are not done."""
        for number in range(self.settings.rounds):
            self.round(number)

    def after(self, number: int) -> Path:
        """Return the folder of the decoder after so many rounds."""
        return self.work / f"round_{number}" if number else self.folder

    def history(self, number: int) -> dict[str, Any]:
        """Return what is known after so many rounds: removals and the training's progress."""
        if not number:
            return {"removals": [], "progress": asdict(Progress())}
        history: dict[str, Any] = self.read(self.after(number) / _RESULT)
        return history

    def read(self, file: Path) -> Any:
        """Return a JSON file of the work, after comparing the files beside it with its record."""
        try:
            return read_json(file)
        except TableError:
            try:
                spoiled = damaged(file) or file
            except TableError:
                spoiled = record_path(file)
            raise ModelError(f"{spoiled} is damaged; remove {self.work} and run again") from None

    def round(self, number: int) -> None:
        """Remove heads and train the rest, unless that is done."""
        before = self.after(number)
        after = self.after(number + 1)
        if any(self.after(later).exists() for later in range(number + 1, self.settings.rounds + 1)):
            return
        settings = self.settings
        main = self.accelerator.is_main_process
        dtype = None if settings.lora else "float32"
        student = load_checkpoint(str(before), dtype=dtype, device=self.device)
        geometry = find_heads(student)
        if not geometry.keeps_cache:
            raise ModelError(
                f"{self.call['source']} is no decoder; recovery takes causal language models"
            )
        history = self.history(number)
        removal = self.removal(number, student, geometry, history["removals"])
        geometry = _without(student, geometry, removal["heads"])
        gone = len(removal["heads"])
        _LOG.info("round %d: %d heads removed, %d left", number + 1, gone, geometry.heads)
        taught = {"previous": before, "original": self.folder, "none": None}[settings.teacher]
        teacher = load_checkpoint(str(taught), device=self.device) if taught else None
        progress = Progress(**history["progress"])
        state = self.work / f"training_{number}.safetensors"
        steps = range(self.steps(number), self.steps(number + 1))
        student = train_round(
            student, teacher, self.pieces, settings, steps, progress, self.accelerator, state
        )
        if main:
            facts = {"removals": [*history["removals"], removal], "progress": asdict(progress)}
            about = Pruning(self.call["source"], None, [], "")
            self.save(student, geometry, after, "free", about, facts)
            state.unlink(missing_ok=True)
            if number:
                shutil.rmtree(before)
        self.accelerator.wait_for_everyone()

    def steps(self, number: int) -> int:
        """Return the training steps of so many rounds."""
        return self.settings.steps * number // self.settings.rounds

    def removal(
        self,
        number: int,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        earlier: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the heads to remove in a round, by their original numbers, and all scores."""
        file = self.work / f"removal_{number}.json"
        main = self.accelerator.is_main_process
        kept = self.read(file) if main and file.exists() else None
        if kept := broadcast_object_list([kept])[0]:  # the first process's, in all
            return kept
        settings = self.settings
        names = [head for removal in earlier for head in removal["heads"]]
        gone = Counter(Variant.parse(name).layers[0] for name in names)
        heads = geometry.heads + gone.total()
        due = heads_due(settings.schedule, heads, number + 1, settings.rounds) - gone.total()
        scores: Scores = {}
        chosen: list[Variant] = []
        if due:
            scores = self.scores(number, model, geometry)
            chosen = lowest_heads(
                unprotected(scores, geometry, settings.protect),
                geometry,
                due,
                scope=settings.scope,
                unit=settings.unit,
                gone=gone,
            )
        removal = removal_of(chosen, scores, geometry, self.steps(number)).model_dump()
        removal = broadcast_object_list([removal])[0]
        if main:
            write_json(file, removal)
            write_record(file, self.stopwatch, {"call": self.call})
        return removal

    def scores(self, number: int, model: PreTrainedModel, geometry: HeadGeometry) -> Scores:
        """Return the scores of a decoder's heads on the calibration texts."""
        settings = self.settings
        at_once = self.settings.micro_batch
        order = np.random.default_rng(0).permutation(len(self.pieces))[: settings.calibration]
        pieces = [self.pieces[row] for row in order]

        # Each process sees its own share of the pieces; sums over all of them are in every one.
        share = pieces[self.accelerator.process_index :: self.accelerator.num_processes]

        def total(part: Tensor) -> Tensor:
            whole = self.accelerator.reduce(part.to(self.accelerator.device), "sum")
            return whole.to(part.device)

        def loss() -> float:
            with precision(settings, self.accelerator):
                losses = text_losses(model, share, at_once)
            sums = total(torch.tensor([losses.nats.sum(), losses.tokens.sum()], dtype=torch.double))
            return float(sums[0] / sums[1])

        ranked = Ranked(
            model,
            geometry,
            settings.schedule.importance,
            settings.seed * 1_000_003 + number,
            texts=lambda: row_batches([piece.input_ids for piece in share], at_once, model.device),
            drops=lambda: loss_rises(model, geometry, loss, groups=settings.unit == "group"),
            total=total,
        )
        return named(settings.criterion).scores(ranked)

    def last(self, dtype: torch.dtype, device: str) -> PreTrainedModel:
        """Return the decoder after all rounds, its weights in another type."""
        model = load_checkpoint(str(self.after(self.settings.rounds)), device="cpu")
        return round_weights(model, dtype).to(device)

    def finish(
        self, testing: Sequence[Piece], benchmark: Benchmark | None, control: "_Run | None"
    ) -> Recovered:
        """Measure the decoder before, pruned, recovered, and a control; publish the recovered."""
        history = self.history(self.settings.rounds)
        removed = sorted(head for removal in history["removals"] for head in removal["heads"])
        dtype = _dtype_of(self.folder)
        models = self.models(removed, dtype, control)
        answer = partial(answered, folder=self.folder, benchmark=benchmark) if benchmark else None
        results = measured(models, testing, self.settings.micro_batch, self.device, answer)
        pruning = Pruning(
            self.call["source"],
            self.call["revision"],
            [Variant.parse(name) for name in removed],
            chosen_by(self.settings),
            {name: " → ".join(values) for name, values in as_rows(results)},
            measured_how(
                self.settings, testing, benchmark, self.device, controlled=control is not None
            ),
        )
        model = self.last(dtype, "cpu")
        geometry = find_heads(model)
        form = plainest_form(model, geometry)
        facts = {**self.call, **history, "measured": results}
        self.save(model, geometry, self.out, form, pruning, facts)
        shutil.rmtree(self.work)
        if control:
            shutil.rmtree(control.work)
        return Recovered(self.out, form, tuple(removed), results)

    def models(
        self, removed: Sequence[str], dtype: torch.dtype, control: "_Run | None"
    ) -> dict[str, Callable[[str], PreTrainedModel]]:
        """Return what loads each decoder that is measured on a device, by its name in the table."""

        def before(device: str) -> PreTrainedModel:
            return load_checkpoint(str(self.folder), device=device)

        def pruned(device: str) -> PreTrainedModel:
            model = before(device)
            _without(model, find_heads(model), removed)
            return model

        models: dict[str, Callable[[str], PreTrainedModel]] = {
            "before": before,
            "pruned": pruned,
            "recovered": partial(self.last, dtype),
        }
        if control:
            models["control"] = partial(control.last, dtype)
        return models

    def save(
        self,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        folder: Path,
        form: Form,
        pruning: Pruning,
        facts: Mapping[str, Any],
    ) -> None:
        """Save a decoder with what is known of it; the folder appears whole or not at all."""
        made = self.work / "made" / folder.name
        shutil.rmtree(made, ignore_errors=True)
        save_pruned(model, geometry, made, form, pruning, self.folder)
        write_json(made / _RESULT, facts)
        write_record(made / _RESULT, self.stopwatch, {"call": self.call}, made)
        made.rename(folder)


def _dtype_of(folder: Path) -> torch.dtype:
    """Return the type of a decoder's weights, from its config where that says it."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    stated: torch.dtype | None = config.dtype
    return stated or load_checkpoint(str(folder), device="cpu").dtype


def _without(model: PreTrainedModel, geometry: HeadGeometry, names: Sequence[str]) -> HeadGeometry:
    """Remove heads that are named by their original numbers."""
    present = geometry.by_original_name()
    return remove_heads(model, geometry, [present[name] for name in names]) if names else geometry
