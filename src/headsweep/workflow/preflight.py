"""Before the first job: refuse what cannot run."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

from headsweep.config import EXPERIMENTS, Config, Embedder, Model, parse
from headsweep.config.titles import check_titles
from headsweep.errors import BenchmarkError, ConfigError, ModelError
from headsweep.files import paths
from headsweep.files.safe_files import count_rows
from headsweep.files.tables import EMBEDDINGS, PROBLEMS, QUESTIONS, SOURCE
from headsweep.machine.processors import gpu_count, usable_gpu_count
from headsweep.models import source
from headsweep.models.rope import check_rope
from headsweep.store.batches import arm_files, batches
from headsweep.store.layout import Store, check_version
from headsweep.store.map_scores import mapped_model, score_files
from headsweep.store.revisions import at, check_revision, local_file
from headsweep.workflow.cost import generation_cost, split_size, training_cost


class _Loaded(NamedTuple):
    """A model, in the way in which a job will load it."""

    name: str
    model: Model
    """With the dtype in which it is loaded."""
    dtype_at: str
    """The key that states this dtype."""
    by_backend: bool = True
    """Whether the model's own backend loads it; maps have headsweep's."""


class _Needed(NamedTuple):
    """What the missing files need."""

    draws: list[str]
    """Question sets that are still to be drawn."""
    embedders: list[str]
    """Those that serve a draw or a selector."""
    models: list[_Loaded]
    """Those that answer, embed questions, are compressed, or score a map's texts."""


def preflight(store: Store) -> None:
    """Refuse a resolved config that cannot run, as far as quick checks without torch can tell.

    It checks that no test questions are a copy of the training questions, which their revisions now
    tell, that titles tell experiments apart, the results folder and its free space, and the
    files of benchmarks, models and embedders if the store lacks something made from them.

    Raises:
        HeadsweepError: one line that names key, value, and what to do.
    """
    config = store.config
    check_version()
    parse(config.model_dump(mode="json"))
    check_titles(config.model_copy(update={"sweeps": {**config.sweeps, **config.waiting}}))
    _check_results_folder(store)
    missing = _needed(store)
    for name in missing.draws:
        if not config.questions[name].generated:
            _check_size(store, name)
    for name in missing.embedders:
        check_revision(f"embedders.{name}", config.embedders[name])
    for loaded in missing.models:
        if loaded.model.device == "cpu":
            _check_without_gpu(loaded)
    for name in dict.fromkeys(loaded.name for loaded in missing.models):
        _check_model_files(f"models.{name}", config.models[name])
    for name, problems in config.problems.items():
        if not store.path(PROBLEMS, data=name).exists():
            check_revision(f"problems.{name}", problems)
    for name, study in config.compressions.items():
        if study.solver is not None and _missing(arm_files(config, name, paths.TEACHER)):
            where = f"solvers.{study.solver}.encoder"
            check_revision(where, config.solvers[study.solver].encoder)


def _check_results_folder(store: Store) -> None:
    """Refuse a folder of results that cannot be written, or has no room for the answers."""
    existing = _existing(paths.RESULTS)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ConfigError(
            f"{existing} cannot be written ({error.strerror}); results go to "
            f"{Path(paths.RESULTS).absolute()}: change its permissions, or run in another folder"
        ) from None
    needed = sum(
        generation_cost(batch).disk_gigabytes * _missing(batch.answers)
        for batch in batches(store).values()
    )
    needed += 1.0  # for tables, figures, small models
    _check_room(needed, "this run needs", "make room, or run on another disk")


def _check_size(store: Store, name: str) -> None:
    """Refuse a question set larger than its split, as far as the split's size is known."""
    questions = store.config.questions[name]
    split = store.path(SOURCE, source=name)
    with at(f"questions.{name}"):
        size = count_rows(split) if split.exists() else split_size(questions)
    if size is not None and (questions.n or 0) > (size := size - len(questions.leave_out)):
        raise BenchmarkError(
            f"questions.{name}.n: {questions.n} questions are requested, but "
            f"{questions.file or questions.benchmark} has {size}; lower n"
        )


def _check_model_files(where: str, model: Model) -> None:
    """Refuse local files of a model that are not what the config says, or cannot be run."""
    folder = check_revision(where, model)
    if folder is None:
        return
    with at(where):
        source.check_geometry(folder, model)
        if model.backend == "headsweep" and folder.is_dir():
            check_rope(folder)  # a GGUF file states no such type


def check_devices(store: Store) -> None:
    """Refuse models that need a missing GPU or vLLM, and weights too large for the disk.

    This is for a run that starts here, not for planning. With SLURM, jobs may run on machines that
    have what this one lacks, so only the disk is checked.

    Raises:
        ConfigError, ModelError: one line that names key, value, and what to do.
    """
    check_disk(store.config)
    if not shutil.which("sbatch"):
        for error in lacking(store):
            raise error


def check_disk(config: Config) -> None:
    """Refuse a resolved config whose compressions' weights are too large for the disk.

    Raises:
        ConfigError: one line that says how much is needed and free.
    """
    needed = sum(
        training_cost(config, name).disk_gigabytes * _missing(arm_files(config, name))
        for name in config.compressions
    )
    advice = "make room, name fewer arms or seeds, or run on another disk"
    _check_room(needed, "the weights of this run's compressions need", advice)


