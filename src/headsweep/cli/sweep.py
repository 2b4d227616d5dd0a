"""A sweep without Snakemake: the same jobs one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headsweep.choices import BenchmarkGrader
from headsweep.cli.own_prompt import described_prompt
from headsweep.cli.without_snakemake import (
    MODEL,
    QUESTION_SET,
    answer,
    asked,
    begun,
    described_questions,
    limited_to,
    once,
)
from headsweep.config.experiments import Placebos
from headsweep.config.questions import Dtype
from headsweep.files import paths
from headsweep.telling import told

if TYPE_CHECKING:
    import pandas as pd

RUN, SWEEP = "sweep", "heads"
"""Names in the config of a sweep."""

OUT = "headsweep-sweep"
"""The folder of results, if no other is named."""

_LOG = logging.getLogger(__name__)


def sweep(
    model: str | Path,
    benchmark: str | Path,
    *,
    layers: Literal["all"] | Sequence[int],
    heads: Literal["all"] | Sequence[int] = "all",
    out: str | Path = OUT,
    revision: str | None = None,
    split: str = "test",
    n: int | None = None,
    file: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    grader: BenchmarkGrader | None = None,
    benchmark_revision: str | None = None,
    prompt_file: str | Path | None = None,
    examples: Sequence[int] | None = None,
    max_new_tokens: int = 2048,
    dtype: Dtype | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    placebos: Placebos = "none",
    cores: int | None = None,
) -> "pd.DataFrame":
    """Answer a benchmark without each head in turn; no config needed.

    Each head is tested against the model.

    Answers are kept as they finish: the same call continues where it was stopped, and a call with
    more layers, heads or questions keeps them. `out` has the layout of a Snakemake run:
    ``headsweep run OUT/results/sweep/config.json --directory OUT`` adds all figures and the report
    without generating anything twice.

    Args:
        model: hub id, folder in the hub's format, or GGUF file
        benchmark: math500, math_train, gsm8k, generated_math, generated_gsm8k, a .csv or .jsonl
            file, or a dataset on the hub
        layers: layers whose heads are pruned, numbered from 0, as in 5,15; or all
        heads: heads to prune in each layer, numbered from 0; or all
        out: folder of the results; made if it does not exist
        revision: commit hash of a model on the hub (default: the newest, or the newest in the
            cache)
        split: split of the benchmark
        n: how many questions (default: all, or 200 of a generated benchmark)
        file: a file with the rows of a benchmark by name, .jsonl or .csv, in place of the hub
        columns: your own benchmark: names of the columns ``question``, ``answer``, and optionally
            ``id``, ``subject``, ``level``, ``solution``
        grader: your own benchmark: how answers are compared (default: math)
        benchmark_revision: commit hash of a dataset on the hub
        prompt_file: a prompt of your own, in YAML (see below)
        examples: rows of the benchmark, numbered from 0, that the prompt shows solved; they are not
            asked
        max_new_tokens: token limit of an answer
        dtype: type of weights and activations (default: bfloat16 on a GPU, else float32)
        device: auto, cpu, cuda, cuda:1, or balanced over all GPUs
        batch_size: sequences decoded together; changes speed and memory only (in float32)
        placebos: controls that prune nothing: numeric, the model decoded again in other batches;
            noise, a random direction as strong as a head, for each head; both, these two; replay,
            the model's answers verified as those of heads are, for each layer; all, all three
        cores: CPU cores to use (default: all)

    Returns:
        One row for the base model and one per head, as in
        ``results/sweep/controls/heads/heads.csv``: accuracy, gain with its 95% interval, exact
        McNemar p, the same after Holm's correction over all heads (adjusted), q after Benjamini and
        Hochberg, shares of answers without a box, truncated, ...

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    from headsweep.answers import activations
    from headsweep.files import tables
    from headsweep.grading.matrix import grade
    from headsweep.results.facts import read_csv  # slow to import
    from headsweep.results.jobs import write_controls

    questions = described_questions(
        str(benchmark),
        split=split,
        n=n,
        file=file,
        columns=columns,
        grader=grader,
        revision=benchmark_revision,
        examples=examples,
    )
    prompt = described_prompt(questions, prompt_file, examples)
    pruned = {"layers": layers, "heads": heads, "placebos": placebos}
    config = asked(
        RUN,
        str(model),
        questions,
        {"greedy": {"max_new_tokens": max_new_tokens, **prompt}},
        {"sweeps": {SWEEP: {"model": MODEL, "questions": QUESTION_SET, **pruned}}},
        revision=revision,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
    )
    with begun(config, out) as config:
        store = answer(config, cores)
        measured = store.of_sweep(SWEEP, tables.ACTIVATIONS)
        with limited_to(cores), told("measuring the heads of the model"):
            once(measured, activations.run, config, MODEL, "greedy", QUESTION_SET)
        with told("grading"):
            grade(config, MODEL, "greedy", QUESTION_SET)
        with told("testing each head against the model"):
            write_controls(config, SWEEP)
        _LOG.info("tables are in %s", store.path(paths.CONFIG).parent.absolute())
        return read_csv(store.path(paths.CONTROLS, sweep=SWEEP, table="heads"))
