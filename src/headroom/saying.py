"""The log level of a job's result: one line that a run shows on the terminal."""

import logging

RESULT = 25
"""Above progress (INFO), below warnings."""

logging.addLevelName(RESULT, "RESULT")
