"""Types of command-line arguments."""

import argparse
from typing import Literal


def count(text: str) -> int:
    """Read a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def numbers_or_all(text: str) -> list[int] | Literal["all"]:
    """Read numbers from 0, as in ``5,15``, or ``all``."""
    if text == "all":
        return "all"
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is neither numbers, as in 5,15, nor all")
    return [int(part) for part in parts]
