"""Paths of a run and of the store.

Parquet tables are declared in `headsweep.files.tables`, with their columns, and figures in
`headsweep.results.exhibits`. Templates are written out in full, so that a search for a file name
finds them. Wildcards in braces are keys (see `headsweep.store.keys`), names from the config, or
a variant.
"""

from pathlib import Path
from typing import NamedTuple

import headsweep

SHIPPED = (Path(headsweep.__file__).parent / "shipped/Snakefile").resolve().parent
"""The folder of the workflow, its profiles and configs.

``headsweep/shipped`` links to them where they lie in a clone; an installed package has copies.
"""


class BatchKeys(NamedTuple):
    """The keys of a batch of answers, by which paths, jobs and engines name it."""

    model: str
    decoding: str
    questions: str


RESULTS = "results"

# The store, shared by all configs: everything that takes GPU hours or downloads.
STORE = "results/store"
STORE_VERSION = "results/store/version"
STORE_USERS = "results/store/.users"  # the results folders that share it by a link
STORE_LOCKS = "results/store/.locks"  # see headsweep.files.locks
RUN_LOCK = "results/.lock"  # likewise, of the runs that are under way
MODEL = "results/store/models/{model}/model.json"
CHECKPOINT = "results/store/models/{model}/checkpoint"
EMBEDDER = "results/store/embedders/{embedder}.json"
ENCODER = "results/store/encoders/{encoder}.json"
TEACHER = "results/store/solvers/{solver}/{data}/{seed}/solver.json"
HISTORY = "results/store/compressed/{subject}/{data}/{arm}/{seed}/history.json"
COMPRESSED = "results/store/compressed/{subject}/{data}/{arm}/{seed}/model"

# Journals: answers of incomplete tables, and hard links to the tables of an unfinished run. Each
# process that answers adds its own name to a journal's, before the suffix.
JOURNAL = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.jsonl"
FINISHED = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.parquet"
# Scores of a layer that is not complete, likewise.
SCORES_JOURNAL = "results/store/.journal/scores/{texts}/{layer}.jsonl"
# Checkpoints of unfinished trainings.
TEACHER_JOURNAL = "results/store/.journal/solvers/{solver}/{data}/{seed}.safetensors"
COMPRESSION_JOURNAL = "results/store/.journal/compressed/{subject}/{data}/{arm}/{seed}"

# A run: everything from grading on. It can be made again from the store, without model or GPU.
CONFIG = "results/{run}/config.json"
MODEL_SECTIONS = "results/{run}/models.json"  # the models of the config, by key
COMPARISON = "results/{run}/comparisons/{comparison}.csv"
MAP = "results/{run}/maps/{map}/{table}.csv"
MAP_TABLES = ("heads", "layers", "foretold")
SELECTOR = "results/{run}/sprint/{selector}/selector.safetensors"
SELECTOR_CARD = "results/{run}/sprint/{selector}/README.md"
CHOICE = "results/{run}/sprint/{selector}/choice.csv"
PAIRED = "results/{run}/sprint/{selector}/paired.csv"
VOTES = "results/{run}/sprint/{selector}/votes.csv"
ABLATION = "results/{run}/sprint/{selector}/ablation.csv"
OVERLAP = "results/{run}/sprint/{selector}/overlap.csv"
SENSITIVITY = "results/{run}/sprint/{selector}/sensitivity.csv"
DIVERSITY = "results/{run}/sprint/{selector}/diversity.csv"
EMBEDDING_VALUE = "results/{run}/sprint/{selector}/embedding.csv"
TRANSFER = "results/{run}/sprint/{selector}/transfer.csv"
FRONTIER = "results/{run}/frontier/{frontier}/{table}.csv"
FRONTIER_TABLES = ("members", "scales", "curves", "paired", "complement", "families")
TABLE = "results/{run}/tables/{sweep}.{suffix}"
CLAIMS = "results/{run}/tables/claims.csv"
HISTORIES = "results/{run}/compression/{compression}/histories.json"
MEASUREMENTS = "results/{run}/compression/{compression}/measurements.csv"
COMPRESSION_TABLE = "results/{run}/tables/compression_{exhibit}.{suffix}"
CONTROLS = "results/{run}/controls/{sweep}/{table}.csv"
AUDIT_TABLE = "results/{run}/audit/{paper}.csv"
REPORT = "results/{run}/report.html"
FINDINGS = "results/{run}/findings.txt"
SO_FAR = "results/{run}/so-far.html"  # the report of a run that is not finished
LOG = "results/{run}/logs"
ENGINE_LOG = "results/{run}/logs/engine/{engine}.log"
