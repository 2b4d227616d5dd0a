import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import simulation
from latex_document import typeset

from headroom import paths
from headroom.cli import main
from headroom.config import parse
from headroom.errors import ConfigError
from headroom.figures import claims_compression, claims_heads, claims_selection
from headroom.figures.claims import COLUMNS, claims
from headroom.figures.claims_text import claims_tables
from headroom.figures.controls import controls
from headroom.figures.drawing import write_csv
from headroom.figures.gains import accuracy_path
from headroom.figures.published import COMPRESSION_CLAIMS, SIZES, SPRINT_CLAIMS, head_pruning
from headroom.planning.batches import pool
from headroom.tables import ACCURACY, CURVES, GRADED, write_json, write_table
from headroom.variants import BASE

PUBLISHED = Path(__file__).parents[2] / "config" / "published"
SMALL = "Qwen2.5-Math-1.5B-Instruct"
NEAR_ZERO = (
    "removing head 3 of layer 0 causes performance to drop to near zero in Tables 2, 3 and 4"
)
EXAMPLE = f"pruning head 0 of layer 15 in {SMALL}, Counting & Probability"
OVERALL = f"overall No Prune accuracy, {SMALL}"
FIGURE_5 = "Figure 5: pruning a head mostly leads to improvement in accuracy at 1"
AHEAD = "SPRINT outperforms baselines for nearly all N"


def published_run(base_right=0.738, gain=6):
    """Fill a run of the paper's smallest model in which head 0 of layer 15 gains some questions."""
    shape = {"layers": 28, "heads": 12, "kv_heads": 2, "billions": 1.5}
    test = {"benchmark": "math500", "split": "test"}
    config = parse(
        {
            "run": "local",
            "models": {"small": {"source": f"./models/{SMALL}", **shape, "dtype": "float32"}},
            "questions": {
                "math500": test,
                "train": {**test, "benchmark": "math_train", "split": "train"},
            },
            "decodings": {"greedy": {}},
            "embedders": {"mean": {"model": "small"}},
            "sweeps": {
                "t2": {
                    "model": "small",
                    "questions": "math500",
                    "layers": [0, 15],
                    "heads": [0, 3, 4],
                },
                "f5": {"model": "small", "questions": "math500", "layers": [21], "heads": [0, 1]},
            },
            "selectors": {
                "math": {
                    "model": "small",
                    "train": "train",
                    "test": "math500",
                    "embedder": "mean",
                    "layers": [0],
                }
            },
        }
    )
    draw = np.random.default_rng(3)
    subjects = [subject for subject, size in SIZES.items() for _ in range(size)]
    base = np.zeros(500, dtype="int8")
    base[draw.permutation(500)[: round(500 * base_right)]] = 1
    z = pd.DataFrame({"question_id": [f"q{i:03}" for i in range(500)], "subject": subjects})
    z["level"] = draw.integers(1, 6, 500).astype("int8")
    z["base"] = base
    wrong = z.index[(z["subject"] == "Counting & Probability") & (z["base"] == 0)]
    heads = sorted({v for sweep in config.sweeps.values() for v in pool(config, sweep)})
    for variant in heads:
        z[str(variant)] = base
    z["L00H03"] = (draw.random(500) < 0.04).astype("int8")
    z.loc[wrong[:gain], "L15H00"] = 1
    z.loc[z.index[z["base"] == 0][:9], "L21H00"] = 1
    names = ["base", *map(str, heads)]
    schema = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in names)])
    write_table(accuracy_path(config, "t2"), z, schema)
    graded = z.melt(id_vars=["question_id"], value_vars=names, var_name="variant")
    graded = graded.rename(columns={"value": "correct"}).astype({"correct": bool})
    graded = graded.assign(
        sample=0, answer="7", group=0, verdict="judged", tokens=9, stop_reason="eos", margin=1.0
    )
    assert set(graded.columns) == set(GRADED.names)
    for name, sweep in config.sweeps.items():
        found = controls(z, graded, [BASE, *pool(config, sweep)], [], 1e-3, 0)
        write_csv(
            Path(paths.CONTROLS.format(run="local", sweep=name, table="gains", suffix="csv")),
            found.gains,
        )
    curves, paired = simulation.simulated_curves()
    write_table(Path(paths.CURVES.format(run="local", selector="math")), curves, CURVES)
    write_csv(Path(paths.PAIRED.format(run="local", selector="math")), paired)
    write_json(Path(paths.CONFIG.format(run="local")), config.model_dump(mode="json"))
    return config


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield claims(published_run(), PUBLISHED).drop_duplicates("claim").set_index("claim")
    finally:
        os.chdir(before)


def of(table, claim):
    return table.loc[claim, "run"], table.loc[claim, "run_why"]


def test_every_claim_is_judged_once_and_every_judge_has_its_claim():
    table = claims(simulation.demo().model_copy(update={"sweeps": {}, "selectors": {}}), PUBLISHED)
    printed = [pd.read_csv(PUBLISHED / name) for name in (SPRINT_CLAIMS, COMPRESSION_CLAIMS)]
    assert list(table.columns) == COLUMNS
    assert list(table["claim"]) == list(pd.concat(printed)["claim"])
    assert set(table["published"]) | set(table["run"]) == {"holds", "fails", "cannot be judged"}
    assert (table["run"] == "cannot be judged").all()
    assert table["run_why"].str.len().min() > 10
    from headroom.figures import claims as module

    registries = (module._HEADS, module._PRINTED, module._SELECTION, claims_compression.JUDGES)
    for registry in registries:
        assert set(registry) <= set(table["claim"])


