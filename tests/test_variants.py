import random
import re

import pytest

from headroom.errors import ConfigError
from headroom.variants import BASE, Variant, heads, matched_noise, numeric, pattern

FAMILIES = ("L05X03P150", "L05K02", "W17S20")


def test_names_have_at_least_two_digits_and_read_back():
    for layer, head in [(0, 0), (5, 3), (31, 9), (7, 127), (100, 12)]:
        assert Variant.parse(str(Variant(layer, head))) == Variant(layer, head)
    assert str(Variant(5, 3)) == "L05H03"
    for variant in (
        Variant(5, 3, kind="noise"),
        Variant(100, 12, kind="noise"),
        Variant(5, 0, kind="replay"),
        Variant(kind="numeric", seed=100),
        Variant(5, 3, kind="scaled", scale=150),
        Variant(5, 3, kind="scaled", scale=7),
        Variant(5, kind="skip", scale=2),
        Variant(seed=17, kind="weights", scale=20),
    ):
        assert Variant.parse(str(variant)) == variant
    assert str(Variant(7, 127)) == "L07H127"
    assert str(Variant(5, 3, kind="noise")) == "L05N03"
    assert str(Variant(5, 0, kind="replay")) == "L05R00"
    assert str(Variant(kind="numeric", seed=2)) == "placebo02"
    assert str(Variant(5, 3, kind="scaled", scale=150)) == "L05X03P150"
    assert str(Variant(5, kind="skip", scale=2)) == "L05K02"
    assert str(Variant(seed=17, kind="weights", scale=20)) == "W17S20"
    assert Variant.parse("base") is BASE


def test_variants_sort_by_number_with_base_first_and_placebos_last():
    ordered = ["base", "L00H02", "L02H09", "L02H100", "L10H00", "L100H00"]
    ordered += [
        "L00N05",
        "L02N09",
        "L02N100",
        "L10N00",
        "L00R00",
        "L10R00",
        "placebo02",
        "placebo10",
        "placebo100",
        "L00X09P50",
        "L02X00P50",
        "L02X00P150",
        "L01K02",
        "L10K01",
        "W02S20",
        "W10S05",
        "W10S100",
    ]
    shuffled = [Variant.parse(name) for name in random.Random(0).sample(ordered, len(ordered))]
    assert [str(variant) for variant in sorted(shuffled)] == ordered
    assert sorted(ordered) != ordered  # as text they would sort otherwise


@pytest.mark.parametrize(
    "name",
    ["", "Base", "L5H3", "L05", "L05H03 ", "L05H03\n", "L-1H00", "L005H03", "L05H003", "L٠٥H٠٣"],
)
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match="is not known; write 'base' or layer and head"):
        Variant.parse(name)


@pytest.mark.parametrize(
    "name",
    [
        "L05X03",
        "L05n03",
        "L005N03",
        "placebo",
        "placebo00",
        "placebo2",
        "placebo002",
        "L05X03P00",
        "L05X03P100",
        "L05K00",
        "L05K2",
        "W17S00",
        "W7S20",
    ],
)
def test_another_name_of_a_placebo_is_refused(name):
    with pytest.raises(ConfigError, match="or a placebo as in 'L05N03' or 'placebo01'"):
        Variant.parse(name)


def test_the_pattern_matches_every_name_and_nothing_shorter():
    for name in ("base", "L05H03", "L100H127", "L05N03", "placebo02", "placebo128", *FAMILIES):
        assert re.fullmatch(pattern(), name)
    for name in ("bases", "L5H03", "L05H3", "l05h03", "L05X03", "placebo2", "Placebo02"):
        assert not re.fullmatch(pattern(), name)


def test_heads_are_all_pairs_once_sorted():
    pool = heads([11, 2, 11], iter([3, 0, 7, 3]))
    assert [str(variant) for variant in pool] == [
        "L02H00",
        "L02H03",
        "L02H07",
        "L11H00",
        "L11H03",
        "L11H07",
    ]
    assert not any(variant.is_base for variant in pool)


def test_each_head_has_its_noise_and_no_placebo_is_taken_for_a_head_or_for_base():
    pool = heads([2], [0, 3])
    placebos = [*matched_noise(pool), *numeric(2)]
    assert [str(placebo) for placebo in placebos] == ["L02N00", "L02N03", "placebo01", "placebo02"]
    assert [placebo.kind for placebo in placebos] == ["noise", "noise", "numeric", "numeric"]
    assert {variant.kind for variant in pool} == {"head"}
    assert BASE.kind == "base"
    assert not any(placebo.is_base for placebo in placebos)
