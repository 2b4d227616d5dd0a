"""The job that compares families: graded answers in, tables out."""

import logging
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd

from headroom import paths
from headroom.config import Config, Frontier
from headroom.frontier import protocol
from headroom.frontier.protocol import SAMPLING, Answers, Candidate, Chosen, Curve, Member
from headroom.planning.batches import family_members
from headroom.planning.store import Store
from headroom.record import Stopwatch, read_record, write_record
from headroom.saying import RESULT
from headroom.statistics.bootstrap import Bootstrap
from headroom.tables import GRADED, read_table, write_text
from headroom.variants import BASE, FAMILIES, Variant

_LOG = logging.getLogger(__name__)


class Experiment:
    """A frontier of a config, with the answers that it compares.

    Args:
        config: the run's config.
        name: of the frontier.
    """

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name
        self.options: Frontier = config.frontiers[name]
        self.store = Store(config)
        self._graded: dict[tuple[str, str], pd.DataFrame] = {}

    def graded(self, decoding: str, questions: str) -> pd.DataFrame:
        """Return graded answers, with the question, variant and sample as index."""
        key = decoding, questions
        if key not in self._graded:
            names = {"model": self.options.model, "decoding": decoding, "questions": questions}
            table = read_table(self.store.path(paths.GRADED, **names), GRADED)
            self._graded[key] = table.set_index(["question_id", "variant", "sample"])
        return self._graded[key]

    def answers(self, decoding: str, questions: str, variants: list[str], samples: int) -> Answers:
        """Return the answers of variants, or of so many samples of one, to all questions."""
        table = self.graded(decoding, questions)
        ids = table.index.unique("question_id")
        cells = pd.MultiIndex.from_product([ids, variants, range(samples)])
        found = table.loc[cells, ["correct", "group", "tokens"]]
        return Answers(*(found[name].to_numpy().reshape(len(ids), -1) for name in found))

    def both(self, decoding: str, variants: list[str], samples: int) -> tuple[Answers, Answers]:
        """Return the answers to the training and to the test questions."""
        train, test = (
            self.answers(decoding, questions, variants, samples)
            for questions in (self.options.train, self.options.test)
        )
        return train, test

    @cached_property
    def base(self) -> Answers:
        """The base model's greedy answers to the test questions."""
        return self.answers(self.options.decoding, self.options.test, [str(BASE)], 1)

    @cached_property
    def prompts(self) -> float:
        """Mean length of a test question's prompt in tokens; NaN if unknown."""
        names = {"model": self.options.model, "questions": self.options.test}
        file = self.store.path(paths.ANSWERS, decoding=self.options.decoding, variant=BASE, **names)
        return float(read_record(file).get("prompt_tokens", np.nan))

    def candidates(self) -> Iterator[tuple[str, str, list[Candidate]]]:
        """Yield each family with its title and its scales; the samples of the base model last."""
        options, depth = self.options, self.config.models[self.options.model].layers
        scales: dict[str, list[Candidate]] = {}
        for (kind, scale), variants in family_members(self.config, options).items():
            names = [str(variant) for variant in variants]
            members = [_member(variant, depth) for variant in variants]
            answers = self.both(options.decoding, names, 1)
            scales.setdefault(kind, []).append(
                Candidate(str(scale) if scale else "", members, *answers)
            )
        for kind, found in scales.items():
            yield kind, FAMILIES[kind].title, found
        sampled = [
            Candidate(
                decoding,
                [Member(f"{decoding}, sample {number}") for number in range(options.members)],
                *self.both(decoding, [str(BASE)], options.members),
            )
            for decoding in options.sampling
        ]
        if sampled:
            yield SAMPLING, SAMPLING, sampled


def _member(variant: Variant, depth: int) -> Member:
    family = FAMILIES[variant.kind]
    if family.on_weights:
        return Member(str(variant), shared=0.0, own=1.0)
    first = (variant.layer or 0) / depth
    left_out = 1 - family.work(variant, depth)
    return Member(str(variant), 1 - left_out, first, 1 - first - left_out)


