"""The benchmark of removed heads: what it removes, and what it prints."""

import re

import pytest

from headroom.bench.removal import run
from headroom.compression.measurement import layer_flops
from headroom.errors import ModelError


def test_it_prints_what_arithmetic_promises_and_what_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(tokens=[5, 7], batch=2, ratio=0.4, layers=1, repeats=3, threads=1)
    first, *rows = capsys.readouterr().out.splitlines()
    assert "8 of 12 heads left" in first
    assert len(rows) == 2
    for tokens, row in zip((5, 7), rows, strict=True):
        whole, cut = (layer_flops(tokens, 768, heads, 64, 3072) for heads in (12, 8))
        found = re.search(r"FLOPs cut ([\d.]+)%, time cut (-?[\d.]+)%", row)
        assert row.startswith(f"{tokens} tokens: ") and found
        assert float(found[1]) == pytest.approx(100 * (1 - cut / whole), abs=0.051)
        times = re.search(r"([\d.]+) s with all heads, ([\d.]+) s without", row)
        assert times and float(times[1]) > 0 < float(times[2])


@pytest.mark.parametrize("ratio", [0.0, 0.08, 1.0])
def test_a_ratio_that_leaves_all_or_nothing_is_refused(ratio: float) -> None:
    with pytest.raises(ModelError, match="of a layer's 12 heads"):
        run(tokens=[5], batch=1, ratio=ratio, layers=1, repeats=1, threads=1)
