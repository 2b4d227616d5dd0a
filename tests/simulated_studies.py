"""Simulated compressions: outcomes, histories and measurements as a run has them."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from headsweep.config import Study
from headsweep.config.experiments import ARMS
from headsweep.files import paths
from headsweep.files.safe_files import write_csv, write_json, write_table
from headsweep.files.tables import STUDY_OUTCOMES
from headsweep.results.compression_arms import MEASUREMENT_COLUMNS, StudyResults
from headsweep.results.published import EncoderShape

VARIATIONS = {
    **{f"ratio_{ratio}": {"ratio": ratio / 100} for ratio in (10, 20, 30, 40, 60)},
    **{f"alpha_0{tenths}": {"importance": {"alpha": tenths / 10}} for tenths in (0, 3, 7, 10)},
    "plain_alpha_03": {"of": "pruning_only", "importance": {"alpha": 0.3}},
    "plain_alpha_07": {"of": "pruning_only", "importance": {"alpha": 0.7}},
    "reversed_entropy": {"importance": {"entropy_sign": -1}},
}
LAYERS, HEADS = 3, 8
ALL = LAYERS * HEADS
ENCODER = EncoderShape(layers=LAYERS, width=128, heads=HEADS, inner=256)
PARAMETERS, WHOLE = 600_123, 1_600_579  # of the encoder; with the thought head


def study(**changes):
    values = {"solver": "tiny", "data": "asdiv_a", "arms": list(ARMS), "variations": VARIATIONS}
    values |= {"int8": ["baseline", "full"], "seeds": [0, 1, 2]}
    return Study.model_validate(values | changes)


def results(of=None, *, name="asdiv", examples=240, of_seed=0.01, papers_data="ASDiv-A"):
    """Return a simulated compression; each arm is a little worse than the one before."""
    own = of or study()
    arms = own.settings  # made anew by each look
    return StudyResults(
        name=name,
        study=own,
        outcomes=_outcomes(own, arms, examples, of_seed),
        histories={
            arm: {seed: _history(arm, settings, seed) for seed in own.seeds}
            for arm, settings in arms.items()
        },
        measurements=_measurements(own, arms),
        papers_data=papers_data,
        encoder=ENCODER,
    )


def _bits(own, arm):
    return (False, True)[: 1 + (arm in own.int8)]


def _outcomes(own, arms, examples, of_seed):
    draw = np.random.default_rng(0)
    easy = draw.beta(1.0, 1.2, examples)
    strata = np.select([easy < 0.2, easy < 0.45], ["high", "medium"], "low")
    ids = [f"test/{i:03}" for i in range(examples)]
    tables = []
    for place, arm in enumerate(arms):
        for seed, quantised in product(own.seeds, _bits(own, arm)):
            chance = easy - 0.003 * place - 0.01 * quantised + of_seed * draw.normal()
            strict = draw.random(examples) < 0.15 + 0.7 * (chance > 0.5)
            lenient = strict | (draw.random(examples) < 0.01)
            table = pd.DataFrame({"example_id": ids, "stratum": strata, "strict": strict})
            table = table.assign(arm=arm, seed=seed, quantised=quantised, lenient=lenient)
            tables.append(table.assign(answer="n0 + n1"))
    return pd.concat(tables, ignore_index=True)


def _removed(settings):
    return int(settings.ratio * ALL + 1e-9)


def _history(arm, settings, seed):
    """Return how an arm went: the same number of heads in each of its rounds, as far as it goes."""
    draw = np.random.default_rng(seed)
    several = settings.schedule == "rounds" and not settings.scratch
    count = settings.rounds if several else min(1, settings.rounds)
    names = [f"L{head // HEADS:02}H{head % HEADS:02}" for head in range(ALL)]
    parts = {"task": 1.0}
    if settings.distillation.teacher != "none":
        parts |= {"response": 0.3} if settings.distillation.response else {}
        parts |= {"feature": 0.05} if settings.distillation.feature != "none" else {}
    rounds = []
    for number in range(count):
        before, gone = (_removed(settings) * place // count for place in (number, number + 1))
        scales = [0.85 ** (3 * number + epoch) * draw.uniform(1, 1.1) for epoch in range(3)]
        epochs = [
            {"steps": 20 * epoch, "losses": {name: own * scale for name, own in parts.items()}}
            for epoch, scale in enumerate(scales, start=1)
        ]
        removals = [{"step": 60 * number, "heads": names[before:gone]}] if gone > before else []
        rounds.append({"removals": removals, "heads": ALL - gone, "epochs": epochs})
    loss = "the loss rose in round 2, from 0.3 to 0.4; lower exponent, or learning_rate"
    return {
        "heads": ALL,
        "parameters": WHOLE,
        "seconds": 50.0 + 60 * len(rounds) + seed,
        "tokens": 9_000 * len(rounds),
        "rounds": rounds,
        "warnings": [loss] if arm == "random" and seed else [],
    }


def _measurements(own, arms):
    rows = []
    for arm, settings in arms.items():
        gone = _removed(settings)
        held = gone * ENCODER.head_parameters
        for bits, tokens, batch in product(_bits(own, arm), own.tokens, own.batches):
            flops = tokens * (2_000_000 - 20_000 * gone)
            seconds = 1e-3 + flops * batch * 1e-11 * (0.7 if bits else 1)
            peak = 30_000_000 - 40_000 * gone if batch > 1 else None
            size = int((1.4 if bits else 4) * (WHOLE - held))
            row = (arm, bits, tokens, batch, seconds, PARAMETERS - held, WHOLE - held, flops)
            rows.append((*row, size, peak))
    table = pd.DataFrame(rows, columns=MEASUREMENT_COLUMNS)
    whole = (table["tokens"] == own.tokens[0]) & (table["batch"] == max(own.batches))
    base = table.loc[whole & (table["arm"] == "baseline") & ~table["quantised"], "seconds"].max()
    ratio = (table["seconds"] / base).where(whole)
    return table.assign(test_time=ratio, test_time_low=0.97 * ratio, test_time_high=1.02 * ratio)


def all_studies():
    changes = {"title": "ASDiv-A, one seed", "arms": ["baseline", "full"], "variations": {}}
    return {"asdiv": study(), "lone": study(**changes, seeds=[3], int8=[])}


def all_results():
    whole, least = all_studies().values()
    return [results(whole), results(least, name="lone", examples=53)]


def fill(store):
    for one in all_results() if store.config.compressions else ():
        if one.name in store.config.compressions:
            write(store, one)


def write(store, one):
    path = partial(store.path, compression=one.name)
    write_table(path(STUDY_OUTCOMES), one.outcomes, STUDY_OUTCOMES)
    write_json(path(paths.HISTORIES), one.histories)
    write_csv(path(paths.MEASUREMENTS), one.measurements)
