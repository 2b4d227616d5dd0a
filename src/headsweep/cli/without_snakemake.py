"""A run's jobs without Snakemake, one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from headsweep.choices import BenchmarkGrader
from headsweep.config import Config, parse
from headsweep.config.questions import Benchmark, Dtype
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.plain_files import expanded, read_plain
from headsweep.telling import told

if TYPE_CHECKING:
    from headsweep.store.batches import PlannedBatch
    from headsweep.store.layout import Store

MODEL, QUESTION_SET = "model", "questions"
"""Names in the configs that are made here."""
_GENERATED_QUESTIONS = 200

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def begun(config: Config, out: str | Path) -> Iterator[Config]:
    """Enter the folder of results; yield the config resolved, checked, and written there.

    Its models are fetched and its questions drawn. If what follows fails, the config of a run that
    was there before is put back: that run is still whole.

    Raises:
        HeadsweepError: the config asks for what is not there, or another process works there.
    """
    from headsweep.answers import client
    from headsweep.files.locks import Locks
    from headsweep.files.record import record_path
    from headsweep.files.safe_files import atomic
    from headsweep.store.layout import write_config
    from headsweep.store.revisions import resolve
    from headsweep.workflow.preflight import check_devices, preflight

    folder = expanded(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out {out}: no such folder can be made ({error.strerror}); name another"
        ) from None
    with contextlib.chdir(folder):
        config = resolve(config)
        preflight(config)
        check_devices(config)
        locks = Locks(Path(paths.RUN_LOCK))
        if not locks.take(config.run):
            raise ConfigError(
                f"--out {out}: run {config.run!r} is under way there; wait for its end, or name "
                f"another folder"
            )
        # A run that was here keeps its config until the models and questions of this one are there.
        prepared(config)
        file = Path(paths.CONFIG.format(run=config.run))
        beside = (file, Path(paths.MODEL_SECTIONS.format(run=config.run)), record_path(file))
        former = {file: read_plain(file) for file in beside if file.exists()}
        write_config(config)
        client.begin_run()
        try:
            yield config
        except Exception:  # a run that is interrupted is meant to go on
            for file, content in former.items():
                with atomic(file) as temporary:
                    temporary.write_bytes(content)
            raise
        finally:
            del locks  # an error's traceback would keep the file open, and its lock held


def answer(
    config: Config, cores: int | None = None, planned: "Sequence[PlannedBatch] | None" = None
) -> "Store":
    """Run the workflow's jobs up to the answers of a resolved config, on all cores by default.

    How many answers are there is told at first, and at last, also if it is interrupted. Without
    `planned` batches all of the config's are answered.
    """
    from headsweep.answers import client
    from headsweep.machine.host import host_cores
    from headsweep.store.batches import batches
    from headsweep.store.hard_links import unlink_finished

    store = prepared(config)
    planned = planned or batches(config)
    unanswered = [
        (batch, variant)
        for batch in planned
        for variant, file in zip(batch.variants, store.answers(batch), strict=True)
        if not _is_made(Path(file))
    ]
    _tell_answers(config, planned)
    try:
        usable = min(cores or host_cores(), host_cores())  # more would only take memory
        for batch, variant in unanswered:
            client.run(config, batch.model, batch.decoding, batch.questions, variant, usable)
    finally:
        # Nothing here removes a job's output, as Snakemake may: one name of a table is enough.
        for batch in planned:
            unlink_finished(config, **batch.names)
        client.end_run()
        if unanswered:
            _tell_answers(config, planned)
    return store


def _tell_answers(config: Config, planned: "Sequence[PlannedBatch]") -> None:
    """Say how many of the answers of each batch are there."""
    from headsweep.answers.work import Work

    for batch in planned:
        work = Work(config, **batch.names)
        lacking = sum(len(work.unanswered(variant)) for variant in work.lacking)
        total = len(work.wanted) * len(batch.variants)
        _LOG.info("%s: %d of %d answers are there", work.told, total - lacking, total)


@contextlib.contextmanager
def limited_to(cores: int | None) -> Iterator[None]:
    """Let what this process computes take so many cores; by default as many as torch takes."""
    import torch

    from headsweep.machine.host import host_cores

    if cores is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(min(cores, host_cores()))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepared(config: Config) -> "Store":
    """Fetch the models of a resolved config and draw its questions, where the store lacks them."""
    from headsweep.answers import prepare
    from headsweep.config.titles import title
    from headsweep.files import tables
    from headsweep.store.layout import Store, mark_version

    mark_version()
    store = Store(config)
    for name in config.models:
        with told(f"making {title(config, 'models', name)} ready, once"):
            once(store.path(paths.MODEL, model=name), prepare.prepare_model, config, name)
    for name, questions in config.questions.items():
        with told(f"drawing questions from {questions.origin}"):
            once(store.path(tables.SOURCE, source=name), prepare.store_split, config, name)
            once(store.path(tables.QUESTIONS, questions=name), prepare.draw_questions, config, name)
    return store


def once(path: Path, make: Callable[..., object], *arguments: object) -> None:
    """Make a file unless it is made already; the path says the content."""
    if not _is_made(path):
        make(*arguments)


def _is_made(path: Path) -> bool:
    """Tell whether a file exists with its record, which is written last."""
    from headsweep.files.record import record_path

    return path.exists() and record_path(path).exists()


def asked(
    run: str,
    model: str,
    questions: dict[str, Any],
    decodings: dict[str, Any],
    experiments: dict[str, Any],
    *,
    revision: str | None,
    dtype: Dtype | None,
    device: str,
    batch_size: int | None = None,
) -> Config:
    """Return the config of a run of one model on one question set, given sections of it.

    Experiments are by their section.

    Raises:
        HeadsweepError: what is asked for cannot be; first all that needs no model.
    """
    values: dict[str, Any] = {
        "run": run,
        "papers": False,
        "questions": {QUESTION_SET: questions},
        "decodings": decodings,
    }
    check_before_fetching(values, run)
    with told(f"looking at {Path(model).name}"):
        described = described_model(model, revision, dtype, device)
    values["models"] = {MODEL: {**described, "batch_size": batch_size}}
    return parse({**values, **experiments}, run)


def check_before_fetching(values: dict[str, Any], origin: str) -> None:
    """Refuse config values that are wrong without a model, which may take long to fetch.

    Raises:
        HeadsweepError: a section cannot be, a file is missing, or a dataset is not pinned.
    """
    from headsweep.store.revisions import resolve

    resolve(parse(values, origin))


def described_model(
    source: str, revision: str | None, dtype: Dtype | None, device: str
) -> dict[str, Any]:
    """Return the config section of a model; fetch it if it is on the hub.

    Without a dtype it is bfloat16 where there is a GPU to use, else float32.
    """
    import torch

    from headsweep.machine.processors import has_gpu
    from headsweep.models import source as files

    local = Path(source).is_dir() or files.local_folder(source)
    folder = files.fetch_model(source, revision, or_file=True)
    gpu = device != "cpu" and has_gpu() and torch.version.cuda is not None
    return {
        # A snapshot's folder is named by its commit.
        "source": str(folder.absolute()) if local else source,
        "revision": revision if local else folder.name,
        **files.stated_geometry(folder),
        "billions": files.count_parameters(folder) / 1e9,
        "title": _name_of(source),
        "dtype": dtype or ("bfloat16" if gpu else "float32"),
        "device": device,
    }


def _name_of(source: str) -> str:
    """Return what to call a model: the last part of its hub id, or of its path."""
    name = Path(source).name.rpartition(":")[2]
    return name.removesuffix(".gguf") or source


def described_questions(
    benchmark: str,
    *,
    split: str,
    n: int | None = None,
    file: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    grader: BenchmarkGrader | None = None,
    revision: str | None = None,
    examples: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return the config section of a benchmark by name, file or hub id, with the given keys.

    A benchmark by name may be read from a file; rows that are examples are not asked.
    """
    section: dict[str, Any] = {"split": split, "leave_out": list(examples or ())}
    if columns:
        section["columns"] = dict(columns)
    options = {"n": n, "grader": grader, "revision": revision}
    section |= {key: value for key, value in options.items() if value is not None}
    if benchmark in get_args(Benchmark) and benchmark != "custom":
        if file is not None:
            section["file"] = str(expanded(file).absolute())
        size = {"n": _GENERATED_QUESTIONS} if benchmark.startswith("generated_") else {}
        return {"benchmark": benchmark, **size, **section}
    if file is not None:
        raise ConfigError(
            f"--file {file} holds the rows of a benchmark by name, as math500 or gsm8k, and not of "
            f"{benchmark!r}; give your own table as the benchmark itself"
        )
    if Path(benchmark).suffix in (".csv", ".jsonl", ".gz"):
        return {**section, "benchmark": "custom", "file": str(expanded(benchmark).absolute())}
    if expanded(benchmark).is_file():
        raise ConfigError(
            f"benchmark {benchmark!r} is a file that is not read; files end in .csv or .jsonl, or "
            f"in one of them with .gz, in small letters: convert it, or rename it"
        )
    if re.fullmatch(r"[\w.-]+/[\w.-]+", benchmark):
        return {**section, "benchmark": "custom", "dataset": benchmark}
    names = ", ".join(name for name in get_args(Benchmark) if name != "custom")
    raise ConfigError(
        f"benchmark {benchmark!r} is not known; choose {names}, a .csv or .jsonl file, or a "
        f"dataset on the hub (owner/name)"
    )
