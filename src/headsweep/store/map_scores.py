"""What a map scores: its variants, and the keys of the files of its scores in the store."""

from headsweep.config import Config, HeadMap, Model
from headsweep.errors import ConfigError
from headsweep.files.tables import SCORES
from headsweep.store.batches import Batch, batches, expand, noise_placebos
from headsweep.store.keys import digest, key
from headsweep.store.layout import Store
from headsweep.variants import Variant


def mapped_model(config: Config, name: str) -> Model:
    """Return a map's model, with the dtype in which it scores the map's texts."""
    section = config.maps[name]
    model = config.models[section.model]
    return model.model_copy(update={"dtype": section.dtype or model.dtype})


def map_layers(config: Config, name: str) -> tuple[int, ...]:
    """Return the layers of a map, ascending."""
    section = config.maps[name]
    return tuple(sorted(set(expand(section.layers, config.models[section.model].layers))))


def map_heads(config: Config, name: str, layer: int) -> list[Variant]:
    """Return the pruned heads of one of a map's layers."""
    model = config.models[config.maps[name].model]
    return [Variant(layer, head) for head in model.heads_in(layer)]


def unchanged(layer: int) -> Variant:
    """Return the variant that changes nothing and is scored as the heads of a layer are."""
    return Variant(layer, 0, "replay")


def scored_variants(config: Config, name: str, layer: int) -> list[Variant]:
    """Return all variants that score a map's texts in a layer, the unchanged model first."""
    heads = map_heads(config, name, layer)
    noise = noise_placebos(heads, config.maps[name].noise_placebos)
    return [unchanged(layer), *heads, *noise]


def texts_key(config: Config, name: str) -> str:
    """Return the key of a map's texts and scores: its name, and a digest of what decides them.

    Layers are left out: maps that differ only in these share their files.
    """
    section = config.maps[name]
    values = section.non_defaults()
    for setting in ("layers", "title"):
        values.pop(setting, None)
    values |= {
        "model": key(config, "models", section.model),
        "questions": key(config, "questions", section.questions),
        "decoding": key(config, "decodings", section.decoding),
        "sampling": [key(config, "decodings", decoding) for decoding in section.sampling],
        "grading": config.grading,
    }
    return f"{name}-{digest(values)}"


def find_map(config: Config, key: str) -> tuple[str, HeadMap]:
    """Return the name and the settings of the map whose texts have a key.

    Raises:
        ConfigError: this config has none.
    """
    keys = {texts_key(config, name): name for name in config.maps}
    if key not in keys:
        raise ConfigError(f"maps: this config has no {key!r}; it has {', '.join(keys) or 'none'}")
    return keys[key], config.maps[keys[key]]


def score_files(config: Config, name: str) -> list[str]:
    """Return the files of a map's scores, one a layer."""
    texts = texts_key(config, name)
    return [
        SCORES.path.format(texts=texts, layer=layer_name(layer))
        for layer in map_layers(config, name)
    ]


def layer_name(layer: int) -> str:
    """Return a layer's name in paths, as in ``L05``."""
    return f"L{layer:02d}"


def head_batches_elsewhere(store: Store, name: str) -> list[Batch]:
    """Return the batches with pruned heads of a map's model, on other questions than the map's.

    Their graded answers say what losing a head gained. Those to questions drawn from what
    the map's are drawn from are left out: the map has seen some of these, so they cannot say what
    it foretells.
    """
    config = store.config
    section = config.maps[name]
    seen = config.questions[section.questions]
    return [
        batch
        for batch in batches(store).values()
        if batch.model == section.model
        and not config.questions[batch.questions].may_share(seen)
        and any(variant.kind == "head" for variant in batch.variants)
    ]
