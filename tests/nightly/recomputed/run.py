"""A finished run's files, and what is computed of them."""

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd


class Fact(NamedTuple):
    """A number of a run, recomputed; percentages and points are of 100."""

    value: float
    luck: float = 0.0
    """How far another number may be from it that comes of other random draws; see `chance`."""


class Run:
    """A finished run's folder, beside which lies the store of answers."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = json.loads((self.folder / "config.json").read_text())

    def table(self, kind, model, decoding, questions):
        """Return an accuracy matrix, or graded answers, by the config's names."""
        (file,) = self.folder.glob(f"{kind}/{model}-*/{decoding}-*/{questions}-*.parquet")
        return pd.read_parquet(file)

    def matrix(self, model, decoding, questions):
        """Return an accuracy matrix: a row a question, in the order of its file."""
        return self.table("accuracy", model, decoding, questions).set_index("question_id")

    def questions(self, name):
        """Return a question set: its ids and texts."""
        (file,) = self.folder.parent.glob(f"store/questions/{name}-*.parquet")
        return pd.read_parquet(file, columns=["question_id", "question"])

    def prompt_tokens(self, model, decoding, questions):
        """Return the mean length of a prompt. Whoever answered counted it: no file has prompts."""
        answers = f"store/{model}-*/{decoding}-*/{questions}-*/base.parquet.run.json"
        (file,) = self.folder.parent.glob(answers)
        return json.loads(file.read_text())["prompt_tokens"]

    def pool(self, section):
        """Return the names of a sweep's or selector's heads."""
        if isinstance(section["heads"], dict):  # another sweep or a map has chosen them
            return section["heads"]["chosen"]
        model = self.config["models"][section["model"]]
        layers, heads = (
            range(model[size]) if section[size] == "all" else section[size]
            for size in ("layers", "heads")
        )
        return [f"L{layer:02}H{head:02}" for layer in sorted(layers) for head in sorted(heads)]
