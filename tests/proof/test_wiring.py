"""Twenty drawn worlds through the real Snakefile: ten whose heads know something, ten of coins.

Errors are counted in the verdicts that a report prints, each world's as of a run of its own.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.proof.judging import read
from benchmarks.proof.planting import EXPERTS, RUN, fill, settings
from benchmarks.proof.sabotage import SOURCE
from headsweep.config import parse
from headsweep.results.verdicts import verdicts
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from mini import Snakemake

KNOWING = [EXPERTS, *(f"experts{number}" for number in range(9))]
COINS = [f"coins{number}" for number in range(10)]
TESTED, LEARNT = 420, 105  # a head that knows a subject gains seven points: 105 do not show them
HOURS = 2 * 3600

# Seconds instead of minutes for a selector, and all that a verdict needs: seeds and redraws.
QUICK = {"diversity": [0.001], "weight_decay": [0.01], "epochs": 100, "seeds": [0, 1], "redraws": 3}


def planted():
    """Return the values of a config with all worlds."""
    names = [*KNOWING, *COINS]
    values = settings(dict.fromkeys(names, SOURCE), names, n=LEARNT)
    values["questions"]["test"]["n"] = TESTED
    for selector in values["selectors"].values():
        selector |= QUICK
    return values


def marks(values, name):
    """Return the marks of the verdicts on a world, by section."""
    alone = {kind: {name: values[kind][name]} for kind in ("sweeps", "selectors")}
    return {
        told.section: told.mark for told in verdicts(Store(resolve(parse({**values, **alone}))))
    }


@pytest.mark.skipif("HEADSWEEP_NIGHTLY" not in os.environ, reason="nightly: twenty planted models")
def test_what_is_planted_in_a_store_comes_out_of_the_workflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = planted()
    config = resolve(parse(values))
    told = fill(config, np.random.default_rng(5), {*KNOWING})
    targets = [f"results/{RUN}/controls/{name}/heads.csv" for name in config.sweeps]
    targets += [f"results/{RUN}/sprint/{name}/embedding.csv" for name in config.selectors]
    targets += [f"results/{RUN}/audit/total.csv"]  # the verdict on published gains reads it
    Snakemake(tmp_path, patience=HOURS)(values, "--cores", "2", *targets)
    assert_found(values, told)


def assert_found(values, told):
    """Assert what verdicts say of worlds whose heads toss coins, and of those that are `told`."""
    found = {name: marks(values, name) for name in (*KNOWING, *COINS)}
    named = read(resolve(parse(values)), Path()).helping
    heads = {name: ({*named(name)}, {*told[name].values()}) for name in KNOWING}

    # Seeds are fixed, so what shows is always the same. A comment says how often other seeds fail.
    # Of 24 heads of coins one is said to help in 1.5% of worlds: in two of ten or more once in a
    # hundred times.
    assert sum(found[name]["heads"] == "▲" for name in COINS) <= 1
    # The question does not matter to coins. An end of a 95% interval is above zero in 2.5% of
    # worlds: in two of ten or more once in forty times.
    assert sum(found[name]["question"] == "▲" for name in COINS) <= 1
    # Each of ten worlds has seven heads that gain seven points. Of these seventy 64 are found, with
    # a standard deviation of 2.5: fewer than 56 once in a thousand times.
    assert sum(len(said & known) for said, known in heads.values()) >= 56
    assert all(found[name]["heads"] == "▲" for name in KNOWING)
    # A tenth of a head a world is named beside them: five or more in ten, thrice in a thousand.
    assert sum(len(said - known) for said, known in heads.values()) <= 4
    # Asking the heads that know wins 20 points, ± 4. Three redraws make that ± 20 once in a
    # thousand worlds: one of ten is not shown once in a hundred times.
    assert all(found[name]["question"] == "▲" for name in KNOWING)
