"""The config: a YAML file with one typed schema.

It is checked as a whole before the first job: unknown keys, wrong types, values out of range and
references to undefined names are refused in one line.
"""

from headroom.config.experiments import Frontier, Layers, Selector, Study, Sweep
from headroom.config.questions import (
    SYSTEM_PROMPT,
    Decoding,
    Embedder,
    Family,
    Model,
    Preset,
    Questions,
)
from headroom.config.schema import Config, load, parse
