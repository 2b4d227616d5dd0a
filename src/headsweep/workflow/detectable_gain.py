"""What a planned sweep could show: the smallest gain that its test would detect."""

from collections.abc import Mapping
from typing import NamedTuple

from headsweep.config import Config
from headsweep.statistics.power import GAIN, POWER, questions_for, smallest_gain
from headsweep.store.batches import pool
from headsweep.workflow.cost import question_count


class Rates(NamedTuple):
    """What decides how small a gain a test can show."""

    accuracy: float
    """Share of the questions that the base model has right. Heads can gain only the others."""
    changed: float
    """Share of the questions whose outcome (right or wrong) the loss of a head changes that gains
    nothing: half are gained, half lost."""


ASSUMED = Rates(accuracy=0.6, changed=0.15)
"""Of the reasoner that ships and of the real model in results/gallery, about."""


def leaves_room(gain: float, rates: Rates) -> bool:
    """Tell whether a head can gain so much: of all questions, those gained were wrong before."""
    return rates.changed / 2 + gain <= 1 - rates.accuracy


def detectable_gains(config: Config, rates: Mapping[str, Rates]) -> list[list[str]]:
    """Return a table of what each sweep could see, with its titles, by the rates of its model.

    Sweeps of other models are left out; the table is empty if there are no others. Of rates
    without a changed outcome, as of a pilot of too few questions, nothing follows.
    """
    titles = ["sweep", "heads", "questions", "base right", "outcomes changed", "gains from"]
    rows = [[*titles, f"questions for {100 * GAIN:g} points"]]
    for name, sweep in config.sweeps.items():
        if sweep.model not in rates:
            continue
        heads = len(pool(config, sweep))
        questions = question_count(config.questions[sweep.questions])
        of_model = rates[sweep.model]
        shares = (f"{of_model.accuracy:.0%}", f"{of_model.changed:.0%}")
        least = "too few to tell"
        needed = "unknown"
        if of_model.changed:
            least = needed = "none"
            gain = smallest_gain(questions, of_model.changed, heads)
            if leaves_room(gain, of_model):
                least = f"{100 * gain:.1f} points"
            if leaves_room(GAIN, of_model):
                needed = f"{questions_for(GAIN, of_model.changed, heads):,}"
        rows.append([name, f"{heads}", f"{questions:,}", *shares, least, needed])
    return rows if len(rows) > 1 else []


ABOUT = (
    f"What the sweeps could see: a head that gains so much is shown to help with probability "
    f"{POWER:g},\nafter correction for all heads of its sweep"
)
