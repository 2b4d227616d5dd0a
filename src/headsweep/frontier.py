"""How families of variants compare: all is chosen on training questions, then tested once.

A family offers M members, such as models without one head, or samples; its scale (the temperature
of samples) and the order of its members are chosen on training questions. Two curves follow over
N = 1, 2, ...: *drawn* takes N members at random (the exact expectation), *ordered* takes the first
N of the order, a greedy cover of the training questions. Samples have no order: their ordered curve
is the drawn one.

Families are compared at equal numbers of generated tokens, b times the mean of the base model's
answer. Between N and N + 1 a curve is linear, which mixing the two achieves; it is not continued
beyond its ends.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtr

from headsweep import paths
from headsweep.config import Config
from headsweep.errors import RESULT
from headsweep.planning.batches import family_members
from headsweep.planning.store import Store
from headsweep.record import Stopwatch, write_record
from headsweep.sprint.evaluation import Answers, Scores, drawn, estimated, ordered
from headsweep.sprint.experiment import GradedAnswers
from headsweep.sprint.rankers import greedy_cover
from headsweep.statistics.answers import pass_at_n_drawn
from headsweep.statistics.intervals import Bootstrap, holm, interval_of
from headsweep.tables import write_csv
from headsweep.variants import BASE, FAMILIES

_LOG = logging.getLogger(__name__)

BUDGETS = (1, 2, 4, 8, 16)
"""Tokens of all answers, as multiples of the mean of the base model's answer."""

OUTCOMES = {"pass": "pass_at_n", "majority": "majority"}
"""Score by outcome: whether one of N answers is right; whether their majority is."""

SAMPLING = "sampling"
"""The family that all others are held against: samples of the base model. They have no order."""


class Family(NamedTuple):
    """A family at one scale, with a column of answers for each member."""

    name: str
    scale: str
    members: Sequence[str]
    """Names of variants, or of samples."""
    train: Answers
    test: Answers


def worth(family: Family, max_n: int) -> float:
    """Return what a scale is chosen by: Pass@N on training questions, mean over N.

    Members are drawn, so that no order is chosen with it.
    """
    return float(pass_at_n_drawn(family.train.correct, max_n).mean())


def choose(scales: Sequence[Family], max_n: int) -> Family:
    """Choose a family's scale on training questions, and order its members by their greedy cover.

    Ties go to the first scale.
    """
    best = max(scales, key=lambda each: worth(each, max_n))
    if best.name == SAMPLING:
        return best
    order = greedy_cover(best.train.correct)
    members = [best.members[place] for place in order]
    train, test = best.train.select(order), best.test.select(order)
    return best._replace(members=members, train=train, test=test)


def curve(family: Family, prompts: float, max_n: int, *, by_order: bool) -> Scores:
    """Return a family's scores on the test questions for N = 1 to `max_n`, or all members.

    Members come in their order, or are drawn. The tokens of a prompt, in the mean `prompts`, are
    ``computed``, too.
    """
    score = ordered if by_order and family.name != SAMPLING else drawn
    scores = score(family.test, min(max_n, len(family.members)))
    return scores | {"computed": scores["computed"] + prompts * scores["prompts"]}


def at_budget(
    values: Float[np.ndarray, " n"], tokens: Float[np.ndarray, " n"], budgets: np.ndarray | float
) -> Float[np.ndarray, "*budgets"]:
    """Return mean values at numbers of tokens, linear between N and N + 1, NaN beyond the ends."""
    return np.interp(budgets, tokens, values, left=np.nan, right=np.nan)


def primary_budget(curves: Mapping[str, Scores], base_tokens: float) -> int | None:
    """Return the largest of `BUDGETS` up to 8 that all families reach; None if there is none."""
    tokens = [each["tokens"].mean(axis=0) for each in curves.values()]
    low, high = max(each[0] for each in tokens), min(each[-1] for each in tokens)
    return max((b for b in BUDGETS[:4] if low <= b * base_tokens <= high), default=None)


