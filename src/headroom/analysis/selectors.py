"""A selector's tables and the comparison of prompts as text, from the CSV files that hold them."""

from typing import NamedTuple

import pandas as pd

from headroom import paths
from headroom.analysis.sheet import Columns, Sheet, interval, sheet
from headroom.sprint import choosing, evaluation, matching


class Table(NamedTuple):
    """How a CSV file is shown: its path, the columns that it must have, those shown, a caption."""

    path: str
    schema: list[str]
    columns: Columns
    caption: str
    texts: int

    def sheet(self, table: pd.DataFrame, of: str) -> Sheet:
        """Return the table as text.

        Args:
            table: as read from the file.
            of: name of the selector or comparison.
        """
        return sheet(table, self.columns, f"{of}: {self.caption}", self.texts)


SELECTOR_TABLES = (
    Table(
        paths.EMBEDDING_VALUE,
        matching.COLUMNS,
        {
            **{name: f"{{{name}}}" for name in ("method", "questions", "pool", "against")},
            "heads": "{heads:int}",
            "N": "{n}",
            "own": "{sprint:%}",
            "other": "{other:%}",
            "difference": "{difference:pts}",
            "95% interval": "{low:pts} to {high:pts}",
            "p": "{p:.3f}",
        },
        "Pass@N of SPRINT, in percent, beside what does not know the question: SPRINT with the "
        "questions' embeddings shuffled (exact mean over all permutations; p: one-sided, 10,000 "
        "permutations), the greedy cover, which is the same heads for every question, and heads "
        "drawn from the pool. Differences in percentage points with paired 95% bootstrap intervals "
        "over questions. Held-out training questions: the chosen setting trained again without "
        "them; it was chosen on them, which favours SPRINT. Heads as accurate as base: exact "
        "McNemar test on training questions, p ≥ 0.05. Mean: over N = 1 to the largest.",
        4,
    ),
    Table(
        paths.DIVERSITY,
        evaluation.DIVERSITY,
        {
            "method": "{method}",
            "N": "{n:int}",
            "Pass@N (%)": "{pass_at_n:%}",
            "distinct answers": interval("distinct_answers", ".2f", "distinct"),
            "agreement (%)": interval("agreement", "%"),
            "tokens": "{tokens:.0f}",
            "longest": "{longest:.0f}",
            "prompts": "{prompts:.2f}",
            "tokens computed": "{computed:.0f}",
        },
        "Diversity and cost of N answers, means over questions: distinct final answers by value "
        "and share of pairs that agree, with 95% bootstrap intervals; generated tokens of all "
        "answers, and of the longest: the steps that N answers take side by side. Prompts: how "
        "often the question's tokens pass the whole model; samples share all of it, pruned heads "
        "what lies below the layer of the highest among them, where they part from the base model. "
        "Tokens computed are prompts times the mean length of a prompt, and the generated ones. A "
        "method that orders fewer answers than N stays at its last value.",
        1,
    ),
    Table(
        paths.CHOOSING,
        choosing.COLUMNS,
        {
            "answers of": "{method}",
            "chosen by": "{rule}",
            "N": "{n:int}",
            "right (%)": "{accuracy:%} ({low:%} to {high:%})",
            "recovered (%)": interval("recovered", "%"),
            "over majority": interval("over_majority", ends="over"),
        },
        "One answer chosen among N without an oracle, in percent of the questions, with 95% "
        "bootstrap intervals over questions. Recovered: of Pass@N (the oracle), the questions that "
        "one of the N answers solves. First: that of the nearest head; a single sample. Majority: "
        "most votes; of equals one at random. Agreement: a vote counts as much as its head agreed "
        "with the others on training questions. Verifier: a logistic regression on votes, rank and "
        "length, fitted to held-out training questions. Right answers count as equal however they "
        "are written.",
        2,
    ),
)
"""Does the embedding matter, diversity and cost, choosing one answer."""

COMPARISON = Table(
    paths.COMPARISON,
    [
        *("decoding", "grading", "n", "correct", "accuracy", "no_answer", "truncated"),
        "differ_from_default",
    ],
    {
        "prompt": "{decoding}",
        "grading": "{grading}",
        "n": "{n:int}",
        "correct": "{correct:int}",
        "accuracy (%)": "{accuracy:%}",
        "no answer": "{no_answer:int}",
        "truncated": "{truncated:int}",
        "differ from default": "{differ_from_default:int}",
    },
    "prompt and grading rules, base model.",
    2,
)
"""The same questions under both prompts and both grading rules."""
