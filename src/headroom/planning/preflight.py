"""Before the first job: refuse what cannot run, as far as can be told quickly and without torch.

What the store already holds needs no source: a run is remade from an archived store with no model
and no benchmark file at hand.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from headroom import paths
from headroom.benchmarks.sources import read_source
from headroom.config import Config, Embedder, Model
from headroom.config.compression import Encoder
from headroom.errors import BenchmarkError, ConfigError, ModelError
from headroom.models import gguf
from headroom.models.source import (
    check_folder,
    check_geometry,
    fewer_heads,
    fingerprint,
    local_folder,
)
from headroom.planning.arms import histories, teachers
from headroom.planning.batches import batches
from headroom.planning.cost import SPLIT_SIZES, generation_cost, training_cost
from headroom.planning.resolve import (
    at,
    embedder_fingerprint,
    file_sha256,
    folder_fingerprint,
)
from headroom.planning.store import Store

_SPARE_GIGABYTES = 1.0
"""Free space asked for beside the answers: tables, figures, small models."""


def preflight(config: Config) -> None:
    """Refuse a resolved config that cannot run, as far as can be told quickly and without torch.

    Looked at are the results folder with its free space, benchmark files, and folders of models
    and embedders; files and models only if the store lacks something made from them.

    Raises:
        HeadroomError: one line that names key, value, and what to do.
    """
    _check_results(config)
    draws, embedders, models = _needed(config)
    _check_draws(config, draws)
    for name in embedders:
        embedder = config.embedders[name]
        if embedder.source is not None and local_folder(embedder.source):
            _check_revision(f"embedders.{name}", embedder, embedder_fingerprint)
    for name in models:
        _check_model(config, name)
    _check_data(config)
    _check_encoders(config)


def check_devices(config: Config) -> None:
    """Refuse models that need a GPU, or vLLM, where there is none, and weights without room.

    For a start, not for planning elsewhere. Where SLURM is, the jobs' machines may have what this
    one lacks: nothing is refused.

    Raises:
        ModelError: one line that names key, value, and what to do.
    """
    needed = sum(
        training_cost(config, name).disk_gigabytes * _missing(histories(config, name))
        for name in config.compressions
    )
    _check_room(
        needed,
        "the weights of this run's compressions need",
        "make room, name fewer arms or seeds, or run on another disk",
    )
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


def _check_revision(
    where: str,
    section: Model | Embedder | Encoder,
    fingerprint_of: Callable[[Path], str] = fingerprint,
) -> None:
    found = folder_fingerprint(where, str(section.source), fingerprint_of)
    if found != section.revision:
        raise ModelError(
            f"{where}.revision: {section.source} has fingerprint {found}, not "
            f"{section.revision}; restore the folder, or remove `revision`"
        )


def _check_results(config: Config) -> None:
    """Make sure that the results folder can be written and has room for the answers to come."""
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
    store = Store(config)
    needed = _SPARE_GIGABYTES + sum(
        generation_cost(config, batch).disk_gigabytes * _missing(store.answers(batch))
        for batch in batches(config)
    )
    _check_room(needed, "this run needs", "make room, or run on another disk")


def _check_room(needed: float, what: str, advice: str) -> None:
    """Refuse what needs more gigabytes than the disk of the results has free."""
    existing = _existing()
    free = shutil.disk_usage(existing).free / 1e9
    if free < needed:
        raise ConfigError(
            f"{existing} has {free:.1f} GB free, but {what} about {needed:.1f} GB; {advice}"
        )


def _existing() -> Path:
    """Return the results folder, or the folder that it will lie in."""
    folder = Path(paths.RESULTS).absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _missing(files: Sequence[str]) -> float:
    """Return the share of files that are still to be made."""
    return sum(not Path(file).exists() for file in files) / len(files)


def _check_draws(config: Config, names: list[str]) -> None:
    """Check the splits that question sets are still to be drawn from, each file once."""
    sizes: dict[Path, int | None] = {}
    store = Store(config)
    for name in names:
        questions, source = config.questions[name], store.path(paths.SOURCE, source=name)
        if questions.generated or source.exists():
            continue
        if source not in sizes:
            with at(f"questions.{name}"):
                sizes[source] = (
                    len(read_source(questions))
                    if questions.file
                    else SPLIT_SIZES.get((questions.benchmark, questions.split))
                )
        size = sizes[source]
        if size is not None and (questions.n or 0) > size:
            raise BenchmarkError(
                f"questions.{name}.n: {questions.n} questions are asked for, but "
                f"{questions.file or questions.benchmark} has {size}; lower n"
            )


def _check_data(config: Config) -> None:
    """Check the files of word problems that are still to be read."""
    for name, problems in config.problems.items():
        if problems.file is None or Store(config).path(paths.PROBLEMS, data=name).exists():
            continue
        where = f"problems.{name}"
        own = file_sha256(where, problems.file)
        if own != problems.revision:
            raise BenchmarkError(
                f"{where}.revision: what is to be read has sha256 {own}, not "
                f"{problems.revision}; restore it, or remove `revision`"
            )


def _check_encoders(config: Config) -> None:
    """Check the folders of the encoders of solvers that are still to be trained."""
    for study in config.compressions.values():
        if study.solver is None:
            continue
        encoder = config.solvers[study.solver].encoder
        folder = local_folder(encoder.source) if encoder.source else None
        if folder and _missing([paths.TEACHER.format(**keys) for keys in teachers(config, study)]):
            where = f"solvers.{study.solver}.encoder"
            _check_revision(where, encoder)
            with at(where):
                check_folder(folder)


def _needed(config: Config) -> tuple[list[str], list[str], list[str]]:
    """Return what the store lacks something from: question sets, embedders, models.

    Question sets are to be drawn; embedders embed for a draw or a selector; models have answers to
    give, questions to embed or heads to lose.
    """
    store = Store(config)
    draws = [
        name
        for name in config.questions
        if not store.path(paths.QUESTIONS, questions=name).exists()
    ]
    embedders = {config.questions[name].embedder for name in draws}
    for selector in config.selectors.values():
        for embedder, questions in product(selector.embedder, (selector.train, selector.test)):
            names = {"embedder": embedder, "questions": questions}
            if not store.path(paths.EMBEDDINGS, **names).exists():
                embedders.add(embedder)
    models = {config.embedders[name].model for name in embedders if name}
    models |= {batch.model for batch in batches(config) if _missing(store.answers(batch))}
    models |= {
        study.model
        for name, study in config.compressions.items()
        if _missing(histories(config, name))
    }
    return draws, sorted(filter(None, embedders)), sorted(filter(None, models))


def _check_model(config: Config, name: str) -> None:
    """Refuse a model whose folder does not fit, or that has lost heads which are to be pruned."""
    where, model = f"models.{name}", config.models[name]
    if model.device == "cpu":
        _check_without_gpu(where, model)
    folder = local_folder(model.source) if model.source else None
    if folder is None:
        return
    _check_revision(where, model)
    with at(where):
        if folder.suffix != gguf.SUFFIX:
            check_folder(folder)
        check_geometry(folder, model.layers, model.heads, model.kv_heads)
    left = {} if folder.suffix == gguf.SUFFIX else fewer_heads(folder)
    whole = [str(layer) for layer in range(model.layers) if layer not in left]
    for batch in batches(config) if left else []:
        for variant in batch.variants if batch.model == name else ():
            if variant.layer in left and (variant.head or 0) >= left[variant.layer]:
                raise ConfigError(
                    f"models.{name}: {model.source} has {left[variant.layer]} heads left in layer "
                    f"{variant.layer}, numbered from 0, but {variant} is asked for; name heads "
                    f"that are there, or layers that have lost none: "
                    f"{', '.join(whole) or 'no layer has'}"
                )


def _check_without_gpu(where: str, model: Model) -> None:
    if model.device not in ("auto", "cpu"):
        raise ModelError(f"{where}.device: {model.device!r}, but there is no GPU; use auto or cpu")
    if model.dtype == "float16":
        raise ModelError(f"{where}.dtype: float16 needs a GPU; use float32 or bfloat16 on a CPU")
    if model.attention == "flash_attention_2":
        raise ModelError(f"{where}.attention: flash_attention_2 needs a GPU; use sdpa on a CPU")
