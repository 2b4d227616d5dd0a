"""The engine answers with models whose layers have different numbers of heads."""

import pytest
import tiny_models
from test_engine import answer_all, assert_exact, loaded_model, requests
from tiny_models import DECODERS

from headroom.generation.direct import Direct
from headroom.models.geometry import find_heads
from headroom.models.removal import remove_heads
from headroom.variants import BASE, Variant

CUT = [Variant(0, 3), Variant(0, 4), Variant(0, 5), Variant(2, 1), Variant(2, 5)]
"""A group of layer 0, one query of each group of layer 2."""


@pytest.mark.parametrize("name", ["Qwen2", "Qwen3", "Phi3"])
def test_answers_of_a_cut_model_are_those_of_generate(name: str):
    model = tiny_models.build(next(one for one in DECODERS if one.name == name))
    remove_heads(model, find_heads(model), CUT)
    loaded = loaded_model(model)
    assert (Direct.of(loaded) is not None) == (name == "Qwen2")
    wanted = requests([BASE, Variant(0, 2), Variant(2, 3), Variant(3, 5)])
    assert_exact(loaded, answer_all(loaded, wanted, batch_size=4))
