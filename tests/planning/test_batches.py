import pytest

from example_config import config
from headroom.config import Config
from headroom.planning.batches import batches, placebos, pool


def of_sweep(**sweep: object) -> Config:
    return config(sweeps={"table": {"layers": [27, 0], "heads": [11, 4, 4], **sweep}})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (None, []),
        ("none", []),
        ("numeric", ["placebo01", "placebo02"]),
        ("noise", ["L00N04", "L00N11", "L27N04", "L27N11"]),
        ("replay", ["L00R00", "L27R00"]),
        (
            "all",
            ["L00N04", "L00N11", "L27N04", "L27N11", "L00R00", "L27R00", "placebo01", "placebo02"],
        ),
        ("both", ["L00N04", "L00N11", "L27N04", "L27N11", "placebo01", "placebo02"]),
    ],
)
def test_a_sweep_asks_for_as_many_placebos_of_a_kind_as_a_layer_has_heads(kind, expected):
    planned = of_sweep() if kind is None else of_sweep(placebos=kind)
    assert list(map(str, placebos(planned, planned.sweeps["table"]))) == expected


def test_placebos_are_answered_with_the_sweep_and_are_in_no_pool():
    planned = of_sweep(placebos="both")
    heads = ["L00H04", "L00H11", "L27H04", "L27H11"]
    assert list(map(str, pool(planned, planned.sweeps["table"]))) == heads
    test = next(batch for batch in batches(planned) if batch.questions == "test")
    names = list(map(str, test.variants))  # the selector's heads among them
    assert names[0] == "base"
    assert names[-6:] == ["L00N04", "L00N11", "L27N04", "L27N11", "placebo01", "placebo02"]
    assert len(names) == 1 + 28 * 12 + 6
    other = next(batch for batch in batches(planned) if batch.questions == "train")
    assert {variant.kind for variant in other.variants} == {"base", "head"}


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, ["L00N00", "L00N04", "L27N00", "L27N04"]), (9, None), (None, None)],
)
def test_fewer_noise_placebos_are_spread_over_the_heads_of_each_layer(count, expected):
    planned = of_sweep(heads=[11, 9, 4, 2, 0], placebos="noise", noise_placebos=count)
    sweep = planned.sweeps["table"]
    every = [str(head).replace("H", "N") for head in pool(planned, sweep)]
    assert list(map(str, placebos(planned, sweep))) == (expected or every)
