"""The table of foretold and measured CPU seconds that `benchmarks/plan.py` prints."""

import pytest
from torch import get_num_threads, set_num_threads

from benchmarks import plan
from headsweep.planning import rows_at_once

TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
}


def test_each_shape_s_sweep_is_foretold_run_and_compared(monkeypatch, capsys):
    monkeypatch.setattr(plan, "_SHAPES", {"tiny": TINY})
    threads = get_num_threads()
    try:
        plan.main(["--questions", "3"])
    finally:
        set_num_threads(threads)
    title, row = capsys.readouterr().out.strip().splitlines()
    assert title.split() == ["weights", "answers", "foretold", "CPU", "s", "ratio"]
    name, _, _, answers, *seconds = row.split()
    assert (name, int(answers)) == ("tiny", 3 * (1 + 2 * 4))  # base, heads of layers 0 and 3
    foretold, spent, ratio = map(float, seconds)
    rounding = 0.05 * (1 + ratio) + 0.005 * spent + 0.001
    assert ratio * spent == pytest.approx(foretold, abs=rounding)


def test_the_shapes_are_one_of_light_and_one_of_heavy_layers():
    found = []
    for sizes in plan._SHAPES.values():
        heads = sizes["num_attention_heads"]
        width = sizes["hidden_size"] // heads * (2 * heads + 2 * sizes["num_key_value_heads"])
        layer = sizes["hidden_size"] * (width + 3 * sizes["intermediate_size"])
        found.append(layer > rows_at_once.HEAVY)
    assert found == [False, True]
