import pytest

from example_config import VALUES, changed, config
from headroom.config import parse
from headroom.planning.batches import family_members, find_batch, placebos
from headroom.variants import BASE


def of_sweep(**sweep):
    return config(sweeps={"table": {"layers": [27, 0], "heads": [11, 4, 4], **sweep}})


FIVE = {"heads": [11, 9, 4, 2, 0]}


@pytest.mark.parametrize(
    ("kind", "besides", "expected"),
    [
        ("none", {}, ""),
        ("numeric", {}, "placebo01 placebo02"),
        ("noise", {}, "L00N04 L00N11 L27N04 L27N11"),
        ("replay", {}, "L00R00 L27R00"),
        ("all", {}, "L00N04 L00N11 L27N04 L27N11 L00R00 L27R00 placebo01 placebo02"),
        # Fewer are spread over the heads of each layer.
        ("noise", {**FIVE, "noise_placebos": 2}, "L00N00 L00N04 L27N00 L27N04"),
        (
            "noise",
            {**FIVE, "noise_placebos": 9},
            "L00N00 L00N02 L00N04 L00N09 L00N11 L27N00 L27N02 L27N04 L27N09 L27N11",
        ),
    ],
)
def test_a_sweep_asks_for_as_many_placebos_of_a_kind_as_a_layer_has_heads(kind, besides, expected):
    planned = of_sweep(placebos=kind, **besides)
    assert " ".join(map(str, placebos(planned, planned.sweeps["table"]))) == expected


def test_members_of_families_answer_training_and_test_questions():
    values = {"model": "big", "train": "train", "test": "test", "sampling": ["T0.6"]}
    values |= {"layers": [2, 5], "members": 4, "max_n": 4}
    config = parse(changed(VALUES, "frontiers/math", values))
    members = family_members(config, config.frontiers["math"])
    assert " ".join(f"{kind}{scale}" for kind, scale in members) == (
        "head0 scaled50 scaled150 skip0 weights5 weights20 noise0"
    )
    assert all(len(set(each)) == 4 for each in members.values())
    heads = [(each.layer, each.head) for each in members["head", 0]]
    assert {layer for layer, _ in heads} <= {2, 5}
    for family in (("scaled", 50), ("scaled", 150), ("noise", 0)):
        assert [(each.layer, each.head) for each in members[family]] == heads
    assert {each.scale for each in members["skip", 0]} <= {1, 2}
    every = {variant for each in members.values() for variant in each}
    assert every <= set(find_batch(config, "big", "greedy", "train").variants)
    assert find_batch(config, "big", "T0.6", "test").variants == (BASE,)
    other = config.frontiers["math"].model_copy(update={"seed": 1})
    assert family_members(config, other)["weights", 5] != members["weights", 5]
