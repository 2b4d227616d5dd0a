"""Before the first job: identify every input by its content, and refuse what cannot run.

A source may be missing if its revision is stated and the store holds what is made from it, so a run
can be repeated from an archived store without models and benchmark files.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from headroom import paths
from headroom.benchmarks.sources import PINNED, file_revision, hub_dataset, read_source
from headroom.config import Config, Embedder, Model, Questions
from headroom.config.compression import MATH23K, Encoder, WordProblems
from headroom.errors import BenchmarkError, ConfigError, HeadroomError, ModelError
from headroom.models import gguf
from headroom.models.source import (
    SHA256,
    check_folder,
    check_geometry,
    fingerprint,
    local_folder,
)
from headroom.planning.batches import batches, histories, teachers
from headroom.planning.cost import SPLIT_SIZES, generation_cost, training_cost
from headroom.planning.store import Store

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SPARE_GIGABYTES = 1.0
"""Free space needed besides the answers: for tables, figures, small models."""

_Source = Model | Embedder | Encoder | Questions | WordProblems


def resolve(config: Config) -> Config:
    """Return the config with every `revision` filled in.

    Hub: the pinned commit hash. Benchmark or GGUF file: its sha256. Folder of a model or embedder:
    its fingerprint. A stated revision stays, even if the file is gone; `preflight` compares it with
    the files. So resolving twice changes nothing.

    Raises:
        ConfigError: something on the hub is not pinned to a commit hash.
        BenchmarkError, ModelError: a file or folder without `revision` is missing or damaged.
    """

    def resolved(where: str, section: Any) -> Any:
        return section.model_copy(update={"revision": _revision(where, section)})

    found: dict[str, dict[str, object]] = {
        kind: {n: resolved(f"{kind}.{n}", each) for n, each in getattr(config, kind).items()}
        for kind in ("models", "embedders", "questions", "problems")
    }
    found["solvers"] = {
        name: solver.model_copy(
            update={"encoder": resolved(f"solvers.{name}.encoder", solver.encoder)}
        )
        if solver.encoder.source is not None
        else solver
        for name, solver in config.solvers.items()
    }
    return config.model_copy(update=found)


def preflight(config: Config) -> None:
    """Refuse a resolved config that cannot run, as far as quick checks without torch can tell.

    It checks the results folder and its free space, benchmark files, and the folders of models and
    embedders; files and folders only if the store lacks something made from them.

    Raises:
        HeadroomError: one line that names key, value, and what to do.
    """
    store = Store(config)
    existing = _existing()
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ConfigError(
            f"{existing} cannot be written ({error.strerror}); results go to "
            f"{Path(paths.RESULTS).absolute()}: "
            f"change its permissions, or run in another folder"
        ) from None
    needed = _SPARE_GIGABYTES + sum(
        generation_cost(config, batch).disk_gigabytes * _missing(store.answers(batch))
        for batch in batches(config)
    )
    _check_room(needed, "this run needs", "make room, or run on another disk")
    draws, embedders, models = _needed(config)
    _check_draws(config, draws)
    for name in embedders:
        _check_revision(f"embedders.{name}", config.embedders[name])
    for name in models:
        where, model = f"models.{name}", config.models[name]
        if model.device == "cpu":
            _check_without_gpu(where, model)
        if (folder := _check_revision(where, model)) is not None:
            with _at(where):
                if folder.suffix != gguf.SUFFIX:
                    check_folder(folder)
                check_geometry(folder, model.layers, model.heads, model.kv_heads)
    for name, problems in config.problems.items():
        if not store.path(paths.PROBLEMS, data=name).exists():
            _check_revision(f"problems.{name}", problems)
    for study in config.compressions.values():
        files = [paths.TEACHER.format(**keys) for keys in teachers(config, study)]
        if study.solver is not None and _missing(files):
            where = f"solvers.{study.solver}.encoder"
            folder = _check_revision(where, config.solvers[study.solver].encoder)
            if folder is not None:
                with _at(where):
                    check_folder(folder)


def check_devices(config: Config) -> None:
    """Refuse models that need a missing GPU or vLLM, and weights too large for the disk.

    This is for a run that starts here, not for planning. With SLURM, jobs may run on machines that
    have what this one lacks, so only the disk is checked.

    Raises:
        ConfigError, ModelError: one line that names key, value, and what to do.
    """
    needed = sum(
        training_cost(config, name).disk_gigabytes * _missing(histories(config, name))
        for name in config.compressions
    )
    advice = "make room, name fewer arms or seeds, or run on another disk"
    _check_room(needed, "the weights of this run's compressions need", advice)
    if shutil.which("sbatch"):
        return
    gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    for name in _needed(config)[2]:
        model = config.models[name]
        if model.backend == "vllm" and find_spec("vllm") is None:
            raise ModelError(
                f"models.{name}.backend: vllm is not installed here; pip install headroom[vllm], "
                f"or write backend: headroom"
            )
        if not gpu:
            _check_without_gpu(f"models.{name}", model)


def unfetched(config: Config) -> Iterator[str]:
    """Yield the models, embedders and question sets that a job without network will not find."""
    from huggingface_hub.constants import HF_HUB_CACHE  # slow to import

    store = Store(config)
    for kind, template in (("model", paths.MODEL), ("embedder", paths.EMBEDDER)):
        for name, section in getattr(config, f"{kind}s").items():
            if section.source and not local_folder(section.source):
                folder = Path(HF_HUB_CACHE, f"models--{section.source.replace('/', '--')}")
                snapshot = folder / "snapshots" / str(section.revision)
                if not snapshot.is_dir() and not store.path(template, **{kind: name}).exists():
                    yield f"{kind}s.{name} ({section.source})"
    for name, questions in config.questions.items():
        drawn = store.path(paths.QUESTIONS, questions=name)
        source = store.path(paths.SOURCE, source=name)
        if not (questions.generated or questions.file or drawn.exists() or source.exists()):
            yield f"questions.{name} ({questions.dataset or questions.benchmark})"


def embedder_fingerprint(folder: Path) -> str:
    """Return 16 hex digits that change when an embedder's weights or settings do.

    Pooling settings are in subfolders, which a model's fingerprint leaves out.
    """
    digest = hashlib.sha256(fingerprint(folder).encode())
    for file in sorted(folder.rglob("*.json")):
        digest.update(f"\0{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _revision(where: str, section: _Source) -> str | None:
    """Return the revision that identifies an entry's content; None if it is made here."""
    revision = section.revision
    if isinstance(section, Questions | WordProblems):
        if section.generated:
            return None
        if section.file is not None:
            return revision or _content(where, section)
        dataset, advice = MATH23K, ""
        if isinstance(section, Questions):
            hub = hub_dataset(section)
            dataset, revision = hub.path, hub.revision
            if section.benchmark in PINNED:
                advice = f"leave it out for the pinned {PINNED[section.benchmark].revision}"
        if not _COMMIT.fullmatch(revision or ""):
            asked = f"`git ls-remote https://huggingface.co/datasets/{dataset} HEAD` prints one"
            raise ConfigError(
                f"{where}.revision: {revision!r} is not a commit hash of 40 hex digits; "
                f"{advice or asked}"
            )
        return revision
    source = section.source
    if source is None:
        return revision
    if local_folder(source):
        return revision or _content(where, section)
    if Path(source).is_dir():
        raise ConfigError(
            f"{where}.source: {source!r} is a folder here but reads as a hub id; "
            f"write './{source}', or leave that folder's parent"
        )
    by_file = getattr(section, "gguf_file", None) is not None and SHA256.fullmatch(revision or "")
    if not by_file and not _COMMIT.fullmatch(revision or ""):
        raise ConfigError(
            f"{where}.revision: {revision!r} does not pin {source}; give a commit hash of 40 hex "
            f"digits: `git ls-remote https://huggingface.co/{source} HEAD` prints the newest"
        )
    return revision


