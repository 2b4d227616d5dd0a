"""How a model's answers are computed: in graphs, by fused operators, plainly, or by its modules.

Each of these may fail on some GPU or give wrong answers, which the check finds. Then the engine
falls back on the next simpler one, and stays there: what was wrong once is not believed again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from headsweep.engine.check import Check, WrongAnswers
from headsweep.engine.decoder import Decoder
from headsweep.engine.refusals import not_finite
from headsweep.engine.requests import Answer, NotFiniteError
from headsweep.errors import ModelError, cause_of
from headsweep.models.loaded import LoadedModel, dtype_name
from headsweep.models.masks import edited_weights
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)


class ExecutionPath:
    """The way that a model's answers are computed now, from the fastest on.

    Args:
        loaded: the model.
        decoder: of its weights; None: its own modules answer, which nothing checks.
        checked: whether answers are held against the modules as they come.
        greedy: whether tokens are chosen greedily.
    """

    def __init__(
        self, loaded: LoadedModel, decoder: Decoder | None, *, checked: bool, greedy: bool
    ) -> None:
        self._loaded = loaded
        self._greedy = greedy
        self.decoder = decoder
        self.check: Check | None = None
        if checked and decoder:
            self.check = Check(loaded, greedy=greedy)
        self._falls: list[str] = list(decoder.falls) if decoder else []
        self.has_fallen = False
        """Whether something has failed here since the trial of the decoder."""
        self.edited = False
        """Whether the model has the weights of a variant, for which base rows stand then."""

    @property
    def name(self) -> str:
        """Names it in records."""
        return self.decoder.path if self.decoder else "modules"

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of the check, and of the paths that were left."""
        facts = dict[str, Any]()
        if self.check:
            facts["check"] = self.check.facts
        if self._falls:
            facts["falls"] = list(self._falls)
        return facts

    def checked(self, answers: Iterator[Answer]) -> Iterator[Answer]:
        """Yield answers as they come, where there is a check as soon as they have passed it.

        Raises:
            WrongAnswers: they have not.
        """
        return self.check.groups(answers) if self.check else answers

    def cause_to_fall(self, error: Exception) -> str:
        """Return the cause for which to fall back after an error.

        Raises:
            ModelError: the logits of what is as good as the model's own modules are not finite.
            Exception: the error itself, if nothing simpler would spare it.
        """
        if isinstance(error, NotFiniteError) and self.check is None:
            raise not_finite(dtype_name(self._loaded.dtype)) from error
        if isinstance(error, WrongAnswers | NotFiniteError):
            return str(error)
        # An operator may be missing or broken here: dense attention on a CPU is not.
        if self.decoder is None or (self.name == "dense" and not self.decoder.on_gpu):
            raise error
        return cause_of(error, 200)

    def fall(self, cause: str) -> None:
        """Go on without graphs, then by dense attention, then by the model's modules."""
        assert self.decoder is not None
        self.has_fallen = True
        before = self.name
        if before == "dense":
            self.decoder = self.check = None
        else:
            self.decoder.step_down(cause)
            if self.check:
                self.check = Check(self._loaded, greedy=self._greedy)
        self._falls.append(f"{before} to {self.name}: {cause}")
        _LOG.warning("%s; going on by %s, slower; please report this", cause, self.name)

    @contextmanager
    def weights_of(self, variant: Variant) -> Iterator[None]:
        """Give the model, and its decoder, the weights of a variant, and check answers anew.

        It begins by the path that the engine has come to, but for graphs. Where it falls, the
        engine stays.

        Raises:
            ModelError: memory does not hold them beside the model's own.
        """
        with ExitStack() as edits:
            try:
                edits.enter_context(
                    edited_weights(self._loaded.model, self._loaded.geometry, variant)
                )
                if self.decoder:
                    edits.enter_context(self.decoder.weights_of_now())
            except torch.OutOfMemoryError as error:
                raise ModelError(
                    f"{variant} does not fit in the GPU's memory: weights with noise need twice "
                    f"the model's; leave out the family `weights`, or use a larger GPU"
                ) from error
            self.edited = True
            self._check_anew()
            try:
                yield
            finally:
                self.edited = False
                self._check_anew()

    def _check_anew(self) -> None:
        if self.check:
            self.check.begin_anew()
