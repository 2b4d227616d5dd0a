import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import simulation
from latex_document import typeset

from headroom import paths
from headroom.analysis.claims import COLUMNS, claims, claims_sheets, judge
from headroom.analysis.claims_tables import printed
from headroom.analysis.controls import controls
from headroom.analysis.gains import accuracy_path
from headroom.analysis.published import COMPRESSION_CLAIMS, SIZES, SPRINT_CLAIMS
from headroom.analysis.sheet import write_csv, written
from headroom.cli import main
from headroom.config import parse
from headroom.errors import ConfigError
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
GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts.csv"


def published_run(base_right=0.738, gain=6, by_authors=None):
    """Fill a run of the paper's smallest model in which head 0 of layer 15 gains some questions.

    `by_authors` are the questions that it gains under the authors' rules, in a sweep of its own.
    """
    shape = {"layers": 28, "heads": 12, "kv_heads": 2, "billions": 1.5}
    test = {"benchmark": "math500", "split": "test"}
    config = parse(
        {
            "run": "local",
            "models": {"small": {"source": f"./models/{SMALL}", **shape, "dtype": "float32"}},
            "questions": {
                "math500": test,
                "train": {**test, "benchmark": "math_train", "split": "train"},
                "gsm8k": {**test, "benchmark": "gsm8k"},
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
                },
                # The paper has no transfer: no claim is about it, and nothing of it is read.
                "transfer": {
                    "model": "small",
                    "train": "train",
                    "test": "gsm8k",
                    "embedder": "mean",
                    "layers": [0],
                },
            },
        }
    )
    if by_authors is not None:
        again = {**config.sweeps["t2"].model_dump(), "grading": "authors"}
        sweeps = {"again": again, **config.model_dump()["sweeps"]}
        config = parse({**config.model_dump(mode="json"), "sweeps": sweeps})
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
    if by_authors is not None:
        other = z.assign(L15H00=z["base"])
        other.loc[wrong[:by_authors], "L15H00"] = 1
        write_table(accuracy_path(config, "again"), other, schema)
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


@pytest.fixture(scope="module")
def without_run():
    bare = simulation.demo().model_copy(update={"sweeps": {}, "selectors": {}})
    return claims(bare, PUBLISHED)


def asked(kind="share", **facts):
    """Return a claim of one column about rows with some values and intervals."""
    return SimpleNamespace(
        **{"kind": kind, "table": "heads", "column": "gain", "stated": 0, "tolerance": None} | facts
    )


def rows(*values, of="all", **more):
    table = pd.DataFrame({"of": of, "name": [f"row {i}" for i in range(len(values))]})
    ends = np.array(
        [value if isinstance(value, tuple) else (value, value, value) for value in values]
    )
    intervals = {"gain_low": ends[:, 0], "gain_high": ends[:, 2]}
    exact = all(not isinstance(value, tuple) for value in values)
    return table.assign(gain=ends[:, 1], **({} if exact else intervals), **more)


def word(claim, found, paper=None):
    return judge(claim, found, found if paper is None else paper, "the run has")[0]


def test_every_claim_stands_once_and_one_without_a_judge_is_undecided(without_run):
    transcribed = pd.concat(
        [pd.read_csv(PUBLISHED / name) for name in (SPRINT_CLAIMS, COMPRESSION_CLAIMS)]
    )
    assert list(without_run.columns) == COLUMNS
    assert list(without_run["claim"]) == list(transcribed["claim"])
    undecided = without_run["published_why"].eq("no number decides it").to_numpy()
    assert set(without_run.loc[undecided, "published"]) == {"cannot be judged"}
    only_in_runs = transcribed["table"].isin(["levels", "leads", "peaks"])
    assert (undecided == (transcribed["kind"].isna() | only_in_runs).to_numpy()).all()
    assert (without_run["run"] == "cannot be judged").all()


def test_a_claim_states_as_many_numbers_as_it_asks_for():
    tables = printed(PUBLISHED)
    for name in (SPRINT_CLAIMS, COMPRESSION_CLAIMS):
        judged = pd.read_csv(PUBLISHED / name).dropna(subset="kind")
        for claim in judged[judged["kind"] == "states"].itertuples():
            found = tables[claim.table].query(claim.filter)
            stated = str(claim.stated).split()
            assert len(stated) in (1, len(found) * len(claim.column.split())), claim.claim


def test_verdicts_are_those_of_the_judges_that_were_written_out_one_by_one(without_run, local):
    golden = pd.read_csv(GOLDEN).set_index("claim")
    printed_words = without_run.drop_duplicates("claim").set_index("claim")["published"]
    assert dict(printed_words[golden.index]) == dict(golden["published"])
    assert dict(local.loc[golden.index, "run"]) == dict(golden["local"])


@pytest.mark.parametrize(
    ("values", "needed", "verdict"),
    [
        ((0.2, 0.1, -0.3), 60, "holds"),
        ((0.2, 0.0, -0.3), 60, "fails"),
        (((0.1, 0.2, 0.3), (-0.1, 0.2, 0.3), (-0.3, -0.2, -0.1)), 60, "cannot be judged"),
        (((0.1, 0.2, 0.3), (-0.3, -0.2, -0.1), (-0.3, -0.2, 0.0)), 80, "fails"),
    ],
)
def test_a_share_counts_what_intervals_show(values, needed, verdict):
    assert word(asked(tolerance=needed), rows(*values)) == verdict


