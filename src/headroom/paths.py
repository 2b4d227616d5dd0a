"""Every path of a run, once.

Templates are written out in full, so that a search for a file name finds its rule. Wildcards in
braces are keys (see `headroom.identity`), names from the config, or a variant.
"""

RESULTS = "results"

# The store, shared by all configs: what costs GPU hours or network.
MODEL = "results/store/models/{model}/model.json"
CHECKPOINT = "results/store/models/{model}/checkpoint"
SOURCE = "results/store/sources/{source}.parquet"
QUESTIONS = "results/store/questions/{questions}.parquet"
EMBEDDER = "results/store/embedders/{embedder}.json"
EMBEDDINGS = "results/store/embeddings/{embedder}/{questions}.parquet"
ANSWERS = "results/store/{model}/{decoding}/{questions}/{variant}.parquet"
ACTIVATIONS = "results/store/activations/{model}/{decoding}/{questions}.parquet"

# Beside the store: answers of tables that are not complete, second names of tables of a run that
# is not.
JOURNAL = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.jsonl"
FINISHED = "results/store/.journal/{model}/{decoding}/{questions}/{variant}.parquet"

# A run: everything from grading on. It can be remade from the store without model or GPU.
CONFIG = "results/{run}/config.json"
GRADED = "results/{run}/graded/{model}/{decoding}/{questions}.parquet"
ACCURACY = "results/{run}/accuracy/{model}/{decoding}/{questions}.parquet"
COMPARISON = "results/{run}/comparisons/{comparison}.{suffix}"
SELECTOR = "results/{run}/sprint/{selector}/selector.safetensors"
CHOICE = "results/{run}/sprint/{selector}/choice.csv"
RANKING = "results/{run}/sprint/{selector}/ranking.parquet"
POINTS = "results/{run}/sprint/{selector}/points.parquet"
CURVES = "results/{run}/sprint/{selector}/pass_at_n.parquet"
PAIRED = "results/{run}/sprint/{selector}/paired.csv"
SENSITIVITY = "results/{run}/sprint/{selector}/sensitivity.csv"
DIVERSITY = "results/{run}/sprint/{selector}/diversity.{suffix}"
EMBEDDING_VALUE = "results/{run}/sprint/{selector}/embedding.{suffix}"
TABLE = "results/{run}/tables/{sweep}.{suffix}"
CLAIMS = "results/{run}/tables/claims.{suffix}"
VIOLINS = "results/{run}/figures/violins.{suffix}"
LEVELS = "results/{run}/figures/levels.{suffix}"
HEATMAP = "results/{run}/figures/heatmap_{sweep}_L{layer}.{suffix}"
PASS_AT_N = "results/{run}/figures/pass_at_n_{selector}.{suffix}"
SPACE = "results/{run}/figures/space_{selector}.{suffix}"
FOREST = "results/{run}/figures/forest_{sweep}.{suffix}"
AGREEMENT = "results/{run}/figures/agreement_{sweep}.{suffix}"
COMPONENTS = "results/{run}/figures/components_{sweep}.{suffix}"
COST = "results/{run}/figures/cost_{sweep}.{suffix}"
CONTROLS = "results/{run}/controls/{sweep}/{table}.{suffix}"
AUDIT = "results/{run}/figures/audit.{suffix}"
AUDIT_TABLE = "results/{run}/audit/{paper}.{suffix}"
REPORT = "results/{run}/report.html"
LOG = "results/{run}/logs"
ENGINE_LOG = "results/{run}/logs/engine/{engine}.log"
