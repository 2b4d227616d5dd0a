from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import simulation
from headroom import paths
from headroom.analysis.claims import COLUMNS, claims, judge
from headroom.analysis.files import write_csv
from headroom.analysis.published import CLAIMS, SIZES
from headroom.config import parse
from headroom.errors import ConfigError
from headroom.planning.batches import pool
from headroom.planning.store import Store
from headroom.tables import ACCURACY, write_table
from simulation import PUBLISHED

SMALL = "Qwen2.5-Math-1.5B-Instruct"
NEAR_ZERO = (
    "removing head 3 of layer 0 causes performance to drop to near zero in Tables 2, 3 and 4"
)
EXAMPLE = f"pruning head 0 of layer 15 in {SMALL}, Counting & Probability"
CUT = "Math23k, 30% pruning: parameter reduction"
GOLDEN = Path(__file__).parents[1] / "golden" / "verdicts.csv"


def published_run(base_right=0.738, gain=6, by_authors=None):
    """Fill a run of the paper's smallest model in which head 0 of layer 15 gains some questions.

    `by_authors` are the questions that it gains under the authors' rules, in a sweep of its own.
    """
    shape = {"layers": 28, "heads": 12, "kv_heads": 2, "billions": 1.5, "dtype": "float32"}
    test = {"benchmark": "math500", "split": "test"}
    sweep = {"model": "small", "questions": "math500"}
    sweeps = {
        "t2": {**sweep, "layers": [0, 15], "heads": [0, 3, 4]},
        "f5": {**sweep, "layers": [21], "heads": [0, 1]},
    }
    if by_authors is not None:
        sweeps = {"again": {**sweeps["t2"], "grading": "authors"}, **sweeps}
    selector = {"model": "small", "train": "train", "embedder": "mean", "layers": [0]}
    config = parse(
        {
            "run": "local",
            "models": {"small": {"source": f"./models/{SMALL}", **shape}},
            "questions": {
                "math500": test,
                "train": {"benchmark": "math_train", "split": "train"},
                "gsm8k": {**test, "benchmark": "gsm8k"},
            },
            "decodings": {"greedy": {}},
            "embedders": {"mean": {"model": "small"}},
            "sweeps": sweeps,
            # The paper has no transfer: no claim is about it, and nothing of it is read.
            "selectors": {"math": {**selector, "test": "math500"}}
            | {"transfer": {**selector, "test": "gsm8k"}},
        }
    )
    draw = np.random.default_rng(3)
    subjects = [subject for subject, size in SIZES.items() for _ in range(size)]
    base = np.zeros(500, dtype="int8")
    base[draw.permutation(500)[: round(500 * base_right)]] = 1
    z = pd.DataFrame({"question_id": [f"q{i:03}" for i in range(500)], "subject": subjects})
    heads = sorted({v for sweep in config.sweeps.values() for v in pool(config, sweep)})
    names = ["base", *map(str, heads)]
    z = z.assign(level=draw.integers(1, 6, 500).astype("int8"), **dict.fromkeys(names, base))
    missed = z.index[z["base"] == 0]
    wrong = missed[z.loc[missed, "subject"] == "Counting & Probability"]
    z["L00H03"] = (draw.random(500) < 0.04).astype("int8")
    z.loc[wrong[:gain], "L15H00"] = 1
    z.loc[missed[:9], "L21H00"] = 1
    schema = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in names)])
    write_table(Store(config).of_sweep("t2"), z, schema)
    if by_authors is not None:
        other = z.assign(L15H00=z["base"])
        other.loc[wrong[:by_authors], "L15H00"] = 1
        write_table(Store(config).of_sweep("again"), other, schema)
    paired = Path(paths.PAIRED.format(run="local", selector="math"))
    write_csv(paired, simulation.simulated_curves()[1])
    return config


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with chdir(tmp_path_factory.mktemp("claims")):
        return claims(published_run(), PUBLISHED).drop_duplicates("claim").set_index("claim")


@pytest.fixture(scope="module")
def without_run():
    bare = simulation.demo().model_copy(update={"sweeps": {}, "selectors": {}})
    return claims(bare, PUBLISHED)


def verdict(found, kind="share", stated=50, *, paper=None, **more):
    """Return the verdict on rows of the column `gain`."""
    claim = SimpleNamespace(kind=kind, column="gain", stated=stated, tolerance=0.6)
    return judge(claim, found.assign(**more), set(found["of"] if paper is None else paper))


def rows(*values, of="all"):
    table = pd.DataFrame({"of": [of] * len(values)})
    exact = all(not isinstance(value, tuple) for value in values)
    ends = np.array([value if isinstance(value, tuple) else (value,) * 3 for value in values])
    intervals = {} if exact else {"gain_low": ends[:, 0], "gain_high": ends[:, 2]}
    return table.assign(gain=ends[:, 1], **intervals)


def test_every_claim_stands_once_and_one_without_a_judge_is_only_counted(without_run):
    transcribed = pd.concat([pd.read_csv(PUBLISHED / name) for name in CLAIMS.values()])
    assert list(without_run.columns) == COLUMNS
    assert list(without_run["claim"]) == list(transcribed["claim"])
    undecided = without_run["published_why"].eq("no number decides it").to_numpy()
    assert (undecided == transcribed["kind"].isna().to_numpy()).all()
    assert 12 <= (~undecided).sum() <= 16
    assert (without_run["run"] == "cannot be judged").all()
    assert (without_run["stated"].isna() == undecided).all()


