"""The run with planted effects: its config, the sabotaged model, and a store filled beforehand.

What is planted is drawn from a seed and written to a sealed file; nothing else knows it. The run
reads models and answers, and the judge of the run reads its tables.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence, Set
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.proof.sabotage import SOURCE, Saboteur
from benchmarks.proof.worlds import Outcomes, experts
from headsweep.answers import prepare
from headsweep.benchmarks.generated import generate
from headsweep.config import Config, Decoding, parse
from headsweep.errors import ConfigError
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_json, write_table
from headsweep.files.tables import ANSWERS, QUESTIONS
from headsweep.store.batches import Batch, batches
from headsweep.store.layout import Store, mark_version
from headsweep.store.revisions import resolve

RUN = "proof"
WHOLE, SABOTAGED, EXPERTS = "whole", "sabotaged", "experts"
COINS = ("coins", "more_coins")
"""Names of the models: the reasoner that ships, the same with a sabotaged head, one of which seven
heads know a subject each, and two whose heads only toss coins."""
SEALED = "sealed.json"

CONFIG = "proof.json"

_MODEL = "model"
_QUESTIONS = 200  # of a set, in the run
_SEARCHED = 105  # training questions on which a sabotage is tried
_LAYERS, _HEADS = 6, 4
_TOKENS = 128  # most that an answer may have
_WRONG = r"\boxed{-987654321}"  # no question has this answer


def plant(folder: Path, seed: int | None) -> str:
    """Plant effects in an empty folder; return the sha256 of the sealed file that names them.

    Args:
        folder: where the run is made; it gets the config of the run, its model and its store.
        seed: decides what is planted; None: fresh entropy.

    Raises:
        ConfigError: the folder holds something.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; remove it, or name another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    seed = secrets.randbits(64) if seed is None else seed
    draw = np.random.default_rng(seed)
    with chdir(folder):
        searched = generate("generated_math", "train", _SEARCHED, seed=0, apart=False)
        saboteur = Saboteur(searched, Decoding(max_new_tokens=_TOKENS))
        cheap = saboteur.cheap_heads()
        head = cheap[draw.integers(len(cheap))]
        strength = saboteur.sabotage(head, int(draw.integers(2**31)), Path(_MODEL))
        worlds = (EXPERTS, *COINS)
        models = {WHOLE: SOURCE, SABOTAGED: str(Path(_MODEL).absolute())}
        values = settings(models | dict.fromkeys(worlds, SOURCE), worlds, _QUESTIONS)
        values["sweeps"][WHOLE] |= {"layers": [0], "heads": [0]}  # only its accuracy is asked for
        write_json(Path(CONFIG), values)
        knowing = fill(resolve(parse(values)), draw, {EXPERTS})
        secret = {
            "seed": seed,
            "salt": secrets.token_hex(16),  # or the checksum of few possible files would tell
            SABOTAGED: str(head),
            "strength": strength,
            EXPERTS: knowing[EXPERTS],
        }
        write_json(Path(SEALED), secret)
        return hashlib.sha256(Path(SEALED).read_bytes()).hexdigest()


def opened(folder: Path, commitment: str) -> dict[str, Any]:
    """Return what a sealed file says, after comparing its sha256 with the one told before.

    Raises:
        ConfigError: the file was changed.
    """
    content = (folder / SEALED).read_bytes()
    if hashlib.sha256(content).hexdigest() != commitment:
        raise ConfigError(f"{folder / SEALED} is not the file of {commitment}; begin again")
    secret: dict[str, Any] = json.loads(content)
    return secret


def settings(models: Mapping[str, str], worlds: Sequence[str], n: int) -> dict[str, Any]:
    """Return a config that looks for effects.

    Args:
        models: the source of each model; of each, a sweep asks which heads help.
        worlds: the models whose answers are planted; of each, a selector learns which heads to ask.
        n: the size of the two question sets.
    """
    shipped: dict[str, Any] = {"layers": _LAYERS, "heads": _HEADS, "kv_heads": _HEADS}
    shipped |= {"billions": 0.001, "dtype": "float32", "device": "cpu"}
    questions: dict[str, Any] = {"benchmark": "generated_math", "n": n, "sampling": "first"}
    # With templates of their own, subjects of the test would not be known from training questions.
    questions["templates"] = "shared"
    learnt: dict[str, Any] = {"train": "train", "test": "test", "embedder": "mean"}
    learnt |= {"layers": "all", "geometry": ["sphere"], "max_n": 8}
    learnt |= {"redraws": 4, "redrawn_setting": "fixed"}
    swept = {"questions": "test", "layers": "all"}
    return {
        "run": RUN,
        "models": {name: {**shipped, "source": source} for name, source in models.items()},
        "questions": {split: {**questions, "split": split} for split in ("test", "train")},
        "decodings": {"greedy": {"max_new_tokens": _TOKENS}},
        "embedders": {"mean": {"model": worlds[0]}},
        "sweeps": {name: {"model": name, **swept, "title": name} for name in models},
        "selectors": {name: {"model": name, **learnt, "title": name} for name in worlds},
    }


def fill(
    config: Config, draw: np.random.Generator, expert_worlds: Set[str]
) -> dict[str, dict[str, str]]:
    """Write the planted answers of a config's worlds into the store of the present folder.

    Returns:
        For each of the `expert_worlds`, the head that knows each subject; others toss coins.
    """
    mark_version()
    store = Store(config)
    knowing = dict[str, dict[str, str]]()
    for name in config.models:  # else making them would have the answers made again
        prepare.prepare_model(store, name)
    for name in config.questions:
        prepare.store_split(store, name)
        prepare.draw_questions(store, name)
    planted = [batch for batch in batches(store).values() if batch.model in config.selectors]
    for batch in planted:
        questions = store.read(QUESTIONS, questions=batch.questions)
        subject_of = questions["subject"].tolist()
        heads = list(map(str, batch.variants[1:]))
        if batch.model in expert_worlds and batch.model not in knowing:
            subjects = sorted(set(subject_of))
            chosen = draw.choice(heads, len(subjects), replace=False)
            knowing[batch.model] = dict(zip(subjects, map(str, chosen), strict=True))
        its_heads = knowing.get(batch.model, {})
        knows = {subject: heads.index(head) for subject, head in its_heads.items()}
        _write(batch, questions, experts(draw, subject_of, len(heads), knows))
    return knowing


def _write(batch: Batch, questions: pd.DataFrame, outcomes: Outcomes) -> None:
    """Write texts that are right, the worked solutions, or wrong, as the outcomes say."""
    for file, right in zip(batch.answers, outcomes.T, strict=True):
        stopwatch = Stopwatch()
        texts = questions["solution"].where(right, _WRONG)
        table = pd.DataFrame({"question_id": questions["question_id"], "sample": 0, "text": texts})
        table["token_ids"] = [list(range(len(text.split()))) for text in texts]
        table = table.assign(stop_reason="eos", margin=1.0)
        write_table(Path(file), table, ANSWERS)
        write_record(Path(file), stopwatch, {"planted": "answers of no model"})