def test_of_several_columns_each_needs_its_share():
    found = rows(0.1, -0.2, -0.3, kept=[1, 1, -1])
    assert word(asked(column="kept gain", tolerance="60 30"), found) == "holds"
    assert word(asked(column="kept gain", tolerance="70 30"), found) == "fails"
    assert word(asked(column="kept gain", tolerance="60 40"), found) == "fails"


def test_one_row_proves_a_claim_about_every_row_wrong_but_not_right():
    paper = pd.concat([rows(0.1, of="one"), rows(0.2, of="two")])
    assert word(asked("every"), rows(-0.1, of="one"), paper) == "fails"
    assert word(asked("every"), rows(0.1, of="one"), paper) == "cannot be judged"
    assert word(asked("at most", stated=20), rows((0.19, 0.3, 0.4), of="one"), paper) != "fails"
    assert word(asked("at most", stated=20), rows((0.21, 0.3, 0.4), of="one"), paper) == "fails"
    reason = judge(asked("above"), rows(-0.1, of="one"), paper, "the run has")
    assert reason == ("cannot be judged", "the run has no two")


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ((0.1, 0.2, 0.3), "holds"),
        ((0.17, 0.2, 0.3), "fails"),
        ((-0.1, 0.2, 0.3), "cannot be judged"),
        ((0.1, np.nan, 0.3), "cannot be judged"),
    ],
)
def test_a_stated_number_is_held_against_its_interval(value, verdict):
    assert word(asked("states", stated=15, tolerance=1), rows(value, gain_null=0.0)) == verdict


@pytest.mark.parametrize(
    ("peak", "lead", "verdict"),
    [
        ((2, 1, 4), (0.1, 0.2, 0.3), "holds"),
        ((2, 1, 5), (0.1, 0.2, 0.3), "cannot be judged"),
        ((2, 1, 4), (-0.1, 0.2, 0.3), "cannot be judged"),
        ((8, 5, 9), (0.1, 0.2, 0.3), "fails"),
        ((2, 1, 4), (-0.3, -0.2, -0.1), "fails"),
    ],
)
def test_a_lead_is_largest_early_where_its_interval_says_so_and_it_is_one(peak, lead, verdict):
    names = ["peak", "peak_low", "peak_high", "difference_low", "difference", "difference_high"]
    row = pd.DataFrame([(*peak, *lead)], columns=names).assign(of="math", name="a lead")
    claim = asked("no later", table="peaks", column="peak", stated=4)
    found, why = judge(claim, row, row, "the run has")
    assert found == verdict
    assert f"N = {peak[0]} ({peak[1]} to {peak[2]})" in why


def test_a_printed_number_may_differ_by_the_tolerance_and_not_exceed_arithmetic():
    claim = asked("states", stated="15 16", tolerance=0.6)
    assert word(claim, rows(0.155, 0.16)) == "holds"
    assert word(claim, rows(0.16, 0.155)) == "fails"
    assert word(claim, rows(0.155, 0.16, gain_most=[0.2, 0.159])) == "fails"


def of(table, claim):
    return table.loc[claim, "run"], table.loc[claim, "run_why"]


def test_a_claim_on_a_model_that_the_run_lacks_names_the_model(local):
    assert of(local, "overall No Prune accuracy, Qwen2.5-Math-7B-Instruct") == (
        "cannot be judged",
        "the run has no Qwen2.5-Math-7B-Instruct on all subjects",
    )
    why = of(local, NEAR_ZERO)[1]
    assert why.startswith("the run has no Qwen2.5-7B-Instruct and no Qwen2.5-Math-7B-Instruct; ")
    assert f"{SMALL} 3.8% (2.4% to 5.9%)" in why


def test_other_numbers_turn_the_verdicts(local, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = claims(published_run(base_right=0.6, gain=0), PUBLISHED)
    table = found.drop_duplicates("claim").set_index("claim")
    for claim in (OVERALL, EXAMPLE):
        assert (of(local, claim)[0], of(table, claim)[0]) == ("holds", "fails")


def test_each_prompt_and_grading_has_a_verdict_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = published_run(by_authors=0)
    assert accuracy_path(config, "again") != accuracy_path(config, "t2")
    table = claims(config, PUBLISHED)
    found = table[table["claim"] == EXAMPLE].set_index(["prompt", "grading"])["run"]
    assert found.to_dict() == {("default", "default"): "holds", ("default", "authors"): "fails"}
    alone = claims(published_run(), PUBLISHED)
    keys = ["claim", "value", "where"]
    own = table[table["grading"] != "authors"].set_index(keys)["run_why"]
    assert own.to_dict() == alone.set_index(keys)["run_why"].to_dict()
    text = written(claims_sheets(table, "r"))["md"]
    assert "fails: (prompt default, grading authors)" in text


def test_the_tables_compile_name_their_run_and_count_the_rest(local, tmp_path):
    table = local.reset_index()[COLUMNS]
    sheets = claims_sheets(table, "a_run & more")
    texts = written(sheets)
    typeset(tmp_path, texts["tex"])
    assert "in run a\\_run &amp; more" in texts["md"]
    undecided = len(table) - sum(len(sheet.rows) for sheet in sheets.values())
    assert 30 < undecided < 50
    assert f"{undecided} claims of both papers cannot be judged by numbers" in texts["md"]


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
