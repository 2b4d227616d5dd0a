"""A config with every section, small, for tests to change."""

import copy
import gzip
import json
from pathlib import Path

import yaml

from headsweep.config import parse
from headsweep.config.questions import Columns

SHIPPED = [
    file
    for file in sorted((Path(__file__).parents[1] / "config").glob("*.yaml"))
    if not file.is_symlink()  # config.yaml: what snakedeploy looks for
]

VALUES = yaml.safe_load(
    """
    run: mini
    models:
      tiny: {source: "builtin:reasoner", layers: 6, heads: 4, kv_heads: 4, billions: 0.001}
      big: {source: owner/big, revision: "0000000000000000000000000000000000000000",
            layers: 28, heads: 12, kv_heads: 2, billions: 1.5}
    questions:
      test: {benchmark: math500, split: test}
      train: {benchmark: math_train, split: train, n: 50}
    decodings:
      greedy: {max_new_tokens: 64}
      authors: {prompt: authors}
      T0.6: {temperature: 0.6, samples: 16}
    embedders:
      minilm: {source: owner/minilm, revision: "1111111111111111111111111111111111111111"}
    sweeps: {table: {model: big, questions: test, layers: [0, 27], heads: [11]}}
    selectors:
      math: {model: big, train: train, test: test, embedder: minilm, layers: all, sampling: [T0.6]}
    comparisons: {math: {model: big, questions: test}}
    """
)

STUDIES = VALUES | yaml.safe_load(
    """
    problems:
      made: {dataset: generated, n: 90}
      asdiv: {dataset: asdiv_a, file: asdiv.jsonl,
              revision: "5555555555555555555555555555555555555555555555555555555555555555"}
    solvers:
      tiny: {profile: tiny, training: {epochs: 9}}
      base: {encoder: {source: owner/base, revision: "3333333333333333333333333333333333333333"}}
    compressions:
      words: {solver: tiny, data: made, arms: [baseline, full, small_from_scratch],
              variations: {ratio_30: {ratio: 0.3}}, int8: [full], measured: [baseline, full],
              seeds: [4, 0]}
      fetched: {solver: base, data: made, arms: [baseline]}
      own: {model: big, train: train, test: test}
    """
)
"""The example with compressions of two solvers and of a model."""


def config(**sections):
    """Return the example with keys of entries changed, as in ``models={"big": {...}}``."""
    values = VALUES
    for section, entries in sections.items():
        for name, keys in entries.items():
            own = values.get(section, {}).get(name, {})
            values = changed(values, f"{section}/{name}", own | keys)
    return parse(values)


def changed(values, path, value):
    """Return values with one key changed, as in ``sweeps/table/layers``; ... removes it."""
    whole = copy.deepcopy(values)
    *sections, key = path.split("/")
    inner = whole
    for section in sections:
        inner = inner.setdefault(section, {})
    if value is ...:
        del inner[key]
    else:
        inner[key] = value
    return whole


MATH_COLUMNS = Columns(question="problem", id="unique_id", subject="subject", level="level")


def put_data(config, folder):
    """Put something where a config looks for its users' own files."""
    for section in (*config.problems.values(), *config.questions.values()):
        if section.file is not None:
            columns = getattr(section, "columns", None)
            if getattr(section, "benchmark", None) in ("math500", "math_train"):
                columns = MATH_COLUMNS
            rows = [{}]
            if columns:
                names = [name for name in columns.model_dump().values() if name]
                ids = (f"{Path(section.file).name}/{n}" for n in range(500))
                rows = [
                    dict.fromkeys(names, f"{n % 2}") | {columns.id: id_}
                    for n, id_ in enumerate(ids)
                ]
                if columns.level:
                    rows = [row | {columns.level: 1 + n % 5} for n, row in enumerate(rows)]
            file = folder / section.file
            file.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
