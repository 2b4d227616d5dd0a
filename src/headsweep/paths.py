"""Every path of a run; figures have theirs in `headsweep.planning.exhibits`.

Templates are written out in full, so that a search for a file name finds them. Wildcards in braces
are keys (see `headsweep.planning.store`), names from the config, or a variant.
"""

RESULTS = "results"

# The store, shared by all configs: everything that takes GPU hours or downloads.
STORE = "results/store"
STORE_VERSION = "results/store/version"
STORE_USERS = "results/store/.users"  # the results folders that share it by a link
STORE_LOCKS = "results/store/.locks"  # see headsweep.generation.locks
MODEL = "results/store/models/{model}/model.json"
CHECKPOINT = "results/store/models/{model}/checkpoint"
SOURCE = "results/store/sources/{source}.parquet"
QUESTIONS = "results/store/questions/{questions}.parquet"
EMBEDDER = "results/store/embedders/{embedder}.json"
EMBEDDINGS = "results/store/embeddings/{embedder}/{questions}.parquet"
ANSWERS = "results/store/{model}/{decoding}/{questions}/{variant}.parquet"
BASE_ANSWERS = "results/store/{model}/{decoding}/{questions}/base.parquet"
ACTIVATIONS = "results/store/activations/{model}/{decoding}/{questions}.parquet"
SCORES = "results/store/scores/{texts}/{layer}.parquet"
GRADIENTS = "results/store/scores/{texts}/gradients.parquet"
PROBLEMS = "results/store/problems/{data}.parquet"
ENCODER = "results/store/encoders/{encoder}.json"
TEACHER = "results/store/solvers/{solver}/{data}/{seed}/solver.json"
HISTORY = "results/store/compressed/{subject}/{data}/{arm}/{seed}/history.json"
OUTCOMES = "results/store/compressed/{subject}/{data}/{arm}/{seed}/outcomes.parquet"
INT8_OUTCOMES = "results/store/compressed/{subject}/{data}/{arm}/{seed}/int8.parquet"
COMPRESSED = "results/store/compressed/{subject}/{data}/{arm}/{seed}/model"

# Journals: answers of incomplete tables, and hard links to the tables of an unfinished run. Each
# process that answers adds its own name to a journal's, before the suffix.
JOURNAL = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.jsonl"
FINISHED = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.parquet"
# Checkpoints of unfinished trainings.
TEACHER_JOURNAL = "results/store/.journal/solvers/{solver}/{data}/{seed}.safetensors"
COMPRESSION_JOURNAL = "results/store/.journal/compressed/{subject}/{data}/{arm}/{seed}"

# A run: everything from grading on. It can be made again from the store, without model or GPU.
CONFIG = "results/{run}/config.json"
GRADED = "results/{run}/graded/{model}/{decoding}/{questions}.parquet"
ACCURACY = "results/{run}/accuracy/{model}/{decoding}/{questions}.parquet"
# The same under grading rules other than the run's.
REGRADED = "results/{run}/graded/{grading}/{model}/{decoding}/{questions}.parquet"
REGRADED_ACCURACY = "results/{run}/accuracy/{grading}/{model}/{decoding}/{questions}.parquet"
COMPARISON = "results/{run}/comparisons/{comparison}.csv"
MAP = "results/{run}/maps/{map}/{table}.csv"
MAP_TABLES = ("heads", "layers", "foretold")
SELECTOR = "results/{run}/sprint/{selector}/selector.safetensors"
SELECTOR_CARD = "results/{run}/sprint/{selector}/README.md"
CHOICE = "results/{run}/sprint/{selector}/choice.csv"
RANKING = "results/{run}/sprint/{selector}/ranking.parquet"
TRAININGS = "results/{run}/sprint/{selector}/trainings.parquet"
POINTS = "results/{run}/sprint/{selector}/points.parquet"
CURVES = "results/{run}/sprint/{selector}/pass_at_n.parquet"
PAIRED = "results/{run}/sprint/{selector}/paired.csv"
VOTES = "results/{run}/sprint/{selector}/votes.csv"
ABLATION = "results/{run}/sprint/{selector}/ablation.csv"
OVERLAP = "results/{run}/sprint/{selector}/overlap.csv"
SENSITIVITY = "results/{run}/sprint/{selector}/sensitivity.csv"
DIVERSITY = "results/{run}/sprint/{selector}/diversity.csv"
EMBEDDING_VALUE = "results/{run}/sprint/{selector}/embedding.csv"
CHOOSING = "results/{run}/sprint/{selector}/choosing.csv"
TRANSFER = "results/{run}/sprint/{selector}/transfer.csv"
FRONTIER = "results/{run}/frontier/{frontier}/{table}.csv"
FRONTIER_TABLES = ("members", "scales", "curves", "paired", "complement", "families")
TABLE = "results/{run}/tables/{sweep}.{suffix}"
CLAIMS = "results/{run}/tables/claims.csv"
STUDY_OUTCOMES = "results/{run}/compression/{compression}/outcomes.parquet"
HISTORIES = "results/{run}/compression/{compression}/histories.json"
MEASUREMENTS = "results/{run}/compression/{compression}/measurements.csv"
COMPRESSION_TABLE = "results/{run}/tables/compression_{exhibit}.{suffix}"
CONTROLS = "results/{run}/controls/{sweep}/{table}.csv"
AUDIT_TABLE = "results/{run}/audit/{paper}.csv"
REPORT = "results/{run}/report.html"
FINDINGS = "results/{run}/findings.txt"
LOG = "results/{run}/logs"
ENGINE_LOG = "results/{run}/logs/engine/{engine}.log"
