"""What a compression has done so far, on disk: one that was killed goes on to the bit.

After each round there is the learner as it stands, with the history. Within a round there is the
checkpoint of its training; the scores before it are computed again, as they were.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headroom.compression import resume
from headroom.compression.history import Round
from headroom.models.learner import Learner


class Journal:
    """A folder that a compression writes into, and goes on from.

    Args:
        folder: made where it is not there; None: nothing is kept.
        identity: JSON values that tell this compression from others.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self._folder, self._identity = folder, dict(identity)

    def training(self, number: int) -> Path | None:
        """Return where the training of a round, from 0, keeps its checkpoint."""
        return None if self._folder is None else self._folder / f"training_{number}.safetensors"

    def write(self, learner: Learner, rounds: Sequence[Round]) -> None:
        """Note that rounds are done, and forget the checkpoint of the last one's training."""
        if self._folder is None:
            return
        facts = {
            **self._identity,
            "shape": resume.shape_of(learner.encoder),
            "rounds": [each.as_json() for each in rounds],
        }
        resume.write(self._state, learner.network, facts)
        (self._folder / f"training_{len(rounds) - 1}.safetensors").unlink(missing_ok=True)

    def read(self, learner: Learner) -> list[Round]:
        """Bring a whole learner to where the journal ends; return the rounds that are done.

        Raises:
            ModelError: the journal is damaged, or of another compression.
        """
        if self._folder is None or not self._state.exists():
            return []
        facts = resume.read_facts(self._state)
        resume.check(self._state, facts, self._identity)
        resume.restore_shape(learner.encoder, facts["shape"])
        resume.read(self._state, learner.network)
        return list(map(Round.of_json, facts["rounds"]))

    @property
    def _state(self) -> Path:
        assert self._folder is not None
        return self._folder / "rounds.safetensors"
