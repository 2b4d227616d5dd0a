"""`headsweep prune --recover`: removes heads in rounds, trains the rest after each, measures all.

Source: arXiv 2511.17577, Alg. 1 and 2. What a round makes is kept beside the result until the
result is complete, so that an interrupted run continues where it was.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel

from headsweep.errors import ConfigError, ModelError
from headsweep.experiments.compression.calibration import Scores
from headsweep.experiments.compression.criteria import named
from headsweep.experiments.compression.decoder import round_weights
from headsweep.experiments.compression.heads_to_remove import (
    check_ratio,
    heads_due,
    lowest_heads,
)
from headsweep.experiments.compression.pruning import revision_of
from headsweep.experiments.compression.rounds import Removal, removal_of
from headsweep.experiments.recovery.benchmark import Benchmark, answered, check_answerable
from headsweep.experiments.recovery.checks import (
    also_trained_on,
    check_model,
    check_packages,
    enough_pieces,
    evenly,
)
from headsweep.experiments.recovery.evaluation import as_rows, measured
from headsweep.experiments.recovery.model_card import chosen_by, measured_how
from headsweep.experiments.recovery.scoring import scores_on_texts
from headsweep.experiments.recovery.settings import Recovery, recovery
from headsweep.experiments.recovery.text_training import Progress, accelerator_for, train_round
from headsweep.experiments.recovery.texts import Piece, Text, digest, tenth
from headsweep.experiments.recovery.work import RESULT, Unfinished
from headsweep.files.record import Stopwatch, read_json
from headsweep.files.safe_files import check_writable
from headsweep.models.checkpoints import check_target, plainest_form, stated_config
from headsweep.models.geometry import HeadGeometry, find_heads, kept_heads
from headsweep.models.load import load_checkpoint, weights_dtype
from headsweep.models.model_card import LOADED_BY, PRUNED_HEADS, Form, Pruning
from headsweep.models.removal import remove_heads
from headsweep.models.source import fetch_model
from headsweep.telling import told
from headsweep.text import counted
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """A decoder that was pruned, trained and saved."""

    folder: Path
    form: Form
    removed: tuple[str, ...]  # names of heads, numbered as in the source
    measured: Mapping[str, Mapping[str, Any]]  # the decoder `before`, `pruned` and `recovered`

    def __str__(self) -> str:
        rows = [("", list(self.measured)), *as_rows(self.measured)]
        lines = [f"{name:<33}" + "".join(f"  {value:>28}" for value in row) for name, row in rows]
        loads = LOADED_BY[self.form]
        lines += ["", f"{self.folder}: {counted(len(self.removed), 'head')} removed; {loads}"]
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
    `recovery.json`, which has all numbers. The same call resumes after an interruption, and returns
    a result that is complete; started by `accelerate launch`, several processes share the work.

    Args:
        source: hub id or local folder of a decoder.
        out: folder to create; until it is there, `OUT.partial` beside it keeps what is done.
        texts: what to score and train on: texts, or lists of messages for the chat template.
        held_out: texts to measure perplexity on; by default a tenth of `texts`, at most 2,000.
        revision: hub: a commit hash. Folder: its expected fingerprint.
        device: auto (the GPU if there is one) or cpu.
        benchmark: questions that the models answer in the end; see
            `headsweep.experiments.recovery.benchmark.read_benchmark`.
        control: also train the same with nothing removed, and measure that.
        settings: those of `headsweep.experiments.recovery.settings.Recovery`, by name: `ratio=0.3,
        steps=500`.

    Returns:
        The result, in the first of several processes; None in the others.

    Raises:
        ConfigError: a setting is unknown or not allowed.
        ModelError: texts do not suffice, the model cannot be loaded or pruned as asked,
            `OUT.partial` is damaged or of another call, or so is `out`, or another process works
            there.
    """
    chosen = recovery(**settings)
    out = Path(out)
    if not (out / RESULT).exists():
        check_target(out)
        check_writable("the result", out, "folder")
    named(chosen.criterion)
    if device not in ("auto", "cpu"):
        raise ModelError(f"device {device!r} is not allowed; use auto or cpu")
    if control and not chosen.ratio:
        raise ConfigError("ratio 0 removes nothing: it is its own control; leave out control")
    check_packages(chosen)
    if held_out is None:
        held_out, texts = tenth(texts)
    folder = fetch_model(source, revision)
    if chosen.uniform:
        chosen = evenly(folder, chosen)
    check_model(folder, chosen)
    training, testing = enough_pieces(texts, held_out, folder, chosen)
    again = also_trained_on(texts, held_out)
    if benchmark:
        check_answerable(folder, benchmark)
    call = {
        "source": source,
        "revision": revision_of(folder),
        "settings": chosen.decisive,
        "texts": digest(training),
        "held_out": digest(testing),
    }
    measuring = {"control": control, "benchmark": benchmark.digest if benchmark else None}
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        accelerator = accelerator_for(chosen, device)
        run = _Run(call, folder, out, chosen, training, accelerator)
        runs = [run, run.control()] if control else [run]
        done = _complete(run.work, measuring)
        if done is None:
            with ExitStack() as locks:
                for training_run in runs:
                    training_run.begin(locks)
                if accelerator.is_main_process:
                    check_target(out)  # another process may have made it in the meantime
                for training_run in runs:
                    training_run.to_the_end()
                if accelerator.is_main_process:
                    beside = runs[1] if control else None
                    done = run.finish(testing, again, benchmark, beside, measuring)
        if not accelerator.is_main_process:
            return None
        for training_run in runs:
            training_run.work.remove()
        return done


