"""The model card of a trained selector, in the format of the Hugging Face hub."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from huggingface_hub import ModelCardData

from headroom.config import Config, Questions
from headroom.models.source import local_folder
from headroom.sprint.evaluation import POINTS

_TABLE = """\
Pass@N on {n} test questions, in percent, with 95% bootstrap intervals over questions: a question \
counts as solved if any of N answers is right. Heads answer with {decoding} decoding, of at most \
{tokens} tokens; grading: {grading}. The selector has not seen these questions.
"""


def card(config: Config, name: str, facts: Mapping[str, Any], curves: pd.DataFrame) -> str:
    """Return the model card of a trained selector.

    Args:
        config: the resolved config, with revisions.
        name: the selector's config name.
        facts: the metadata saved with the selector.
        curves: Pass@N on the test questions, columns of `headroom.tables.CURVES`.
    """
    options, chosen = config.selectors[name], facts["setting"]
    model = config.models[options.model]
    hub = model.source if model.source and not local_folder(model.source) else None
    data = ModelCardData(
        base_model=hub, library_name="headroom", tags=["sprint", "head-selector", "attention-heads"]
    )
    decoding = config.decodings[options.decoding]
    measured = _TABLE.format(
        n=facts["test_questions"],
        decoding="greedy" if decoding.temperature == 0 else f"T = {decoding.temperature:g}",
        tokens=f"{decoding.max_new_tokens:,}",
        grading=config.grading,
    )
    embedder = config.embedders[chosen["embedder"]]
    made = f"{model.source}, revision {model.revision}, {model.dtype}"
    if model.train is not None:
        steps, seed = model.train.steps, model.train.seed
        made = f"{options.model}, trained here for {steps:,} steps, seed {seed}"
    embedding = f"{embedder.source}, revision {embedder.revision}"
    if embedder.source is None:
        embedding = f"mean of the last hidden states of {embedder.model}"
    facts_shown = {
        "model": made,
        "heads": f"{len(facts['heads'])}: {facts['heads'][0]} to {facts['heads'][-1]}",
        "question embeddings": embedding,
        "learnt from": _questions(options.train, config.questions[options.train]),
        "tested on": _questions(options.test, config.questions[options.test]),
        "training": f"{chosen['epochs']:,} epochs, learning rate {chosen['learning_rate']:g}, "
        f"seed {facts['seed']}; geometry, dimension, λ and weight decay chosen on held-out "
        f"training questions (choice.csv)",
    }
    shown = curves[curves["n"].isin(POINTS)]
    passes = {
        str(method): [
            f"{v:.1f} ({low:.1f} to {high:.1f})"
            for v, low, high in 100 * part[["pass_at_n", "low", "high"]].to_numpy()
        ]
        for method, part in shown.groupby("method", sort=False)
    }
    return (
        f"---\n{data.to_yaml()}\n---\n# {name}\n\n"
        "Ranks the attention heads of a language model for a question: the nearest are those "
        "whose removal is expected to help to answer it (SPRINT, "
        "[arXiv 2506.03978](https://arxiv.org/abs/2506.03978), section 4).\n\n"
        f"{_markdown([''], {key: [value] for key, value in facts_shown.items()})}\n\n"
        f"To answer a question with it:\n\n```sh\nheadroom solve --run "
        f'results/{config.run} --selector {name} "What is 3 times 7?"\n```\n\n{measured}\n'
        f"{_markdown([f'N = {n}' for n in shown['n'].unique()], passes)}\n"
    )


def _markdown(header: list[str], rows: Mapping[str, list[str]]) -> str:
    lines = [
        ["", *header],
        ["---"] * (len(header) + 1),
        *([key, *row] for key, row in rows.items()),
    ]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _questions(name: str, questions: Questions) -> str:
    source = questions.file or questions.dataset or questions.benchmark
    revision = f", revision {questions.revision}" if questions.revision else ""
    drawn = f"{questions.n:,} questions" if questions.n else "all questions"
    return f"{name}: {source}, split {questions.split}{revision}, {drawn}, seed {questions.seed}"
