"""A tiny model with a tokenizer, and a store of its own with question sets."""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import tiny_models

from headsweep import config
from headsweep.files import paths
from headsweep.files.safe_files import write_json, write_table
from headsweep.files.tables import QUESTIONS
from headsweep.models.load import load_tokenizer
from headsweep.store.keys import key


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}w93"
    folder = tmp_path_factory.mktemp("qwen2")
    return tiny_models.save_qwen2(folder, pad_token="[PAD]", chat_template=template)


@pytest.fixture(scope="session")
def tokenizer(model_folder):
    return load_tokenizer(model_folder)


@pytest.fixture
def run_config(tmp_path, monkeypatch, model_folder):
    """A config with two draws from one split and one from another, their tables in place."""
    monkeypatch.chdir(tmp_path)
    gsm8k: dict[str, Any] = {"benchmark": "generated_gsm8k", "split": "test", "sampling": "first"}
    geometry = {"layers": tiny_models.LAYERS, "heads": tiny_models.QUERY_HEADS}
    tiny = {"source": str(model_folder), **geometry, "kv_heads": tiny_models.KV_HEADS}
    tiny |= {"billions": 0.001, "dtype": "float32", "device": "cpu", "batch_size": 3}
    values = config.parse(
        {
            "run": "tiny",
            "models": {"tiny": tiny},
            "questions": {
                "small": {**gsm8k, "n": 4},
                "large": {**gsm8k, "n": 7},
                "other": {**gsm8k, "n": 5, "seed": 1},
            },
            "sweeps": {
                "some": {"model": "tiny", "questions": "small", "layers": [1], "heads": [0, 4]}
            },
            "decodings": {
                "greedy": {"max_new_tokens": 9},
                "T0.6": {"max_new_tokens": 9, "temperature": 0.6, "samples": 3},
            },
        }
    )
    for name, section in values.questions.items():
        numbers = range(section.n or 0)
        rows = pd.DataFrame({"question_id": [f"q{n}" for n in numbers][::-1], "split": "test"})
        rows["question"] = [f"w{n} w{2 * n} w7" for n in numbers][::-1]
        rows = rows.assign(subject=None, level=None, answer="1", solution=None, source_row=numbers)
        file = QUESTIONS.path.format(questions=key(values, "questions", name))
        write_table(Path(file), rows, QUESTIONS)
    model_file = paths.MODEL.format(model=key(values, "models", "tiny"))
    write_json(Path(model_file), {"folder": str(model_folder)})
    return values
