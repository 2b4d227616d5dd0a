"""A config that trains its own reasoner, through the real Snakefile."""

import json
from pathlib import Path

import pandas as pd
from mini import Snakemake, facts

VALUES = {
    "run": "trained",
    "models": {
        "own": {
            "train": {
                "steps": 3,
                "layers": 2,
                "hidden": 40,
                "query_heads": 6,
                "kv_heads": 3,
                "head_dim": 8,
                "intermediate": 56,
                "vocabulary": 300,
                "batch_size": 4,
            },
            "layers": 2,
            "heads": 6,
            "kv_heads": 3,
            "billions": 0.0001,
            "dtype": "float32",
            "device": "cpu",
        }
    },
    "questions": {
        "test": {"benchmark": "generated_math", "split": "test", "n": 5, "sampling": "first"}
    },
    "decodings": {"greedy": {"max_new_tokens": 9}},
    "sweeps": {"math": {"model": "own", "questions": "test", "layers": [1], "heads": [4]}},
}


def test_a_model_is_trained_and_answers(snakemake: Snakemake, tmp_path: Path) -> None:
    snakemake(VALUES, "--cores", "2", "answers")
    store = tmp_path / "results/store"
    (model,) = store.glob("models/own-*/model.json")
    shape = json.loads((model.parent / "checkpoint/config.json").read_text(encoding="utf-8"))
    assert (shape["num_hidden_layers"], shape["num_attention_heads"]) == (2, 6)
    assert facts(model)["model"]["train"]["steps"] == 3
    for variant in ("base", "L01H04"):
        (answers,) = store.glob(f"own-*/greedy-*/test-*/{variant}.parquet")
        assert len(pd.read_parquet(answers)) == 5
