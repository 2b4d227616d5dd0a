"""Families of variants in a run of the real Snakefile: answered, graded, compared."""

import pandas as pd
import pytest

from mini import MINIATURE, REASONER, Snakemake

CONFIG = {
    "run": "families",
    "models": {"tiny": REASONER},
    "questions": MINIATURE["questions"],
    "decodings": {name: MINIATURE["decodings"][name] for name in ("greedy", "T0.6")},
    "frontiers": {
        "math": {
            "model": "tiny",
            "train": "train",
            "test": "test",
            "scales": {"scaled": [50, 200], "weights": [20]},
            "sampling": ["T0.6"],
            "layers": [1, 4],
            "members": 3,
            "max_n": 3,
            "bootstrap": 50,
        }
    },
}


def test_families_are_answered_graded_and_compared(copied):
    done = Snakemake(copied)(CONFIG)
    assert "solved by any answer with the tokens of" in done.stdout + done.stderr
    run = copied / "results/families"
    tables = {file.stem: pd.read_csv(file) for file in (run / "frontier/math").glob("*.csv")}
    assert tables.keys() == {"members", "scales", "curves", "paired", "complement", "families"}
    assert (run / "figures/families_math.png").stat().st_size > 10_000
    members = tables["members"].set_index("member")
    (test,) = run.glob("accuracy/*/greedy-*/test-*.parquet")
    (train,) = run.glob("accuracy/*/greedy-*/train-*.parquet")
    z, learnt = pd.read_parquet(test), pd.read_parquet(train)
    own = members[members["family"] != "sampling"]
    assert set(own.index) <= set(z.columns)
    for name, row in own.iterrows():
        assert row["accuracy"] == pytest.approx(z[name].mean(), rel=1e-5)
        assert row["train_accuracy"] == pytest.approx(learnt[name].mean(), rel=1e-5)
    assert members["family"].value_counts().eq(3).all()
    assert (tables["curves"]["computed"] > 0).all()
    assert set(tables["paired"]["versus"]) <= {"sampling", "scaled", "skip", "weights", "noise"}
    assert "Nothing to be done" in (again := Snakemake(copied)(CONFIG)).stdout + again.stderr
