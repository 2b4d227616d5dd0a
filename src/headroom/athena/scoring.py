"""Whether a predicted value is right: strictly, and as ATHENA's release judges it."""

import math

_TOLERANCE = 1e-4
_MOST_PLACES = 4


def strict(predicted: float, gold: float) -> bool:
    """Tell whether a value is within 1e-4 of the gold value, relative to it if that is above 1.

    What is not finite is wrong.
    """
    return math.isfinite(predicted) and abs(predicted - gold) <= _TOLERANCE * max(1, abs(gold))


def lenient(predicted: float, gold: float) -> bool:
    """Tell whether two values agree by the rule of ATHENA's release.

    They must be closer than 10^-k, where k is the smaller number of decimals that they print, at
    most 4. A whole number prints one (``5.0``), so whole answers may be off by 0.1. Failed
    arithmetic counts as 0.
    """
    if not math.isfinite(predicted):
        predicted = 0.0
    places = min(_places(predicted), _places(gold), _MOST_PLACES)
    return abs(predicted - gold) < 10.0**-places


def _places(value: float) -> int:
    return len(repr(float(value)).partition("e")[0].partition(".")[2])
