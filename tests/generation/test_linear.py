"""Linear layers by either library: the same function; which one is taken, the processor decides."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, silu

from headroom.generation import weights as linear_module
from headroom.generation.weights import Linear, fast_linear

ONEDNN = linear_module._prefers_onednn(torch.float32, "cpu")


@pytest.fixture(params=["MKL", "oneDNN", "oneDNN, but for small products"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "MKL":
        monkeypatch.setattr(linear_module, "_prefers_onednn", lambda *_: False)
    elif not ONEDNN:
        pytest.skip("this processor takes MKL")
    elif request.param == "oneDNN":
        monkeypatch.setattr(linear_module, "_SMALL", 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 19])
@pytest.mark.usefixtures("library")
def test_products_are_those_of_double_precision(rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(rows)
    states, weight, bias = (
        torch.randn(*size).to(dtype) for size in ((rows, 1, 24), (40, 24), (40,))
    )
    other = torch.randn(rows, 1, 40).to(dtype)
    kept = other.clone()
    plain = states.double() @ weight.double().T
    with torch.inference_mode():
        layer, biased = Linear(weight), Linear(weight, bias)
        pairs = [
            (layer(states), plain),
            (biased(states), plain + bias),
            (layer(states, "silu"), silu(plain)),
            (layer(states, "gelu"), gelu(plain)),
            (layer(states, "gelu_pytorch_tanh"), gelu(plain, approximate="tanh")),
            (layer.then("mul", other, states), plain * other),
            (layer.then("add", other, states), plain + other),
            (biased.then("add", other, states), plain + bias + other),
        ]
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for found, expected in pairs:
        assert found.dtype == dtype
        assert torch.allclose(found.double(), expected, atol=tolerance, rtol=tolerance / 10)
    assert torch.equal(other, kept)


@pytest.mark.usefixtures("library")
def test_a_model_is_itself_again_after_the_block() -> None:
    model = nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 8, bias=False))
    states = torch.linspace(-1, 1, 5 * 24).view(5, 24)
    with torch.inference_mode():
        before = model(states)
        with fast_linear(model):
            assert torch.allclose(model(states), before, atol=1e-5)
        assert torch.equal(model(states), before)
    assert "forward" not in vars(model[0])


@pytest.mark.parametrize(("capability", "wide"), [("AVX2", False), ("AVX512", True)])
def test_onednn_is_for_the_widest_vectors_only(
    capability: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    available = torch.backends.mkldnn.is_available()
    found = linear_module._prefers_onednn.__wrapped__(torch.float32, "cpu")
    assert found == (wide and available)
