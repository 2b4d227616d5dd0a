"""The table of tested architectures is that of the tests."""

import re

from architectures import PAGE, TESTED, deviation

COUNTED = ("Llama", "FalconH1", "Bert")
"""Measured again here; `test_masks` holds every architecture to its zeroed weights."""


def test_the_table_lists_what_is_tested_and_holds_here_too() -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| ([\w ]+) \|.*\| (packed|modules|–) \| (\S+) \| (\S+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    tested = {each.name: (each, kind) for kind, group in TESTED.items() for each in group}
    assert [row[:2] for row in listed] == [(name, kind) for name, (_, kind) in tested.items()], (
        "run `make architectures`"
    )
    for name, kind, by, apart, effect in listed:
        assert float(apart) < 1e-5 < 0.001 < float(effect), name
        if name in COUNTED:
            found = deviation(tested[name][0])
            assert found.largest < 1e-5, name
            assert found.effect > 0.001, name
            assert kind == "encoder" or (by == "packed") == found.packed, name
