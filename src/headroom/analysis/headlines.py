"""What a run prints at its end: of what its report finds, the most important."""

from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

from headroom import paths
from headroom.analysis import claims
from headroom.analysis.compression.findings import findings
from headroom.analysis.compression.trial import read_trials
from headroom.analysis.findings import short_sentence, sweep_sentence
from headroom.analysis.gains import read_cells
from headroom.analysis.selectors import embedding_sentence
from headroom.analysis.sheet import read_csv
from headroom.analysis.text import plain
from headroom.analysis.verdict import read_controls
from headroom.config import Config
from headroom.sprint.evaluation import PAIRED
from headroom.sprint.matching import COLUMNS
from headroom.tables import CURVES, read_table

_MOST = 5


def headlines(config: Config) -> list[str]:
    """Return at most five findings of a run, one sentence each, the most important first.

    The first sweep, selector and compression and the papers' claims have a word each before the
    second ones have.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    kinds = (_sweeps, _selectors, _embeddings, _compressions, _claims)
    turns = zip_longest(*(kind(config) for kind in kinds))
    told = (plain(sentence) for sentence in chain.from_iterable(turns) if sentence)
    return list(islice(told, _MOST))


def _sweeps(config: Config) -> Iterator[str]:
    for name in config.sweeps:
        heads = read_controls(config, name, "heads")
        yield f"Sweep {name}: {sweep_sentence(read_cells(config, name), heads)}"


def _selectors(config: Config) -> Iterator[str]:
    for name in config.selectors:
        curves, paired = (
            Path(template.format(run=config.run, selector=name))
            for template in (paths.CURVES, paths.PAIRED)
        )
        said = short_sentence(read_table(curves, CURVES), read_csv(paired, PAIRED))
        yield f"Selector {name}: {said}" if said else ""


def _embeddings(config: Config) -> Iterator[str]:
    """Yield the first part of each selector's sentence: the others are the report's to tell."""
    for name in config.selectors:
        file = Path(paths.EMBEDDING_VALUE.format(run=config.run, selector=name, suffix="csv"))
        if file.exists():
            said = embedding_sentence(read_csv(file, COLUMNS)).partition(";")[0].rstrip(".")
            yield f"Selector {name}: {said[:1].lower()}{said[1:]}."


def _compressions(config: Config) -> Iterator[str]:
    for trial in read_trials(config):
        yield from findings(trial)[:1]


def _claims(config: Config) -> Iterator[str]:
    file = Path(paths.CLAIMS.format(run=config.run, suffix="csv"))
    if not file.exists():  # as the page, which shows what there is
        return
    table = read_csv(file, claims.COLUMNS).astype({"prompt": object, "grading": object})
    table = table.fillna({"prompt": "", "grading": ""})
    once = table.drop_duplicates(["paper", "claim", "value", "where"])
    own = once["published"].value_counts()
    told = []
    for (prompt, grading), part in table.groupby(["prompt", "grading"]):
        here = part["run"].value_counts()
        under = f" under prompt {prompt} and grading {grading}" if prompt else ""
        told.append(f"{here.get('holds', 0)} hold and {here.get('fails', 0)} fail{under}")
    yield (
        f"Of {len(once)} claims of both papers, {', '.join(told)} in this run, the others cannot "
        f"be judged by it; in the papers' own tables {own.get('holds', 0)} hold and "
        f"{own.get('fails', 0)} fail."
    )
