"""The job of a frontier: reads the graded answers of its families, and writes its tables."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from headsweep.config import Config
from headsweep.errors import RESULT
from headsweep.experiments.sprint.experiment import GradedAnswers
from headsweep.experiments.sprint.frontier import (
    SAMPLING,
    SCORE_OF_OUTCOME,
    AnsweredFamily,
    choose,
    complement,
    curve,
    differences,
    primary_budget,
    worth,
)
from headsweep.experiments.sprint.pass_at_n import Answers, Scores, estimated
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_csv
from headsweep.statistics.intervals import Bootstrap
from headsweep.store.batches import family_members
from headsweep.store.layout import Store
from headsweep.variants import BASE, FAMILIES

_LOG = logging.getLogger(__name__)


def compare(store: Store, frontier: str) -> None:
    """Compare families at equal tokens; write the tables of a frontier.

    ``members``: a row for each member of each family at its chosen scale. ``scales``: what was
    chosen from, on training questions. ``curves``: Pass@N and majority against tokens, drawn and
    ordered. ``paired``: differences at equal tokens. ``complement``: two families at half each.
    ``families``: a row for each family, with the tokens spent on choosing.
    """
    stopwatch = Stopwatch()
    config = store.config
    options = config.frontiers[frontier]
    graded = GradedAnswers(store, options.model)
    max_n = options.max_n
    answered = graded.of(options.decoding, options.test, [str(BASE)])
    prompts = graded.prompt_tokens(options.decoding, options.test)
    base = answered.tokens[:, 0].astype(float)
    bootstrap = Bootstrap(len(base), options.bootstrap, config.seed)
    tried = _candidates(config, frontier, graded)
    families = [choose(scales, max_n) for scales in tried]

    def curves_of(*, by_order: bool) -> dict[str, Scores]:
        return {each.name: curve(each, prompts, max_n, by_order=by_order) for each in families}

    curves = curves_of(by_order=True)
    curves_by_order = {"drawn": curves_of(by_order=False), "ordered": curves}
    primary = primary_budget(curves, base, bootstrap)
    titles = {name: FAMILIES[name].title if name in FAMILIES else name for name in curves}
    facts = {
        "frontier": options.model_dump(mode="json"),
        "questions": len(base),
        "base_accuracy": float(answered.correct.mean()),
        "base_tokens": float(base.mean()),
        "prompt_tokens": prompts,
        "primary_budget": primary,
    }
    most_n = min([max_n, *(len(family.members) for family in families)])
    tables = {
        "members": pd.concat([_members(family, answered) for family in families]),
        "scales": _scales(tried, families, max_n),
        "curves": pd.concat(
            [
                _points(name, order, scores, base.mean(), bootstrap)
                for order, of_order in curves_by_order.items()
                for name, scores in of_order.items()
            ]
        ),
        "paired": _paired(curves_by_order, base, bootstrap, titles, primary),
        "complement": complement(families, curves, most_n),
        "families": _families(tried, families, curves, titles),
    }
    for name, table in tables.items():
        file = store.path(paths.FRONTIER, frontier=frontier, table=name)
        write_record(write_csv(file, table, 6), stopwatch, facts)
    _LOG.log(RESULT, "%s: %s", frontier, _found(tables["curves"], primary))


def _found(curves: pd.DataFrame, primary: int | None) -> str:
    if primary is None:
        return "no number of tokens is reached by all families; raise max_n"
    by_family = curves.query("order == 'ordered'").groupby("family", sort=False)
    shown = (
        f"{name} {100 * np.interp(primary, points['answers'], points['pass']):.1f}"
        for name, points in by_family
    )
    return f"solved by any answer with the tokens of {primary}: {', '.join(shown)}%"


def _paired(
    by_order: Mapping[str, Mapping[str, Scores]],
    base: Float[np.ndarray, " questions"],
    bootstrap: Bootstrap,
    titles: Mapping[str, str],
    primary: int | None,
) -> pd.DataFrame:
    """Return differences of each family from sampling, and of heads from each other family."""
    against_sampling = [(name, SAMPLING) for name in titles if name != SAMPLING]
    others = [name for name in titles if name not in ("head", SAMPLING)]
    together = [
        against_sampling if SAMPLING in titles else [],
        [("head", name) for name in others] if "head" in titles else [],
    ]
    table = pd.concat(
        [
            differences(by_order[order], base, bootstrap, together, primary).assign(order=order)
            for order in ("ordered", "drawn")
        ]
    ).assign(n=len(base))
    for column in ("family", "versus"):
        table[f"{column}_title"] = table[column].map(titles)
    return table


def _scales(
    tried: Sequence[Sequence[AnsweredFamily]], families: Sequence[AnsweredFamily], max_n: int
) -> pd.DataFrame:
    """Return what each family's scale was chosen from."""
    rows = []
    for scales, chosen in zip(tried, families, strict=True):
        for family in scales:
            row = {
                "family": family.name,
                "scale": family.scale,
                "members": len(family.members),
                "train_pass": worth(family, max_n),
                "train_tokens": family.train.tokens.sum(),
                "chosen": family.scale == chosen.scale,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _families(
    tried: Sequence[Sequence[AnsweredFamily]],
    families: Sequence[AnsweredFamily],
    curves: Mapping[str, Scores],
    titles: Mapping[str, str],
) -> pd.DataFrame:
    """Return a row for each family at its chosen scale."""
    rows = []
    for scales, family in zip(tried, families, strict=True):
        test = family.test
        computed = curves[family.name]["computed"]
        _, most = computed.shape  # questions, numbers of answers
        row = {
            "family": family.name,
            "title": titles[family.name],
            "scale": family.scale,
            "members": len(family.members),
            "accuracy": test.correct.mean(),
            "oracle": test.correct.any(axis=1).mean(),
            "no_answer": (test.group < 0).mean(),
            "tokens": test.tokens.mean(),
            "computed": computed[:, -1].mean() / most,
            "search_tokens": sum(scale.train.tokens.sum() for scale in scales),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _candidates(config: Config, frontier: str, graded: GradedAnswers) -> list[list[AnsweredFamily]]:
    """Return the scales of each family; the samples of the base model come last."""
    options = config.frontiers[frontier]
    scales_of_family = defaultdict[str, list[AnsweredFamily]](list)
    question_sets = (options.train, options.test)
    for (kind, number), variants in family_members(config, options).items():
        names = list(map(str, variants))
        scale = str(number) if number else ""
        train, test = (
            graded.of(options.decoding, questions, names, samples=1) for questions in question_sets
        )
        scales_of_family[kind].append(AnsweredFamily(kind, scale, names, train, test))
    for decoding in options.sampling:
        names = [f"{decoding}, sample {number}" for number in range(options.members)]
        base = [str(BASE)]
        train, test = (
            graded.of(decoding, questions, base, samples=len(names)) for questions in question_sets
        )
        scales_of_family[SAMPLING].append(AnsweredFamily(SAMPLING, decoding, names, train, test))
    return list(scales_of_family.values())


def _members(family: AnsweredFamily, base: Answers) -> pd.DataFrame:
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
    table["tokens"] = tokens
    table["answers"] = tokens / base_tokens
    table["computed"] = scores["computed"].mean(axis=0)
    for outcome, score in SCORE_OF_OUTCOME.items():
        columns = estimated(scores[score], bootstrap, outcome, f"{outcome}_low", f"{outcome}_high")
        table = table.assign(**columns)
    return table
