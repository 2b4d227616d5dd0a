"""A compression that is killed goes on to the same bits, wherever it was."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headroom.athena.batches import Example
from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver, new_solver
from headroom.compression import training
from headroom.compression.history import History
from headroom.compression.rounds import compress
from headroom.config.compression import (
    Compression,
    Distillation,
    Encoder,
    Importance,
    Solver,
    Training,
)
from headroom.errors import ModelError

SMALL = Solver(
    encoder=Encoder(layers=2, width=20, heads=4, intermediate=28, min_count=1),
    depth=4,
    dropout=0.1,
    training=Training(epochs=2, patience=None, batch_size=7, learning_rate=1e-3),
)
N, DEV = 17, 5  # 3 steps an epoch
RECIPE = Training(epochs=4, patience=None, batch_size=7, learning_rate=1e-3, checkpoint_steps=2)
SETTINGS = {
    "recursive": Compression(ratio=0.5, rounds=2, training=RECIPE),
    "original": Compression(
        ratio=0.5,
        rounds=2,
        training=RECIPE,
        distillation=Distillation(teacher="original"),
        importance=Importance(criterion="random"),
    ),
    "literal": Compression(ratio=0.5, rounds=2, schedule="literal", training=RECIPE),
    "scratch": Compression(
        ratio=0.5,
        rounds=2,
        scratch=True,
        training=RECIPE,
        distillation=Distillation(teacher="none"),
    ),
}


def setup() -> tuple[MathSolver, list[Example]]:
    solver = new_solver(SMALL, generate(N, seed=5), 1)
    return solver, solver.prepare(generate(N, seed=5))


def run(name: str, journal: Path | None, seed: int = 3) -> tuple[MathSolver, History]:
    solver, examples = setup()
    return compress(
        solver, examples, examples[:DEV], SETTINGS[name], seed, folder=journal, device="cpu"
    )


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_compression_journal as t
steps, step = 0, t.training._Run._step
def counted(self, indices):
    global steps
    step(self, indices)
    steps += 1
    if steps == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
t.training._Run._step = counted
t.run({name!r}, Path({journal!r}))
"""


@pytest.mark.parametrize(
    ("name", "after", "repeated"),
    [
        # Rounds of 6 steps: killed in the second one, after the checkpoint of its 4th step.
        ("recursive", 11, 2),
        ("original", 5, 8),
        # Heads go after steps 3, 6, 9 and 12: the teacher of step 9 is not the one of step 6.
        ("literal", 11, 2),
        ("scratch", 5, 15),
    ],
)
def test_a_killed_compression_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int, repeated: int
) -> None:
    whole, undisturbed = run(name, None)
    journal = tmp_path / "journal"
    code = KILLED.format(
        tests=str(Path(__file__).parent), name=name, journal=str(journal), after=after
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    steps = []
    step = training._Run._step
    monkeypatch.setattr(
        training._Run, "_step", lambda self, indices: (steps.append(1), step(self, indices))
    )
    for expected in (repeated, 0):  # what is done is not done again
        steps.clear()
        resumed, history = run(name, journal)
        assert len(steps) == expected
        assert history == undisturbed
        weights = resumed.network.state_dict()
        for key, tensor in whole.network.state_dict().items():
            assert torch.equal(tensor, weights[key]), key
    assert [file.name for file in journal.iterdir()] == ["rounds.safetensors"]


def test_a_journal_of_another_compression_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    run("original", tmp_path)
    with pytest.raises(ModelError, match="of a training with another seed; remove it"):
        run("original", tmp_path, seed=4)
    with pytest.raises(ModelError, match="of a training with another settings; remove it"):
        run("scratch", tmp_path)
    (tmp_path / "rounds.safetensors").write_bytes(b"half")
    with pytest.raises(ModelError, match=r"is no checkpoint .*; remove it and run again"):
        run("original", tmp_path)
