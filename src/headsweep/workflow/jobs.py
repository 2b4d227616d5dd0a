"""The workflow's jobs. Each function below is one: `headsweep job NAME`, which its rule calls.

The name of the command is the function's, with hyphens; its options are the function's parameters
after `config`; its help is the docstring. Modules are imported when a job runs: start-up is most of
a small job.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headsweep.config import Config, Preset
    from headsweep.variants import Variant


class Job(NamedTuple):
    """A job of the workflow, as `declare` reads it from its function."""

    name: str
    function: Callable[..., None]
    """Takes the resolved config, then the values of `arguments`: of keys in a path the names that
    they stand for in the config."""
    arguments: tuple[str, ...]
    """The options of its command: wildcards of the rules' files (keys, names, a variant, a number),
    `cores` and `published`."""
    help: str
    online: bool
    """Whether it may use the network."""
    before_config: Callable[..., bool] | None
    """Called first with the config's file and the arguments as given; it returns whether the job is
    done, so that the config need not be read."""


JOBS: list[Job] = []
"""All jobs, in the order of the workflow."""

_Function = Callable[..., None]


def declare(
    *, online: bool = False, before_config: Callable[..., bool] | None = None
) -> Callable[[_Function], _Function]:
    """Declare a function as a job; the keywords are fields of `Job`."""

    def add(function: _Function) -> _Function:
        code = function.__code__  # importing `inspect` takes longer than some jobs
        _, *arguments = code.co_varnames[: code.co_argcount]
        name = function.__name__.replace("_", "-")
        about = str(function.__doc__)
        JOBS.append(Job(name, function, tuple(arguments), about, online, before_config))
        return function

    return add


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without garbage collection.

    It takes a fifth of the import time of torch and transformers and finds nothing. It is on again
    while the job runs, because garbage may hold tensors.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _collect(
    config: Path, model: str, decoding: str, questions: str, variant: str, cores: int
) -> bool:
    """Return whether an engine had the answers of a variant; names are keys."""
    with quick_imports():
        from headsweep.answers import client
    return client.collect(config, model, decoding, questions, variant, cores)


@declare(online=True)
def model(config: "Config", model: str) -> None:
    """Fetch a model."""
    with quick_imports():
        from headsweep.answers import prepare
    prepare.prepare_model(config, model)


@declare(online=True)
def source(config: "Config", source: str) -> None:
    """Read one split, whole."""
    with quick_imports():
        from headsweep.answers import prepare
    prepare.store_split(config, source)


@declare()
def questions(config: "Config", questions: str) -> None:
    """Draw a question set."""
    with quick_imports():
        from headsweep.answers import prepare
    prepare.draw_questions(config, questions)


@declare(online=True)
def embedder(config: "Config", embedder: str) -> None:
    """Fetch an embedder."""
    with quick_imports():
        from headsweep.answers import prepare
    prepare.prepare_embedder(config, embedder)


@declare()
def embed(config: "Config", embedder: str, questions: str) -> None:
    """Embed the questions of a set."""
    with quick_imports():
        from headsweep.answers import prepare
    prepare.embed_questions(config, embedder, questions)


@declare(before_config=_collect)
def generate(
    config: "Config", model: str, decoding: str, questions: str, variant: "Variant", cores: int
) -> None:
    """Answer with one model variant."""
    with quick_imports():
        from headsweep.answers import client
    client.run(config, model, decoding, questions, variant, cores)


@declare()
def activations(config: "Config", model: str, decoding: str, questions: str) -> None:
    """Measure heads on own answers."""
    with quick_imports():
        from headsweep.answers import activations as measuring
    measuring.run(config, model, decoding, questions)


@declare()
def look(config: "Config", model: str, decoding: str, questions: str, heads: str) -> None:
    """Look inside heads where answers first differ."""
    with quick_imports():
        from headsweep.answers import looks
    looks.run(config, model, decoding, questions, heads)


@declare()
def grade(config: "Config", model: str, decoding: str, questions: str) -> None:
    """Judge answers; gather Z."""
    with quick_imports():
        from headsweep.grading import matrix
    matrix.grade(config, model, decoding, questions)


@declare()
def regrade(config: "Config", model: str, decoding: str, questions: str, grading: "Preset") -> None:
    """Judge answers by other rules."""
    with quick_imports():
        from headsweep.grading import matrix
    matrix.grade(config, model, decoding, questions, grading)


@declare()
def compare_prompts(config: "Config", comparison: str) -> None:
    """Compare prompts and rules."""
    with quick_imports():
        from headsweep.grading import matrix
    matrix.compare_prompts(config, comparison)


@declare()
def texts(config: "Config", texts: str) -> None:
    """Choose the known texts that a map scores."""
    with quick_imports():
        from headsweep.experiments.maps import known_texts
    known_texts.write_texts(config, texts)


@declare()
def score(config: "Config", texts: str, layer: str) -> None:
    """Score known texts without each head of a layer."""
    with quick_imports():
        from headsweep.experiments.maps import job
    job.score_layer(config, texts, layer)


@declare()
def gradients(config: "Config", texts: str) -> None:
    """Estimate what each head's loss does to known texts."""
    with quick_imports():
        from headsweep.experiments.maps import job
    job.estimate_heads(config, texts)


