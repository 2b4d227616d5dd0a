"""The config: a YAML file with one typed schema.

It is checked as a whole before the first job: unknown keys, wrong types, values out of range and
references to undefined names are refused in one line.
"""

from headsweep.config.experiments import Frontier, Layers, Selector, Study, Sweep, TopHeads
from headsweep.config.maps import HeadMap
from headsweep.config.questions import (
    SYSTEM_PROMPT,
    Decoding,
    Embedder,
    GraderName,
    Model,
    Preset,
    Questions,
)
from headsweep.config.reading import load, parse
from headsweep.config.schema import EXPERIMENTS, Config
