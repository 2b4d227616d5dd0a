"""What the report calls the entries of a config, in place of their names there."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headsweep.config import EXPERIMENTS, Config
from headsweep.config.experiments import Sweep, TopHeads
from headsweep.errors import ConfigError
from headsweep.text import short

_KNOWN = {
    "math500": "MATH-500",
    "math_train": "MATH",
    "gsm8k": "GSM8K",
    "math23k": "Math23k",
    "generated_math": "MATH-like",
    "generated_gsm8k": "GSM8K-like",
    "generated": "Word problems",
    "asdiv_a": "ASDiv-A",
}
_RULES = {"default": "default", "authors": "authors'"}

_SUBJECTS = ("model", "solver", "questions")
_CONDITIONS = ("transfer", "prompt", "grading")
_DETAILS = ("learnt", "layers", "heads", "decoding", "embedder")


def title(config: Config, section: str, name: str) -> str:
    """Return what the report calls an entry of a section, such as ``models`` or ``sweeps``.

    It is the entry's `title`, or else the name of a model, the benchmark or file of questions and
    problems; of an experiment it is what `titles` says.
    """
    if section in EXPERIMENTS:
        return titles(config, section)[name]
    entry = getattr(config, section)[name]
    if entry.title is not None:
        return short(entry.title, 40)
    if section == "models":
        return short(name, 28)
    kind = entry.dataset if section == "problems" else entry.benchmark
    dataset = entry.dataset if section == "questions" else None
    if entry.file and kind not in _KNOWN:
        return short(Path(entry.file).name, 24)
    return _KNOWN.get(kind, short((dataset or name).rpartition("/")[2].replace("_", " "), 24))


def titles(config: Config, section: str) -> dict[str, str]:
    """Return what the report calls each experiment of a section, by name.

    It is the experiment's own `title`, or else what tells it from the others: its model or solver,
    its questions, that it learnt on another benchmark than it is tested on, its prompt, and its
    grading, each only where the section has several. Experiments that are still alike are told
    apart by what they learnt on, layers, heads, decoding and embedder. The questions are named,
    too, where neither model nor solver is.
    """
    entries = getattr(config, section)
    facts = {name: _facts(config, section, entry) for name, entry in entries.items()}
    differing_keys = []
    for key in (*_SUBJECTS, *_CONDITIONS):
        values = {entry[key] for entry in facts.values() if key in entry}
        if len(values) > 1:
            differing_keys.append(key)
    parts: dict[str, list[str]] = {}
    for name, facts_of_entry in facts.items():
        title_keys = [key for key in differing_keys if facts_of_entry.get(key)]
        if not set(title_keys) & set(_SUBJECTS):
            title_keys.insert(0, "questions")
        parts[name] = [facts_of_entry[key] for key in title_keys]
    untitled = [name for name, entry in entries.items() if entry.title is None]
    _tell_apart({name: parts[name] for name in untitled}, facts)
    return {
        name: ", ".join(parts[name]) if entry.title is None else short(entry.title, 60)
        for name, entry in entries.items()
    }


def _tell_apart(parts: Mapping[str, list[str]], facts: Mapping[str, Mapping[str, str]]) -> None:
    """Add details to the parts of titles that are alike, by the names of their experiments."""
    for key in _DETAILS:
        alike = defaultdict[str, list[str]](list)
        for name, parts_of_title in parts.items():
            alike[", ".join(parts_of_title)].append(name)
        for names in alike.values():
            if len({facts[name].get(key) for name in names}) > 1:
                for name in names:
                    if key in facts[name]:
                        parts[name].append(facts[name][key])


def check_titles(config: Config) -> None:
    """Refuse a config in which two experiments of a section have the same title.

    Raises:
        ConfigError: one line that names both.
    """
    for section in EXPERIMENTS:
        names: dict[str, str] = {}  # by title
        for name, called in titles(config, section).items():
            if called in names:
                raise ConfigError(
                    f"{section}.{names[called]} and {section}.{name} are both called {called!r} in "
                    f"the report; write a `title` in {section}.{name} that says what differs"
                )
            names[called] = name


def _facts(config: Config, section: str, entry: Any) -> dict[str, str]:
    """Return what a title can say of an experiment, by the keys above.

    A key that does not apply is left out; a text is empty where there is nothing to tell.
    """
    facts: dict[str, str] = {}
    if getattr(entry, "solver", None):
        facts["solver"] = short(entry.solver, 28)
        facts["questions"] = title(config, "problems", entry.data)
        return facts
    facts["model"] = title(config, "models", entry.model)
    if section in ("sweeps", "maps", "comparisons"):
        facts["questions"] = title(config, "questions", entry.questions)
    else:
        facts["questions"] = title(config, "questions", entry.test)
        how = "tuned on" if section == "frontiers" else "trained on"
        facts["learnt"] = f"{how} {title(config, 'questions', entry.train)}"
        elsewhere = config.questions[entry.train].home != config.questions[entry.test].home
        facts["transfer"] = facts["learnt"] if elsewhere else ""
    if section == "comparisons":
        facts["decoding"] = " against ".join(entry.decodings)
    else:
        facts["decoding"] = f"decoding {entry.decoding}"
        facts["prompt"] = f"{_RULES[config.decodings[entry.decoding].prompt]} prompt"
    if isinstance(entry, Sweep):
        facts["questions"] += " questions"
        facts["grading"] = f"{_RULES[entry.grading or config.grading]} grading"
    if section == "selectors":
        facts["embedder"] = f"embedder {' or '.join(entry.embedder)}"
    for key in ("layers", "heads"):
        if hasattr(entry, key):
            chosen = getattr(entry, key)
            if isinstance(chosen, TopHeads):
                facts[key] = f"top {chosen.top} of {chosen.section[:-1]} {chosen.source}"
                if chosen.outcome != "likelihood":
                    facts[key] += f" by {chosen.outcome}"
            else:
                facts[key] = _numbered(key, chosen)
    return facts


def _numbered(what: str, chosen: Literal["all"] | Sequence[int]) -> str:
    """Return layers or heads in words: ``all layers``, ``layer 21``, ``layers 0, 5 to 9``."""
    if chosen == "all":
        return f"all {what}"
    numbers = sorted(set(chosen))
    if len(numbers) == 1:
        return f"{what.removesuffix('s')} {numbers[0]}"
    runs: list[list[int]] = []  # of consecutive numbers
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = []
    for run in runs:
        if len(run) < 3:
            ranges += [str(number) for number in run]
        else:
            ranges.append(f"{run[0]} to {run[-1]}")
    return f"{what} {', '.join(ranges)}"
