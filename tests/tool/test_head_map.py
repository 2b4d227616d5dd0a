"""`headsweep map`: a map without a config, kept as it goes."""

import re

import pandas as pd
import pytest

from headsweep.cli import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--samples 1", "--samples 1 gives no question a right and a wrong answer; give 2 or more"),
        ("--temperature 0", "--temperature 0 draws the same answer each time"),
    ],
)
def test_samples_that_cannot_differ_are_refused_at_once(options, message, tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("question,answer\n1 plus 1,2\n")
    words = f"map --model ./nowhere --benchmark {tmp_path / 'mine.csv'} {options}"
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_a_map_by_hand_prints_heads_and_goes_on_with_the_layers_that_lack(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = "map --model builtin:reasoner --benchmark generated_gsm8k -n 12 --device cpu"
    words += " --max-new-tokens 100 --samples 5 --cores 1 --out mine --layers"
    assert main([*words.split(), "3"]) == 0
    told = capsys.readouterr().out
    assert (
        re.search(r"preference: \d+ questions; \d of 4 heads are shown", told)
        and "L03H02" in told
        and "map_heads.png" in told
    )
    run = tmp_path / "mine/results/map"
    heads = pd.read_csv(run / "maps/heads/heads.csv")
    assert set(heads["variant"]) == {"L03H00", "L03H01", "L03H02", "L03H03", "L03N00"}
    assert (run / "figures/map_heads.png").stat().st_size > 5_000
    (scores,) = (tmp_path / "mine/results/store/scores").rglob("L03.parquet")
    before = scores.stat().st_mtime_ns
    assert main([*words.split(), "3,5"]) == 0
    assert scores.stat().st_mtime_ns == before
    assert "L05H01" in capsys.readouterr().out
