"""Fused operators by Triton's interpreter, held against PyTorch's own."""

import pytest
import torch
from test_engine import loaded_model
from test_packed import SERVED, biased

from headsweep.engine import fused as trial
from headsweep.engine.attention import dense
from headsweep.engine.fused import fused
from headsweep.engine.operators import PLAIN
from headsweep.engine.weights import Weights


@pytest.fixture(scope="module")
def kernels():
    """The module of kernels, as Triton interprets them on a CPU."""
    pytest.importorskip("triton")
    from headsweep.engine import triton_kernels

    return triton_kernels


def weights_of(name, dtype):
    return Weights(loaded_model(biased(SERVED[name]).to(dtype)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", SERVED)
def test_fused_operators_do_what_pytorchs_own_do(name, dtype, kernels):
    found = fused(weights_of(name, dtype), dense)
    assert isinstance(found, kernels.Fused), found


def test_in_bfloat16_all_but_attention_can_be_interpreted(kernels):
    """The interpreter takes numbers of bfloat16 for integers in a product."""
    weights = weights_of("Qwen3", torch.bfloat16)
    found = trial._differing(kernels.Fused(), weights, dense)
    assert found == "other results of attend"


@pytest.mark.parametrize(
    "name", ["add_then_norm", "gated", "place", "attend", "scale_heads", "best_two"]
)
def test_an_operator_that_does_something_else_is_named_and_none_is_used(name, kernels, monkeypatch):
    right = getattr(PLAIN, name)

    def wrong(_, *given):
        results = right(*given)
        if isinstance(results, tuple):
            return results[0] + 1, *results[1:]
        return results * 1.01

    weights = weights_of("Qwen2", torch.float32)
    monkeypatch.setattr(kernels.Fused, name, wrong)
    assert fused(weights, dense) == f"other results of {name}"


@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
def test_the_gap_of_logits_that_are_not_finite_is_none(spoilt, kernels):
    logits = torch.randn(3, 5000)
    logits[1, 4321] = spoilt
    for each in (PLAIN, kernels.Fused()):
        _, gaps = each.best_two(logits.clone())
        assert gaps.isfinite().tolist() == [True, False, True]
