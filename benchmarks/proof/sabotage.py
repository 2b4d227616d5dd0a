"""A model with one attention head sabotaged, so that losing the head helps.

Random columns are added to the head's columns of the output projection: whatever the head attends
to, it writes noise into the residual stream. Without the head, the model is the original model
without that head.
"""

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int

from headsweep.answers.worker import Worker
from headsweep.choices import BenchmarkGrader
from headsweep.config import Decoding
from headsweep.engine.unit import Unit
from headsweep.errors import ModelError
from headsweep.grading.matrix import accuracy_matrix, grade_answers
from headsweep.models.load import load_model
from headsweep.models.source import tokenizer_files
from headsweep.variants import BASE, Variant

SOURCE = "builtin:reasoner"
DROP = 0.3
"""Loss of accuracy aimed at. A sabotage needs ten points, and other questions give another loss."""
LEAST = 0.1
"""Accuracy that a sabotage has to cost, and the head's loss to give back."""
CHEAP = 0.02
"""Most that the loss of a head costs before it is sabotaged."""

_NEAR = 0.05  # of the loss aimed at
_TRIES = 8


class Saboteur:
    """A model, the reasoner that ships or another, before and after a head is sabotaged.

    Args:
        questions: those that a strength is searched on, as `headsweep.files.tables.QUESTIONS`.
        decoding: how they are answered; greedy.
        source: the model, as in a config.
        grader: how answers are judged.
        drop: the loss of accuracy aimed at.
    """

    def __init__(
        self,
        questions: pd.DataFrame,
        decoding: Decoding,
        source: str = SOURCE,
        grader: BenchmarkGrader = "math",
        drop: float = DROP,
    ) -> None:
        torch.set_num_threads(1)  # on so small a model more threads wait for each other
        self._loaded = load_model(source, device="cpu")
        self._questions, self._decoding = questions, decoding
        self._grader, self._drop = grader, drop

    def cheap_heads(self) -> list[Variant]:
        """Return the heads whose loss costs the whole model little."""
        heads = [*self._loaded.geometry.by_original_name().values()]
        z = self.outcomes(heads)
        gains = z[:, 1:].mean(axis=0) - z[:, 0].mean()
        return [head for head, gain in zip(heads, gains, strict=True) if gain >= -CHEAP]

    @torch.no_grad()
    def sabotage(self, head: Variant, seed: int, folder: Path) -> float:
        """Sabotage a head; save the model as an ordinary folder; return the noise's strength.

        The strength, in norms of the head's own columns, is doubled, then bisected, until the
        accuracy is lower by about what is aimed at.

        Raises:
            ModelError: no strength does so.
        """
        loaded = self._loaded
        assert head.layer is not None and head.head is not None
        columns = loaded.geometry.weights_that_read(loaded.model, head.layer, head.head)
        original = columns.clone()
        noise = torch.randn(original.shape, generator=torch.Generator().manual_seed(seed))
        noise *= original.norm() / noise.norm()
        whole = self._accuracy()
        low = 0.0
        high = np.inf
        strength = 2.0
        for _ in range(_TRIES):
            columns.copy_(original + strength * noise)
            drop = whole - self._accuracy()
            if abs(drop - self._drop) <= _NEAR:
                loaded.model.save_pretrained(folder)
                for file in tokenizer_files(Path(loaded.folder)):
                    shutil.copyfile(file, folder / file.name)
                return strength
            low, high = (strength, high) if drop < self._drop else (low, strength)
            strength = 2 * low if np.isinf(high) else (low + high) / 2
        raise ModelError(
            f"{_TRIES} strengths of noise do not cost {self._drop:.0%}; give another --seed"
        )

    def _accuracy(self) -> float:
        return float(self.outcomes([]).mean())

    def outcomes(self, heads: Sequence[Variant]) -> Int[np.ndarray, "questions variants"]:
        """Return the accuracy matrix of the model, first, and of it without each of some heads."""
        variants = [BASE, *heads]
        ids = self._questions["question_id"]
        questions = dict(zip(ids, self._questions["question"], strict=True))
        wanted = [(variant, (name, 0)) for name in questions for variant in variants]
        unit = Unit(self._decoding, self._grader, questions, wanted, base={})
        rows = defaultdict[str, list[dict[str, Any]]](list)
        # A new worker: it reads the weights once, and they change between calls.
        for variant, row in Worker(self._loaded, None).run(unit):
            rows[str(variant)].append(row)
        answers = {name: pd.DataFrame(of_variant) for name, of_variant in rows.items()}
        graded = grade_answers(self._questions, answers, self._grader, "default")
        return accuracy_matrix(graded, self._questions)[list(map(str, variants))].to_numpy()
