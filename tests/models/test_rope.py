"""Rotary embeddings that follow the length are refused by a config alone, under all its names."""

import json

import pytest

from headsweep.errors import ModelError
from headsweep.models.rope import check_rope


@pytest.mark.parametrize(
    ("rope", "changes"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, "dynamic"),
        ({"text_config": {"rope_parameters": {"rope_type": "dynamic"}}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, None),
        ({"rope_scaling": None}, None),
        ({}, None),
    ],
)
def test_a_rope_that_follows_the_length_is_refused(rope, changes, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **rope}))
    if changes is None:
        check_rope(tmp_path)
        return
    with pytest.raises(ModelError, match=f"rope_type '{changes}' makes an answer depend"):
        check_rope(tmp_path)
