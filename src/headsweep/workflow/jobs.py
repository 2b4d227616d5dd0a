"""The workflow's jobs. Each function below is one: `headsweep job NAME`, which its rule calls.

The name of the command is the function's, with hyphens; its options are the function's parameters
after `store`, or the keys of `batch` and those after it; its help is the docstring. Modules are
imported when a job runs: start-up is most of a small job.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headsweep.files.paths import BatchKeys

if TYPE_CHECKING:
    from headsweep.config import Preset
    from headsweep.store.batches import Batch
    from headsweep.store.layout import Store
    from headsweep.variants import Variant


class Job(NamedTuple):
    """A job of the workflow, as `declare` reads it from its function."""

    name: str
    function: Callable[..., None]
    """Takes the store of the run's config, or one batch of it, then the values of `arguments`: of a
    key in a path the name that it stands for in the config."""
    of_batch: bool
    """Whether the function takes a batch, which its command names by the keys in the paths."""
    arguments: tuple[str, ...]
    """Further options of its command: wildcards of the rules' files (keys, names, a variant, a
    number), `cores` and `published`."""
    help: str
    online: bool
    """Whether it may use the network."""
    before_config: Callable[..., bool] | None
    """Called first with the config's file, the batch's keys, and the arguments as given; it returns
    whether the job is done, so that the config need not be read."""

    @property
    def options(self) -> tuple[str, ...]:
        """All options of its command."""
        return BatchKeys._fields + self.arguments if self.of_batch else self.arguments


JOBS: list[Job] = []
"""All jobs, in the order of the workflow."""

_Function = Callable[..., None]


def declare(
    *, online: bool = False, before_config: Callable[..., bool] | None = None
) -> Callable[[_Function], _Function]:
    """Declare a function as a job; the keywords are fields of `Job`."""

    def add(function: _Function) -> _Function:
        code = function.__code__  # importing `inspect` takes longer than some jobs
        first, *arguments = code.co_varnames[: code.co_argcount]
        job = Job(
            name=function.__name__.replace("_", "-"),
            function=function,
            of_batch=first == "batch",
            arguments=tuple(arguments),
            help=str(function.__doc__),
            online=online,
            before_config=before_config,
        )
        JOBS.append(job)
        return function

    return add


def _collect(config: Path, batch: BatchKeys, variant: str, cores: int) -> bool:
    """Return whether an engine had the answers of a variant."""
    from headsweep.answers import client

    return client.collect(config, batch, variant, cores)


@declare(online=True)
def model(store: "Store", model: str) -> None:
    """Fetch a model."""
    from headsweep.answers import prepare

    prepare.prepare_model(store, model)


@declare(online=True)
def source(store: "Store", source: str) -> None:
    """Read one split, whole."""
    from headsweep.answers import prepare

    prepare.store_split(store, source)


@declare()
def questions(store: "Store", questions: str) -> None:
    """Draw a question set."""
    from headsweep.answers import prepare

    prepare.draw_questions(store, questions)


@declare(online=True)
def embedder(store: "Store", embedder: str) -> None:
    """Fetch an embedder."""
    from headsweep.answers import prepare

    prepare.prepare_embedder(store, embedder)


@declare()
def embed(store: "Store", embedder: str, questions: str) -> None:
    """Embed the questions of a set."""
    from headsweep.answers import prepare

    prepare.embed_questions(store, embedder, questions)


@declare(before_config=_collect)
def generate(batch: "Batch", variant: "Variant", cores: int) -> None:
    """Answer with one model variant."""
    from headsweep.answers import client

    client.run(batch, variant, cores)


@declare()
def activations(batch: "Batch") -> None:
    """Measure heads on own answers."""
    from headsweep.answers import activations as measuring

    measuring.run(batch)


@declare()
def look(batch: "Batch", heads: str) -> None:
    """Look inside heads where answers first differ."""
    from headsweep.answers import inside_heads

    inside_heads.run(batch, heads)


@declare()
def grade(batch: "Batch") -> None:
    """Judge answers; gather Z."""
    from headsweep.grading import matrix

    matrix.grade(batch)


@declare()
def regrade(batch: "Batch", grading: "Preset") -> None:
    """Judge answers by other rules."""
    from headsweep.grading import matrix

    matrix.grade(batch, grading)


@declare()
def compare_prompts(store: "Store", comparison: str) -> None:
    """Compare prompts and rules."""
    from headsweep.grading import matrix

    matrix.compare_prompts(store, comparison)


@declare()
def texts(store: "Store", texts: str) -> None:
    """Choose the known texts that a map scores."""
    from headsweep.experiments.maps import known_texts

    known_texts.write_texts(store, texts)


@declare()
def score(store: "Store", texts: str, layer: str) -> None:
    """Score known texts without each head of a layer."""
    from headsweep.experiments.maps import job

    job.score_layer(store, texts, layer)


@declare()
def map(store: "Store", map: str) -> None:  # noqa: A001, A002
    """Make the tables of a map of every head."""
    from headsweep.experiments.maps import table

    table.write_tables(store, map)


@declare()
def train_selector(store: "Store", selector: str) -> None:
    """Train a head selector."""
    from headsweep.experiments.sprint import job

    job.train(store, selector)


@declare()
def rank_heads(store: "Store", selector: str) -> None:
    """Rank the heads for each question."""
    from headsweep.experiments.sprint import job

    job.rank(store, selector)


@declare()
def evaluate(store: "Store", selector: str) -> None:
    """Compute Pass@N of a selector and baselines."""
    from headsweep.experiments.sprint import job

    job.evaluate(store, selector)


@declare()
def compare_families(store: "Store", frontier: str) -> None:
    """Compare families of variants at equal tokens."""
    from headsweep.experiments.sprint import frontier_job

    frontier_job.compare(store, frontier)


@declare(online=True)
def problems(store: "Store", data: str) -> None:
    """Read a dataset and divide it."""
    from headsweep.experiments.athena import problems as datasets

    datasets.read_data(store, data)


@declare(online=True)
def encoder(store: "Store", encoder: str) -> None:
    """Fetch a pretrained encoder."""
    from headsweep.experiments.compression import arm_jobs

    arm_jobs.prepare_encoder(store, encoder)


@declare()
def teacher(store: "Store", solver: str, data: str, seed: int) -> None:
    """Train a solver with all its heads."""
    from headsweep.experiments.compression import arm_jobs

    arm_jobs.train_teacher(store, solver, data, seed)


@declare()
def compress(store: "Store", subject: str, data: str, arm: str, seed: int) -> None:
    """Compress a solver or a model."""
    from headsweep.experiments.compression import arm_jobs

    arm_jobs.compress_arm(store, subject, data, arm, seed)


@declare()
def quantise(store: "Store", subject: str, data: str, arm: str, seed: int) -> None:
    """Test an arm with 8-bit weights."""
    from headsweep.experiments.compression import arm_jobs

    arm_jobs.quantise(store, subject, data, arm, seed)


@declare()
def gather_compression(store: "Store", compression: str) -> None:
    """Gather the arms' results."""
    from headsweep.results import jobs

    jobs.gather(store, compression)


