"""What a recovery keeps until its result is complete: the folder OUT.partial.

`call.json` says whose work it is, `removal_N.json` which heads round N removes, and `training_N`
how far its training is; `round_N` is the decoder after N rounds.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from headsweep.errors import ModelError, TableError
from headsweep.models.checkpoints import Form, Pruning, check_target, save_pruned
from headsweep.models.geometry import HeadGeometry
from headsweep.record import (
    Stopwatch,
    damaged,
    read_json,
    read_record,
    record_path,
    write_record,
)
from headsweep.recovery.text_training import Progress
from headsweep.safe_files import write_json

RESULT = "recovery.json"  # beside a decoder, what is known of it


def partial_of(out: Path) -> Path:
    """Return the folder that keeps the work until a folder is complete."""
    return out.with_name(f"{out.name}.partial")


@dataclass(frozen=True)
class Unfinished:
    """What is done of a call, beside the folder that it will fill."""

    out: Path
    call: Mapping[str, Any]  # what identifies it
    source: Path  # folder of the decoder before the first round
    stopwatch: Stopwatch

    @property
    def folder(self) -> Path:
        """The folder of all that is not finished."""
        return partial_of(self.out)

    def result(self, measuring: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is known of the result if it is complete; None if its folder is missing.

        Raises:
            ModelError: the folder is not this call's, or was not measured as is asked now.
            TableError: one of its files is damaged.
        """
        file = self.out / RESULT
        if self.out.exists():
            record = read_record(file)
            if (record.get("call"), record.get("measuring")) == (self.call, measuring):
                facts: dict[str, Any] = read_json(file)
                return facts
        check_target(self.out)
        return None

    def check_call(self) -> None:
        """Raise a ModelError if there is work of another call."""
        file = self.folder / "call.json"
        if file.exists() and self._read(file) != self.call:
            raise ModelError(
                f"{self.folder} is of a call with other texts or settings; remove it, or name "
                f"another folder"
            )

    def keep_call(self) -> None:
        """Write whose work it is."""
        file = self.folder / "call.json"
        write_json(file, self.call)
        write_record(file, self.stopwatch, {})

    def decoder(self, rounds: int) -> Path:
        """Return the folder of the decoder after so many rounds."""
        return self.folder / f"round_{rounds}" if rounds else self.source

    def history(self, rounds: int) -> dict[str, Any]:
        """Return what is known after so many rounds: removals and the training's progress."""
        if not rounds:
            return {"removals": [], "progress": asdict(Progress())}
        history: dict[str, Any] = self._read(self.decoder(rounds) / RESULT)
        return history

    def removal(self, number: int) -> dict[str, Any] | None:
        """Return which heads round `number`, from 0, removes, if that is decided."""
        file = self._removal_file(number)
        removal: dict[str, Any] | None = self._read(file) if file.exists() else None
        return removal

    def keep_removal(self, number: int, removal: Mapping[str, Any]) -> None:
        """Write which heads a round removes."""
        file = self._removal_file(number)
        write_json(file, removal)
        write_record(file, self.stopwatch, {"call": self.call})

    def _removal_file(self, number: int) -> Path:
        return self.folder / f"removal_{number}.json"

    def training_state(self, number: int) -> Path:
        """Return the file of the state of a round's training."""
        return self.folder / f"training_{number}.safetensors"

    def keep_decoder(
        self,
        rounds: int,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        pruning: Pruning,
        facts: Mapping[str, Any],
    ) -> None:
        """Save the decoder after so many rounds, and remove what no later round reads."""
        self._save(self.decoder(rounds), model, geometry, "free", pruning, facts, {})
        self.training_state(rounds - 1).unlink(missing_ok=True)
        if rounds > 1:
            shutil.rmtree(self.decoder(rounds - 1))

    def publish(
        self,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        form: Form,
        pruning: Pruning,
        facts: Mapping[str, Any],
        measuring: Mapping[str, Any],
    ) -> None:
        """Save the result in the folder that was asked for.

        `measuring` says, beside the call, what was measured.
        """
        self._save(self.out, model, geometry, form, pruning, facts, {"measuring": measuring})

    def _save(
        self,
        folder: Path,
        model: PreTrainedModel,
        geometry: HeadGeometry,
        form: Form,
        pruning: Pruning,
        facts: Mapping[str, Any],
        told: Mapping[str, Any],
    ) -> None:
        """Save a decoder with what is known of it; the folder appears whole or not at all."""
        made = self.folder / "made" / folder.name
        shutil.rmtree(made, ignore_errors=True)
        save_pruned(model, geometry, made, form, pruning, self.source)
        write_json(made / RESULT, facts)
        write_record(made / RESULT, self.stopwatch, {"call": self.call, **told}, made)
        made.rename(folder)

    def _read(self, file: Path) -> Any:
        """Return a JSON file of the work, after comparing the files beside it with its record."""
        try:
            return read_json(file)
        except TableError:
            try:
                spoiled = damaged(file) or file
            except TableError:
                spoiled = record_path(file)
            raise ModelError(f"{spoiled} is damaged; remove {self.folder} and run again") from None
