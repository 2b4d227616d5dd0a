"""Question embeddings: phi of the SPRINT paper (arXiv 2506.03978, section 4).

A sentence-transformers model of transformer, pooling and normalisation embeds questions; so does
any plain transformer, with the mean of its last hidden states over a question's tokens.
"""

import inspect
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from headsweep.errors import ModelError, cause_of
from headsweep.files.plain_files import expanded
from headsweep.models.embedder import MODULES, check_embedder
from headsweep.models.geometry import readable_tokens
from headsweep.models.load import load_weights, torch_device
from headsweep.models.source import download, local_folder

if TYPE_CHECKING:  # slow to import, and plain transformers do not need it
    from sentence_transformers import SentenceTransformer

Embedder = Union["MeanOfTokens", "SentenceTransformer"]

_LOG = logging.getLogger(__name__)

_DOWNLOADED = ["*.json", "*.safetensors", "*.model", "*.txt"]
_OTHER_FORMATS = ["onnx/*", "openvino/*"]
_SAFE = {"trust_remote_code": False}
_REPORT_EVERY = 256  # questions
_BATCH_TOKENS = 4096  # with padding


def fetch_embedder(source: str, revision: str | None = None) -> Path:
    """Return the folder of an embedder's files, checked; it is local or downloaded from the hub.

    Raises:
        ModelError: no such folder, embedder or revision, no access, no network, or files that are
            missing, damaged or would run code.
    """
    folder = expanded(source)
    if not folder.is_dir():
        if local_folder(source):
            raise ModelError(f"embedder {source} is not a folder; name a folder or a hub id")
        folder = download(
            source, revision, allow_patterns=_DOWNLOADED, ignore_patterns=_OTHER_FORMATS
        )
    check_embedder(folder)
    return folder


class MeanOfTokens:
    """A folder's transformer, whose embedding of a text is the mean of its last hidden states."""

    def __init__(self, folder: Path) -> None:
        placement = torch_device("auto", "float32")
        model = load_weights(AutoModel, folder, torch.float32, placement)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **_SAFE)
        self.tokenizer = tokenizer
        self._model = model.get_encoder() if model.config.is_encoder_decoder else model
        self._accepted = set(inspect.signature(self._model.forward).parameters)
        if limit := readable_tokens(model):
            tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
        tokenizer.padding_side = "right"  # absolute positions do not depend on the batch
        if tokenizer.pad_token is None:  # any token will do: padding is masked out
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return int(self._model.config.get_text_config().hidden_size)

    @torch.inference_mode()
    def encode(
        self, texts: list[str], batch_size: int, show_progress_bar: bool = False
    ) -> np.ndarray:
        """Return float32 [texts, embedding_dim]; texts of similar length share a batch."""
        lengths = [len(ids) for ids in self.tokenizer(texts, truncation=True)["input_ids"]]
        vectors = np.empty((len(texts), self.get_embedding_dimension()), dtype=np.float32)
        for places in _batches(lengths, batch_size):
            own_texts = [texts[place] for place in places]
            read = self.tokenizer(own_texts, padding=True, truncation=True, return_tensors="pt")
            read = read.to(self._model.device)
            accepted = {name: value for name, value in read.items() if name in self._accepted}
            states = self._model(**accepted).last_hidden_state
            mask = read["attention_mask"].unsqueeze(-1).to(states.dtype)
            means = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
            vectors[places] = means.cpu().numpy()
        return vectors


def _batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Return batches of texts of such lengths, longest first, by their places.

    A batch is padded to its longest text, so one long text must not share it with many short ones.
    """
    batches: list[list[int]] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True):
        if not batches or len(batches[-1]) >= min(batch_size, max(1, _BATCH_TOKENS // longest)):
            batches.append([])
            longest = max(1, lengths[place])
        batches[-1].append(place)
    return batches


def load_embedder(folder: str | Path) -> Embedder:
    """Load an embedder from its folder: on the GPU if there is one, in float32, without network.

    A folder without ``modules.json`` is a plain transformer.

    Neither code nor pickles are loaded.

    Raises:
        ModelError: the folder is missing, is not a model that can be read, or names code.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"embedder {folder} is not a folder; fetch the embedder again")
    check_embedder(folder)
    try:
        embedder: Embedder
        if (folder / MODULES).is_file():
            from sentence_transformers import SentenceTransformer

            embedder = SentenceTransformer(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": torch.float32, "use_safetensors": True, **_SAFE},
                processor_kwargs=_SAFE,
                config_kwargs=_SAFE,
            )
        else:
            embedder = MeanOfTokens(folder)
        tokenizer = embedder.tokenizer
    except ModelError:
        raise
    except Exception as error:  # many formats, each with its own errors
        cause = cause_of(error, 200)
        raise ModelError(
            f"embedder {folder} cannot be read ({cause}); name a sentence-transformers model or a "
            f"transformer with its tokenizer"
        ) from error
    # Without tokenizer files transformers silently makes a tokenizer without words.
    if isinstance(tokenizer, PreTrainedTokenizerBase) and set(tokenizer.get_vocab()) <= set(
        tokenizer.all_special_tokens
    ):
        raise ModelError(f"embedder {folder} has no tokenizer; save the tokenizer there")
    return embedder


def embed(embedder: Embedder, texts: Sequence[str], batch_size: int = 64) -> np.ndarray:
    """Return the embeddings of texts, float32 [texts, embedding_dim], in their order.

    The same texts in the same order give the same vectors; other batches change only the rounding.
    """
    started = time.monotonic()
    parts = [np.empty((0, embedder.get_embedding_dimension() or 0), dtype=np.float32)]
    for start in range(0, len(texts), _REPORT_EVERY):
        chunk = list(texts[start : start + _REPORT_EVERY])
        parts.append(embedder.encode(chunk, batch_size=batch_size, show_progress_bar=False))
        done = start + len(chunk)
        left = (time.monotonic() - started) / done * (len(texts) - done)
        _LOG.info("embedded %d of %d questions, %.0f s left", done, len(texts), left)
    return np.concatenate(parts).astype(np.float32, copy=False)
