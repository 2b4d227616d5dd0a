"""The question browser: answers that pruning one head turned from wrong to right, or back."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.figures.gains import accuracy_path
from headroom.plan import find_batch
from headroom.tables import ACCURACY, ANSWERS, QUESTIONS, read_table
from headroom.variants import BASE

_EACH_WAY = 15


@dataclass(frozen=True)
class Answer:
    """One answer: what it shares with the other from its start, and what differs."""

    same: str
    different: str
    right: bool
    margin: float


@dataclass(frozen=True)
class Example:
    """A question whose outcome changed."""

    question_id: str
    subject: str
    level: int | None
    question: str
    gold: str
    base: Answer
    pruned: Answer


@dataclass(frozen=True)
class Browser:
    """Some changed questions of one pruned head, and how many changed in all."""

    variant: str
    gained: int
    lost: int
    examples: list[Example]


def browse(config: Config, sweep: str, cells: pd.DataFrame) -> Browser | None:
    """Return changed questions of the head that is best over all questions.

    Args:
        config: the run.
        sweep: name of the sweep.
        cells: its cells, as `headroom.figures.gains.cells` returns them.

    Returns:
        The browser; None where the store no longer holds the answers.
    """
    section = config.sweeps[sweep]
    batch = find_batch(config, section.model, section.decoding, section.questions)
    keys = batch.wildcards(config)
    overall = cells[(cells["by"] == "overall") & (cells["variant"] != str(BASE))]
    variant = str(overall.sort_values("correct", ascending=False, kind="stable")["variant"].iloc[0])
    names = (str(BASE), variant)
    files = [Path(paths.ANSWERS.format(variant=name, **keys)) for name in names]
    questions = Path(paths.QUESTIONS.format(**keys))
    if not all(file.exists() for file in (*files, questions)):
        return None
    z = read_table(accuracy_path(config, sweep), ACCURACY, exact=False).set_index("question_id")
    base, pruned = (read_table(file, ANSWERS).set_index("question_id") for file in files)
    gained: list[str] = z.index[(z[names[0]] == 0) & (z[variant] == 1)].tolist()
    lost: list[str] = z.index[(z[names[0]] == 1) & (z[variant] == 0)].tolist()
    asked = read_table(questions, QUESTIONS).set_index("question_id")
    examples = []
    for question in [*gained[:_EACH_WAY], *lost[:_EACH_WAY]]:
        row = asked.loc[[question]].iloc[0]
        sides = [side.loc[[question]].iloc[0] for side in (base, pruned)]
        shared = shared_start(*(str(side["text"]) for side in sides))
        before, after = (
            Answer(
                same=str(side["text"])[:shared],
                different=str(side["text"])[shared:],
                right=bool(z.loc[[question], name].iloc[0]),
                margin=float(side["margin"]),
            )
            for side, name in zip(sides, names, strict=True)
        )
        examples.append(
            Example(
                question_id=question,
                subject="" if pd.isna(row["subject"]) else str(row["subject"]),
                level=None if pd.isna(row["level"]) else int(row["level"]),
                question=str(row["question"]),
                gold=str(row["answer"]),
                base=before,
                pruned=after,
            )
        )
    return Browser(variant, len(gained), len(lost), examples)


def shared_start(first: str, second: str) -> int:
    """Return how many characters two texts share from their start."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))
