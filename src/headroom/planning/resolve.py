"""Before the first job: name every input by its content, so that keys are final.

A revision that is stated needs no source: a run is remade from an archived store with no model and
no benchmark file at hand. `headroom.planning.preflight` holds what is stated against the files.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headroom.benchmarks.sources import PINNED, file_revision, hub_dataset
from headroom.config import Config, Questions
from headroom.config.compression import MATH23K, Encoder, WordProblems
from headroom.errors import ConfigError, HeadroomError, ModelError
from headroom.models.source import fingerprint, local_folder

_COMMIT = re.compile(r"[0-9a-f]{40}")


def resolve(config: Config) -> Config:
    """Return the config with every `revision` filled in.

    Hub: the pinned commit hash. Benchmark file: its sha256. Folder of a model or embedder: its
    fingerprint. A revision that is there already stays; `preflight` holds it against the files.
    So resolving twice changes nothing, and a file that is gone is not missed if its revision is
    stated.

    Raises:
        ConfigError: something on the hub is not pinned to a commit hash.
        BenchmarkError, ModelError: a file or folder without `revision` is missing or damaged.
    """
    models = {
        name: model.model_copy(
            update={"revision": _revision(f"models.{name}", model.source, model.revision)}
        )
        for name, model in config.models.items()
    }
    embedders = {
        name: embedder.model_copy(
            update={
                "revision": _revision(
                    f"embedders.{name}", embedder.source, embedder.revision, embedder_fingerprint
                )
            }
        )
        for name, embedder in config.embedders.items()
    }
    questions = {
        name: section.model_copy(
            update={"revision": _questions_revision(f"questions.{name}", section)}
        )
        for name, section in config.questions.items()
    }
    problems = {
        name: section.model_copy(
            update={"revision": _problems_revision(f"problems.{name}", section)}
        )
        for name, section in config.problems.items()
    }
    solvers = {
        name: solver.model_copy(
            update={"encoder": _pinned(f"solvers.{name}.encoder", solver.encoder)}
        )
        if solver.encoder.source is not None
        else solver
        for name, solver in config.solvers.items()
    }
    return config.model_copy(
        update={
            "models": models,
            "embedders": embedders,
            "questions": questions,
            "problems": problems,
            "solvers": solvers,
        }
    )


def _revision(
    where: str,
    source: str | None,
    revision: str | None,
    fingerprint_of: Callable[[Path], str] = fingerprint,
) -> str | None:
    """Return the revision of a model or embedder; None for one that is made here."""
    if source is None:
        return revision
    if local_folder(source):
        return revision or folder_fingerprint(where, source, fingerprint_of)
    if Path(source).is_dir():
        raise ConfigError(
            f"{where}.source: {source!r} is a folder here but reads as a hub id; "
            f"write './{source}', or leave that folder's parent"
        )
    if revision is None or not _COMMIT.fullmatch(revision):
        raise ConfigError(
            f"{where}.revision: {revision!r} does not pin {source}; give a commit hash of 40 hex "
            f"digits: `git ls-remote https://huggingface.co/{source} HEAD` prints the newest"
        )
    return revision


def _questions_revision(where: str, questions: Questions) -> str | None:
    if questions.generated:
        return None
    if questions.file is not None:
        return questions.revision or file_sha256(where, questions.file)
    hub, pinned = hub_dataset(questions), PINNED.get(questions.benchmark)
    return _commit(where, hub.revision, hub.path, pinned.revision if pinned else None)


def _problems_revision(where: str, problems: WordProblems) -> str | None:
    if problems.dataset == "generated":
        return None
    if problems.file is not None:
        return problems.revision or file_sha256(where, problems.file)
    return _commit(where, problems.revision, MATH23K)


def _commit(where: str, revision: str | None, dataset: str, pinned: str | None = None) -> str:
    """Return the revision of a dataset on the hub, if it pins one."""
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    advice = (
        f"leave it out for the pinned {pinned}"
        if pinned
        else f"`git ls-remote https://huggingface.co/datasets/{dataset} HEAD` prints one"
    )
    raise ConfigError(
        f"{where}.revision: {revision!r} is not a commit hash of 40 hex digits; {advice}"
    )


def file_sha256(where: str, file: str) -> str:
    """Return the sha256 of a file that a section of the config names.

    Raises:
        BenchmarkError: there is no such file.
    """
    with at(where):
        return file_revision(Path(file).expanduser())


def _pinned(where: str, encoder: Encoder) -> Encoder:
    revision = _revision(where, encoder.source, encoder.revision)
    return encoder.model_copy(update={"revision": revision})


def folder_fingerprint(where: str, source: str, fingerprint_of: Callable[[Path], str]) -> str:
    """Return what names the content of a folder that a section of the config has as its source.

    Raises:
        ModelError: there is no such folder, or it is damaged.
    """
    folder = local_folder(source)
    assert folder is not None
    if not folder.is_dir():
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


@contextmanager
def at(where: str) -> Iterator[None]:
    """Name the section of the config that an error comes from."""
    try:
        yield
    except HeadroomError as error:
        raise type(error)(f"{where}: {error}") from error
