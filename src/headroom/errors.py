"""What a user is told: errors that they can act on, and the log level of results.

Each error has a message of one line: the value received, what is allowed, the next step. The
command line prints it and exits with status 2. Any other exception is a bug and keeps its
traceback.
"""

import logging

RESULT = 25
"""The log level, above progress (INFO), of a job's result: one line that a run shows."""

logging.addLevelName(RESULT, "RESULT")


class HeadroomError(Exception):
    """Base of all errors caused by input, environment or data rather than by a bug."""


class ConfigError(HeadroomError):
    """A config that cannot be run: unknown key, wrong type, value out of range."""


class BenchmarkError(HeadroomError):
    """A benchmark that is missing, empty, damaged or malformed."""


class ModelError(HeadroomError):
    """A model that cannot be found, read, placed or pruned."""


class TableError(HeadroomError):
    """A Parquet table that is missing, damaged or of another schema."""


class GradingError(HeadroomError):
    """Grading that cannot be done as asked."""


class EngineError(HeadroomError):
    """An engine process that failed, died, was stopped, or cannot be reached."""
