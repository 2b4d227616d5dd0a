"""What a frontier's table and verdict say of its families, from graded answers."""

import re
from collections import Counter
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from recomputed.chance import LEVEL, holm, jointly, paired, resampled, sign
from recomputed.run import Fact
from recomputed.selectors import drawn

SAMPLING, HEADS = "sampling", "head"
BUDGETS = (8, 4, 2, 1)
"""Tokens of all answers, in multiples of the base model's: the largest that all reach is tested."""
_OUTCOMES = "passed", "majority"
MISSED = 0.05
"""Largest share of resamples of the questions in which a family may miss the budget."""


class Family(NamedTuple):
    """A family's numbers for the account, and by question what is compared at equal tokens."""

    told: dict
    passed: np.ndarray  # [questions, N]: one of the first N answers is right
    majority: np.ndarray  # the vote of the first N is right
    tokens: np.ndarray  # of the first N


def facts(run, frontier):
    """Return the numbers of a frontier's table and verdict, by topic and name."""
    section = run.config["frontiers"][frontier]
    folder = run.folder / "frontier" / frontier
    members = pd.read_csv(folder / "members.csv")  # in the order that training questions chose
    titles = pd.read_csv(folder / "families.csv").set_index("family")["title"]
    test, decoding, model = section["test"], section["decoding"], section["model"]
    graded = run.table("graded", model, decoding, test)
    base = graded[graded["variant"] == "base"].set_index("question_id")["tokens"]
    prompts = run.prompt_tokens(model, decoding, test)
    families = {}
    for family, part in members.groupby("family", sort=False):
        if family == SAMPLING:
            own = part["member"].iloc[0].partition(",")[0]
            families[family] = _sampled(run.table("graded", model, own, test), len(part), prompts)
        else:
            names, depth = part.sort_values("rank")["member"], run.config["models"][model]["layers"]
            families[family] = _changed(graded, names.tolist(), prompts, depth)
    told = {
        ("families", f"{titles[name]}, {column}"): Fact(value)
        for name, family in families.items()
        for column, value in family.told.items()
    }
    tested = pd.read_csv(folder / "paired.csv").dropna(subset="adjusted")["budget"].max()
    budget = _largest(families, base.to_numpy(float), section["bootstrap"], tested)
    return told | _verdict(families, base.to_numpy(float), budget)


def _changed(graded, names, prompts, depth):
    """Return a family of changed models, in the order of their names."""
    answers = graded[graded["variant"].isin(names)]
    correct, group, tokens = (
        answers.pivot(index="question_id", columns="variant", values=column)[names].to_numpy()
        for column in ("correct", "group", "tokens")
    )
    work, shared = zip(*(_work(name, depth) for name in names), strict=True)
    passes = max(shared) + sum(work) - sum(shared)  # layers that answers share run once
    computed = (tokens @ work + prompts * passes).mean() / len(names)
    sizes = range(1, len(names) + 1)
    passed = np.maximum.accumulate(correct, axis=1).astype(float)
    votes = zip(group, correct, strict=True)
    majority = [[_vote(labels[:n], right[:n]) for n in sizes] for labels, right in votes]
    spent = tokens.cumsum(axis=1).astype(float)
    return Family(_told(answers, computed, passed), passed, np.array(majority), spent)


def _sampled(graded, count, prompts):
    """Return the family of samples, of which any N may be drawn."""
    answers = graded[graded["sample"] < count]
    correct, group, tokens = (
        answers.pivot(index="question_id", columns="sample", values=column).to_numpy()
        for column in ("correct", "group", "tokens")
    )
    sizes = range(1, count + 1)
    passed = np.array([[drawn(right, count, n) for n in sizes] for right in correct.sum(axis=1)])
    drawings = [[[*each] for each in combinations(range(count), n)] for n in sizes]
    majority = np.array(
        [
            [np.mean([_vote(labels[own], right[own]) for own in of_n]) for of_n in drawings]
            for labels, right in zip(group, correct, strict=True)
        ]
    )
    computed = answers["tokens"].mean() + prompts / count  # the prompt runs once for all
    spent = np.outer(tokens.mean(axis=1), sizes)
    return Family(_told(answers, computed, passed), passed, majority, spent)


