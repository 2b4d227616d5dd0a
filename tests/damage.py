"""Damage to files, in place and taken back."""

import re
from contextlib import contextmanager


@contextmanager
def damaged(file):
    """Change a digit of a text, or a bit where there is none, for the time of a block."""
    content = file.read_bytes()
    spoiled = bytearray(content)
    is_text = file.suffix in (".csv", ".json", ".txt", ".svg")
    if is_text and (digits := [found.start() for found in re.finditer(rb"\d", content)]):
        place = digits[len(digits) // 2]
        spoiled[place] = ord("0") + (spoiled[place] - ord("0") + 4) % 10
    else:
        spoiled[2 * len(content) // 3] ^= 1
    file.write_bytes(spoiled)
    try:
        yield
    finally:
        file.write_bytes(content)
