"""The job of a map that loads its model: the scores of a layer."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from headsweep.answers.exclusive import with_model
from headsweep.engine.devices import give_back_memory
from headsweep.engine.refusals import not_finite
from headsweep.engine.requests import NEAR_TIE
from headsweep.errors import ModelError
from headsweep.experiments.maps.known_texts import read_texts
from headsweep.experiments.maps.scoring import MOST_TOKENS, Score, Text, log_probability, score
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_table
from headsweep.files.tables import SCORES
from headsweep.models.loaded import LoadedModel, dtype_name, in_float32
from headsweep.models.masks import pruned
from headsweep.store import journal
from headsweep.store.keys import digest
from headsweep.store.layout import Store
from headsweep.store.map_scores import find_map, scored_variants
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)


def score_layer(store: Store, texts: str, layer: str) -> None:
    """Score a map's texts without each head of a layer, given their key and the layer's name.

    Writes `tables.SCORES` and its record. A job that is killed goes on after the last whole text.

    Raises:
        ConfigError: the config has no map of this key.
        ModelError: the model cannot be loaded, or the scores are not the model's.
        TableError: the table of the texts is missing or damaged.
    """
    stopwatch = Stopwatch()
    config = store.config
    name, section = find_map(config, texts)
    index = int(layer.removeprefix("L"))
    variants = scored_variants(config, name, index)
    scored = Path(paths.SCORES_JOURNAL.format(texts=texts, layer=layer))
    measure = partial(_score_layer, read_texts(texts), variants, scored)
    table, facts = with_model(store, section.model, measure, section.dtype)
    output = Path(SCORES.path.format(texts=texts, layer=layer))
    write_table(output, table, SCORES, {"map": name, "layer": index})
    facts |= {"map": section.model_dump(mode="json"), "grading": config.grading}
    write_record(output, stopwatch, facts | {"layer": index})
    journal.remove(scored)
    rate = facts["scores_per_second"]
    _LOG.info("%s, %s: %.1f texts times variants a second", name, layer, rate)


def _score_layer(
    texts: Sequence[Text], variants: Sequence[Variant], scored: Path, loaded: LoadedModel
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the scores of a layer's variants, and what a record says of them.

    They are kept in the journal `scored`, text by text.
    """
    checks = []
    kept = _journaled(scored, texts, variants)
    if kept:  # by a job that was killed; its path may have been another
        checks.append(check_scores(loaded, next(iter(kept.values()))))
    missing = [text for text in texts if text not in kept]
    watch = Stopwatch()
    for number, new in enumerate(_by_text(loaded, missing, variants)):
        _check_finite((scored.log_probability for scored in new), loaded)
        if number == 0:
            checks.append(check_scores(loaded, new))
        journal.append(scored, _records(new))
        kept[new[0].text] = new
    seconds = watch.seconds
    facts: dict[str, Any] = {
        "texts": len(texts),
        "variants": len(variants),
        "scores_per_second": len(missing) * len(variants) / seconds,  # of this attempt
        "scoring_seconds": seconds,
        "dtype": dtype_name(loaded.dtype),
        "device": str(loaded.device),
    }
    facts |= max(checks, key=lambda check: check["worst"])
    return _table(score for text in texts for score in kept[text]), facts


def _check_finite(values: Iterable[float], loaded: LoadedModel) -> None:
    """Refuse what no table holds before it is kept.

    Raises:
        ModelError: a value is not finite.
    """
    if not all(map(math.isfinite, values)):
        raise not_finite(dtype_name(loaded.dtype))


def _by_text(
    loaded: LoadedModel, texts: Sequence[Text], variants: Sequence[Variant]
) -> Iterator[list[Score]]:
    """Yield each text's scores, of all variants; with smaller passes where a GPU's memory is short.

    Raises:
        torch.OutOfMemoryError: it does not hold one row of a text.
    """
    most_tokens = MOST_TOKENS
    scored = 0
    while scored < len(texts):
        full = False
        try:
            new = score(loaded, texts[scored:], variants, most_tokens=most_tokens)
            for _, scores in groupby(new, lambda one: one.text):
                yield list(scores)
                scored += 1
        except torch.OutOfMemoryError:
            if most_tokens == 1:
                raise
            full = True
        # Here, not above: an exception holds what its frames hold, such as keys and values.
        if full:
            give_back_memory()
            most_tokens //= 2
            _LOG.warning("out of GPU memory; going on with passes of %d tokens", most_tokens)


def _table(scores: Iterable[Score]) -> pd.DataFrame:
    """Return scores as `tables.SCORES`."""
    return pd.DataFrame(
        {
            "question_id": scored.text.question_id,
            "kind": scored.text.kind,
            "variant": str(scored.variant),
            "log_probability": scored.log_probability,
            "tokens": len(scored.text.tokens),
            "kept": scored.kept,
        }
        for scored in scores
    )


def _records(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return the scores of one text as a journal keeps them."""
    text = _key(scores[0].text)
    return [
        {
            "text": text,
            "variant": str(scored.variant),
            "log_probability": scored.log_probability,
            "kept": scored.kept,
        }
        for scored in scores
    ]


def _journaled(
    file: Path, texts: Sequence[Text], variants: Sequence[Variant]
) -> dict[Text, list[Score]]:
    """Return the scores that a killed job has left, of texts with all of them."""
    by_text = defaultdict[str, dict[str, Any]](dict)
    for record in journal.read(file):
        by_text[record["text"]][record["variant"]] = record
    whole: dict[Text, list[Score]] = {}
    if not by_text:
        return whole
    for text in texts:
        found = by_text.get(_key(text), {})
        if found.keys() >= set(map(str, variants)):
            records = [(variant, found[str(variant)]) for variant in variants]
            whole[text] = [
                Score(text, variant, record["log_probability"], record["kept"])
                for variant, record in records
            ]
    return whole


def _key(text: Text) -> str:
    """Return what tells a text from all other texts, also from one that took its place."""
    tokens = digest([text.prompt, text.tokens])
    return f"{text.question_id}/{text.kind}/{tokens}"


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
    dtype = dtype_name(loaded.dtype)
    allowed = bound(dtype, len(scores[0].text.tokens))
    advice = "" if dtype == "float32" else "use dtype float32, and "
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
                f"{allowed:.2g} is allowed; {advice}please report this"
            )
    return {"bound": allowed, "worst": worst}
