"""A reward model from the hub as a verifier, which scores answers to a question."""

from collections.abc import Sequence
from pathlib import Path

import torch

from headroom.errors import ModelError
from headroom.models.load import load_checkpoint, load_tokenizer
from headroom.models.source import fetch_model

_KIND = "ForSequenceClassification"


class RewardModel:
    """Scores answers with a sequence classifier that reads question and answer together.

    If the tokenizer has a chat template, question and answer are a user's and an assistant's
    message, otherwise a pair of texts. With one label the score is its logit; with two (wrong,
    right) it is the second logit minus the first. Text beyond the tokenizer's limit is cut.

        score = headroom.RewardModel("./my-reward-model")
        headroom.Solver("results/demo", selector="math", verifier=score)

    Args:
        source: a folder in the hub's format, or a hub id; safetensors only, without its code.
        revision: hub: a branch, tag or commit hash. Folder: its expected fingerprint.
        device: auto (the GPU if there is one), cpu, cuda or cuda:N.

    Raises:
        ModelError: the model cannot be fetched or loaded, is no sequence classifier, or has more
            than two labels.
    """

    def __init__(
        self, source: str | Path, *, revision: str | None = None, device: str = "auto"
    ) -> None:
        folder = fetch_model(str(source), revision)
        self._source = str(source)
        self._model = load_checkpoint(str(folder), device=device)
        self._tokenizer = load_tokenizer(folder)
        kind, labels = type(self._model).__name__, self._model.config.num_labels
        if not kind.endswith(_KIND):
            raise ModelError(
                f"{source} holds a {kind}, not a reward model; name one whose architecture ends "
                f"in {_KIND}"
            )
        if labels > 2:
            raise ModelError(
                f"{source} has {labels} labels; a reward model has one, or two: wrong, right"
            )

    @torch.inference_mode()
    def __call__(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return a score for each text that answers a question; higher is better."""
        return [self._score(question, text) for text in texts]

    def _score(self, question: str, text: str) -> float:
        # One at a time, so that a decoder's classifier needs no padding token.
        if self._tokenizer.chat_template:
            encoded = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": question}, {"role": "assistant", "content": text}],
                return_dict=True,
                return_tensors="pt",
                truncation=True,
            )
        else:
            encoded = self._tokenizer(question, text, return_tensors="pt", truncation=True)
        (logits,) = self._model(**encoded.to(self._model.device)).logits.float()
        return float(logits[-1] - logits[0] if len(logits) == 2 else logits[0])

    def __repr__(self) -> str:
        return f"RewardModel({self._source!r}, {type(self._model).__name__})"
