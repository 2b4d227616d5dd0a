"""Before the first job: name every input by its content, so that keys are final.

A revision that is stated needs no source: a run is remade from an archived store with no model and
no benchmark file at hand. `headroom.planning.preflight` holds what is stated against the files.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from headroom.benchmarks.sources import PINNED, file_revision, hub_dataset
from headroom.config import Config, Embedder, Model, Questions
from headroom.config.compression import MATH23K, Encoder, WordProblems
from headroom.errors import ConfigError, HeadroomError, ModelError
from headroom.models import gguf
from headroom.models.source import fingerprint, local_folder

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def resolve(config: Config) -> Config:
    """Return the config with every `revision` filled in.

    Hub: the pinned commit hash. Benchmark or GGUF file: its sha256. Folder of a model or embedder:
    its fingerprint. A revision that is there already stays; `preflight` holds it against the files.
    So resolving twice changes nothing, and a file that is gone is not missed if its revision is
    stated.

    Raises:
        ConfigError: something on the hub is not pinned to a commit hash.
        BenchmarkError, ModelError: a file or folder without `revision` is missing or damaged.
    """
    found: dict[str, dict[str, Any]] = {
        kind: {
            name: section.model_copy(update={"revision": revision(f"{kind}.{name}", section)})
            for name, section in getattr(config, kind).items()
        }
        for kind, revision in _REVISIONS.items()
    }
    found["solvers"] = {}
    for name, solver in config.solvers.items():
        encoder = solver.encoder
        if encoder.source is not None:
            revision = _of_folder(f"solvers.{name}.encoder", encoder)
            encoder = encoder.model_copy(update={"revision": revision})
            solver = solver.model_copy(update={"encoder": encoder})
        found["solvers"][name] = solver
    return config.model_copy(update=found)


def _of_folder(
    where: str,
    section: Model | Embedder | Encoder,
    fingerprint_of: Callable[[Path], str] = fingerprint,
) -> str | None:
    """Return the revision of a model or embedder; None for one that is made here."""
    source, revision = section.source, section.revision
    if source is None:
        return revision
    if local_folder(source):
        return revision or folder_fingerprint(where, source, fingerprint_of)
    if Path(source).is_dir():
        raise ConfigError(
            f"{where}.source: {source!r} is a folder here but reads as a hub id; "
            f"write './{source}', or leave that folder's parent"
        )
    gguf_file = getattr(section, "gguf_file", None)
    if gguf_file is not None and _SHA256.fullmatch(revision or ""):
        return revision
    if revision is None or not _COMMIT.fullmatch(revision):
        raise ConfigError(
            f"{where}.revision: {revision!r} does not pin {source}; give a commit hash of 40 hex "
            f"digits: `git ls-remote https://huggingface.co/{source} HEAD` prints the newest"
        )
    return revision


def _of_data(where: str, section: Questions | WordProblems) -> str | None:
    """Return the revision of a benchmark or of word problems; None for generated ones."""
    if section.generated:
        return None
    if section.file is not None:
        return section.revision or file_sha256(where, section.file)
    revision, advice = section.revision, ""
    if isinstance(section, WordProblems):
        dataset = MATH23K
    else:
        hub = hub_dataset(section)
        dataset, revision = hub.path, hub.revision
        if section.benchmark in PINNED:
            advice = f"leave it out for the pinned {PINNED[section.benchmark].revision}"
    if revision is None or not _COMMIT.fullmatch(revision):
        advice = (
            advice or f"`git ls-remote https://huggingface.co/datasets/{dataset} HEAD` prints one"
        )
        raise ConfigError(
            f"{where}.revision: {revision!r} is not a commit hash of 40 hex digits; {advice}"
        )
    return revision


def file_sha256(where: str, file: str) -> str:
    """Return the sha256 of a file that a section of the config names.

    Raises:
        BenchmarkError: there is no such file.
    """
    with at(where):
        return file_revision(Path(file).expanduser())


def folder_fingerprint(where: str, source: str, fingerprint_of: Callable[[Path], str]) -> str:
    """Return what names the content of a folder that a section of the config has as its source.

    Raises:
        ModelError: there is no such folder, or it is damaged.
    """
    folder = local_folder(source)
    assert folder is not None
    if not folder.is_dir() and folder.suffix != gguf.SUFFIX:
        raise ModelError(
            f"{where}.source: folder {source} is missing; put it there, or write its `revision` if "
            f"the store holds all that is made from it"
        )
    with at(where):
        return fingerprint_of(folder)


def embedder_fingerprint(folder: Path) -> str:
    """Return 16 hex digits that change when an embedder's weights or settings do.

    Settings of pooling lie in folders of their own, which a model's fingerprint leaves out.
    """
    digest = hashlib.sha256(fingerprint(folder).encode())
    for file in sorted(folder.rglob("*.json")):
        digest.update(f"\0{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


_REVISIONS: dict[str, Callable[[str, Any], str | None]] = {
    "models": _of_folder,
    "embedders": partial(_of_folder, fingerprint_of=embedder_fingerprint),
    "questions": _of_data,
    "problems": _of_data,
}
"""What tells the revision of an entry of each section, from where it stands and the entry."""


@contextmanager
def at(where: str) -> Iterator[None]:
    """Name the section of the config that an error comes from."""
    try:
        yield
    except HeadroomError as error:
        raise type(error)(f"{where}: {error}") from error
