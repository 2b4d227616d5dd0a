"""A config with every section, small, for tests to change."""

from typing import Any

VALUES: dict[str, Any] = {
    "run": "mini",
    "models": {
        "tiny": {"train": {"steps": 3}, "layers": 6, "heads": 8, "kv_heads": 4, "billions": 0.001},
        "big": {
            "source": "owner/big",
            "revision": "0" * 40,
            "layers": 28,
            "heads": 12,
            "kv_heads": 2,
            "billions": 1.5,
        },
    },
    "questions": {
        "test": {"benchmark": "math500", "split": "test"},
        "train": {"benchmark": "math_train", "split": "train", "n": 50},
    },
    "decodings": {
        "greedy": {"max_new_tokens": 64},
        "authors": {"prompt": "authors"},
        "T0.6": {"temperature": 0.6, "samples": 16},
    },
    "embedders": {"minilm": {"source": "owner/minilm", "revision": "1" * 40}},
    "sweeps": {"table": {"model": "big", "questions": "test", "layers": [0, 27], "heads": [11]}},
    "selectors": {
        "math": {
            "model": "big",
            "train": "train",
            "test": "test",
            "embedder": "minilm",
            "layers": "all",
            "sampling": ["T0.6"],
        }
    },
    "comparisons": {"math": {"model": "big", "questions": "test"}},
}
