"""A sweep without Snakemake: the same jobs one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headsweep.cli.asked import MODEL, QUESTION_SET, Asked
from headsweep.cli.without_snakemake import answer, begun, limited_to, once
from headsweep.config.experiments import Placebos
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
    placebos: Placebos = "none",
    cores: int | None = None,
    **options: Any,
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
        placebos: controls that prune nothing: numeric, the model decoded again in other batches;
            noise, a random direction as strong as a head, for each head; both, these two
        cores: CPU cores to use (default: all)
        **options: fields of `headsweep.cli.asked.Asked`, by name: ``grader="numeric", n=50``

    Returns:
        One row for the base model and one per head, as in
        ``results/sweep/controls/heads/heads.csv``: accuracy, gain with its 95% interval, exact
        McNemar p, the same after Holm's correction over all heads (adjusted), q after Benjamini and
        Hochberg, shares of answers without a box, truncated, ...

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    with told("beginning"):  # slow to import
        from headsweep.answers import activations
        from headsweep.files import tables
        from headsweep.grading.matrix import grade
        from headsweep.results.facts import read_csv
        from headsweep.results.jobs import write_controls
        from headsweep.store.batches import batches

    asked = Asked(model=model, benchmark=benchmark, **options)
    pruned = {"layers": layers, "heads": heads, "placebos": placebos}
    sweeps = {SWEEP: {"model": MODEL, "questions": QUESTION_SET, **pruned}}
    config = asked.config(RUN, {"greedy": asked.greedy()}, {"sweeps": sweeps})
    with begun(config, out) as store:
        answer(store, cores)
        (batch,) = batches(store).values()
        measured = batch.path(tables.ACTIVATIONS)
        with limited_to(cores), told("measuring the heads of the model"):
            once(measured, activations.run, batch)
        with told("grading"):
            grade(batch)
        with told("testing each head against the model"):
            write_controls(store, SWEEP)
        _LOG.info("tables are in %s", store.path(paths.CONFIG).parent.absolute())
        return read_csv(store.path(paths.CONTROLS, sweep=SWEEP, table="heads"))