def _content(where: str, section: _Source) -> str:
    """Return the sha256 or fingerprint of a section's local file or folder."""
    if isinstance(section, Questions | WordProblems):
        with _at(where):
            return file_revision(Path(str(section.file)).expanduser())
    folder = local_folder(str(section.source))
    if folder is None or (not folder.is_dir() and folder.suffix != gguf.SUFFIX):
        raise ModelError(
            f"{where}.source: folder {section.source} is missing; put it there, or write its "
            f"`revision` if the store holds all that is made from it"
        )
    with _at(where):
        return (embedder_fingerprint if isinstance(section, Embedder) else fingerprint)(folder)


def _check_revision(where: str, section: Model | Embedder | Encoder | WordProblems) -> Path | None:
    """Compare a stated revision with the local file or folder; return its path, if there is one."""
    data = isinstance(section, WordProblems)
    named = section.file if isinstance(section, WordProblems) else section.source
    path = Path(named).expanduser() if data and named else local_folder(named) if named else None
    if path is not None and (found := _content(where, section)) != section.revision:
        kind, error = ("sha256", BenchmarkError) if data else ("fingerprint", ModelError)
        raise error(
            f"{where}.revision: {named} has {kind} {found}, not {section.revision}; restore it, or "
            f"remove `revision`"
        )
    return path


