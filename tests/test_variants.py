import random
import re

import numpy as np
import pytest

from headsweep.errors import ConfigError
from headsweep.variants import BASE, Variant, heads, noise_direction, pattern


def test_names_have_at_least_two_digits_and_read_back():
    for name, variant in {
        "L05H03": Variant(5, 3),
        "L07H127": Variant(7, 127),
        "L05N03": Variant(5, 3, kind="noise"),
        "L05R00": Variant(5, 0, kind="replay"),
        "placebo100": Variant(kind="numeric", seed=100),
        "L05X03P07": Variant(5, 3, kind="scaled", scale=7),
        "L05K02": Variant(5, kind="skip", scale=2),
        "W17S20": Variant(seed=17, kind="weights", scale=20),
    }.items():
        assert str(variant) == name
        assert Variant.parse(name) == variant
        assert re.fullmatch(pattern(), name)
    assert Variant.parse("base") is BASE


ORDERED = """
base L00H02 L02H09 L02H100 L10H00 L100H00 L00N05 L02N09 L02N100 L10N00 L00R00 L10R00 placebo02
placebo10 placebo100 L00X09P50 L02X00P50 L02X00P150 L01K02 L10K01 W02S20 W10S05 W10S100
"""


def test_variants_sort_by_number_with_base_first_and_placebos_last():
    ordered = ORDERED.split()
    shuffled = [Variant.parse(name) for name in random.Random(0).sample(ordered, len(ordered))]
    assert [str(variant) for variant in sorted(shuffled)] == ordered
    assert sorted(ordered) != ordered  # as text they would sort otherwise


SPACED = ("", "L05H03 ", "L05H03\n")
WRONG = """
Base bases L5H3 L05 L-1H00 l05h03 L05X03 L05n03 placebo placebo2 Placebo02 L05K2 W7S20
"""
SECOND = """
L٠٥H٠٣ L005H03 L05H003 L005N03 placebo00 placebo002 L05X03P00 L05X03P100 L05K00 W17S00
"""


@pytest.mark.parametrize("name", [*SPACED, *WRONG.split(), *SECOND.split()])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match="or a placebo as in 'L05N03' or 'placebo01'"):
        Variant.parse(name)
    assert name in SECOND.split() or not re.fullmatch(pattern(), name)


def test_heads_are_all_pairs_once_sorted_and_noise_is_as_long_as_one():
    pool = heads([11, 2, 11], iter([3, 0, 7, 3]))
    assert " ".join(map(str, pool)) == "L02H00 L02H03 L02H07 L11H00 L11H03 L11H07"
    lengths = [np.linalg.norm(noise_direction(each.layer, each.head, 37)) for each in pool[:2]]
    assert lengths == pytest.approx([1, 1])
