"""The jobs of a map that load its model: scores of a layer, and first-order estimates."""

import logging
import math
from collections.abc import Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from headsweep import paths
from headsweep.config import Config
from headsweep.errors import ModelError
from headsweep.generation import journal
from headsweep.generation.check import in_float32
from headsweep.generation.exclusive import with_model
from headsweep.generation.requests import NEAR_TIE
from headsweep.maps.gradients import estimate, log_probability
from headsweep.maps.scoring import Score, Text, score
from headsweep.maps.texts import Pairs, choose_pairs, choose_texts
from headsweep.models.geometry import most_tokens
from headsweep.models.loaded import LoadedModel, dtype_name
from headsweep.models.masks import pruned
from headsweep.planning.maps import find_map, map_heads, map_noise, unchanged
from headsweep.record import Stopwatch, write_record
from headsweep.safe_files import write_table
from headsweep.tables import GRADIENTS, SCORES
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)


def score_layer(config: Config, texts: str, layer: str) -> None:
    """Score a map's texts without each head of a layer, given their key and the layer's name.

    Writes `tables.SCORES` and its record. A job that is killed goes on after the last whole text.

    Raises:
        ConfigError: the config has no map of this key.
        ModelError: the model cannot be loaded, or the scores are not the model's.
        TableError: a table that the texts come from is missing or damaged.
    """
    stopwatch = Stopwatch()
    name, section = find_map(config, texts)
    index = int(layer.removeprefix("L"))
    pairs = choose_pairs(config, name)  # before a GPU is held
    scored = Path(paths.SCORES_JOURNAL.format(texts=texts, layer=layer))
    measure = partial(_score_layer, config, name, index, pairs, scored)
    table, facts = with_model(config, section.model, measure, section.dtype)
    output = Path(SCORES.path.format(texts=texts, layer=layer))
    write_table(output, table, SCORES, {"map": name, "layer": index})
    facts |= {"map": section.model_dump(mode="json"), "grading": config.grading}
    write_record(output, stopwatch, facts | {"layer": index})
    journal.remove(scored)
    rate = facts["scores_per_second"]
    _LOG.info("%s, %s: %.1f texts times variants a second", name, layer, rate)


