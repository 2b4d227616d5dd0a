"""Question embeddings: phi of the SPRINT paper (arXiv 2506.03978, section 4).

Any sentence-transformers model embeds questions; so does any plain transformer, with the mean of
its last hidden states over a question's tokens.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import errors, snapshot_download
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import PreTrainedTokenizerBase

from headroom.errors import ModelError

_LOG = logging.getLogger(__name__)

_OTHER_FORMATS = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.ot", "*.msgpack", "*.tflite"]
_REPORT_EVERY = 1024  # questions


def fetch_embedder(source: str, revision: str | None = None) -> Path:
    """Return the folder of an embedder's files; download it if need be.

    Args:
        source: a hub id, such as ``sentence-transformers/all-MiniLM-L6-v2``, or a local folder.
        revision: hub: commit hash.

    Raises:
        ModelError: no such folder, embedder or revision, no access, or no network.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if source.startswith((".", "/", "~")):
        raise ModelError(f"embedder {source} is not a folder; name a folder or a hub id")
    try:
        return Path(snapshot_download(source, revision=revision, ignore_patterns=_OTHER_FORMATS))
    except (errors.HFValidationError, OSError) as error:
        raise ModelError(
            f"embedder {source} (revision {revision}) cannot be fetched ({_line(error)}); check "
            f"name, revision and access, and fetch it where there is network"
        ) from error


def load_embedder(folder: str | Path) -> SentenceTransformer:
    """Load an embedder from its folder: on the GPU if there is one, in float32, without network.

    A folder without ``modules.json`` is a plain transformer; its embedding of a text is the mean of
    the last hidden states over the text's tokens.

    Raises:
        ModelError: the folder is missing or is not a model that can be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"embedder {folder} is not a folder; fetch the embedder again")
    try:
        if (folder / "modules.json").is_file():
            embedder = SentenceTransformer(
                str(folder), local_files_only=True, model_kwargs={"dtype": torch.float32}
            )
        else:
            embedder = SentenceTransformer(modules=_mean_pooling(folder))
        tokenizer = embedder.tokenizer
    except Exception as error:  # readers of many formats, each with errors of its own
        raise ModelError(
            f"embedder {folder} cannot be read ({_line(error)}); name a sentence-transformers "
            f"model or a transformer with its tokenizer"
        ) from error
    # Without its files transformers makes a tokenizer that knows no words, and says nothing.
    if isinstance(tokenizer, PreTrainedTokenizerBase) and set(tokenizer.get_vocab()) <= set(
        tokenizer.all_special_tokens
    ):
        raise ModelError(f"embedder {folder} has no tokenizer; save the tokenizer there")
    return embedder


def embed(embedder: SentenceTransformer, texts: Sequence[str], batch_size: int = 64) -> np.ndarray:
    """Return the embeddings of texts, float32 [questions, embedding_dim], in their order.

    The same texts in the same order give the same vectors; other company in a batch changes them
    by rounding only.
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


def _mean_pooling(folder: Path) -> list[torch.nn.Module]:
    """Return a transformer and the mean over its tokens, as sentence-transformers modules."""
    transformer = Transformer(
        str(folder),
        model_kwargs={"dtype": torch.float32, "local_files_only": True},
        processor_kwargs={"local_files_only": True},
        config_kwargs={"local_files_only": True},
    )
    tokenizer = transformer.tokenizer
    tokenizer.padding_side = "right"  # so that absolute positions do not depend on the batch
    if tokenizer.pad_token is None:  # any token will do: padding is masked out
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