@declare()
def measure_compression(store: "Store", compression: str) -> None:
    """Measure sizes and speeds."""
    from headsweep.experiments.compression import arm_measurements

    arm_measurements.measure(store, compression)


@declare()
def table(store: "Store", sweep: str, published: Path) -> None:
    """Write the tables of a sweep."""
    from headsweep.results import jobs

    jobs.write_tables(store, sweep, published)


@declare()
def controls(store: "Store", sweep: str) -> None:
    """Compare the gains of a sweep with chance."""
    from headsweep.results import jobs

    jobs.write_controls(store, sweep)


@declare()
def compression_tables(store: "Store", published: Path) -> None:
    """Write compressions' tables."""
    from headsweep.results import jobs

    jobs.write_compression_tables(store, published)


@declare()
def audit(store: "Store", published: Path) -> None:
    """Audit the published tables."""
    from headsweep.results import jobs

    jobs.write_audit(store, published)


@declare()
def claims(store: "Store", published: Path) -> None:
    """Judge the papers' claims."""
    from headsweep.results import jobs

    jobs.write_claims(store, published)


@declare()
def draw(store: "Store", subject: str, of: str) -> None:
    """Draw all figures of one sweep, selector, map or other."""
    from headsweep.page.figures import draw as drawing

    drawing.draw(store, subject, of)


@declare()
def printed(store: "Store", published: Path) -> None:
    """Make the papers' exhibits in the papers' form."""
    from headsweep.page.printed import job

    job.write_printed(store, published)


@declare()
def report(store: "Store") -> None:
    """Write the report of a run."""
    from headsweep.page import report

    report.write_report(store)
