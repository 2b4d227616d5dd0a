"""Tiny models of other rooms' tests."""

import sys
from pathlib import Path

for room in ("models", "engine"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))
