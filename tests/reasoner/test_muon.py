import numpy as np
import torch

from headroom.reasoner.muon import Muon, orthogonal

SHAPES = [(6, 4), (4, 6), (4, 6), (5, 5), (9, 2)]


def test_steps_are_those_of_torch() -> None:
    """Tall, wide and square matrices, two of them in one stack with a third's transpose."""
    generator = torch.Generator().manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    begin = [p.detach().clone() for p in ours]
    optimizers = [Muon(ours, 0.1, torch.bfloat16), torch.optim.Muon(theirs, lr=0.1)]
    for step in range(4):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator)
            other.grad = mine.grad.clone()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (step + 1)
            optimizer.step()
    for mine, other, before in zip(ours, theirs, begin, strict=True):
        assert (mine - before).abs().mean() > 0.02
        torch.testing.assert_close(mine, other, atol=0.01, rtol=0)  # bfloat16's own rounding


def test_orthogonal_applies_the_quintic_to_the_singular_values() -> None:
    generator = torch.Generator().manual_seed(1)
    stack = torch.randn(3, 4, 7, generator=generator, dtype=torch.float64)
    for matrix, turned in zip(stack.numpy(), orthogonal(stack).numpy(), strict=True):
        u, values, v = np.linalg.svd(matrix, full_matrices=False)
        values = values / np.linalg.norm(values)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        np.testing.assert_allclose(turned, u @ np.diag(values) @ v, atol=1e-10)
        assert (abs(values - 1) < 0.5).all()


def test_a_gradient_of_zeros_moves_nothing_but_by_decay() -> None:
    matrix = torch.nn.Parameter(torch.ones(3, 2))
    matrix.grad = torch.zeros(3, 2)
    Muon([matrix], 0.5, torch.float32).step()
    torch.testing.assert_close(matrix.detach(), torch.full((3, 2), 1 - 0.5 * 0.1))
