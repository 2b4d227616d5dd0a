"""Where the files of a config lie: paths of its store and of its run, from config names."""

from collections.abc import Mapping
from pathlib import Path

from headroom import paths
from headroom.config import Config
from headroom.errors import ConfigError
from headroom.planning.batches import Batch
from headroom.planning.keys import Kind, data_key, key, source_key

_SECTIONS: Mapping[str, Kind] = {
    "model": "models",
    "questions": "questions",
    "decoding": "decodings",
    "embedder": "embedders",
}

_REGRADED = {paths.GRADED: paths.REGRADED, paths.ACCURACY: paths.REGRADED_ACCURACY}


class Store:
    """The files of one config, in the store and in its run.

    The wildcards of `headroom.paths` are filled from config names: `model`, `questions`, `decoding`
    and `embedder` become the keys of what they name; `source` is the name of a question set and
    becomes the key of its split; `data` is the name of a dataset; `run` is the config's own. All
    other values stand in the path as they are.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._keys: dict[tuple[str, str], str] = {}

    def key(self, wildcard: str, name: str) -> str:
        """Return the key that stands in paths for a config name."""
        if (wildcard, name) not in self._keys:
            if wildcard == "source":
                found = source_key(self.config, name)
            elif wildcard == "data":
                found = data_key(self.config, name)
            else:
                found = key(self.config, _SECTIONS[wildcard], name)
            self._keys[wildcard, name] = found
        return self._keys[wildcard, name]

    def keys(self, **names: str) -> dict[str, str]:
        """Return the keys of config names, by wildcard."""
        return {wildcard: self.key(wildcard, name) for wildcard, name in names.items()}

    def name(self, wildcard: str, given: str) -> str:
        """Return the config name that a key belongs to; of a split, the first set drawn from it.

        Raises:
            ConfigError: the key is not one of this config: its settings have changed, or the config
                is another one.
        """
        for name in self._defined(wildcard):
            if self.key(wildcard, name) == given:
                return name
        if wildcard == "source":
            raise ConfigError(f"no question set of this config is drawn from {given!r}")
        if wildcard == "data":
            raise ConfigError(f"no dataset of this config has key {given!r}")
        known = ", ".join(self.key(wildcard, name) for name in self._defined(wildcard))
        raise ConfigError(
            f"{_SECTIONS[wildcard]}: {given!r} is not of this config, which has {known or 'none'}"
        )

    def path(self, template: str, **names: object) -> Path:
        """Return one file, from its template in `headroom.paths` and config names."""
        return Path(template.format_map(self._values(names)))

    def fill(self, template: str, **names: object) -> str:
        """Return a template with the run and some names filled in; other wildcards stay open."""
        return template.format_map(_Open(self._values(names)))

    def of_sweep(self, sweep: str, template: str = paths.ACCURACY, **names: object) -> Path:
        """Return a file of a sweep's batch; graded answers and Z are those by the sweep's rules."""
        section, grading = self.config.sweeps[sweep], self.config.grading_of(sweep)
        if grading != self.config.grading:
            template = _REGRADED.get(template, template)
        names |= {"model": section.model, "decoding": section.decoding, "grading": grading}
        return self.path(template, **names, questions=section.questions)

    def answers(self, batch: Batch) -> list[str]:
        """Return the files of a batch's answers, one a variant."""
        keys = self.keys(**batch.names)
        return [paths.ANSWERS.format(variant=variant, **keys) for variant in batch.variants]

    def _defined(self, wildcard: str) -> list[str]:
        """Return the config names that a wildcard's key may be of."""
        if wildcard == "data":
            return list(self.config.problems)
        return list(getattr(self.config, _SECTIONS.get(wildcard, "questions")))

    def _values(self, names: Mapping[str, object]) -> dict[str, object]:
        """Return what stands in paths for names."""
        values = {
            name: self.key(name, str(value)) if name in (*_SECTIONS, "source", "data") else value
            for name, value in names.items()
        }
        return {"run": self.config.run, **values}


class _Open(dict[str, object]):
    """Values of wildcards; those that are missing stay wildcards."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
