"""A map of every head, made by the real Snakefile."""

import json

import pandas as pd
import pytest
import yaml

from headsweep.cli.export import export
from headsweep.errors import ConfigError
from headsweep.grading.matrix import grade_batch
from headsweep.results.run import Run
from headsweep.store.batches import Batch
from mini import MINIATURE, Snakemake, left_over, planned_again

MAPPED = yaml.safe_load(
    """
    run: mapped
    maps:
      math: {model: tiny, questions: train, sampling: [T0.6], layers: [1, 4], n: 17}
    """
)
MAPPED |= {name: MINIATURE[name] for name in ("models", "questions", "sweeps")}
MAPPED["decodings"] = MINIATURE["decodings"] | {
    "T0.6": MINIATURE["decodings"]["T0.6"] | {"samples": 6}
}
"""The sweep's answers are those of the miniature."""


def test_known_texts_are_scored_a_job_a_layer_and_the_page_shows_the_map(
    copied, tmp_path, monkeypatch
):
    done = Snakemake(copied)(MAPPED)
    assert "heads shown to matter" in done.stdout + done.stderr
    files = sorted((copied / "results/store/scores").rglob("*.parquet"))
    assert [file.stem for file in files] == ["L01", "L04"]
    scores = pd.read_parquet(files[0])
    names = {"L01R00", "L01H00", "L01H01", "L01H02", "L01H03", "L01N00"}
    assert set(scores["variant"]) == names
    assert json.loads(files[0].with_name("L01.parquet.run.json").read_text("utf-8"))["worst"] < 1e-3
    (record_file,) = (copied / "results/store/texts").glob("math-*.run.json")
    record = json.loads(record_file.read_text("utf-8"))
    assert record["questions"] == 17
    texts = scores.drop_duplicates(["question_id", "kind"])["kind"].value_counts()
    assert texts["right"] == texts["wrong"] == record["pairs"] >= 2
    assert texts["solution"] == record["solutions"] == 17

    run = copied / "results/mapped"
    monkeypatch.chdir(copied)
    batch = Batch(Run("results/mapped").store, "tiny", "T0.6", "train")
    _, _, samples = grade_batch(batch, "default")
    samples = samples[samples["stop_reason"] == "eos"]
    both = samples.groupby("question_id")["correct"].agg(["any", "all"])
    first = pd.read_parquet(next((copied / "results/store/questions").glob("train-*.parquet")))
    both = both.reindex(first["question_id"].head(17)).dropna()
    assert record["pairs"] == int((both["any"] & ~both["all"]).sum())

    heads = pd.read_csv(run / "maps/math/heads.csv")
    assert len(heads) == 3 * 2 * 5  # outcomes, layers, heads and noise
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "favour right answers" in page
    assert 'href="#math/L01H03"' in page  # the sweep's explorer opens it
    assert (run / "figures/map_math.png").stat().st_size > 10_000
    assert not left_over(copied)
    found = planned_again(copied, MAPPED, "texts score map draw_map")
    assert [file for file, planned in found.items() if not planned] == []
    layers = {"maps": {"math": MAPPED["maps"]["math"] | {"layers": [1]}}}
    fewer = Snakemake(copied)(MAPPED | layers, "--dry-run")
    told = fewer.stdout + fewer.stderr
    assert "rule map" in told and "rule score" not in told
    other = Snakemake(copied)(MAPPED | {"run": "other"}, "--dry-run")
    told = other.stdout + other.stderr
    assert "rule map" in told and "rule score" not in told
    assert "rule texts" not in told
    (scores,) = (copied / "results/store/scores").rglob("L01.parquet")
    scores.unlink()
    with pytest.raises(ConfigError, match=r"L01\.parquet and 0 more files are missing; run 'map"):
        export(run, tmp_path / "handed-on")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sampling": ["greedy"]}, "maps.math.sampling: 'greedy' is greedy"),
        ({"layers": [9]}, "maps.math.layers: [9]; tiny has 6 layers"),
        ({"sampling": ["T9"]}, "maps.math.sampling: 'T9' is not defined"),
    ],
)
def test_a_map_that_cannot_be_made_is_refused_before_the_first_job(tmp_path, change, said):
    values = MAPPED | {"maps": {"math": MAPPED["maps"]["math"] | change}}
    done = Snakemake(tmp_path)(values, check=False)
    assert done.returncode != 0 and said in done.stdout + done.stderr