def compare(config: Config, frontier: str) -> None:
    """Compare families at equal tokens; write the tables of a frontier.

    ``members``: a row for each member of each family at its chosen scale. ``scales``: what was
    chosen from, on training questions. ``curves``: Pass@N and majority against tokens, drawn and
    ordered. ``paired``: differences at equal tokens. ``complement``: two families at half each.
    ``families``: a row for each family, with the tokens spent on choosing.

    Args:
        config: the run's config.
        frontier: config name.
    """
    stopwatch = Stopwatch()
    found = Experiment(config, frontier)
    options = found.options
    questions = len(found.base.tokens)
    bootstrap = Bootstrap(questions, options.bootstrap, config.seed)
    chosen: list[Chosen] = []
    scales = []
    searched: dict[str, int] = {}
    for family, title, candidates in found.candidates():
        best = protocol.choose(
            family, title, candidates, options.max_n, exchangeable=family == SAMPLING
        )
        chosen.append(best)
        for each in candidates:
            tokens = int(each.train.tokens.sum())
            searched[family] = searched.get(family, 0) + tokens
            scales.append(
                {
                    "family": family,
                    "scale": each.scale,
                    "members": len(each.members),
                    "train_pass": protocol.worth(each.train, options.max_n),
                    "train_tokens": tokens,
                    "chosen": each is best.candidate,
                }
            )
    curves = {
        ordered: {
            each.family: protocol.curve(each, found.prompts, options.max_n, ordered=ordered)
            for each in chosen
        }
        for ordered in (False, True)
    }
    base = found.base.tokens[:, 0].astype(float)
    primary = protocol.primary_budget(curves[True], base.mean())
    names = [each.family for each in chosen]
    families = [name for name in names if name != SAMPLING]
    pairs = [(name, SAMPLING) for name in families if SAMPLING in names]
    pairs += [("head", name) for name in families if name != "head" and "head" in names]
    paired = pd.concat(
        [
            protocol.compare(curves[ordered], base, bootstrap, pairs, primary).assign(
                order="ordered" if ordered else "drawn", n=questions
            )
            for ordered in (True, False)
        ]
    )
    titles = {each.family: each.title for each in chosen}
    for column in ("family", "versus"):
        paired[f"{column}_title"] = paired[column].map(titles)
    half = min([options.max_n, *(len(each.order) for each in chosen)])
    tables = {
        "members": _members(chosen, found),
        "scales": pd.DataFrame(scales),
        "curves": _curves(curves, base.mean(), bootstrap),
        "paired": paired,
        "complement": protocol.complement(chosen, curves[True], half, bootstrap),
        "families": _families(chosen, curves[True], searched),
    }
    facts = {
        "frontier": options.model_dump(mode="json"),
        "questions": questions,
        "base_accuracy": float(found.base.correct.mean()),
        "base_tokens": float(base.mean()),
        "prompt_tokens": found.prompts,
        "primary_budget": primary,
    }
    for name, table in tables.items():
        file = found.store.path(paths.FRONTIER, frontier=frontier, table=name)
        write_text(file, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
        write_record(file, stopwatch, facts)
    _LOG.log(RESULT, "%s", _finding(curves[True], base.mean(), primary, frontier))


def _finding(curves: dict[str, Curve], base_tokens: float, primary: int | None, name: str) -> str:
    """Return a line with each family's Pass@N at the primary budget."""
    if primary is None:
        return f"{name}: no number of tokens is reached by all families; raise max_n"
    found = {
        family: protocol.at_budget(
            each.values["pass"].mean(axis=0),
            each.tokens.mean(axis=0),
            np.array(primary * base_tokens),
        )
        for family, each in curves.items()
    }
    shown = ", ".join(f"{family} {100 * value:.1f}" for family, value in found.items())
    return f"{name}: solved by any answer with the tokens of {primary}: {shown}%"


def _members(chosen: list[Chosen], found: Experiment) -> pd.DataFrame:
    rows = []
    base = found.base
    for each in chosen:
        train, test = each.candidate.train, each.candidate.test
        comparable = each.family != SAMPLING  # labels of equal answers hold within one decoding
        for rank, place in enumerate(each.order, start=1):
            group = test.group[:, place]
            same = (group == base.group[:, 0]) & (group >= 0)
            rows.append(
                {
                    "family": each.family,
                    "member": each.candidate.members[place].name,
                    "rank": np.nan if each.exchangeable else rank,
                    "train_accuracy": train.correct[:, place].mean(),
                    "accuracy": test.correct[:, place].mean(),
                    "agreement": same.mean() if comparable else np.nan,
                    "no_answer": (group < 0).mean(),
                    "tokens": test.tokens[:, place].mean(),
                    "work": each.candidate.members[place].work,
                }
            )
    return pd.DataFrame(rows)


def _curves(
    curves: dict[bool, dict[str, Curve]], base_tokens: float, bootstrap: Bootstrap
) -> pd.DataFrame:
    parts = []
    for ordered, families in curves.items():
        for family, each in families.items():
            tokens = each.tokens.mean(axis=0)
            part = pd.DataFrame({"n": np.arange(1, len(tokens) + 1), "tokens": tokens})
            part["answers"] = tokens / base_tokens
            part["computed"] = each.computed.mean(axis=0)
            for outcome, values in each.values.items():
                part[outcome] = values.mean(axis=0)
                part[f"{outcome}_low"], part[f"{outcome}_high"] = bootstrap.interval(values)
            order = "ordered" if ordered else "drawn"
            part.insert(0, "order", order)
            part.insert(0, "family", family)
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _families(
    chosen: list[Chosen], curves: dict[str, Curve], searched: dict[str, int]
) -> pd.DataFrame:
    rows = []
    for each in chosen:
        test, of = each.test, curves[each.family]
        rows.append(
            {
                "family": each.family,
                "title": each.title,
                "scale": each.candidate.scale,
                "members": len(each.order),
                "accuracy": test.correct.mean(),
                "oracle": test.correct.any(axis=1).mean(),
                "no_answer": (test.group < 0).mean(),
                "tokens": test.tokens.mean(),
                "computed": of.computed[:, -1].mean() / of.tokens.shape[1],
                "search_tokens": searched[each.family],
            }
        )
    return pd.DataFrame(rows)
