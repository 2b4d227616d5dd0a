import random
import re

import pytest

from headroom.errors import ConfigError
from headroom.variants import BASE, PATTERN, Variant, heads


def test_names_have_at_least_two_digits_and_read_back():
    for layer, head in [(0, 0), (5, 3), (31, 9), (7, 127), (100, 12)]:
        assert Variant.parse(str(Variant(layer, head))) == Variant(layer, head)
    assert str(Variant(5, 3)) == "L05H03"
    assert str(Variant(7, 127)) == "L07H127"
    assert Variant.parse("base") is BASE


def test_variants_sort_by_number_with_base_first():
    ordered = ["base", "L00H02", "L02H09", "L02H100", "L10H00", "L100H00"]
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


def test_a_layer_without_head_is_a_bug():
    with pytest.raises(ValueError, match="both a layer and a head"):
        Variant(layer=5)


def test_the_pattern_matches_every_name_and_nothing_shorter():
    for name in ("base", "L05H03", "L100H127"):
        assert re.fullmatch(PATTERN, name)
    for name in ("bases", "L5H03", "L05H3", "l05h03"):
        assert not re.fullmatch(PATTERN, name)


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