def test_verdicts_are_those_that_were_written_out_one_by_one(without_run, local):
    golden = pd.read_csv(GOLDEN).set_index("claim")
    judged = without_run[without_run["claim"].isin(golden.index)].set_index("claim")
    judged = judged[judged["stated"].notna()]
    assert len(judged) > 10
    assert judged["published"].to_dict() == golden.loc[judged.index, "published"].to_dict()
    here = local.loc[judged.index, "run"].to_dict()
    assert here == golden.loc[judged.index, "local"].to_dict()


def test_the_numbers_that_decide_stand_beside_their_verdicts(without_run, local):
    paper = without_run.set_index("claim")
    cut = paper.loc[CUT]
    numbers = [cut[name] for name in ("stated", "published_value", "published_most")]
    assert numbers == pytest.approx([0.187, 0.187, 0.068], abs=5e-4)
    assert paper.loc[EXAMPLE, "published_value"] == pytest.approx(6 / 38)
    own = local.loc[EXAMPLE]
    assert own["run_value"] == pytest.approx(6 / 38)
    assert own["run_low"] < own["run_value"] < own["run_high"]


@pytest.mark.parametrize(
    ("values", "needed", "word"),
    [
        ((0.2, 0.1, -0.3), 60, "holds"),
        ((0.2, 0.0, -0.3), 60, "holds"),  # no further below zero than the tolerance
        ((0.2, -0.1, -0.3), 60, "fails"),
        (((0.1, 0.2, 0.3), (-0.1, 0.2, 0.3), (-0.3, -0.2, -0.1)), 60, "cannot be judged"),
        (((0.1, 0.2, 0.3), (-0.3, -0.2, -0.1), (-0.3, -0.2, 0.0)), 80, "fails"),
    ],
)
def test_a_share_counts_what_intervals_show(values, needed, word):
    found = verdict(rows(*values), stated=needed)
    assert found[""] == word
    assert found["_low"] == pytest.approx(found["_value"])


def test_one_row_proves_a_claim_about_every_row_wrong_but_not_right():
    both = ["one", "two"]
    assert verdict(rows(-0.1, of="one"), stated=100, paper=both)[""] == "fails"
    found = verdict(rows(0.1, of="one"), stated=100, paper=both)
    assert (found[""], "nothing on two" in found["_why"]) == ("cannot be judged", True)
    above, below = rows((0.21, 0.3, 0.4), of="one"), rows((0.19, 0.3, 0.4), of="one")
    assert verdict(below, "at most", 20, paper=both)[""] == "cannot be judged"
    assert verdict(below, "at most", 20)[""] == "holds"
    assert verdict(above, "at most", 20, paper=both)[""] == "fails"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ((0.1, 0.2, 0.3), "holds"),
        ((0.17, 0.2, 0.3), "fails"),
        ((-0.1, 0.2, 0.3), "cannot be judged"),
        ((0.1, np.nan, 0.3), "cannot be judged"),
        (0.155, "holds"),
        (0.16, "fails"),
    ],
)
def test_a_stated_number_is_held_against_an_interval_or_the_tolerance(value, word):
    assert verdict(rows(value), "states", 15)[""] == word


def test_no_printed_cut_exceeds_arithmetic():
    assert verdict(rows(0.155), "states", 15, gain_at_most=0.151)[""] == "fails"


@pytest.mark.parametrize(
    ("peak", "lead", "word"),
    [
        ((1, 2, 4), (0.1, 0.3), "holds"),
        ((1, 2, 5), (0.1, 0.3), "cannot be judged"),
        ((1, 2, 4), (-0.1, 0.3), "cannot be judged"),
        ((5, 8, 9), (0.1, 0.3), "fails"),
        ((1, 2, 4), (-0.3, -0.1), "fails"),
    ],
)
def test_a_lead_is_largest_early_where_its_interval_says_so_and_it_is_one(peak, lead, word):
    ends = dict(zip(("lead_low", "lead_high"), lead, strict=True))
    found = verdict(rows(peak), "no later", 4, **ends)
    assert found[""] == word
    assert (found["_low"], found["_value"], found["_high"]) == peak


def test_a_claim_on_models_that_the_run_lacks_names_them(local):
    row = local.loc[NEAR_ZERO]
    assert row["run"] == "cannot be judged"
    lacking = "nothing on Qwen2.5-7B-Instruct, Qwen2.5-Math-7B-Instruct; 3.8% (2.4% to 5.9%)"
    assert row["run_why"] == lacking


def test_each_prompt_and_grading_has_a_verdict_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = published_run(by_authors=0)
    assert Store(config).of_sweep("again") != Store(config).of_sweep("t2")
    table = claims(config, PUBLISHED)
    found = table[table["claim"] == EXAMPLE].set_index(["prompt", "grading"])["run"]
    assert found.to_dict() == {("default", "default"): "holds", ("default", "authors"): "fails"}
    alone = claims(published_run(), PUBLISHED)
    keys = ["claim", "value", "where"]
    own = table[table["grading"] != "authors"].set_index(keys)["run_why"]
    assert own.to_dict() == alone.set_index(keys)["run_why"].to_dict()


def test_no_sweep_takes_the_file_of_the_claims():
    values = {**simulation.DEMO, "sweeps": {"claims": simulation.DEMO["sweeps"]["demo"]}}
    with pytest.raises(
        ConfigError, match=r"sweeps.claims: tables/claims.csv is the table of claims"
    ):
        parse(values)
