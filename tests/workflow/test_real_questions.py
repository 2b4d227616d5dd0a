"""Real MATH-500 questions from a local file, through the real Snakefile, on random weights."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from mini import Snakemake, facts
from transformers import Qwen2Config, Qwen2ForCausalLM

from headroom.reasoner.tokenizer import train_tokenizer

QUESTIONS = 20


@pytest.fixture
def benchmark_file(headroom_data: Path, tmp_path: Path) -> Path:
    """The first questions of MATH-500, in the hub's own columns."""
    lines = (headroom_data / "math500.jsonl").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "math20.jsonl"
    file.write_text("\n".join(lines[:QUESTIONS]) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def random_qwen2(benchmark_file: Path, tmp_path: Path) -> Path:
    """A Qwen2 with random weights and a tokenizer of its own, in a folder."""
    problems = [json.loads(line)["problem"] for line in benchmark_file.read_text().splitlines()]
    tokenizer = train_tokenizer(problems, 500)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=60,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = Qwen2ForCausalLM(config)
    folder = tmp_path / "qwen2"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_real_questions_reach_the_report(
    snakemake: Snakemake, benchmark_file: Path, random_qwen2: Path, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "run": "real",
        "models": {
            "qwen2": {
                "source": str(random_qwen2),
                "layers": 3,
                "heads": 6,
                "kv_heads": 2,
                "billions": 0.0001,
                "dtype": "float32",
            }
        },
        "questions": {
            "math": {"benchmark": "math500", "split": "test", "file": str(benchmark_file)}
        },
        "decodings": {"greedy": {"max_new_tokens": 11}},
        "sweeps": {"math": {"model": "qwen2", "questions": "math", "layers": [2], "heads": [1, 5]}},
    }
    snakemake(values)
    (file,) = tmp_path.glob("results/real/accuracy/qwen2-*/greedy-*/math-*.parquet")
    matrix = pd.read_parquet(file)
    assert len(matrix) == QUESTIONS
    assert matrix["subject"].nunique() > 3
    assert list(matrix.columns[3:]) == ["base", "L02H01", "L02H05"]
    (answers,) = tmp_path.glob("results/store/qwen2-*/greedy-*/math-*/L02H05.parquet")
    texts = pd.read_parquet(answers)["text"]
    base = pd.read_parquet(answers.with_name("base.parquet"))["text"]
    assert (texts != base).any(), "pruning a head changed nothing"
    assert facts(answers)["truncated"] == QUESTIONS  # random weights find no end
    assert (tmp_path / "results/real/report.html").stat().st_size > 10_000
