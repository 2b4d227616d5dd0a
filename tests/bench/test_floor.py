"""The floor, held against torch's own count and against brute force over distinct tokens."""

import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headroom.bench.rivals import Costs, Work, floor, peak
from headroom.models.load import load_model
from headroom.variants import BASE, heads


def test_one_token_costs_what_torch_counts():
    loaded = load_model("builtin:reasoner", device="cpu", attention="eager")
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        loaded.model(torch.tensor([[5]]))
    work = Work({"q": (5,)}, (BASE,), 1)
    expected = counter.get_total_flops()
    assert floor(work, {("q", "base"): [7]}, Costs.of(loaded)) == expected
    assert 1e8 < peak(loaded) < 1e14  # what a processor can have


def brute_force(work, choices, costs):
    """Add up the costs of all distinct (operation, function so far, tokens so far)."""
    distinct = {}
    for question, prompt in work.prompts.items():
        for variant in work.variants:
            own = choices[question, str(variant)]
            text = (*prompt, *own[:-1])
            for end in range(1, len(text) + 1):
                tokens = text[:end]
                needed = end >= len(prompt)  # a token is chosen here
                for layer in range(costs.layers):
                    pruned_below = variant.layer is not None and layer > variant.layer
                    pruned_here = variant.layer is not None and layer >= variant.layer
                    into = variant if pruned_below else BASE
                    out_of = variant if pruned_here else BASE
                    distinct["projections", layer, into, tokens] = costs.projections
                    if needed or layer < costs.layers - 1:
                        distinct["attention", layer, into, tokens] = costs.attention * end
                        distinct["rest", layer, out_of, tokens] = costs.rest
                if needed:
                    distinct["logits", variant, tokens] = costs.logits
    return sum(distinct.values())


@pytest.mark.parametrize("seed", range(5))
def test_floor_is_the_cost_of_distinct_tokens(seed):
    rng = random.Random(seed)
    costs = Costs(layers=3, projections=101, rest=1009, attention=11, logits=10007)
    variants = (BASE, *heads(range(3), range(2)))
    prompts, choices = {}, {}
    for number in range(4):
        # First tokens tell the questions apart: nothing is shared between questions.
        prompts[f"q{number}"] = (number, *rng.choices(range(10), k=rng.randrange(5)))
        base = [100, *rng.choices(range(10), k=rng.randrange(1, 6))]
        choices[f"q{number}", "base"] = base
        for variant in variants[1:]:
            kept = rng.randrange(len(base) + 1)
            # Where a head's answer leaves the base answer, its tokens are its own.
            own = [1000 + variant.layer * 10 + variant.head] * rng.randrange(1, 4)
            choices[f"q{number}", str(variant)] = base if kept == len(base) else base[:kept] + own
    work = Work(prompts, variants, 9)
    assert floor(work, choices, costs) == brute_force(work, choices, costs)
