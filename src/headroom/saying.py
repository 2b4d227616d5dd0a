"""What a job says on the terminal of a run: its result, in one line."""

import logging

RESULT = 25
"""Level of a line that a run shows: more than progress, less than a warning."""

logging.addLevelName(RESULT, "RESULT")
