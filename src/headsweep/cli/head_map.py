"""A map of every head without Snakemake: the same jobs one after the other, with the same files.

Heavy modules are imported inside functions, because the command line imports this module.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headsweep.choices import BenchmarkGrader
from headsweep.cli.without_snakemake import (
    answer,
    begun,
    check_before_fetching,
    described_model,
    described_questions,
    limited_to,
    once,
)
from headsweep.config import parse
from headsweep.config.questions import Dtype
from headsweep.errors import ConfigError
from headsweep.files import paths

if TYPE_CHECKING:
    import pandas as pd

RUN, MODEL, QUESTION_SET, SAMPLES, MAP = "map", "model", "questions", "samples", "heads"
"""Names in the config of a map."""

_LOG = logging.getLogger(__name__)


def head_map(
    model: str | Path,
    benchmark: str | Path,
    *,
    layers: Literal["all"] | Sequence[int] = "all",
    out: str | Path = "headsweep-map",
    revision: str | None = None,
    split: str = "train",
    n: int | None = None,
    columns: Mapping[str, str] | None = None,
    grader: BenchmarkGrader | None = None,
    benchmark_revision: str | None = None,
    samples: int = 8,
    temperature: float = 0.6,
    max_new_tokens: int = 2048,
    dtype: Dtype | None = None,
    device: str = "auto",
    cores: int | None = None,
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
        revision: commit hash of a model on the hub (default: the newest, or the newest in the
            cache)
        split: split of the benchmark; training questions, if heads are chosen by the map
        n: how many questions (default: all, or 200 of a generated benchmark)
        columns: your own benchmark: names of the columns ``question``, ``answer``, and optionally
            ``id``, ``subject``, ``level``
        grader: your own benchmark: how answers are compared (default: math)
        benchmark_revision: commit hash of a dataset on the hub
        samples: answers a question, of which some must be right and some wrong
        temperature: of the samples
        max_new_tokens: token limit of an answer
        dtype: type of weights and activations (default: bfloat16 on a GPU, else float32)
        device: auto, cpu, cuda, cuda:1, or balanced over all GPUs
        cores: CPU cores to use (default: all)

    Returns:
        One row for each head and outcome, as in ``results/map/maps/heads/heads.csv``.

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    from headsweep.experiments.maps import job
    from headsweep.experiments.maps.known_texts import write_texts
    from headsweep.experiments.maps.table import write_tables
    from headsweep.files.tables import GRADIENTS, SCORES, TEXTS
    from headsweep.grading.matrix import grade
    from headsweep.page.figures.draw import draw
    from headsweep.results.facts import read_csv  # slow to import
    from headsweep.store.map_scores import layer_name, map_layers, texts_key

    if temperature <= 0:
        raise ConfigError(
            f"--temperature {temperature:g} draws the same answer each time, but a right and a "
            f"wrong one are compared; give one above 0, as 0.6"
        )
    questions = described_questions(
        str(benchmark),
        split=split,
        n=n,
        columns=columns,
        grader=grader,
        revision=benchmark_revision,
    )
    if samples < 2 and questions["benchmark"] == "custom":
        raise ConfigError(
            f"--samples {samples} gives no question a right and a wrong answer; give 2 or more"
        )
    sampled = {"temperature": temperature, "top_k": 40, "top_p": 0.95, "samples": samples}
    values: dict[str, Any] = {
        "run": RUN,
        "papers": False,
        "questions": {QUESTION_SET: questions},
        "decodings": {
            "greedy": {"max_new_tokens": max_new_tokens},
            SAMPLES: {**sampled, "max_new_tokens": max_new_tokens},
        },
    }
    check_before_fetching(values, "map")
    values["models"] = {MODEL: described_model(str(model), revision, dtype, device)}
    mapped = {"model": MODEL, "questions": QUESTION_SET, "sampling": [SAMPLES], "layers": layers}
    values["maps"] = {MAP: mapped}
    config = parse(values, "map")
    with begun(config, out) as config:
        store = answer(config, cores)
        grade(config, MODEL, SAMPLES, QUESTION_SET)
        texts = texts_key(config, MAP)
        once(store.path(TEXTS, texts=texts), write_texts, config, texts)
        with limited_to(cores):
            for layer in map(layer_name, map_layers(config, MAP)):
                scores = store.path(SCORES, texts=texts, layer=layer)
                once(scores, job.score_layer, config, texts, layer)
            once(store.path(GRADIENTS, texts=texts), job.estimate_heads, config, texts)
        write_tables(config, MAP)
        draw(config, "map", MAP)
        _LOG.info("tables are in %s", store.path(paths.CONFIG).parent.absolute())
        return read_csv(store.path(paths.MAP, map=MAP, table="heads"))
