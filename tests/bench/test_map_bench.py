"""The bench of a map: its arithmetic held against counted operations, and what it prints."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.maps import main, solutions, work
from headsweep.models.load import load_model


def counted(loaded, text):
    """Return the operations of linear layers in one plain forward, and of those the logits'."""
    ids = torch.tensor([[*text.prompt, *text.tokens[:-1]]])
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        loaded.model(ids, logits_to_keep=len(text.tokens))
    every = counter.get_flop_counts()
    products = {
        name: sum(flops for op, flops in ops.items() if "mm" in str(op))
        for name, ops in every.items()
    }
    return products["Global"], products[f"{type(loaded.model).__name__}.lm_head"]


def test_its_arithmetic_is_that_of_a_plain_forward_and_less_where_layers_are_shared():
    loaded = load_model("builtin:reasoner", dtype="float32", device="cpu", attention="sdpa")
    (text,) = solutions(loaded, 1)
    every, logits = counted(loaded, text)
    found = work(loaded, [text], 7)
    assert found.all == pytest.approx(7 * every, rel=1e-9)
    assert found.logits == pytest.approx(7 * logits, rel=1e-9)
    shared = work(loaded, [text], 7, layer=4)
    assert shared.logits == found.logits
    # Four of six layers once, two for each of the seven.
    assert shared.layers == pytest.approx((every - logits) * (4 + 7 * 2) / 6, rel=1e-9)


def test_the_table_has_both_ways_and_no_score_differs(capsys):
    main(["--questions", "3", "--plain", "2", "--layer", "4"])
    printed = capsys.readouterr().out
    assert "the pass" in printed and "plain forwards" in printed
    assert "layer 4 of 6, 3 texts, 5 variants" in printed
    worst = float(re.search(r"Largest difference: (\S+) nats", printed)[1])
    assert 0 < worst < 1e-3
    assert float(re.search(r"arithmetic allows (\d+\.\d+)", printed)[1]) > 1.5