def _complete(work: Unfinished, measuring: Mapping[str, Any]) -> Recovered | None:
    """Return the result of a call if it is there already."""
    facts = work.result(measuring)
    if facts is None:
        return None
    form: Form = read_json(work.out / PRUNED_HEADS)["form"]
    return Recovered(work.out, form, _in_source(work.source, _removed(facts)), facts["measured"])


def _removed(history: Mapping[str, Any]) -> list[str]:
    """Return the heads that all rounds have removed, by their original numbers."""
    return sorted(head for removal in history["removals"] for head in removal["heads"])


def _in_source(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return heads' names as the source numbers them, which may have lost others before."""
    places: dict[str, str] = {}
    for layer, heads in kept_heads(stated_config(folder)).items():
        for place, number in enumerate(heads):
            places[str(Variant(int(layer), number))] = str(Variant(int(layer), place))
    return tuple(places.get(name, name) for name in names)


@dataclass
class _Run:
    """The rounds of a call."""

    call: Mapping[str, Any]  # what identifies it
    folder: Path  # the source model's
    out: Path
    settings: Recovery
    pieces: Sequence[Piece]
    accelerator: Accelerator

    def __post_init__(self) -> None:
        device = self.accelerator.device
        # Several processes on a CPU have the devices cpu:0, cpu:1, ...: all are one.
        self.device = "cpu" if device.type == "cpu" else str(device)
        self.work = Unfinished(self.out, self.call, self.folder, Stopwatch())

    def control(self) -> "_Run":
        """Return the same training with nothing removed.

        Of the folder that it would fill only the unfinished work, beside this one's, is ever there.
        """
        settings = self.settings.model_copy(update={"ratio": 0.0})
        call = {**self.call, "settings": settings.decisive}
        out = self.out.with_name(f"{self.out.name}.control")
        return replace(self, call=call, out=out, settings=settings)

    def begin(self, locks: ExitStack) -> None:
        """Take the folder of the unfinished work until the locks are let go."""
        self.work.check_call()
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            locks.enter_context(self.work.taken())

    def to_the_end(self) -> None:
        """Do the rounds that are not done."""
        rounds = self.settings.rounds
        done = [number for number in range(1, rounds + 1) if self.work.decoder(number).exists()]
        for number in range(max(done, default=0), rounds):
            self.round(number)

    def round(self, number: int) -> None:
        """Remove heads and train the rest; rounds are counted from 0."""
        settings = self.settings
        before = self.work.decoder(number)
        dtype = None if settings.lora else "float32"
        student = load_checkpoint(str(before), dtype=dtype, device=self.device)
        geometry = find_heads(student)
        if not geometry.keeps_cache:
            raise ModelError(
                f"{self.call['source']} is no decoder; recovery takes causal language models"
            )
        if number == 0:
            check_ratio(geometry, settings.ratio, settings.unit, settings.scope)
        history = self.work.history(number)
        removal = self.decide_removal(number, student, geometry, history["removals"])
        geometry = _without(student, geometry, removal["heads"])
        gone = len(removal["heads"])
        _LOG.info("round %d: %d heads removed, %d left", number + 1, gone, geometry.heads)
        taught = {"previous": before, "original": self.folder, "none": None}[settings.teacher]
        teacher = load_checkpoint(str(taught), device=self.device) if taught else None
        state = self.work.training_state(number)
        steps = range(self.steps(number), self.steps(number + 1))
        progress = Progress(**history["progress"])
        student, progress = train_round(
            student, teacher, self.pieces, settings, steps, progress, self.accelerator, state
        )
        if self.accelerator.is_main_process:
            facts = {"removals": [*history["removals"], removal], "progress": asdict(progress)}
            pruning = Pruning(self.call["source"], None, [], "")
            self.work.keep_decoder(number + 1, student, geometry, pruning, facts)
        self.accelerator.wait_for_everyone()

    def steps(self, rounds: int) -> int:
        """Return the training steps of so many rounds."""
        return self.settings.steps * rounds // self.settings.rounds

    def decide_removal(
        self,
        number: int,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        earlier: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Decide which heads a round removes; return their original numbers, and all scores.

        The first process decides for all, and keeps that: a resumed round removes the same heads.
        """
        main = self.accelerator.is_main_process
        (kept,) = broadcast_object_list([self.work.removal(number) if main else None])
        if kept:
            return kept
        with told(f"scoring heads, round {number + 1}") if main else nullcontext():
            due = self.due_removal(number, model, geometry, earlier).model_dump()
        (removal,) = broadcast_object_list([due])
        if main:
            self.work.keep_removal(number, removal)
        return removal

    def due_removal(
        self,
        number: int,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        earlier: Sequence[Mapping[str, Any]],
    ) -> Removal:
        """Return the heads of lowest score that are due after `earlier` removals."""
        settings = self.settings
        names = [head for removal in earlier for head in removal["heads"]]
        gone = Counter(Variant.parse(name).layers[0] for name in names)
        heads = geometry.heads + gone.total()
        done = (number + 1) / settings.rounds
        due = heads_due(heads, done, settings.ratio, settings.exponent) - gone.total()
        scores: Scores = {}
        lowest: list[Variant] = []
        if due:
            scores = scores_on_texts(
                model, geometry, self.pieces, settings, number, self.accelerator
            )
            lowest = lowest_heads(
                scores,
                geometry,
                due,
                scope=settings.scope,
                unit=settings.unit,
                gone=gone,
            )
        return removal_of(lowest, scores, geometry, self.steps(number))

    def last(self, dtype: torch.dtype, device: str) -> PreTrainedModel:
        """Return the decoder after all rounds, its weights in another type."""
        folder = self.work.decoder(self.settings.rounds)
        return round_weights(load_checkpoint(str(folder), device="cpu"), dtype).to(device)

    def finish(
        self,
        testing: Sequence[Piece],
        again: int,
        benchmark: Benchmark | None,
        control: "_Run | None",
        measuring: Mapping[str, Any],
    ) -> Recovered:
        """Measure the decoder before, pruned, recovered, and a control; publish the recovered.

        `again` says how many held-out texts are also trained on.
        """
        history = self.work.history(self.settings.rounds)
        removed = _removed(history)
        dtype = weights_dtype(self.folder)
        models = self.models(removed, dtype, control)
        answer = partial(answered, folder=self.folder, benchmark=benchmark) if benchmark else None
        at_once = self.settings.micro_batch
        how = {"benchmark": measuring["benchmark"], "device": self.device}
        once = partial(self.work.once, how=how)
        with told("measuring the models"):
            results = measured(models, testing, at_once, self.device, answer, once)
        in_source = _in_source(self.folder, removed)
        pruning = Pruning(
            self.call["source"],
            self.call["revision"],
            [Variant.parse(name) for name in in_source],
            chosen_by(self.settings) if removed else "no heads were removed",
            {name: " → ".join(values) for name, values in as_rows(results)},
            measured_how(
                testing,
                benchmark,
                self.device,
                also_trained_on=again,
                controlled=control is not None,
            ),
        )
        model = self.last(dtype, "cpu")
        geometry = find_heads(model)
        form = plainest_form(model, geometry)
        facts = {**self.call, **history, "held_out_trained_on": again, "measured": results}
        self.work.publish(model, geometry, form, pruning, facts, measuring)
        return Recovered(self.out, form, in_source, results)

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


def _without(model: PreTrainedModel, geometry: HeadGeometry, names: Sequence[str]) -> HeadGeometry:
    """Remove heads that are named by their original numbers."""
    present = geometry.by_original_name()
    return remove_heads(model, geometry, [present[name] for name in names]) if names else geometry
