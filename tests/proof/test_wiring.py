"""Twenty drawn worlds through the real Snakefile: ten whose heads know something, ten of coins."""

import os

import numpy as np
import pytest

from headsweep.config import parse
from headsweep.planning.inputs import resolve
from headsweep.proof.judging import read
from headsweep.proof.planting import EXPERTS, RUN, fill, settings
from headsweep.proof.sabotage import SOURCE
from mini import Snakemake

WORLDS = [EXPERTS, *(f"experts{number}" for number in range(9))]
COINS = [f"coins{number}" for number in range(10)]
HOURS = 2 * 3600


@pytest.mark.skipif("HEADSWEEP_NIGHTLY" not in os.environ, reason="nightly: twenty planted models")
def test_what_is_planted_in_a_store_comes_out_of_the_workflow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [*WORLDS, *COINS]
    values = settings(dict.fromkeys(names, SOURCE), names, n=105)
    config = resolve(parse(values))
    told = fill(config, np.random.default_rng(5), {*WORLDS})
    targets = [f"results/{RUN}/controls/{name}/heads.csv" for name in names]
    targets += [f"results/{RUN}/sprint/{name}/embedding.csv" for name in names]
    Snakemake(tmp_path, patience=HOURS)(values, "--cores", "2", *targets)
    found = read(config, tmp_path)
    # The seed is fixed: what of ten worlds of coins shows something by chance is always the same.
    assert sum(bool(found.helping(name)) for name in COINS) <= 2
    assert sum(bool(found.won(name)) for name in COINS) <= 4  # of four comparisons each
    wrongly = [{*found.helping(name)} - {*told[name].values()} for name in WORLDS]
    assert sum(map(len, wrongly)) <= 2
    # A head that knows a subject gains seven points: too few for 105 questions to show.
    assert all(any("N = 1" in won for won in found.won(name)) for name in WORLDS)
