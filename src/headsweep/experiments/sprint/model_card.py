"""The model card of a trained selector."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from headsweep.config import Config, Questions
from headsweep.experiments.sprint.evaluation import SHOWN_N
from headsweep.experiments.sprint.validation import likeness, reading_title
from headsweep.models.source import local_folder
from headsweep.text import points, with_interval

_CARD = """\
---
{{ card_data }}
---
# {{ name }}

Ranks the attention heads of a language model for a question: the nearest are those whose removal \
is expected to help to answer it (SPRINT, [arXiv 2506.03978](https://arxiv.org/abs/2506.03978), \
section 4).

{{ facts }}

To answer a question with it:

```sh
headsweep solve --run results/{{ run }} --selector {{ name }} "What is 3 times 7?"
```

Pass@N on {{ n }} test questions, in percent, with 95% bootstrap intervals over questions: a \
question counts as solved if any of N answers is right. Heads answer greedily, of at most \
{{ tokens }} tokens; grading: {{ grading }}. {{ likeness }}

{{ passes }}

SPRINT minus each method with {{ most }} answers, in points, with 95% intervals over questions, \
seeds and draws of training questions, and p after Holm's correction; apart: on questions that \
resemble no training question.

{{ leads }}
"""


def card(
    config: Config,
    name: str,
    facts: Mapping[str, Any],
    curves: pd.DataFrame,
    alike: pd.DataFrame,
    paired: pd.DataFrame,
) -> str:
    """Return the model card of a trained selector of a resolved config.

    `facts` is the metadata saved with it; `curves` its Pass@N (`headsweep.files.tables.CURVES`);
    `alike` says which test questions resemble training questions
    (`headsweep.experiments.sprint.validation.overlap`); `paired` are the differences
    (`headsweep.experiments.sprint.evaluation.paired`).
    """
    options = config.selectors[name]
    chosen = facts["setting"]
    model = config.models[options.model]
    hub = model.source if model.source and not local_folder(model.source) else None
    tags = ["sprint", "head-selector", "attention-heads"]
    data = ModelCardData(base_model=hub, library_name="headsweep", tags=tags)
    shown = {
        "model": f"{model.source or options.model}, revision {model.revision}, {model.dtype}",
        "heads": f"{len(facts['heads'])}: {facts['heads'][0]} to {facts['heads'][-1]}",
        "question embeddings": chosen["embedder"],
        "learnt from": _drawn_from(options.train, config.questions[options.train]),
        "tested on": _drawn_from(options.test, config.questions[options.test]),
        "loss": f"{reading_title(chosen)}; the paper prints literal and a λ above 0",
        "training": f"{chosen['epochs']:,} epochs, learning rate {chosen['learning_rate']:g}, "
        f"seed {facts['seed']}; chosen on held-out training questions (choice.csv)",
    }
    rows = curves[curves["n"].isin(SHOWN_N)]
    passes = []
    for method, of_method in rows.groupby("method", sort=False):
        percents = 100 * of_method[["pass_at_n", "low", "high"]].to_numpy()
        cells = [f"{value:.1f} ({low:.1f} to {high:.1f})" for value, low, high in percents]
        passes.append([str(method), *cells])
    written = ModelCard.from_template(
        data,
        template_str=_CARD,
        name=name,
        run=config.run,
        facts=_markdown(["", ""], list(shown.items())),
        n=facts["test_questions"],
        tokens=f"{config.decodings[options.decoding].max_new_tokens:,}",
        grading=config.grading,
        likeness=likeness(alike),
        passes=_markdown(["", *(f"N = {n}" for n in rows["n"].unique())], passes),
        most=paired["n"].max(),
        leads=_leads(paired[paired["n"] == paired["n"].max()]),
    )
    return f"{written}\n"


def _leads(paired: pd.DataFrame) -> str:
    """Return differences at one N; without those apart where there are none."""
    rows = []
    for row in paired.to_dict("records"):
        cells = [row["method"], _interval(row, ""), f"{row['adjusted']:.3f}"]
        if not pd.isna(row["difference_apart"]):
            cells.append(_interval(row, "_apart"))
        rows.append(cells)
    return _markdown(["", "difference", "p", "apart"][: len(rows[0])], rows)


def _interval(row: Mapping[Hashable, Any], suffix: str) -> str:
    value, low, high = (row[f"{name}{suffix}"] for name in ("difference", "low", "high"))
    return with_interval(points, value, low, high)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _drawn_from(name: str, questions: Questions) -> str:
    source = questions.file or questions.dataset or questions.benchmark
    drawn = f"{questions.n:,} questions" if questions.n else "all questions"
    revision = f", revision {questions.revision}" if questions.revision else ""
    return f"{name}: {source}, split {questions.split}{revision}, {drawn}, seed {questions.seed}"
