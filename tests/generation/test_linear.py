"""Linear layers by either library: the same function; which one is taken, the processor decides."""

import pytest
import torch
from torch import nn

from headroom.generation import linear as linear_module
from headroom.generation.linear import fast_linear, linear, linear_add, linear_mul, linear_silu


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "_prefers_onednn", lambda: request.param == "oneDNN")


@pytest.mark.parametrize("rows", [1, 3, 4, 19])
@pytest.mark.usefixtures("library")
def test_products_are_those_of_double_precision(rows: int) -> None:
    torch.manual_seed(rows)
    states, weight, bias = torch.randn(rows, 1, 24), torch.randn(40, 24), torch.randn(40)
    other = torch.randn(rows, 1, 40)
    kept = other.clone()
    plain = states.double() @ weight.double().T
    with torch.inference_mode():
        pairs = [
            (linear(states, weight, None), plain),
            (linear(states, weight, bias), plain + bias),
            (linear_silu(states, weight), plain / (1 + torch.exp(-plain))),
            (linear_mul(states, weight, other), plain * other),
            (linear_add(states, weight, None, other), plain + other),
            (linear_add(states, weight, bias, other), plain + bias + other),
        ]
    for found, expected in pairs:
        assert torch.allclose(found.double(), expected, atol=1e-4)
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
    assert linear_module._prefers_onednn.__wrapped__() == (wide and available)
