"""A map of every head without Snakemake: the same jobs one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headsweep.cli.asked import MODEL, QUESTION_SET, Asked
from headsweep.cli.without_snakemake import answer, begun, limited_to, once
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.telling import told

if TYPE_CHECKING:
    import pandas as pd

    from headsweep.store.layout import Store

RUN, SAMPLES, MAP = "map", "samples", "heads"
"""Names in the config of a map."""

_LOG = logging.getLogger(__name__)


def head_map(
    model: str | Path,
    benchmark: str | Path,
    *,
    layers: Literal["all"] | Sequence[int] = "all",
    out: str | Path = "headsweep-map",
    split: str = "train",
    samples: int = 8,
    temperature: float = 0.6,
    cores: int | None = None,
    **options: Any,
) -> "pd.DataFrame":
    """Map every head: how likely right and wrong texts are without it.

    The model samples answers; of each question a right and a wrong one, and the reference solution
    if there is one, are scored without each head. Samples and scores are kept: the same call goes
    on where it was stopped, a layer at a time.

    Args:
        model: hub id, folder in the hub's format, or GGUF file
        benchmark: math500, math_train, gsm8k, generated_math, generated_gsm8k, a .csv or .jsonl
            file, or a dataset on the hub
        layers: layers whose heads are mapped, numbered from 0, as in 5,15; or all
        out: folder of the results; made if it does not exist
        split: split of the benchmark; training questions, if heads are chosen by the map
        samples: answers a question, of which some must be right and some wrong
        temperature: of the samples
        cores: CPU cores to use (default: all)
        **options: other fields of `headsweep.cli.asked.Asked`, by name

    Returns:
        One row for each head and outcome, as in ``results/map/maps/heads/heads.csv``.

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    with told("beginning"):  # slow to import
        from headsweep.experiments.maps.known_texts import write_texts
        from headsweep.experiments.maps.table import write_tables
        from headsweep.files.tables import TEXTS
        from headsweep.grading.matrix import grade
        from headsweep.page.figures.draw import draw
        from headsweep.results.facts import read_csv
        from headsweep.store.batches import batches
        from headsweep.store.map_scores import texts_key

    if temperature <= 0:
        raise ConfigError(
            f"--temperature {temperature:g} draws the same answer each time, but a right and a "
            f"wrong one are compared; give one above 0, as 0.6"
        )
    asked = Asked(model=model, benchmark=benchmark, split=split, **options)
    if samples < 2 and asked.questions["benchmark"] == "custom":
        raise ConfigError(
            f"--samples {samples} gives no question a right and a wrong answer; give 2 or more"
        )
    greedy = asked.greedy()
    sampled = {"temperature": temperature, "top_k": 40, "top_p": 0.95, "samples": samples}
    mapped = {"model": MODEL, "questions": QUESTION_SET, "sampling": [SAMPLES], "layers": layers}
    config = asked.config(
        RUN, {"greedy": greedy, SAMPLES: {**sampled, **greedy}}, {"maps": {MAP: mapped}}
    )
    with begun(config, out) as store:
        answer(store, cores)
        (batch,) = batches(store).values()
        texts = texts_key(store.config, MAP)
        with told("grading, and choosing the texts"):
            grade(batch)
            once(store.path(TEXTS, texts=texts), write_texts, store, texts)
        with limited_to(cores):
            _score(store, texts)
        with told("writing tables and the picture"):
            write_tables(store, MAP)
            draw(store, "map", MAP)
        _LOG.info("tables are in %s", store.path(paths.CONFIG).parent.absolute())
        return read_csv(store.path(paths.MAP, map=MAP, table="heads"))


def _score(store: "Store", texts: str) -> None:
    """Score a map's texts, given their key, without each head."""
    from headsweep.experiments.maps import job
    from headsweep.files.tables import SCORES
    from headsweep.store.map_scores import layer_name, map_layers

    layers = map_layers(store.config, MAP)
    for number, layer in enumerate(map(layer_name, layers), start=1):
        scores = store.path(SCORES, texts=texts, layer=layer)
        with told(f"scoring texts without each head, layer {number} of {len(layers)}"):
            once(scores, job.score_layer, store, texts, layer)
