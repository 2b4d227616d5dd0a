"""A solver as a whole: its networks, tokenizer, constants and settings; made, saved, loaded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from headroom.athena.batches import Example, prepare
from headroom.athena.expressions import harvest
from headroom.athena.inference import Solution, solve
from headroom.athena.networks import Athena, ThoughtHead
from headroom.athena.problems import NUMBER, Problem
from headroom.config.compression import Solver
from headroom.errors import ModelError
from headroom.models.encoders import load_encoder, new_encoder
from headroom.tables import atomic, write_json

_RARE = 5  # of training equations; a constant that fewer hold is a slip of the data
_SETTINGS = "solver.json"
_HEAD = "thought_head.safetensors"
_ENCODER = "encoder"


@dataclass(frozen=True)
class MathSolver:
    """A solver of word problems."""

    athena: Athena
    tokenizer: PreTrainedTokenizerBase
    constants: tuple[float, ...]
    settings: Solver

    def prepare(self, problems: Sequence[Problem]) -> list[Example]:
        """Return problems as the solver reads them.

        Raises:
            BenchmarkError: a text is longer than the encoder reads.
        """
        return prepare(problems, self.tokenizer, self.constants, self.settings)

    def solve(self, examples: Sequence[Example], batch_size: int = 64) -> list[Solution]:
        """Solve problems; see `headroom.athena.inference.solve`."""
        depth, padding = self.settings.depth, self.tokenizer.pad_token_id
        return solve(self.athena, examples, self.constants, depth, padding, batch_size)

    def save(self, folder: Path) -> None:
        """Write the solver: encoder and tokenizer in the hub's format, thought head, settings.

        A pruned encoder's config says which heads it kept.
        """
        self.athena.encoder.save_pretrained(folder / _ENCODER)
        self.tokenizer.save_pretrained(folder / _ENCODER)
        with atomic(folder / _HEAD) as temporary:
            safetensors.torch.save_file(self.athena.head.state_dict(), temporary)
        attention = self.athena.head.reason.attention
        facts = {
            "constants": self.constants,
            "heads": attention.query.out_features // attention.head_dim,
            "inner": self.athena.head.reason.before.inner.out_features,
            "settings": self.settings.model_dump(mode="json"),
        }
        write_json(folder / _SETTINGS, facts)


def new_solver(settings: Solver, problems: Sequence[Problem], seed: int) -> MathSolver:
    """Return an untrained solver for training problems: their words and constants are its own.

    Args:
        settings: encoder and thought head; the head has the width, the number of heads and the
            inner width of the encoder.
        problems: the training part.
        seed: decides the weights that are not pretrained.

    Raises:
        ModelError: the encoder cannot be loaded.
    """
    if settings.encoder.source is None:
        texts = (problem.text.replace(NUMBER, " ") for problem in problems)
        encoder, tokenizer = new_encoder(settings.encoder, texts, seed)
    else:
        encoder, tokenizer = load_encoder(settings.encoder.source, settings.encoder.revision)
    constants = harvest((problem.equation for problem in problems), at_least=_RARE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = ThoughtHead(
            width=encoder.config.hidden_size,
            heads=encoder.config.num_attention_heads,
            inner=encoder.config.intermediate_size,
            dropout=settings.dropout,
            constants=len(constants),
        )
    return MathSolver(Athena(encoder, head), tokenizer, constants, settings)


def load_solver(folder: Path) -> MathSolver:
    """Read a solver that `MathSolver.save` wrote.

    Raises:
        ModelError: a part is missing, damaged, or does not fit the others.
    """
    encoder, tokenizer = load_encoder(str(folder / _ENCODER))
    try:
        facts = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        settings = Solver.model_validate(facts["settings"])
        constants = tuple(map(float, facts["constants"]))
        head = ThoughtHead(
            width=encoder.config.hidden_size,
            heads=facts["heads"],
            inner=facts["inner"],
            dropout=settings.dropout,
            constants=len(constants),
        )
        head.load_state_dict(safetensors.torch.load_file(folder / _HEAD))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder} is not a solver ({reason:.200}); train it again") from None
    return MathSolver(Athena(encoder, head), tokenizer, constants, settings)
