"""Jobs in words: the stage of a run that a rule belongs to, and what its job does."""

import re
from collections.abc import Mapping

STAGES = {
    "Questions and models": (
        "source",
        "questions",
        "fetch_model",
        "embedder",
        "embed",
        "problems",
        "encoder",
    ),
    "Answers": ("generate", "activations", "look"),
    "Grading": ("grade", "regrade", "compare_prompts"),
    "Map of every head": ("texts", "score", "map"),
    "Head selectors": ("train_selector", "rank_heads", "evaluate"),
    "Compression": (
        "teacher",
        "compress",
        "quantise",
        "gather_compression",
        "measure_compression",
    ),
    "Tables and figures": (),
}
"""The rules of each stage, in the order of a run; the last has all others."""

TARGETS = ("all", "printed", "answers", "fetch")
"""Rules that make nothing: they only name what a run is to make."""

_DOING = {
    "source": "reading {source}",
    "questions": "drawing {questions}",
    "fetch_model": "fetching {model}",
    "embed": "embedding {questions}",
    "generate": "{model} answers {questions} ({decoding})",
    "activations": "measuring the heads of {model}",
    "look": "looking inside the heads of {model}",
    "grade": "grading {questions} ({decoding})",
    "regrade": "grading {questions} ({decoding}) by other rules",
    "texts": "choosing the texts of {texts}",
    "score": "scoring {layer} of {texts}",
    "map": "mapping {map}",
    "train_selector": "training selector {selector}",
    "evaluate": "testing selector {selector}",
    "teacher": "training {solver}",
    "compress": "compressing {subject}, arm {arm}",
    "quantise": "{subject}, arm {arm}, in eight bits",
    "measure_compression": "timing {compression}",
}
_DIGEST = re.compile(r"-[0-9a-f]{8}$")
_PROGRESS = re.compile(
    r"(?:step|epoch) \d+ of \d+|\d+ of \d+ (?:answers|questions|distinct pairs)"
    r"|writing the first(?: of \d+ answers, \d+ tokens)?"
    r"|loading the model|waiting for (?:other answers|another engine|GPU)"
)


def stage_of(rule: str) -> str:
    """Return the stage that a rule belongs to."""
    return next((stage for stage, rules in STAGES.items() if rule in rules), list(STAGES)[-1])


def doing(rule: str, wildcards: Mapping[str, str]) -> str:
    """Return what a job does, in words; keys lose their digests."""
    names = {name: _DIGEST.sub("", value) for name, value in wildcards.items()}
    return _DOING.get(rule, rule.replace("_", " ")).format_map(names)


def progress(log: str) -> str:
    """Return the last progress in a job's log, empty if there is none."""
    found = _PROGRESS.findall(log)
    return found[-1] if found else ""


def clock(seconds: float) -> str:
    """Write seconds as 1:02, or as 1:02:03 from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