def differences(
    curves: Mapping[str, Scores],
    base: Float[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    pairs: Sequence[tuple[str, str]],
    primary: int | None,
) -> pd.DataFrame:
    """Return paired differences at equal tokens: one family minus another.

    Questions are resampled, and with them tokens, the base model's mean, and so the places on the
    curves. Members, scales and orders stay.

    Args:
        curves: by family.
        base: tokens of the base model's answer to each question.
        bootstrap: resamples of the questions.
        pairs: which family minus which.
        primary: the budget of the tests, at which p-values are ``adjusted`` by Holm's correction:
            over families and outcomes, those against sampling together, and all others together.

    Returns:
        Columns family, versus, outcome, budget, value, other, difference, low, high, p, adjusted;
        p is two-sided, from the normal approximation with the bootstrap's standard error. Budgets
        that a family does not reach have no row.
    """
    budgets, of_base = np.array(BUDGETS), bootstrap.means(base)
    found, resampled = {}, {}
    for name, outcome in product(curves, OUTCOMES):
        values, tokens = curves[name][OUTCOMES[outcome]], curves[name]["tokens"]
        means = values.mean(axis=0), tokens.mean(axis=0)
        found[name, outcome] = at_budget(*means, budgets * base.mean())
        again = zip(bootstrap.means(values), bootstrap.means(tokens), of_base, strict=True)
        resampled[name, outcome] = np.array(
            [at_budget(value, token, budgets * mean) for value, token, mean in again]
        )
    rows = []
    for (name, other), outcome, (place, budget) in product(pairs, OUTCOMES, enumerate(BUDGETS)):
        both = [float(found[each, outcome][place]) for each in (name, other)]
        difference = both[0] - both[1]
        if np.isnan(difference):
            continue
        draws = (resampled[name, outcome] - resampled[other, outcome])[:, place]
        draws = draws[~np.isnan(draws)]  # resamples in which the curves end before the budget
        error = float(draws.std(ddof=1)) if len(draws) > 1 else 0.0
        low, high = interval_of(draws) if len(draws) else (np.nan, np.nan)
        p = 2 * float(ndtr(-abs(difference) / error)) if error else 1.0
        rows.append((name, other, outcome, budget, *both, difference, float(low), float(high), p))
    columns = ["family", "versus", "outcome", "budget", "value", "other", "difference"]
    table = pd.DataFrame(rows, columns=[*columns, "low", "high", "p"])
    table["adjusted"] = np.nan
    tested = table[table["budget"] == primary]
    for _, part in tested.groupby(tested["versus"] == SAMPLING):
        table.loc[part.index, "adjusted"] = holm(part["p"].to_numpy())
    return table


def complement(
    families: Sequence[Family], curves: Mapping[str, Scores], n: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return what two families at half of N answers each solve beyond N of the better.

    Training questions decide which is better; `curves` are ordered. Columns family, other, n,
    better, both (their Pass@N with half of the answers each), alone (of the better), difference,
    low, high, and the correlation between questions of the share of members that are right.
    """
    rows = []
    for pair in combinations(families, 2):
        missed = [1 - curves[each.name]["pass_at_n"][:, n // 2 - 1] for each in pair]
        both = 1 - missed[0] * missed[1]
        better = max(pair, key=lambda each: worth(each, n)).name
        alone = curves[better]["pass_at_n"][:, n - 1]
        right = [each.test.correct.mean(axis=1) for each in pair]
        row = {"family": pair[0].name, "other": pair[1].name, "n": n, "better": better}
        row |= {"both": both.mean(), "alone": alone.mean()}
        row |= estimated(both - alone, bootstrap, "difference", "low", "high")
        varied = all(each.std() > 0 for each in right)
        row["correlation"] = np.corrcoef(right[0], right[1])[0, 1] if varied else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def compare(config: Config, frontier: str) -> None:
    """Compare families at equal tokens; write the tables of a frontier.

    ``members``: a row for each member of each family at its chosen scale. ``scales``: what was
    chosen from, on training questions. ``curves``: Pass@N and majority against tokens, drawn and
    ordered. ``paired``: differences at equal tokens. ``complement``: two families at half each.
    ``families``: a row for each family, with the tokens spent on choosing.
    """
    stopwatch = Stopwatch()
    options, store = config.frontiers[frontier], Store(config)
    graded, max_n = GradedAnswers(config, options.model), options.max_n
    answered = graded.of(options.decoding, options.test, [str(BASE)])
    prompts = graded.prompt_tokens(options.decoding, options.test)
    base = answered.tokens[:, 0].astype(float)
    bootstrap = Bootstrap(len(base), options.bootstrap, config.seed)
    tried = _candidates(config, frontier, graded)
    families = [choose(scales, max_n) for scales in tried]
    by_order = {
        order: {each.name: curve(each, prompts, max_n, by_order=ranked) for each in families}
        for order, ranked in (("drawn", False), ("ordered", True))
    }
    curves = by_order["ordered"]
    primary = primary_budget(curves, base.mean())
    titles = {name: FAMILIES[name].title if name in FAMILIES else name for name in curves}
    pairs = [pair for pair in permutations(titles, 2) if pair[1] == SAMPLING or pair[0] == "head"]
    pairs.sort(key=lambda pair: pair[1] != SAMPLING)
    paired = pd.concat(
        [
            differences(by_order[order], base, bootstrap, pairs, primary).assign(order=order)
            for order in ("ordered", "drawn")
        ]
    ).assign(n=len(base))
    for column in ("family", "versus"):
        paired[f"{column}_title"] = paired[column].map(titles)
    half = min([max_n, *(len(each.members) for each in families)])
    tables = {
        "members": pd.concat([_members(each, answered) for each in families]),
        "scales": pd.DataFrame(
            {
                "family": each.name,
                "scale": each.scale,
                "members": len(each.members),
                "train_pass": worth(each, max_n),
                "train_tokens": each.train.tokens.sum(),
                "chosen": each.scale == best.scale,
            }
            for scales, best in zip(tried, families, strict=True)
            for each in scales
        ),
        "curves": pd.concat(
            [
                _points(name, order, scores, base.mean(), bootstrap)
                for order, of_order in by_order.items()
                for name, scores in of_order.items()
            ]
        ),
        "paired": paired,
        "complement": complement(families, curves, half, bootstrap),
        "families": pd.DataFrame(
            {
                "family": each.name,
                "title": titles[each.name],
                "scale": each.scale,
                "members": len(each.members),
                "accuracy": each.test.correct.mean(),
                "oracle": each.test.correct.any(axis=1).mean(),
                "no_answer": (each.test.group < 0).mean(),
                "tokens": each.test.tokens.mean(),
                "computed": (of := curves[each.name]["computed"])[:, -1].mean() / of.shape[1],
                "search_tokens": sum(one.train.tokens.sum() for one in scales),
            }
            for scales, each in zip(tried, families, strict=True)
        ),
    }
    facts = {
        "frontier": options.model_dump(mode="json"),
        "questions": len(base),
        "base_accuracy": float(answered.correct.mean()),
        "base_tokens": float(base.mean()),
        "prompt_tokens": prompts,
        "primary_budget": primary,
    }
    for name, table in tables.items():
        file = store.path(paths.FRONTIER, frontier=frontier, table=name)
        write_record(write_csv(file, table, 6), stopwatch, facts)
    found = "no number of tokens is reached by all families; raise max_n"
    if primary is not None:
        by_family = tables["curves"].query("order == 'ordered'").groupby("family", sort=False)
        shown = (
            f"{name} {100 * np.interp(primary, own['answers'], own['pass']):.1f}"
            for name, own in by_family
        )
        found = f"solved by any answer with the tokens of {primary}: {', '.join(shown)}%"
    _LOG.log(RESULT, "%s: %s", frontier, found)


def _candidates(config: Config, frontier: str, graded: GradedAnswers) -> list[list[Family]]:
    """Return the scales of each family; the samples of the base model come last."""
    options, found = config.frontiers[frontier], defaultdict[str, list[Family]](list)
    asked = options.train, options.test
    for (kind, number), variants in family_members(config, options).items():
        names, scale = list(map(str, variants)), str(number) if number else ""
        answers = (graded.of(options.decoding, each, names, samples=1) for each in asked)
        found[kind].append(Family(kind, scale, names, *answers))
    for decoding in options.sampling:
        names = [f"{decoding}, sample {number}" for number in range(options.members)]
        answers = (graded.of(decoding, each, [str(BASE)], samples=len(names)) for each in asked)
        found[SAMPLING].append(Family(SAMPLING, decoding, names, *answers))
    return list(found.values())


def _members(family: Family, base: Answers) -> pd.DataFrame:
    train, test = family.train, family.test
    sampled = family.name == SAMPLING  # labels of equal answers hold within one decoding
    same = (test.group == base.group) & (test.group >= 0)
    return pd.DataFrame(
        {
            "family": family.name,
            "member": family.members,
            "rank": np.nan if sampled else np.arange(1, len(family.members) + 1),
            "train_accuracy": train.correct.mean(axis=0),
            "accuracy": test.correct.mean(axis=0),
            "agreement": np.nan if sampled else same.mean(axis=0),
            "no_answer": (test.group < 0).mean(axis=0),
            "tokens": test.tokens.mean(axis=0),
            "work": test.work[0],
        }
    )


def _points(
    family: str, order: str, scores: Scores, base_tokens: float, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Return a family's curve, a row for each N."""
    tokens = scores["tokens"].mean(axis=0)
    table = pd.DataFrame({"family": family, "order": order, "n": np.arange(1, len(tokens) + 1)})
    table["tokens"], table["answers"] = tokens, tokens / base_tokens
    table["computed"] = scores["computed"].mean(axis=0)
    for outcome, score in OUTCOMES.items():
        names = outcome, f"{outcome}_low", f"{outcome}_high"
        table = table.assign(**estimated(scores[score], bootstrap, *names))
    return table