def _score_layer(
    config: Config, name: str, layer: int, pairs: Pairs, scored: Path, loaded: LoadedModel
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the scores of a layer, and what a record says of them.

    They are kept in the journal `scored`, text by text, once those of a first text are checked. So
    is a first text of those that a killed job has left there: its path may have been another.
    """
    chosen = choose_texts(config, name, loaded.tokenizer, pairs, most_tokens(loaded.model.config))
    heads = map_heads(config, name, layer)
    variants = [unchanged(layer), *heads, *map_noise(config, name, layer)]
    kept = _journaled(scored, chosen.texts, variants)
    checks = [check_scores(loaded, of_text) for of_text in [*kept.values()][:1]]
    missing = [text for text in chosen.texts if text not in kept]
    watch = Stopwatch()
    by_text = groupby(score(loaded, missing, variants), lambda new: new.text)
    for number, (text, scores_of_text) in enumerate(by_text):
        new = list(scores_of_text)
        if number == 0:
            checks.append(check_scores(loaded, new))
        journal.append(scored, map(_record, new))
        kept.setdefault(text, []).extend(new)
    seconds = watch.seconds
    scores = list(chain.from_iterable(kept[text] for text in chosen.texts))
    table = pd.DataFrame(
        {
            "question_id": scored_text.text.question_id,
            "kind": scored_text.text.kind,
            "variant": str(scored_text.variant),
            "log_probability": scored_text.log_probability,
            "tokens": len(scored_text.text.tokens),
            "kept": scored_text.kept,
        }
        for scored_text in scores
    )
    facts: dict[str, Any] = {**chosen.counts, "texts": len(chosen.texts), "variants": len(variants)}
    rate = len(missing) * len(variants) / seconds  # of this attempt
    facts |= {"scores_per_second": rate, "scoring_seconds": seconds}
    facts |= {"dtype": dtype_name(loaded.dtype), "device": str(loaded.device)}
    return table, facts | max(checks, key=lambda check: check["worst"])


def _record(score: Score) -> dict[str, Any]:
    """Return a score as a journal keeps it."""
    return {
        "question_id": score.text.question_id,
        "kind": score.text.kind,
        "variant": str(score.variant),
        "log_probability": score.log_probability,
        "kept": score.kept,
    }


def _journaled(
    file: Path, texts: Sequence[Text], variants: Sequence[Variant]
) -> dict[Text, list[Score]]:
    """Return the scores that a killed job has left, of texts with all of them."""
    records = {
        (record["question_id"], record["kind"], record["variant"]): record
        for record in journal.read(file)
    }
    whole = {}
    for text in texts:
        found = [records.get((text.question_id, text.kind, str(variant))) for variant in variants]
        if all(found):
            whole[text] = [
                Score(text, variant, record["log_probability"], record["kept"])
                for variant, record in zip(variants, found, strict=True)
                if record is not None
            ]
    return whole


def bound(dtype: str, tokens: int) -> float:
    """Return by how much a text's log-probability may differ from the model's own, in nats.

    In float32 it is `NEAR_TIE`. In half precision a token's own error is of that size; errors of
    tokens are independent, so that their sum grows as the square root of their number.
    """
    return NEAR_TIE[dtype] if dtype == "float32" else NEAR_TIE[dtype] * math.sqrt(tokens)


def check_scores(loaded: LoadedModel, scores: list[Score]) -> dict[str, float]:
    """Hold the first text's scores, of two variants, against the model's own modules in float32.

    Returns:
        The bound and the largest difference, in nats.

    Raises:
        ModelError: a difference exceeds the bound.
    """
    allowed = bound(dtype_name(loaded.dtype), len(scores[0].text.tokens))
    worst = 0.0
    of_first_text = [score for score in scores if score.text == scores[0].text]
    for checked in of_first_text[:2]:
        lost = pruned(loaded.model, loaded.geometry, checked.variant)
        with in_float32(loaded.model), torch.inference_mode(), lost:
            truth = log_probability(loaded, checked.text).item()
        difference = abs(checked.log_probability - truth)
        worst = max(worst, difference)
        if not difference <= allowed:
            raise ModelError(
                f"{checked.variant}: the log-probability of a text is "
                f"{checked.log_probability:.4f}, by the model's own modules {truth:.4f}; "
                f"{allowed:.2g} is allowed; use dtype float32, and please report this"
            )
    return {"bound": allowed, "worst": worst}


def estimate_heads(config: Config, texts: str) -> None:
    """Estimate to first order what each head's loss does to a map's texts, given their key.

    Writes `tables.GRADIENTS` and its record; raises what `score_layer` raises.
    """
    stopwatch = Stopwatch()
    name, section = find_map(config, texts)
    measure = partial(_estimates, config, name, choose_pairs(config, name))
    table = with_model(config, section.model, measure, section.dtype)
    output = Path(GRADIENTS.path.format(texts=texts))
    write_table(output, table, GRADIENTS, {"map": name})
    write_record(output, stopwatch, {"map": section.model_dump(mode="json")})


def _estimates(config: Config, name: str, pairs: Pairs, loaded: LoadedModel) -> pd.DataFrame:
    chosen = choose_texts(config, name, loaded.tokenizer, pairs, most_tokens(loaded.model.config))
    return pd.DataFrame(
        {
            "question_id": estimate_of_text.text.question_id,
            "kind": estimate_of_text.text.kind,
            "variant": str(estimate_of_text.variant),
            "change": estimate_of_text.change,
        }
        for estimate_of_text in estimate(loaded, chosen.texts)
    )