def test_the_paper_s_own_numbers_are_judged_as_its_readers_found_them():
    table = claims(simulation.demo().model_copy(update={"sweeps": {}, "selectors": {}}), PUBLISHED)
    word = table.drop_duplicates("claim").set_index("claim")["published"]
    assert word[NEAR_ZERO] == word[FIGURE_5] == word["which four layers"] == "fails"
    assert word[EXAMPLE] == word[OVERALL] == "holds"
    assert word["accuracy for alpha between 0.3 and 0.7"] == "fails"
    assert word["ATHENA-large configuration"] == word["best alpha"] == "holds"
    assert word["Math23k, 30% pruning: accuracy"] == "holds"
    assert word["Math23k, 30% pruning: parameter reduction"] == "fails"  # arithmetic
    assert word[AHEAD] == "cannot be judged"


def test_a_claim_on_a_model_that_the_run_lacks_names_the_model(local):
    word, why = of(local, "overall No Prune accuracy, Qwen2.5-Math-7B-Instruct")
    assert (word, why) == (
        "cannot be judged",
        "the run has no Qwen2.5-Math-7B-Instruct on all subjects",
    )
    word, why = of(local, NEAR_ZERO)
    assert word == "cannot be judged"
    assert "the run has no Qwen2.5-Math-7B-Instruct and no Qwen2.5-7B-Instruct" in why
    assert f"{SMALL} 4." in why or f"{SMALL} 3." in why or f"{SMALL} 5." in why


def test_a_run_of_the_paper_s_model_judges_its_claims(local):
    assert of(local, OVERALL)[0] == "holds"
    assert of(local, EXAMPLE)[0] == "holds"
    assert of(local, FIGURE_5)[0] == "fails"  # only a few subjects gain
    word, why = of(
        local, "head pruning consistently produces positive gains for all evaluated models"
    )
    assert word == "fails"
    assert "gains are beyond chance" in why
    assert "SPRINT" not in of(local, AHEAD)[1]
    assert of(local, "greatest improvements at N")[0] in ("holds", "fails")
    assert of(local, "gains become more gradual")[0] == "holds"


def test_other_numbers_turn_the_verdicts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = claims(published_run(base_right=0.6, gain=0), PUBLISHED)
    table = found.drop_duplicates("claim").set_index("claim")
    assert of(table, OVERALL)[0] == "fails"
    assert of(table, EXAMPLE)[0] == "fails"
    levels = of(table, "gains arise particularly on challenging tasks")
    assert levels[0] == "cannot be judged"
    assert "level 5 against level 1" in levels[1]


def printed_with(change):
    table = head_pruning(PUBLISHED)
    table["accuracy"] = table["accuracy"] + change(table)
    return table


def test_judges_of_heads_follow_the_numbers():
    assert (
        claims_heads.positive_gains(printed_with(lambda t: 0.9 * t["head"].notna())).word == "holds"
    )
    math = {claims_heads.MATH_1B, claims_heads.MATH_7B}
    lifted = printed_with(lambda t: 0.5 * (t["head"].eq(1) & t["model"].isin(math)).fillna(False))
    assert claims_heads.median_order(lifted).word == "holds"
    figure = printed_with(lambda t: 0.05 * (t["head"].notna() & t["exhibit"].eq("Figure 5")))
    assert claims_heads.mostly_improves(figure).word == "holds"
    assert (
        claims_heads.often_harmless(printed_with(lambda t: -0.5 * t["head"].notna())).word
        == "fails"
    )


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.01, 0.05, "holds"), (-0.05, -0.01, "fails"), (-0.02, 0.02, "cannot be judged")],
)
def test_a_lead_is_judged_by_its_paired_interval(low, high, word):
    curves, paired = simulation.simulated_curves()
    found = claims_selection.ahead_of_baselines(
        {"math": (curves, paired.assign(low=low, high=high))}
    )
    assert found.word == word
    assert "of 64 comparisons" in found.why  # three temperatures and random heads, N = 1..16


def test_a_lead_that_grows_is_not_greatest_early():
    curves, paired = simulation.simulated_curves()
    late = curves["pass_at_n"] + 0.02 * curves["n"] * (curves["method"] == "SPRINT")
    grown = {"math": (curves.assign(pass_at_n=late), paired)}
    assert claims_selection.greatest_early(grown).word == "fails"
    early = curves["pass_at_n"] + 0.5 / curves["n"] * (curves["method"] == "SPRINT")
    assert (
        claims_selection.greatest_early({"m": (curves.assign(pass_at_n=early), paired)}).word
        == "holds"
    )


def test_the_table_compiles_and_names_its_run(local, tmp_path):
    texts = claims_tables(local.reset_index()[COLUMNS], "a_run & more")
    typeset(tmp_path, texts["tex"])
    assert "in run a\\_run &amp; more" in texts["md"]
    assert texts["md"].count("\n| ") == len(local) + 2


def test_the_command_writes_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    published_run()
    config = paths.CONFIG.format(run="local")
    assert main(["claims", "--config", config, "--published", str(PUBLISHED)]) == 0
    written = pd.read_csv(paths.CLAIMS.format(run="local", suffix="csv"))
    assert list(written.columns) == COLUMNS


def test_no_sweep_takes_the_file_of_the_claims():
    values = {**simulation.DEMO, "sweeps": {"claims": simulation.DEMO["sweeps"]["demo"]}}
    with pytest.raises(
        ConfigError, match=r"sweeps.claims: tables/claims.md is the table of claims"
    ):
        parse(values)
