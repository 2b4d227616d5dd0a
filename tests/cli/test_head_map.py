"""`headsweep map`: a map without a config, kept as it goes."""

import re
from functools import wraps

import pandas as pd
import pytest
import torch

from headsweep.cli import commands
from headsweep.cli.main import main


def test_heads_that_are_printed_as_shown_are_those_of_the_table(monkeypatch, capsys):
    """A preference is significant and not shown where noise in its layer does as much."""
    row = {"kind": "head", "n": 9, "change": 0.00041, "band_low": 0.0002, "band_high": 0.0006}
    rows = [
        {**row, "variant": f"L03H0{head}", "outcome": outcome, "adjusted": 0.01, "shown": shown}
        for head, (outcome, shown) in enumerate([("preference", None), ("likelihood", "higher")])
    ]
    mapped = wraps(commands.head_map)(lambda **_: pd.DataFrame(rows))
    monkeypatch.setattr(commands, "head_map", mapped)
    assert main(["map", "--model", "m", "--benchmark", "gsm8k"]) == 0
    told = capsys.readouterr().out
    assert "preference, nats: 9 questions; 0 of 1 heads are shown" in told
    assert "likelihood, nats a token: 9 questions; 1 of 1 heads are shown" in told
    assert "+0.0004  [+0.0002, +0.0006]" in told


@pytest.mark.usefixtures("warm_engines")
def test_a_map_by_hand_prints_heads_and_goes_on_with_the_layers_that_lack(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    words = "map --model builtin:reasoner --benchmark generated_gsm8k -n 12 --device cpu"
    words += " --max-new-tokens 100 --samples 5 --cores 1 --out mine --layers"
    assert main([*words.split(), "3"]) == 0
    told = capsys.readouterr().out
    assert "L03H02" in told
    assert "map_heads.png" in told
    assert threads == [1, torch.get_num_threads()]
    assert not [*(tmp_path / "mine/results/store/.journal").rglob("*.parquet")]
    run = tmp_path / "mine/results/map"
    heads = pd.read_csv(run / "maps/heads/heads.csv")
    for outcome, rows in heads[heads["kind"] == "head"].groupby("outcome"):
        shown = rows["shown"].notna().sum()
        assert re.search(rf"{outcome}, nats.*: \d+ questions; {shown} of 4 heads are shown", told)
    assert set(heads["variant"]) == {"L03H00", "L03H01", "L03H02", "L03H03", "L03N00"}
    assert (run / "figures/map_heads.png").stat().st_size > 5_000
    (scores,) = (tmp_path / "mine/results/store/scores").rglob("L03.parquet")
    before = scores.stat().st_mtime_ns
    assert main([*words.split(), "3,5"]) == 0
    assert scores.stat().st_mtime_ns == before
    assert "L05H01" in capsys.readouterr().out