@declare()
def map(config: "Config", map: str) -> None:  # noqa: A001, A002
    """Make the tables of a map of every head."""
    with quick_imports():
        from headsweep.experiments.maps import table
    table.write_tables(config, map)


@declare()
def train_selector(config: "Config", selector: str) -> None:
    """Train a head selector."""
    with quick_imports():
        from headsweep.experiments.sprint import job
    job.train(config, selector)


@declare()
def rank_heads(config: "Config", selector: str) -> None:
    """Rank the heads for each question."""
    with quick_imports():
        from headsweep.experiments.sprint import job
    job.rank(config, selector)


@declare()
def evaluate(config: "Config", selector: str) -> None:
    """Compute Pass@N of a selector and baselines."""
    with quick_imports():
        from headsweep.experiments.sprint import job
    job.evaluate(config, selector)


@declare()
def compare_families(config: "Config", frontier: str) -> None:
    """Compare families of variants at equal tokens."""
    with quick_imports():
        from headsweep.experiments.sprint import frontier_job
    frontier_job.compare(config, frontier)


@declare(online=True)
def problems(config: "Config", data: str) -> None:
    """Read a dataset and divide it."""
    with quick_imports():
        from headsweep.experiments.athena import problems as datasets
    datasets.read_data(config, data)


@declare(online=True)
def encoder(config: "Config", encoder: str) -> None:
    """Fetch a pretrained encoder."""
    with quick_imports():
        from headsweep.experiments.compression import arm_jobs
    arm_jobs.prepare_encoder(config, encoder)


@declare()
def teacher(config: "Config", solver: str, data: str, seed: int) -> None:
    """Train a solver with all its heads."""
    with quick_imports():
        from headsweep.experiments.compression import arm_jobs
    arm_jobs.train_teacher(config, solver, data, seed)


@declare()
def compress(config: "Config", subject: str, data: str, arm: str, seed: int) -> None:
    """Compress a solver or a model."""
    with quick_imports():
        from headsweep.experiments.compression import arm_jobs
    arm_jobs.compress_arm(config, subject, data, arm, seed)


@declare()
def quantise(config: "Config", subject: str, data: str, arm: str, seed: int) -> None:
    """Test an arm with 8-bit weights."""
    with quick_imports():
        from headsweep.experiments.compression import arm_jobs
    arm_jobs.quantise(config, subject, data, arm, seed)


@declare()
def gather_compression(config: "Config", compression: str) -> None:
    """Gather the arms' results."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.gather(config, compression)


@declare()
def measure_compression(config: "Config", compression: str) -> None:
    """Measure sizes and speeds."""
    with quick_imports():
        from headsweep.experiments.compression import arm_measurements
    arm_measurements.measure(config, compression)


@declare()
def table(config: "Config", sweep: str, published: Path) -> None:
    """Write the tables of a sweep."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.write_tables(config, sweep, published)


@declare()
def controls(config: "Config", sweep: str) -> None:
    """Compare the gains of a sweep with chance."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.write_controls(config, sweep)


@declare()
def compression_tables(config: "Config", published: Path) -> None:
    """Write compressions' tables."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.write_compression_tables(config, published)


@declare()
def audit(config: "Config", published: Path) -> None:
    """Audit the published tables."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.write_audit(config, published)


@declare()
def claims(config: "Config", published: Path) -> None:
    """Judge the papers' claims."""
    with quick_imports():
        from headsweep.results import jobs
    jobs.write_claims(config, published)


@declare()
def draw(config: "Config", subject: str, of: str) -> None:
    """Draw all figures of one sweep, selector, map or other."""
    with quick_imports():
        from headsweep.page.figures import draw as drawing
    drawing.draw(config, subject, of)


@declare()
def printed(config: "Config", published: Path) -> None:
    """Make the papers' exhibits in the papers' form."""
    with quick_imports():
        from headsweep.page.printed import job
    job.write_printed(config, published)


@declare()
def report(config: "Config") -> None:
    """Write the report of a run."""
    with quick_imports():
        from headsweep.page import report
    report.write_report(config)
