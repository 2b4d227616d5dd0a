"""A selector's tables as text: does the embedding matter, diversity, choosing one answer."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from headroom import paths
from headroom.analysis.sheet import Sheet, in_percent, in_points, joined, name, number, rows_of
from headroom.analysis.text import percent, points
from headroom.sprint import choosing, evaluation, matching
from headroom.sprint.choosing import AGREEMENT, FIRST, MAJORITY, ORACLE, VERIFIER
from headroom.sprint.matching import ALL, EQUAL, MEAN, SHUFFLED
from headroom.sprint.methods import COVER, SPRINT

EMBEDDING_CAPTION = (
    "Pass@N of SPRINT, in percent, beside what does not know the question: SPRINT with the "
    "questions' embeddings shuffled (exact mean over all permutations; p: one-sided, 10,000 "
    "permutations), the greedy cover, which is the same heads for every question, and heads drawn "
    "from the pool. Differences in percentage points with paired 95% bootstrap intervals over "
    "questions. Held-out training questions: the chosen setting trained again without them; it was "
    "chosen on them, which favours SPRINT. Heads as accurate as base: exact McNemar test on "
    "training questions, p ≥ 0.05. Mean: over N = 1 to the largest."
)
"""What the table of the embedding shows."""

DIVERSITY_CAPTION = (
    "Diversity and cost of N answers, means over questions: distinct final answers by value and "
    "share of pairs that agree, with 95% bootstrap intervals; generated tokens of all answers, and "
    "of the longest: the steps that N answers take side by side. Prompts: how often the question's "
    "tokens pass the whole model; samples share all of it, pruned heads what lies below the layer "
    "of the highest among them, where they part from the base model. Tokens computed are prompts "
    "times the mean length of a prompt, and the generated ones. A method "
    "that orders fewer answers than N stays at its last value."
)
"""What the table of diversity shows."""

CHOOSING_CAPTION = (
    "One answer chosen among N without an oracle, in percent of the questions, with 95% bootstrap "
    "intervals over questions. Recovered: of Pass@N, the questions that one of the N answers "
    "solves. First answer: that of the nearest head; a single sample. Majority: most votes; of "
    "equals one at random. By agreement: a vote counts as much as its head "
    "agreed with the others on training questions. Verifier: a logistic regression on votes, rank "
    "and length, fitted to held-out training questions. Right answers count as equal however they "
    "are written."
)
"""What the table shows."""

RULES = {
    ORACLE: "oracle (Pass@N)",
    FIRST: "first answer",
    MAJORITY: "majority",
    AGREEMENT: "majority, by agreement",
    VERIFIER: "verifier",
}
"""The rules, as tables name them."""

_ALPHA = 0.05
_SHOWN_N = 8


def embedding_sentence(table: pd.DataFrame) -> str:
    """Say in one sentence whether the question embedding matters on the test questions.

    Judged by the mean of Pass@1..max_n, one number, so that no N is picked.

    Args:
        table: columns `headroom.sprint.matching.COLUMNS`.
    """
    mean = table[(table["questions"] == "test") & (table["n"] == MEAN)]
    simpler = _simpler(mean)
    mean = mean[mean["method"] == SPRINT]
    of_all = mean[mean["pool"] == ALL].set_index("against")
    shuffled, cover = (_row(of_all, name) for name in (SHUFFLED, COVER))
    matters = shuffled.p < _ALPHA and shuffled.low > 0
    verdict = "the question embedding matters" if matters else "no effect of it is shown"
    text = (
        f"Ranking heads by a question's own embedding, not another question's, changes the mean of "
        f"Pass@N by {_difference(shuffled)}, permutation p = {shuffled.p:.3f}: {verdict}; against "
        f"the same heads for every question (greedy cover) it changes by {_difference(cover)}"
    )
    equal = mean[mean["pool"] == EQUAL].set_index("against")
    if equal.empty:
        return f"{text}.{simpler}"
    kept = _row(equal, SHUFFLED)
    return (
        f"{text}; among the {kept.heads} heads that are as accurate as base the embedding changes "
        f"{_difference(kept)}, p = {kept.p:.3f}.{simpler}"
    )


def _simpler(mean: pd.DataFrame) -> str:
    """Say what simpler methods on the same questions reach, by the mean of Pass@1..max_n."""
    shown = mean[(mean["pool"] == ALL) & (mean["against"] == SHUFFLED)]
    told = [
        f"{row.method} {percent(row.sprint)} ({points(row.difference)} over shuffled questions, "
        f"p = {row.p:.3f})"
        for row in rows_of(shown)
    ]
    return f" Means of Pass@N: {'; '.join(told)}." if len(told) > 1 else ""


def embedding_sheet(table: pd.DataFrame, selector: str) -> Sheet:
    """Return whether the embedding matters as text."""
    columns = (
        ("method", name("method")),
        ("questions", name("questions")),
        ("pool", name("pool")),
        ("against", name("against")),
        ("heads", number("heads")),
        ("N", name("n")),
        ("own", in_percent("sprint")),
        ("other", in_percent("other")),
        ("difference", in_points("difference")),
        ("95% interval", joined(in_points("low"), " to ", in_points("high"))),
        ("p", number("p", ".3f")),
    )
    caption, lead = f"{selector}: {EMBEDDING_CAPTION}", embedding_sentence(table)
    return Sheet.of(table, columns, caption, texts=4, lead=lead)


def diversity_sheet(table: pd.DataFrame, selector: str) -> Sheet:
    """Return diversity and cost as text."""
    distinct, agreement = (
        joined(form(f"{column}_low"), " to ", form(f"{column}_high"))
        for form, column in ((lambda c: number(c, ".2f"), "distinct"), (in_percent, "agreement"))
    )
    columns = (
        ("method", name("method")),
        ("N", number("n")),
        ("Pass@N (%)", in_percent("pass_at_n")),
        ("distinct answers", number("distinct_answers", ".2f")),
        ("95% interval", distinct),
        ("agreement (%)", in_percent("agreement")),
        ("95% interval", agreement),
        ("tokens", number("tokens", ".0f")),
        ("longest", number("longest", ".0f")),
        ("prompts", number("prompts", ".2f")),
        ("tokens computed", number("computed", ".0f")),
    )
    return Sheet.of(table, columns, f"{selector}: {DIVERSITY_CAPTION}")


def overhead_sentence(facts: Mapping[str, Any]) -> str:
    """Say what embedding and choosing cost; nothing where it was not measured.

    Args:
        facts: record of the table of diversity.
    """
    if "selection_seconds" not in facts or "embedding_seconds" not in facts:
        return ""
    each, embedding = 1000 / facts["test_questions"], facts["embedding_seconds"]
    return (
        f"Embedding {facts['test_questions']} questions took {embedding:.2f} s, the embedder's "
        f"loading included ({each * embedding:.1f} ms a question), and "
        f"{facts['embedding_bytes'] / 1e6:.0f} MB more memory; ranking the heads for all of them "
        f"{facts['selection_seconds']:.4f} s ({each * facts['selection_seconds']:.3f} ms a "
        f"question) and {facts['selection_bytes'] / 1e6:.0f} MB."
    )


def choosing_sentence(table: pd.DataFrame) -> str:
    """Say what choosing among SPRINT's heads costs, and whether the verifier beats the majority.

    At N = 8, or at the largest N where there are fewer.

    Args:
        table: columns `headroom.sprint.choosing.COLUMNS`.
    """
    own = table[table["method"] == table["method"].iloc[0]]
    n = max(value for value in own["n"] if value <= _SHOWN_N)
    at = {row.rule: row for row in rows_of(own[own["n"] == n])}
    majority, first, verifier = at[MAJORITY], at[FIRST], at[VERIFIER]
    clear = verifier.over_low > 0 or verifier.over_high < 0
    verdict = (
        ("better" if verifier.over_majority > 0 else "worse") if clear else "no difference is shown"
    )
    return (
        f"Without an oracle, the majority of the {n} nearest heads answers "
        f"{percent(majority.accuracy)} of the questions ({percent(majority.low)} to "
        f"{percent(majority.high)}), {percent(majority.recovered)} of Pass@{n}, the nearest head "
        f"alone {percent(first.accuracy)}; a verifier fitted to training questions changes the "
        f"majority's by {points(verifier.over_majority)} points (95% interval "
        f"{points(verifier.over_low)} to {points(verifier.over_high)}): {verdict}."
    )


def choosing_sheet(table: pd.DataFrame, selector: str) -> Sheet:
    """Return how much of Pass@N the rules recover as text."""
    columns = (
        ("answers of", name("method")),
        ("chosen by", lambda row: RULES[row.rule]),
        ("N", number("n")),
        ("right (%)", in_percent("accuracy")),
        ("95% interval", joined(in_percent("low"), " to ", in_percent("high"))),
        ("recovered (%)", in_percent("recovered")),
        ("95% interval", joined(in_percent("recovered_low"), " to ", in_percent("recovered_high"))),
        ("over majority", in_points("over_majority")),
        ("95% interval", joined(in_points("over_low"), " to ", in_points("over_high"))),
    )
    caption, lead = f"{selector}: {CHOOSING_CAPTION}", choosing_sentence(table)
    return Sheet.of(table, columns, caption, texts=2, lead=lead)


SELECTOR_TABLES = (
    (paths.EMBEDDING_VALUE, matching.COLUMNS, embedding_sheet),
    (paths.DIVERSITY, evaluation.DIVERSITY, diversity_sheet),
    (paths.CHOOSING, choosing.COLUMNS, choosing_sheet),
)
"""The file of each table, its columns, and how it is shown."""


def _row(table: pd.DataFrame, against: str) -> Any:
    (row,) = rows_of(table.loc[[against]])
    return row


def _difference(row: Any) -> str:
    return f"{points(row.difference)} points (95% interval {points(row.low)} to {points(row.high)})"
