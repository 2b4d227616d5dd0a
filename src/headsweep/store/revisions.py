"""What a config's inputs are: each is identified by its content, or pinned to a commit.

A source may be missing if its revision is stated and the store holds what is made from it, so a run
can be repeated from an archived store without models and benchmark files.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headsweep.benchmarks.sources import PINNED, file_revision, hub_dataset
from headsweep.config import Config, Embedder, Model, Questions
from headsweep.config.solvers import FETCH, MATH23K, Encoder, WordProblems
from headsweep.errors import BenchmarkError, ConfigError, HeadsweepError, ModelError, quoted
from headsweep.files.plain_files import expanded, read_plain
from headsweep.models import gguf, source
from headsweep.models.embedder import check_embedder
from headsweep.store.chosen_heads import with_chosen_heads

_DATASET = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")

Input = Model | Embedder | Encoder | Questions | WordProblems


def resolve(config: Config) -> Config:
    """Return the config with every `revision` filled in.

    Hub: the pinned commit hash. Benchmark or GGUF file: its sha256. Folder of a model or embedder:
    its fingerprint. A stated revision stays, even if the file is gone; `check_revision` compares it
    with the files. So resolving twice changes nothing. Sweeps that take heads from a map or
    another sweep have them filled in, or are left out until the run has made its table.

    Raises:
        ConfigError: something on the hub is not pinned to a commit hash.
        BenchmarkError, ModelError: a file or folder without `revision` is missing or damaged.
    """

    def resolved(where: str, section: Any) -> Any:
        return section.model_copy(update={"revision": _revision(where, section)})

    sections: dict[str, dict[str, object]] = {
        kind: {n: resolved(f"{kind}.{n}", entry) for n, entry in getattr(config, kind).items()}
        for kind in ("models", "embedders", "questions", "problems")
    }
    sections["solvers"] = {**config.solvers}
    for name, solver in config.solvers.items():
        if solver.encoder.source is not None:
            encoder = resolved(f"solvers.{name}.encoder", solver.encoder)
            sections["solvers"][name] = solver.model_copy(update={"encoder": encoder})
    return with_chosen_heads(config.model_copy(update=sections))


def check_revision(where: str, section: Input) -> Path | None:
    """Compare a stated revision with the local file or folder; return its path, if there is one."""
    local = local_file(section)
    if local is None:
        return None
    if (present := _content(where, section, local)) != section.revision:
        data = isinstance(section, Questions | WordProblems)
        kind, error = ("sha256", BenchmarkError) if data else ("fingerprint", ModelError)
        raise error(
            f"{where}.revision: {local} has {kind} {present}, not {section.revision}; restore it, "
            f"or remove `revision`"
        )
    if isinstance(section, Embedder):
        with at(where):
            check_embedder(local)
    elif isinstance(section, Model | Encoder) and local.suffix != gguf.SUFFIX:
        with at(where):
            source.check_folder(local)
    return local


def local_file(section: Input) -> Path | None:
    """Return the file or folder that an entry names; None if it is on the hub, or made here."""
    if isinstance(section, Questions | WordProblems):
        return expanded(section.file) if section.file else None
    return source.local_folder(section.source) if section.source else None


@contextmanager
def at(where: str) -> Iterator[None]:
    """Prefix errors with the section of the config that they come from."""
    try:
        yield
    except HeadsweepError as error:
        raise type(error)(f"{where}: {error}") from error


def _revision(where: str, section: Input) -> str | None:
    """Return the revision that identifies an entry's content; None if it is made here."""
    revision = section.revision
    local = local_file(section)
    advice = ""
    if local is not None:
        return revision or _content(where, section, local)
    if isinstance(section, Questions | WordProblems):
        if section.generated:
            return None
        named = f"datasets/{MATH23K}"
        if isinstance(section, Questions):
            hub = hub_dataset(section)
            _check_dataset(f"{where}.dataset", hub.path)
            named = f"datasets/{hub.path}"
            revision = hub.revision
            if section.benchmark in PINNED:
                advice = f"leave it out for the pinned {PINNED[section.benchmark].revision}"
    elif section.source is None:
        return None
    else:
        named = section.source
        if Path(named).exists():
            raise ConfigError(
                f"{where}.source: {named!r} is here but reads as a hub id; write './{named}', or "
                f"run in another folder"
            )
        if getattr(section, "gguf_file", None) and source.SHA256.fullmatch(revision or ""):
            return revision
    if not _COMMIT.fullmatch(revision or ""):
        advice = advice or f"`git ls-remote https://huggingface.co/{named} HEAD` prints one"
        raise ConfigError(
            f"{where}.revision: {revision!r} is not a commit hash of 40 hex digits; {advice}"
        )
    return revision


def _check_dataset(where: str, name: str) -> None:
    """Refuse what the library `datasets` takes for files here, whatever revision is stated.

    Those are a folder, and the names of its readers, such as ``csv``, which have no owner.
    """
    if not _DATASET.fullmatch(name) or Path(name).exists():
        problem = "is a folder here, too" if _DATASET.fullmatch(name) else "names no owner"
        raise ConfigError(
            f"{where}: {quoted(name)} {problem}; write the owner/name of a dataset on the hub, or "
            f"name a `file`"
        )


def _content(where: str, section: Input, local: Path) -> str:
    """Return the sha256 or fingerprint of an entry's file or folder."""
    with at(where):
        if isinstance(section, WordProblems) and not local.exists():
            raise BenchmarkError(
                f"{local.absolute()} is missing; make it: `{FETCH[section.dataset]}`; or write its "
                f"`revision` (sha256) if the store holds its problems already"
            )
        if isinstance(section, Questions | WordProblems):
            return file_revision(local)
        if not local.is_dir() and local.suffix != gguf.SUFFIX:
            raise ModelError(
                f"source {section.source} is missing; put it there, or write its `revision` if "
                f"the store holds all that is made from it"
            )
        fingerprint = source.fingerprint(local)
        if not isinstance(section, Embedder):
            return fingerprint
        # Pooling settings are in subfolders, which a model's fingerprint leaves out.
        digest = hashlib.sha256(fingerprint.encode())
        for file in sorted(local.rglob("*.json")):
            digest.update(f"\0{file.relative_to(local)}\0".encode() + read_plain(file))
        return digest.hexdigest()[:16]