def _told(answers, computed, passed):
    found = {"tokens an answer": answers["tokens"].mean(), "computed": computed}
    found |= {"no answer": 100 * answers["answer"].isna().mean()}
    found |= {"right": 100 * answers["correct"].mean()}
    return found | {str(n): 100 * share for n, share in enumerate(passed.mean(axis=0), 1)}


def _work(name, depth):
    """Return the work of a token, and that of layers which run as in the base model, as shares.

    Those are the layers below the changed one; none, if noise is on all weights. Skipped layers do
    no work.
    """
    layer = re.match(r"L(\d+)(?:K(\d+))?", name)
    if not layer:
        return 1.0, 0.0
    return (depth - int(layer[2] or 0)) / depth, int(layer[1]) / depth


def _vote(labels, right):
    """Return how often the vote is right if ties are broken by lot; -1 has no vote."""
    votes = Counter(labels[labels >= 0].tolist())
    if not votes:
        return 0.0
    leading = [label for label, count in votes.items() if count == max(votes.values())]
    return float(np.mean([right[labels == label].mean() for label in leading]))


def _verdict(families, base, budget):
    """Return the numbers of the verdict on heads against sampling, at a budget."""
    others = [name for name in families if name not in (HEADS, SAMPLING)]
    together = [[(name, SAMPLING) for name in (HEADS, *others)], [(HEADS, each) for each in others]]
    at = {
        (name, outcome): [[_at_budget(getattr(family, outcome), family.tokens, base, budget)]]
        for name, family in families.items()
        for outcome in _OUTCOMES
    }
    found, p = {}, {}
    for pairs in together:  # each list is corrected alone, over both outcomes
        keys = [*product(pairs, _OUTCOMES)]
        tested = [paired(at[own, outcome], at[other, outcome]) for (own, other), outcome in keys]
        found |= dict(zip(keys, tested, strict=True))
        p |= dict(zip(keys, holm([each.p for each in tested]), strict=True))
    first = (HEADS, SAMPLING), "passed"
    lead = found[first]
    against = [((HEADS, each), "passed") for each in others]
    beaten = [pair for pair in against if p[pair] < LEVEL and found[pair].mean > 0]
    shown = p[first] < LEVEL
    versus_sampling = [found[pair, outcome].p for pair in together[0] for outcome in _OUTCOMES]
    # Holm's correction holds a difference that it shows to as many tests as have no smaller p.
    left = sum(own >= lead.p for own in versus_sampling) if shown else len(versus_sampling)
    joint = jointly(lead, left)
    told = {
        "budget": budget,
        "difference": 100 * lead.mean,
        "low": 100 * joint.low,
        "high": 100 * joint.high,
        "sign": sign(lead) if shown else 0,
        "beaten": len(beaten),
        "families": len(others),
    }
    return {("families", name): Fact(value) for name, value in told.items()}


def _largest(families, base, resamples, tested):
    """Return the largest budget that all families reach, and together seldom miss in resamples.

    Where the share of misses is so near to the limit that a run's resamples decide, it is reached
    if the run `tested` at it.
    """
    first_last = np.hstack([family.tokens[:, [0, -1]] for family in families.values()])
    for budget in BUDGETS:
        if not _within(first_last.mean(axis=0)[np.newaxis], budget * base.mean()).all():
            continue

        def missed(means, budget=budget):
            return 1 - _within(means[:, 1:], budget * means[:, :1]).all(axis=1).mean()

        share, luck = resampled(np.column_stack([base, first_last]), missed, resamples)
        near = abs(share - MISSED) <= luck
        if budget == tested if near else share < MISSED:
            return budget
    raise ValueError("no budget is reached by all families")


def _within(ends, asked):
    return (ends[:, 0::2] <= asked) & (asked <= ends[:, 1::2])


def _at_budget(values, tokens, base, budget):
    """Return numbers by question whose mean is a family's value at so many tokens.

    The curve is linear between N and N + 1. A question on which the family spends more than its
    share of the budget moves the place on the curve back, at the curve's slope.
    """
    mean, spent, asked = values.mean(axis=0), tokens.mean(axis=0), budget * base.mean()
    left = min(int((spent <= asked).sum()) - 1, len(spent) - 2)
    right = left + 1
    width = spent[right] - spent[left]
    share, slope = (asked - spent[left]) / width, (mean[right] - mean[left]) / width
    value, used = (
        (1 - share) * each[:, left] + share * each[:, right] for each in (values, tokens)
    )
    return value + slope * (budget * base - used)
