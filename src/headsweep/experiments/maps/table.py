"""The tables of a map, made from its scores without a model."""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from headsweep.config.titles import title
from headsweep.errors import RESULT, TableError
from headsweep.experiments.maps.foretold import foretold
from headsweep.experiments.maps.outcomes import HIGHER, LOWER, heads_table, layers_table
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import read_table, write_csv
from headsweep.files.tables import ACCURACY, SCORES
from headsweep.store.chosen_heads import BASIS, basis
from headsweep.store.layout import Store
from headsweep.store.map_scores import head_batches_elsewhere, score_files

_LOG = logging.getLogger(__name__)


def write_tables(store: Store, name: str) -> None:
    """Write the tables of a map: ``heads``, ``layers`` and ``foretold``.

    Raises:
        TableError: scores are missing or damaged, or layers have scored different texts.
    """
    stopwatch = Stopwatch()
    config = store.config
    scores = pd.concat(_read_layers(score_files(config, name)), ignore_index=True)
    heads = heads_table(scores, config.seed)
    measured = head_batches_elsewhere(store, name)
    decodings = Counter(batch.questions for batch in measured)
    outcomes, called = {}, {}
    for batch in measured:
        answered = batch.questions, batch.decoding
        outcomes[answered] = read_table(batch.path(ACCURACY), ACCURACY)
        split = config.questions[batch.questions].split
        called[answered] = f"{title(config, 'questions', batch.questions)}, {split}"
        if decodings[batch.questions] > 1:
            called[answered] += f", decoding {batch.decoding}"
    tables = {
        "heads": heads,
        "layers": layers_table(heads, scores),
        "foretold": foretold(heads, outcomes, called),
    }
    path = partial(store.path, paths.MAP, map=name)
    made = [write_csv(path(table=table), content, 6) for table, content in tables.items()]
    facts = {"map": config.maps[name].model_dump(mode="json"), "seed": config.seed}
    facts[BASIS] = basis(config, "maps", name)
    write_record(made[-1], stopwatch, facts, together=made)
    _LOG.log(RESULT, "%s: heads shown to matter: %s", name, _shown(heads))


def _shown(heads: pd.DataFrame) -> str:
    """Say without how many heads each outcome of a map is shown to be lower, and higher."""
    shown = heads[heads["shown"].notna()]
    parts = []
    for outcome, of_outcome in shown.groupby("outcome"):
        lower = (of_outcome["shown"] == LOWER).sum()
        higher = (of_outcome["shown"] == HIGHER).sum()
        directions = []
        if lower:
            directions.append(f"lower without {lower}")
        if higher:
            directions.append(f"higher without {higher}")
        parts.append(f"{outcome} {' and '.join(directions)}")
    return "; ".join(parts) or "none"


def _read_layers(files: Sequence[str]) -> list[pd.DataFrame]:
    """Return the scores of each layer; all must be of the same texts.

    Raises:
        TableError: see `write_tables`.
    """
    layers = [read_table(Path(file), SCORES) for file in files]
    texts = [set(layer[["question_id", "kind", "tokens"]].itertuples(False)) for layer in layers]
    for file, texts_of_layer in zip(files, texts, strict=True):
        if texts_of_layer != texts[0]:
            raise TableError(f"{file} scores other texts than {files[0]}; remove it, and run again")
    return layers
