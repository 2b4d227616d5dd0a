"""A map of every head without Snakemake: the same jobs one after the other, with the same files.

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
from headsweep.config.questions import Dtype
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.telling import told

if TYPE_CHECKING:
    import pandas as pd

    from headsweep.config import Config
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
    revision: str | None = None,
    split: str = "train",
    n: int | None = None,
    file: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    grader: BenchmarkGrader | None = None,
    benchmark_revision: str | None = None,
    prompt_file: str | Path | None = None,
    examples: Sequence[int] | None = None,
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
        file: a file with the rows of a benchmark by name, .jsonl or .csv, in place of the hub
        columns: your own benchmark: names of the columns ``question``, ``answer``, and optionally
            ``id``, ``subject``, ``level``, ``solution``
        grader: your own benchmark: how answers are compared (default: math)
        benchmark_revision: commit hash of a dataset on the hub
        samples: answers a question, of which some must be right and some wrong
        temperature: of the samples
        prompt_file: a prompt of your own, in YAML (see below)
        examples: rows of the benchmark, numbered from 0, that the prompt shows solved; they are not
            asked
        max_new_tokens: token limit of an answer
        dtype: type of weights and activations (default: bfloat16 on a GPU, else float32)
        device: auto, cpu, cuda, cuda:1, or balanced over all GPUs
        cores: CPU cores to use (default: all)

    Returns:
        One row for each head and outcome, as in ``results/map/maps/heads/heads.csv``.

    Raises:
        HeadsweepError: one line that says what is wrong and what to do.
    """
    from headsweep.experiments.maps.known_texts import write_texts
    from headsweep.experiments.maps.table import write_tables
    from headsweep.files.tables import TEXTS
    from headsweep.grading.matrix import grade
    from headsweep.page.figures.draw import draw
    from headsweep.results.facts import read_csv  # slow to import
    from headsweep.store.map_scores import texts_key

    if temperature <= 0:
        raise ConfigError(
            f"--temperature {temperature:g} draws the same answer each time, but a right and a "
            f"wrong one are compared; give one above 0, as 0.6"
        )
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
    if samples < 2 and questions["benchmark"] == "custom":
        raise ConfigError(
            f"--samples {samples} gives no question a right and a wrong answer; give 2 or more"
        )
    prompt = described_prompt(questions, prompt_file, examples)
    sampled = {"temperature": temperature, "top_k": 40, "top_p": 0.95, "samples": samples}
    greedy = {"max_new_tokens": max_new_tokens, **prompt}
    mapped = {"model": MODEL, "questions": QUESTION_SET, "sampling": [SAMPLES], "layers": layers}
    config = asked(
        RUN,
        str(model),
        questions,
        {"greedy": greedy, SAMPLES: {**sampled, **greedy}},
        {"maps": {MAP: mapped}},
        revision=revision,
        dtype=dtype,
        device=device,
    )
    with begun(config, out) as config:
        store = answer(config, cores)
        texts = texts_key(config, MAP)
        with told("grading, and choosing the texts"):
            grade(config, MODEL, SAMPLES, QUESTION_SET)
            once(store.path(TEXTS, texts=texts), write_texts, config, texts)
        with limited_to(cores):
            _score(config, store, texts)
        with told("writing tables and the picture"):
            write_tables(config, MAP)
            draw(config, "map", MAP)
        _LOG.info("tables are in %s", store.path(paths.CONFIG).parent.absolute())
        return read_csv(store.path(paths.MAP, map=MAP, table="heads"))


def _score(config: "Config", store: "Store", texts: str) -> None:
    """Score a map's texts, given their key, without each head, and estimate the scores."""
    from headsweep.experiments.maps import job
    from headsweep.files.tables import GRADIENTS, SCORES
    from headsweep.store.map_scores import layer_name, map_layers

    layers = map_layers(config, MAP)
    for number, layer in enumerate(map(layer_name, layers), start=1):
        scores = store.path(SCORES, texts=texts, layer=layer)
        with told(f"scoring texts without each head, layer {number} of {len(layers)}"):
            once(scores, job.score_layer, config, texts, layer)
    with told("estimating all heads"):
        once(store.path(GRADIENTS, texts=texts), job.estimate_heads, config, texts)