def lacking(store: Store) -> Iterator[ModelError]:
    """Yield what this machine lacks for a resolved config's models: a GPU, or vLLM.

    On a login node that is no fault of the config: its jobs run elsewhere.
    """
    gpus = gpu_count()
    models = store.config.models
    needed = _needed(store).models
    placed = [loaded.name for loaded in needed if loaded.model.device != "cpu"]
    if gpus and placed and usable_gpu_count() == 0:
        yield ModelError(
            f"models.{placed[0]}.device: {models[placed[0]].device}, but the installed "
            f"PyTorch can use no GPU of this machine; `headsweep doctor` tells its build and the "
            f"driver: install envs/cuda.txt, or envs/cuda12.txt for a driver below 580; or write "
            f"device: cpu"
        )
    for loaded in needed:
        name, model = loaded.name, loaded.model
        if loaded.by_backend and model.backend == "vllm" and find_spec("vllm") is None:
            yield ModelError(
                f"models.{name}.backend: vllm is not installed here; install it: "
                f"pip install 'vllm>=0.20', or write backend: headsweep"
            )
        if loaded.by_backend and 0 < gpus < model.tensor_parallel:
            yield ModelError(
                f"models.{name}.tensor_parallel: {model.tensor_parallel}, but there are {gpus} "
                f"GPUs here; lower it, or run where there are more"
            )
        if not gpus:
            try:
                _check_without_gpu(loaded)
            except ModelError as error:
                yield error


def unfetched(store: Store) -> Iterator[str]:
    """Yield the models, embedders and question sets that a job without network will not find."""
    from huggingface_hub.constants import HF_HUB_CACHE  # slow to import

    for kind, template in (("model", paths.MODEL), ("embedder", paths.EMBEDDER)):
        for name, section in getattr(store.config, f"{kind}s").items():
            if section.source and local_file(section) is None:
                folder = Path(HF_HUB_CACHE, f"models--{section.source.replace('/', '--')}")
                cached = (folder / "snapshots").glob(_in_cache(section))
                if not any(cached) and not store.path(template, **{kind: name}).exists():
                    yield f"{kind}s.{name} ({section.source})"
    for name, questions in store.config.questions.items():
        drawn = store.path(QUESTIONS, questions=name)
        split = store.path(SOURCE, source=name)
        if not (questions.generated or questions.file or drawn.exists() or split.exists()):
            yield f"questions.{name} ({questions.dataset or questions.benchmark})"


def _in_cache(section: Model | Embedder) -> str:
    """Return a pattern of what the hub's cache has of a model, in a folder of its snapshots."""
    if isinstance(section, Model) and section.gguf_file:
        is_sha256 = source.SHA256.fullmatch(str(section.revision)) is not None
        commit = "*" if is_sha256 else section.revision  # the content tells the file
        return f"{commit}/{section.gguf_file}"
    return str(section.revision)


def _check_room(needed: float, what: str, advice: str) -> None:
    existing = _existing(paths.STORE)  # it may be a link to another disk
    free = shutil.disk_usage(existing).free / 1e9
    if free < needed:
        raise ConfigError(
            f"{existing} has {free:.1f} GB free, but {what} about {needed:.1f} GB; {advice}"
        )


def _existing(name: str) -> Path:
    """Return a folder, its links resolved, or its nearest parent that exists."""
    folder = Path(name).resolve()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _missing(files: Sequence[str]) -> float:
    """Return the fraction of files that do not exist yet."""
    absent = [file for file in files if not Path(file).exists()]
    return len(absent) / max(len(files), 1)


def _needed(store: Store) -> _Needed:
    """Return what the missing files of a resolved config need."""
    config = store.config
    draws = [n for n in config.questions if not store.path(QUESTIONS, questions=n).exists()]
    embedders = {config.questions[name].embedder for name in draws}
    for selector in config.selectors.values():
        for embedder, questions in product(selector.embedder, (selector.train, selector.test)):
            if not store.path(EMBEDDINGS, embedder=embedder, questions=questions).exists():
                embedders.add(embedder)
    models = {config.embedders[name].model for name in embedders if name}
    models |= {batch.model for batch in batches(store).values() if _missing(batch.answers)}
    if not any(getattr(config, section) for section in EXPERIMENTS):
        models |= {*config.models}  # `headsweep try` asks them
    for name, study in config.compressions.items():
        if _missing(arm_files(config, name)):
            models.add(study.model)
    loaded = [
        _Loaded(name, config.models[name], f"models.{name}.dtype")
        for name in sorted(filter(None, models))
    ]
    loaded += [
        _scoring(config, name) for name in config.maps if _missing(score_files(config, name))
    ]
    return _Needed(draws, sorted(filter(None, embedders)), loaded)


def _scoring(config: Config, name: str) -> _Loaded:
    """Return a map's model as it is loaded to score the map's texts."""
    section = config.maps[name]
    where = f"models.{section.model}" if section.dtype is None else f"maps.{name}"
    model = mapped_model(config, name)
    return _Loaded(section.model, model, f"{where}.dtype", by_backend=False)


def _check_without_gpu(loaded: _Loaded) -> None:
    where = f"models.{loaded.name}"
    model = loaded.model
    if model.device not in ("auto", "cpu"):
        raise ModelError(f"{where}.device: {model.device!r}, but there is no GPU; use auto or cpu")
    if model.dtype == "float16":
        raise ModelError(
            f"{loaded.dtype_at}: float16 needs a GPU; use float32 or bfloat16 on a CPU"
        )
    if model.attention == "flash_attention_2":
        raise ModelError(f"{where}.attention: flash_attention_2 needs a GPU; use sdpa on a CPU")
