"""What a pilot has decided for a run: what answers for each model on its card, and how.

`headsweep pilot` writes it into the run's folder. `headsweep.store.revisions.resolve` reads it
there, so that every command and job of the run uses the same.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headsweep.config import Config, parse
from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.files.record import Stopwatch, read_json, write_record
from headsweep.files.safe_files import write_json
from headsweep.machine.processors import gpu_names, has_gpu
from headsweep.store.keys import key

_DEFAULT = "headsweep"
DECIDED = ("backend",)
"""Settings of a model that a pilot decides, where the config does not state them."""


def settings_file(config: Config) -> Path:
    """Return where a pilot's settings for a run are."""
    return Path(paths.RESULTS, config.run, "pilot.json")


def write_settings(
    config: Config, decided: Mapping[str, Mapping[str, str]], stopwatch: Stopwatch
) -> Path:
    """Write the settings of `DECIDED` of each model of a resolved config, by name; return the file.

    Models that another pilot of this run has decided keep their entries.
    """
    file = settings_file(config)
    models = dict(_entries(config))
    for name, values in decided.items():
        models[name] = {"model": _key(config, name), "cards": gpu_names(), **values}
    write_json(file, {"models": models})
    write_record(file, stopwatch, {"run": config.run})
    return file


def with_piloted_settings(config: Config) -> Config:
    """Return a config whose models have the settings that a pilot of its run has decided.

    What the config states stays. So does everything if a model is another than was piloted.

    Raises:
        ConfigError: with what the pilot has decided, the config cannot run.
    """
    models = {**config.models}
    taken = []
    for name, entry in _entries(config).items():
        section = models.get(name)
        if section is None or entry["model"] != _key(config, name):
            continue
        left = {*DECIDED} & {*entry} - section.model_fields_set
        models[name] = section.model_copy(update={setting: entry[setting] for setting in left})
        taken += [f"models.{name}.{setting}: {entry[setting]}" for setting in sorted(left)]
    piloted = config.model_copy(update={"models": models})
    if taken:
        parse(config.model_dump(mode="json"))  # what is not the pilot's fault is refused first
        file = settings_file(config)
        chosen = f"{file} has {', '.join(taken)}; state others in the config, or remove {file}"
        parse(piloted.model_dump(mode="json"), chosen)
    return piloted


def unpiloted(config: Config, *, local: bool = True) -> Iterator[str]:
    """Yield one line if models are to answer on GPUs where no pilot of this run has tried them.

    If not `local`, jobs run on a cluster, whose cards are not known here.
    """
    if local and not has_gpu():
        return
    entries = _entries(config)
    cards = gpu_names() if local else []
    untried = []
    for name, section in config.models.items():
        entry = entries.get(name)
        if section.device == "cpu":
            continue
        same_model = entry is not None and entry["model"] == _key(config, name)
        same_card = entry is not None and entry["cards"] == cards
        if not same_model or (local and not same_card):
            untried.append(name)
    if untried:
        card = ", ".join(dict.fromkeys(cards)) or "its GPUs"
        yield (
            f"no pilot of run {config.run!r} has tried {', '.join(untried)} on {card}: "
            f"`headsweep pilot CONFIG` checks the engine there, and compares it with vLLM"
        )


def _entries(config: Config) -> dict[str, dict[str, Any]]:
    """Return what pilots have decided for models of a run, by name."""
    file = settings_file(config)
    try:
        models: dict[str, dict[str, Any]] = read_json(file)["models"]
    except TableError:
        if file.exists():
            raise
        return {}
    return models


def _key(config: Config, name: str) -> str:
    """Return the key that a model has, whatever answers for it."""
    section = config.models[name].model_copy(update={"backend": _DEFAULT})
    return key(config.model_copy(update={"models": {name: section}}), "models", name)