def _check_room(needed: float, what: str, advice: str) -> None:
    """Refuse a run that needs more gigabytes than are free on the results' disk."""
    existing = _existing()
    free = shutil.disk_usage(existing).free / 1e9
    if free < needed:
        raise ConfigError(
            f"{existing} has {free:.1f} GB free, but {what} about {needed:.1f} GB; {advice}"
        )


def _existing() -> Path:
    """Return the results folder, or its nearest parent that exists."""
    folder = Path(paths.RESULTS).absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _missing(files: Sequence[str]) -> float:
    """Return the fraction of files that do not exist yet."""
    return sum(not Path(file).exists() for file in files) / max(len(files), 1)


def _check_draws(config: Config, names: list[str]) -> None:
    """Refuse to draw more questions than a split has; each file is read once."""
    sizes: dict[Path, int | None] = {}
    for name in names:
        questions = config.questions[name]
        source = Store(config).path(paths.SOURCE, source=name)
        if questions.generated or source.exists():
            continue
        if source not in sizes:
            sizes[source] = SPLIT_SIZES.get((questions.benchmark, questions.split))
            if questions.file:
                with _at(f"questions.{name}"):
                    sizes[source] = len(read_source(questions))
        size = sizes[source]
        if size is not None and (questions.n or 0) > size:
            raise BenchmarkError(
                f"questions.{name}.n: {questions.n} questions are requested, but "
                f"{questions.file or questions.benchmark} has {size}; lower n"
            )


def _needed(config: Config) -> tuple[list[str], list[str], list[str]]:
    """Return the question sets, embedders and models that the missing files need.

    Question sets are still to be drawn; embedders serve a draw or a selector; models have to
    generate answers, embed questions or be compressed.
    """
    store = Store(config)
    draws = [n for n in config.questions if not store.path(paths.QUESTIONS, questions=n).exists()]
    embedders = {config.questions[name].embedder for name in draws}
    for selector in config.selectors.values():
        for embedder, questions in product(selector.embedder, (selector.train, selector.test)):
            if not store.path(paths.EMBEDDINGS, embedder=embedder, questions=questions).exists():
                embedders.add(embedder)
    models = {config.embedders[name].model for name in embedders if name}
    models |= {batch.model for batch in batches(config) if _missing(store.answers(batch))}
    compressions = config.compressions.items()
    models |= {study.model for name, study in compressions if _missing(histories(config, name))}
    return draws, sorted(filter(None, embedders)), sorted(filter(None, models))


def _check_without_gpu(where: str, model: Model) -> None:
    if model.device not in ("auto", "cpu"):
        raise ModelError(f"{where}.device: {model.device!r}, but there is no GPU; use auto or cpu")
    if model.dtype == "float16":
        raise ModelError(f"{where}.dtype: float16 needs a GPU; use float32 or bfloat16 on a CPU")
    if model.attention == "flash_attention_2":
        raise ModelError(f"{where}.attention: flash_attention_2 needs a GPU; use sdpa on a CPU")


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Prefix errors with the section of the config that they come from."""
    try:
        yield
    except HeadroomError as error:
        raise type(error)(f"{where}: {error}") from error
