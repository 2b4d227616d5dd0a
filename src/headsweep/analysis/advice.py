"""What to do, in the light of a comparison: which method, how many answers, at what cost."""

from headsweep import paths
from headsweep.analysis.facts import Sentence, Source
from headsweep.analysis.powers import difference_seen
from headsweep.config import Config
from headsweep.planning.titles import title
from headsweep.sprint.evaluation import PAIRED
from headsweep.sprint.methods import SPRINT

_CERTAIN = "95% certain, by the interval of their difference"


def of_selector(config: Config, selector: str, rival: str, most: int) -> Sentence:
    """Return what a comparison of SPRINT with its rival at so many answers asks one to do.

    Raises:
        TableError: a table of the run is missing or damaged.
    """
    row = Source.read(config, paths.PAIRED, PAIRED, selector=selector).where(method=rival, n=most)
    curves = Source.read(config, paths.CURVES, selector=selector).where(n=most)
    costs = {"chosen": curves.where(method=SPRINT), "other": curves.where(method=rival)}
    parts: dict[str, object] = {"of": title(config, "selectors", selector), "n": str(most)}
    for name, own in costs.items():
        parts[name] = own.number("pass_at_n", "percent")
        parts[f"{name}_tokens"] = own.number("tokens", "count")
    parts["rival"] = rival.replace("=", " = ")
    mark = row.direction("low", "high")
    if mark == "–":
        said = (
            "{of}, what to do: {rival}, which needs no training. {n} answers solve {other} for "
            "{other_tokens} tokens, those of chosen heads {chosen} for {chosen_tokens}: no "
            "difference is shown, as would be one of {least} points or more."
        )
        return Sentence(said, **parts, least=difference_seen(row))
    best, worse = ("chosen", "other") if mark == "▲" else ("other", "chosen")
    what = "choose heads by SPRINT" if mark == "▲" else "{rival}"
    said = (
        f"{{of}}, what to do where answers can be checked: {what}. {{n}} answers solve {{{best}}} "
        f"for {{{best}_tokens}} tokens, against {{{worse}}} for {{{worse}_tokens}}; {_CERTAIN}."
    )
    return Sentence(said, **parts)
