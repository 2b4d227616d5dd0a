"""What a recovery keeps until its result is complete: the folder OUT.partial.

`call.json` says whose work it is, `removal_N.json` which heads round N removes, and `training_N`
how far its training is; `round_N` is the decoder after N rounds. Other JSON files hold what was
measured. A process that works there holds the lock of the file `.lock`.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from headsweep.errors import ModelError, TableError
from headsweep.experiments.recovery.text_training import Progress
from headsweep.files.locks import Locks
from headsweep.files.record import (
    Stopwatch,
    first_damaged_file,
    read_json,
    read_record,
    record_path,
    write_record,
)
from headsweep.files.safe_files import write_json
from headsweep.models.checkpoints import check_target, save_pruned
from headsweep.models.geometry import HeadGeometry
from headsweep.models.model_card import CARD, Form, Pruning

RESULT = "recovery.json"  # beside a decoder, what is known of it
_CALL = "call.json"
_LOCK = ".lock"
_MADE = "made"  # folder in which decoders are saved before they are moved to their places
_TEMPORARY = ".*.tmp"  # what a killed write leaves, see `headsweep.files.safe_files.atomic`


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
        return self.out.with_name(f"{self.out.name}.partial")

    def result(self, measuring: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is known of the result if it is complete; None if its folder is missing.

        Raises:
            ModelError: the folder is not this call's, was not measured as is asked now, or one of
                its files is damaged.
        """
        file = self.out / RESULT
        if self.out.exists():
            try:
                record = read_record(file)
                if (record.get("call"), record.get("measuring")) == (self.call, measuring):
                    facts: dict[str, Any] = read_json(file)
                    return facts
            except TableError:
                raise ModelError(
                    f"{_spoiled(file)} is damaged: its checksum differs; name another folder by "
                    f"--out, or remove {self.out} with all that was measured"
                ) from None
        check_target(self.out)
        return None

    def check_call(self) -> None:
        """Raise a ModelError if the folder is not this call's: of another one, foreign, or a link.

        What a killed process leaves before it has written `call.json` is taken for this call's.
        """
        if self.folder.is_symlink():
            raise ModelError(
                f"{self.folder} is a link, but the result is moved out of it to {self.out}; remove "
                f"the link, or name another folder"
            )
        file = self.folder / _CALL
        if file.exists():
            if self._read(file) != self.call:
                raise ModelError(
                    f"{self.folder} is of a call with other texts or settings; remove it, or name "
                    f"another folder"
                )
        elif self.folder.exists():
            files = self.folder.iterdir() if self.folder.is_dir() else [self.folder]
            if any(file.name != _LOCK and not file.match(_TEMPORARY) for file in files):
                raise ModelError(
                    f"{self.folder} is no unfinished work, as it has no {_CALL}; rename it, or "
                    f"name another folder"
                )

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the folder for this process, without what killed writes left there.

        Raises:
            ModelError: another process works there, or the folder is not this call's.
        """
        locks = Locks(self.folder / _LOCK)
        try:
            if not locks.take(_LOCK):
                raise ModelError(
                    f"another process works in {self.folder}; wait for its end, or name another "
                    f"folder"
                )
            self.check_call()
            shutil.rmtree(self.folder / _MADE, ignore_errors=True)
            for file in self.folder.glob(_TEMPORARY):
                file.unlink()
            self._keep(_CALL, self.call, {})
            yield
        finally:
            del locks  # an error's traceback would keep the file open, and its lock held

    def remove(self) -> None:
        """Remove the folder if it is this call's; `call.json` goes last, as removals are killed."""
        try:
            if self.folder.is_symlink() or read_json(self.folder / _CALL) != self.call:
                return
        except TableError:
            return
        for part in self.folder.iterdir():
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            elif not part.name.startswith(_CALL):
                part.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

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
        file = self.folder / _removal_name(number)
        removal: dict[str, Any] | None = self._read(file) if file.exists() else None
        return removal

    def keep_removal(self, number: int, removal: Mapping[str, Any]) -> None:
        """Write which heads a round removes."""
        self._keep(_removal_name(number), removal, {"call": self.call})

    def once(self, name: str, measure: Callable[[], Any], how: Mapping[str, Any]) -> Any:
        """Return what was measured under a name, or measure and keep it.

        `how` is what decides it beside the call: what was measured otherwise is measured again.
        """
        file = self.folder / f"{name}.json"
        if file.exists():
            kept = self._read(file)
            if kept["how"] == how:
                return kept["measured"]
        measured = measure()
        self._keep(file.name, {"how": how, "measured": measured}, {"call": self.call})
        return measured

    def _keep(self, name: str, value: Any, facts: Mapping[str, Any]) -> None:
        """Write a JSON file of the work, and its record."""
        write_json(self.folder / name, value)
        write_record(self.folder / name, self.stopwatch, facts)

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

        `measuring` says, beside the call, what was measured. The model card has no checksum: users
        write to it.
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
        made = self.folder / _MADE / folder.name
        shutil.rmtree(made, ignore_errors=True)
        save_pruned(model, geometry, made, form, pruning, self.source)
        write_json(made / RESULT, facts)
        checked = [file for file in made.iterdir() if file.is_file() and file.name != CARD]
        facts_of_it = {"call": self.call, **told}
        write_record(made / RESULT, self.stopwatch, facts_of_it, together=checked)
        made.rename(folder)

    def _read(self, file: Path) -> Any:
        """Return a JSON file of the work, after comparing the files beside it with its record."""
        try:
            return read_json(file)
        except TableError:
            raise ModelError(
                f"{_spoiled(file)} is damaged; remove {self.folder} and run again"
            ) from None


def _removal_name(number: int) -> str:
    return f"removal_{number}.json"


def _spoiled(file: Path) -> Path:
    """Return which of a damaged JSON file, its record and what that describes is damaged."""
    try:
        return first_damaged_file(file) or file
    except TableError:
        return record_path(file)
