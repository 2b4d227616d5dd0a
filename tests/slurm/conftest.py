"""The helpers of the miniature workflow."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))
