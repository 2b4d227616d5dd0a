"""The store keys of the shipped configs stay as they are: what users have generated stays valid.

``python tests/golden/test_store_keys.py`` writes the table anew. A change is right only where the
content of the stored files changes, too.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from headsweep.config import Decoding, Embedder, Model, Questions, load
from headsweep.config.compression import Compression, Distillation, Importance
from headsweep.config.questions import Columns
from headsweep.config.solvers import Encoder, Partition, Solver, Training, WordProblems
from headsweep.files import paths
from headsweep.store.batches import all_arms, arm_files, batches
from headsweep.store.keys import encoder_key, key, source_key, split_key
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("store_keys.json")
SECTIONS = (Model, Embedder, Questions, Columns, Decoding, WordProblems, Partition)
SECTIONS += (Solver, Encoder, Training, Compression, Importance, Distillation)


def keys(file: Path) -> dict[str, list[str]]:
    """Return what a shipped config's store is named by: keys by kind, and its answers' files."""
    config = load(file)
    pinned = {
        kind: {
            name: section.model_copy(update={"revision": "0" * 64}) if section.file else section
            for name, section in getattr(config, kind).items()
        }
        for kind in ("problems", "questions")  # files of the user's
    }
    config = resolve(config.model_copy(update=pinned))
    kinds = ("models", "questions", "decodings", "embedders")
    found = {kind: {key(config, kind, name) for name in getattr(config, kind)} for kind in kinds}
    found["sources"] = {source_key(config, name) for name in config.questions}
    found["splits"] = {split_key(config, name) for name in config.questions}
    found["data"] = {key(config, "problems", name) for name in config.problems}
    found["encoders"] = {
        encoder_key(solver.encoder) for solver in config.solvers.values() if solver.encoder.source
    }
    found["solvers"] = {
        file
        for name, study in config.compressions.items()
        for file in arm_files(config, name, paths.TEACHER)
        if study.solver
    }
    found["arms"] = {"/".join(arm) for arm in all_arms(config)}
    found["batches"] = {
        f"{'/'.join(batch)}: {len(planned.variants)} variants"
        for batch, planned in batches(Store(config)).items()
    }
    return {kind: sorted(names) for kind, names in found.items()}


def table() -> dict[str, dict[str, list[str]]]:
    files = sorted((ROOT / "config").glob("*.yaml"))
    return {file.stem: keys(file) for file in files if not file.is_symlink()}  # config.yaml is


def defaults() -> dict[str, dict[str, object]]:
    """Return the defaults of the settings that keys leave out."""
    return {
        section.__name__: {
            name: to_jsonable_python(field.get_default())
            for name, field in section.model_fields.items()
            if not field.is_required()
        }
        for section in SECTIONS
    }


def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def test_no_store_key_of_a_shipped_config_has_changed() -> None:
    assert table() == frozen()["keys"]


def test_no_default_has_changed_that_keys_leave_out() -> None:
    """A new setting is right; another default would make old files pass for those of today."""
    today = defaults()
    for section, settings in frozen()["defaults"].items():
        assert {name: today[section][name] for name in settings} == settings


if __name__ == "__main__":
    values = {"keys": table(), "defaults": defaults()}
    TABLE.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    sys.exit(0)
