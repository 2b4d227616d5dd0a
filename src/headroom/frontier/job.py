"""The job that compares families: graded answers in, tables out."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.frontier.protocol import (
    OUTCOMES,
    SAMPLING,
    Family,
    at_budget,
    choose,
    complement,
    curve,
    primary_budget,
    worth,
)
from headroom.frontier.protocol import compare as paired_differences
from headroom.planning.batches import family_members
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.saying import RESULT
from headroom.sprint.evaluation import Answers, Scores
from headroom.sprint.experiment import GradedAnswers, costs_of
from headroom.statistics.bootstrap import Bootstrap
from headroom.tables import write_text
from headroom.variants import BASE, FAMILIES

_LOG = logging.getLogger(__name__)


def candidates(config: Config, frontier: str, graded: GradedAnswers) -> list[list[Family]]:
    """Return the scales of each family; the samples of the base model come last."""
    options, depth = config.frontiers[frontier], config.models[graded.model].layers

    def both(decoding: str, variants: Sequence[str], samples: int) -> Iterator[Answers]:
        for questions in (options.train, options.test):
            yield graded.of(decoding, questions, variants, samples=samples)

    found = defaultdict[str, list[Family]](list)
    for (kind, number), variants in family_members(config, options).items():
        names, scale = list(map(str, variants)), str(number) if number else ""
        work = [costs_of(variant, depth)[0] for variant in variants]
        answers = both(options.decoding, names, 1)
        found[kind].append(Family(kind, FAMILIES[kind].title, scale, names, work, *answers))
    for decoding in options.sampling:
        names = [f"{decoding}, sample {number}" for number in range(options.members)]
        answers, work = both(decoding, [str(BASE)], options.members), [1.0] * options.members
        found[SAMPLING].append(Family(SAMPLING, SAMPLING, decoding, names, work, *answers))
    return list(found.values())


def compare(config: Config, frontier: str) -> None:
    """Compare families at equal tokens; write the tables of a frontier.

    ``members``: a row for each member of each family at its chosen scale. ``scales``: what was
    chosen from, on training questions. ``curves``: Pass@N and majority against tokens, drawn and
    ordered. ``paired``: differences at equal tokens. ``complement``: two families at half each.
    ``families``: a row for each family, with the tokens spent on choosing.
    """
    stopwatch = Stopwatch()
    options, store = config.frontiers[frontier], Store(config)
    graded = GradedAnswers(config, options.model)
    answered = graded.of(options.decoding, options.test, [str(BASE)])
    prompts = graded.prompt_tokens(options.decoding, options.test)
    base = answered.tokens[:, 0].astype(float)
    bootstrap = Bootstrap(len(base), options.bootstrap, config.seed)
    tried = candidates(config, frontier, graded)
    families = [choose(scales, options.max_n) for scales in tried]
    scales = _scales(tried, families, options.max_n)
    curves = {
        order: {
            each.name: curve(each, prompts, options.max_n, by_order=order == "ordered")
            for each in families
        }
        for order in ("drawn", "ordered")
    }
    primary = primary_budget(curves["ordered"], base.mean())
    titles = {each.name: each.title for each in families}
    others = [name for name in titles if name != SAMPLING]
    pairs = [(name, SAMPLING) for name in others if SAMPLING in titles]
    pairs += [("head", name) for name in others if name != "head" and "head" in titles]
    paired = pd.concat(
        [
            paired_differences(curves[order], base, bootstrap, pairs, primary).assign(order=order)
            for order in ("ordered", "drawn")
        ]
    ).assign(n=len(base))
    for column in ("family", "versus"):
        paired[f"{column}_title"] = paired[column].map(titles)
    half = min([options.max_n, *(len(each.members) for each in families)])
    tables = {
        "members": pd.concat([_members(each, answered) for each in families]),
        "scales": scales,
        "curves": _curves(curves, base.mean(), bootstrap),
        "paired": paired,
        "complement": complement(families, curves["ordered"], half, bootstrap),
        "families": _families(families, curves["ordered"], scales),
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
        write_text(file, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
        write_record(file, stopwatch, facts)
    _LOG.log(RESULT, "%s", _finding(curves["ordered"], base.mean(), primary, frontier))


def _finding(
    curves: Mapping[str, Scores], base_tokens: float, primary: int | None, name: str
) -> str:
    """Return a line with each family's Pass@N at the primary budget."""
    if primary is None:
        return f"{name}: no number of tokens is reached by all families; raise max_n"
    budget = np.array(primary * base_tokens)
    shown = []
    for family, each in curves.items():
        value = at_budget(each["pass_at_n"].mean(axis=0), each["tokens"].mean(axis=0), budget)
        shown.append(f"{family} {100 * value:.1f}")
    return f"{name}: solved by any answer with the tokens of {primary}: {', '.join(shown)}%"


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
            "work": family.work,
        }
    )


def _scales(
    tried: Sequence[Sequence[Family]], families: Sequence[Family], max_n: int
) -> pd.DataFrame:
    rows = [
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
    ]
    return pd.DataFrame(rows)


def _curves(
    curves: Mapping[str, Mapping[str, Scores]], base_tokens: float, bootstrap: Bootstrap
) -> pd.DataFrame:
    parts = []
    for order, families in curves.items():
        for family, each in families.items():
            tokens = each["tokens"].mean(axis=0)
            part = pd.DataFrame({"family": family, "order": order, "tokens": tokens})
            part.insert(2, "n", np.arange(1, len(tokens) + 1))
            part["answers"] = tokens / base_tokens
            part["computed"] = each["computed"].mean(axis=0)
            for outcome, score in OUTCOMES.items():
                part[outcome] = each[score].mean(axis=0)
                ends = bootstrap.interval(each[score])
                part[f"{outcome}_low"], part[f"{outcome}_high"] = ends
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _families(
    families: Sequence[Family], curves: Mapping[str, Scores], scales: pd.DataFrame
) -> pd.DataFrame:
    searched = scales.groupby("family")["train_tokens"].sum()
    rows = [
        {
            "family": each.name,
            "title": each.title,
            "scale": each.scale,
            "members": len(each.members),
            "accuracy": each.test.correct.mean(),
            "oracle": each.test.correct.any(axis=1).mean(),
            "no_answer": (each.test.group < 0).mean(),
            "tokens": each.test.tokens.mean(),
            "computed": (of := curves[each.name]["computed"])[:, -1].mean() / of.shape[1],
            "search_tokens": searched[each.name],
        }
        for each in families
    ]
    return pd.DataFrame(rows)
