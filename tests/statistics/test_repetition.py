import numpy as np
import pytest

from headroom.statistics.repetition import loops


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3] + [7, 8, 9, 5] * 5, True),
        ([1, 2, 3] + [7, 8, 9, 5] * 5 + [7, 8], True),  # cut inside the phrase
        ([1, 2, 3] + [7, 8, 9, 5] * 5 + [1], False),
        (list(range(40)) + [0] * 19, False),  # shorter than 20 tokens
        (list(range(40)) + [0] * 20, True),
        (list(range(90)) * 4, True),
        (list(range(90)) * 3, False),
        (list(range(500)), False),
        ([], False),
    ],
)
def test_a_loop_is_one_phrase_at_the_end_over_and_over(tokens, expected):
    assert loops(np.array(tokens, np.int32)) is expected
