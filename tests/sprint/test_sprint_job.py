import contextlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from huggingface_hub import ModelCard
from simulated_heads import simulate

from headsweep.config import parse
from headsweep.errors import ConfigError, TableError
from headsweep.experiments.sprint import (
    evaluation,
    fitting,
    head_selector,
    job,
    methods,
    rankers,
    validation,
)
from headsweep.experiments.sprint.experiment import Experiment, GradedAnswers
from headsweep.experiments.sprint.model_card import card
from headsweep.experiments.sprint.scoring import passed
from headsweep.files import paths, safe_files, tables
from headsweep.files.record import record_path
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import EMBEDDINGS, GRADED
from headsweep.store.batches import at_home
from headsweep.store.keys import key
from headsweep.store.layout import Store
from headsweep.text import points

LAYERS, HEADS, TRAIN, TEST, SAMPLES = 2, 6, 90, 70, 9
VARIANTS = [f"L{layer:02d}H{head:02d}" for layer in range(LAYERS) for head in range(HEADS)]
SAMPLED = {"model": "tiny", "decoding": "T0.6", "questions": "test"}
GREEDY = SAMPLED | {"decoding": "greedy"}


CONFIG = f"""
run: simulated
models: {{tiny: {{source: ./tiny, layers: {LAYERS}, heads: {HEADS}, kv_heads: 2, billions: 0.1}}}}
questions:
  train: {{benchmark: generated_math, split: train, n: {TRAIN}}}
  test: {{benchmark: generated_math, split: test, n: {TEST}}}
decodings: {{greedy: {{}}, T0.6: {{temperature: 0.6, samples: {SAMPLES}}}}}
embedders: {{phi: {{model: tiny}}}}
selectors:
  math:
    {{model: tiny, train: train, test: test, embedder: phi, layers: all, sampling: [T0.6],
     max_n: 8, shortlist: [3, 6], epochs: 60, dimension: [6], seeds: [4, 5], bootstrap: 200,
     redraws: 3, redrawn_setting: fixed}}
"""


QUICK = {"epochs": [3], "redraws": 1}
"""Where files and refusals are asked about, not how good a selector is."""


def make_config(**keys):
    values = yaml.safe_load(CONFIG)
    values["selectors"]["math"] |= keys
    return parse(values)


def write_questions(config, name, data):
    """Write embeddings, Z, and graded answers; every table in another order of questions."""
    count, names = len(data.correct), {"model": "tiny", "questions": name}
    ids = [f"{name}-{row}" for row in range(count)]
    draw, path = np.random.default_rng(count), Store(config).path
    vectors = pd.DataFrame({"question_id": ids, "vector": list(data.embeddings)})
    file = path(tables.EMBEDDINGS, embedder="phi", questions=name)
    write_table(file, vectors.sample(frac=1, random_state=1), EMBEDDINGS)
    asked = pd.DataFrame({"question_id": ids, "question": [f"{name} question {i}" for i in ids]})
    asked = asked.assign(split=name, subject=None, level=None, answer="1", solution=None)
    asked["source_row"] = np.arange(count)
    write_table(path(tables.QUESTIONS, questions=name), asked, tables.QUESTIONS)
    base = draw.random(count) < 0.4
    z = pd.DataFrame(np.c_[base, data.correct].astype(np.int8), columns=["base", *VARIANTS])
    table = z.assign(question_id=ids, subject=None, level=None)
    write_table(path(tables.ACCURACY, decoding="greedy", **names), table, tables.ACCURACY)
    greedy = [(variant, 0, z[variant].to_numpy(bool)) for variant in ("base", *VARIANTS)]
    sampled = [("base", sample, draw.random(count) < 0.5) for sample in range(SAMPLES)]
    for decoding, answers in (("greedy", greedy), ("T0.6", sampled)):
        parts = []
        for variant, sample, correct in answers:
            part = pd.DataFrame({"question_id": ids, "correct": correct, "variant": variant})
            part["group"] = np.where(correct, 0, draw.choice([-1, 1, 2], count))
            parts.append(part.assign(sample=sample, tokens=draw.integers(5, 60, count))[::-1])
        graded = pd.concat(parts, ignore_index=True)
        graded = graded.assign(answer="1", verdict="judged", stop_reason="eos", margin=1.0)
        write_table(path(tables.GRADED, decoding=decoding, **names), graded, GRADED)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("run"), make_config()
    with contextlib.chdir(folder):
        for seed, (name, count) in enumerate([("train", TRAIN), ("test", TEST)], start=1):
            data = simulate(count, pool=len(VARIANTS), clusters=4, seed=seed)
            write_questions(config, name, data)
        run(config)
    return folder


@pytest.fixture
def done(finished, monkeypatch):
    """The config of what has run, which a test only reads."""
    monkeypatch.chdir(finished)
    return make_config()


def output(kind):
    return Path(tables.template_of(kind).format(run="simulated", selector="math"))


def table_of(kind):
    is_parquet = isinstance(kind, tables.Table)
    return read_table(output(kind), kind) if is_parquet else pd.read_csv(output(kind))


def run(config):
    for step in (job.train, job.rank, job.evaluate):
        step(Store(config), "math")


@pytest.fixture
def curves(done):
    return table_of(tables.CURVES).set_index(["method", "n"])


def z_of(config, questions):
    path = Store(config).path(tables.ACCURACY, **GREEDY | {"questions": questions})
    return read_table(path, tables.ACCURACY).set_index("question_id")


def test_answers_have_the_order_and_the_costs_of_what_was_asked(done):
    graded = GradedAnswers(Store(done), "tiny")
    ids, variants = ["test-9", "test-4", "test-61"], ["L01H03", "base", "L00H05"]
    found = graded.of("greedy", "test", variants, ids)
    assert (found.correct == z_of(done, "test").loc[ids, variants].to_numpy()).all()
    assert (found.shared == [0.5, 1, 0]).all() and (found.alone == [0.5, 0, 1]).all()
    assert (found.work == 1).all()
    table = read_table(Store(done).path(tables.GRADED, **SAMPLED), GRADED).set_index("question_id")
    few = graded.of("T0.6", "test", ["base"], ids, samples=4)
    for row, question in enumerate(ids):
        own = table.loc[question].sort_values("sample")["tokens"]
        assert few.tokens[row].tolist() == own.tolist()[:4]


@pytest.fixture
def trainings(done):
    return table_of(tables.TRAININGS)


@pytest.fixture
def of_whole_training(trainings):
    """SPRINT's rankings after training on all questions, from each of two seeds."""
    rows = (trainings["training"] == "all") & (trainings["method"] == methods.SPRINT)
    return trainings[rows]


def test_one_setting_is_chosen_and_tried_from_every_seed(done):
    assert table_of(paths.CHOICE)["chosen"].tolist().count(True) == 2


def test_a_ranking_has_every_head_once_and_is_that_of_the_first_seed(done, of_whole_training):
    ranking = table_of(tables.RANKING)
    for heads in ranking["heads"]:
        assert sorted(heads) == VARIANTS
    assert len(of_whole_training) == 2 * TEST
    first_question = [VARIANTS[head] for head in of_whole_training["heads"].iloc[0]]
    assert first_question == list(ranking["heads"].iloc[0])


def test_curves_have_all_methods_in_the_order_of_the_tables(curves):
    assert list(curves.index.unique("method")) == [
        methods.SPRINT,
        methods.NEAREST,
        methods.REGRESSION,
        methods.RANDOM,
        methods.POOL,
        methods.COVER,
        methods.SINGLE,
        "sampling T=0.6",
        methods.BASE,
        methods.ORACLE,
    ]
    assert curves.index.unique("n").max() == 8


def test_pass_at_n_is_what_the_matrix_says(done, curves):
    z = z_of(done, "test")
    most_accurate = z_of(done, "train")[VARIANTS].mean().idxmax()
    sampled = read_table(Store(done).path(tables.GRADED, **SAMPLED), GRADED)
    passed = curves["pass_at_n"]
    assert passed[methods.BASE, 5] == pytest.approx(z["base"].mean())
    assert passed[methods.ORACLE, 1] == pytest.approx(z[VARIANTS].any(axis=1).mean())
    assert passed[methods.SINGLE, 3] == pytest.approx(z[most_accurate].mean())
    assert passed["sampling T=0.6", 1] == pytest.approx(sampled["correct"].mean())


def test_sprint_passes_where_one_of_its_n_nearest_heads_is_right(done, curves, of_whole_training):
    """A mean over questions and seeds."""
    n = 4
    z = z_of(done, "test")
    solved = []
    for row in of_whole_training.itertuples():
        nearest = [VARIANTS[head] for head in row.heads[:n]]
        solved.append(z.loc[row.question_id, nearest].any())
    assert curves["pass_at_n"][methods.SPRINT, n] == pytest.approx(np.mean(solved))


def test_sprint_finds_the_planted_structure(curves):
    passed = curves["pass_at_n"]
    assert passed[methods.SPRINT, 1] > passed[methods.COVER, 1] + 0.2


@pytest.mark.parametrize(
    ("template", "measure"), [(paths.PAIRED, "pass_at_n"), (paths.VOTES, "majority")]
)
def test_paired_differences_are_those_of_the_curves(template, measure, curves):
    paired = table_of(template).set_index(["method", "n"])
    for (method, n), row in paired.iterrows():
        lead = curves.loc[(methods.SPRINT, n), measure] - curves.loc[(method, n), measure]
        assert row["difference"] == pytest.approx(lead, abs=1e-5), (method, n)
    errors = paired[["by_questions", "by_draw", "by_seed"]]
    assert (errors >= 0).all(axis=None)


def test_votes_are_held_against_samples_and_one_greedy_answer(done):
    voted = table_of(paths.VOTES)
    assert list(voted["method"].unique()) == ["sampling T=0.6", methods.BASE]


def test_every_reading_of_the_loss_is_trained_from_every_seed_on_every_draw(done, trainings):
    readings = set(table_of(paths.ABLATION)["reading"])
    of_readings = trainings[trainings["method"].isin(readings)]
    assert set(of_readings["method"]) == readings
    seeds, draws = 2, 1 + 3  # all questions, and three redraws
    assert (of_readings.groupby("method").size() == seeds * draws * TEST).all()
    on_all = trainings[trainings["training"] == "all"]
    for method in (methods.SPRINT, *readings):
        of_method = on_all[on_all["method"] == method]
        assert sorted(of_method["seed"].unique()) == [4, 5]


def test_the_chosen_shortlist_is_the_one_of_the_curves(curves):
    sensitivity = table_of(paths.SENSITIVITY).query("chosen").set_index("n")["test"]
    drawn = curves["pass_at_n"][methods.RANDOM]
    np.testing.assert_allclose(sensitivity[drawn.index], drawn, atol=1e-5)


def test_what_reads_the_question_is_better_than_itself_shuffled(done):
    """The embedding reveals the cluster. Of the regression no significance is asked."""
    worth = table_of(paths.EMBEDDING_VALUE).query("n == 'mean'")
    shuffled = worth[worth["against"] == evaluation.SHUFFLED].set_index("method")["adjusted"]
    assert list(shuffled.index) == [methods.SPRINT, methods.NEAREST, methods.REGRESSION]
    assert shuffled[methods.SPRINT] < 0.01
    assert shuffled[methods.NEAREST] < 0.01


def test_no_difference_of_a_run_is_printed_twice_with_two_values(done):
    """Of one selector, method, other, N and test set, over all tables that have a difference."""
    printed = {}
    names = ["difference", "low", "high", "p", "adjusted"]
    for template, method, other, columns in (
        (paths.PAIRED, methods.SPRINT, "{method}", names),
        (paths.EMBEDDING_VALUE, "{method}", "{against}", names),
        (paths.VOTES, "vote of SPRINT", "vote of {method}", names),
        (paths.ABLATION, "{reading}", "{against}", names),
        (paths.SENSITIVITY, "{criterion} {k}", "chosen shortlist", names),
    ):
        for row in table_of(template).dropna(subset=columns[0]).to_dict("records"):
            key = method.format(**row), other.format(**row), str(row["n"])
            values = tuple(row[column] for column in columns)
            assert printed.setdefault(key, values) == values, key
    assert (methods.SPRINT, methods.COVER, "4") in printed
    assert len({key[:2] for key in printed}) > 24


def test_the_worth_of_the_question_is_that_of_all_seeds(done):
    trainings = table_of(tables.TRAININGS).query("training == 'all'")
    own = trainings[trainings["method"] == methods.SPRINT]
    z = z_of(done, "test")[VARIANTS]
    leads = []
    for _, seed in own.groupby("seed"):
        order = np.stack(seed["heads"].tolist())
        right = z.loc[list(seed["question_id"])].to_numpy(bool)
        nearest = np.take_along_axis(right, order, axis=1)[:, 0].mean()
        leads.append(nearest - right[:, order[:, 0]].mean())
    table = table_of(paths.EMBEDDING_VALUE).set_index(["method", "against", "n"])
    row = table.loc[(methods.SPRINT, evaluation.SHUFFLED, "1")]
    assert row["difference"] == pytest.approx(np.mean(leads), abs=1e-5)
    assert leads[0] != pytest.approx(np.mean(leads), abs=1e-4)


def test_a_selector_has_a_model_card(done, curves):
    written = ModelCard.load(output(paths.SELECTOR_CARD))
    assert "head-selector" in written.data.tags
    assert written.data.base_model is None  # ./tiny is a folder
    shown = "{:.1f} ({:.1f} to {:.1f})".format(*(100 * curves.loc[("SPRINT", 4)].iloc[:3]))
    for part in ("./tiny, revision", "12: L00H00 to L01H05", f"on {TEST} test", shown):
        assert part in written.text, part
    hub = done.models["tiny"].model_copy(update={"source": "some/model", "revision": "0" * 40})
    facts = safe_files.read_metadata(output(tables.CURVES))
    of_hub = done.model_copy(update={"models": {"tiny": hub}})
    alike = table_of(paths.OVERLAP)
    assert validation.likeness(alike) in written.text
    bare = alike.assign(degree="unknown", equal=np.nan, resembles=np.nan)
    paired = table_of(paths.PAIRED)
    again = ModelCard(card(of_hub, "math", facts, curves.reset_index(), bare, paired))
    assert again.data.base_model == "some/model"
    assert "training questions is unknown" in again.text
    lead = paired.query("method == 'greedy cover' and n == 8").iloc[0]
    told = "{} ({} to {}) | {:.3f} |".format(*map(points, lead.iloc[2:5]), lead["adjusted"])
    assert f"| greedy cover | {told}\n" in written.text
    cut = paired.assign(difference_apart=0.123, low_apart=-0.045, high_apart=0.2)
    again = card(of_hub, "math", facts, curves.reset_index(), alike, cut)
    assert f"| greedy cover | {told} +12.3 (−4.5 to +20.0) |" in again


def test_every_file_has_a_record(done):
    written = set(output(paths.SELECTOR).parent.iterdir())
    records = {file for file in written if file.name.endswith(".run.json")}
    assert {record_path(file) for file in written - records} == records
    for record in records:
        found = json.loads(record.read_text())
        assert found["embedder"] == key(done, "embedders", "phi")
        timed = record in map(record_path, map(output, (tables.RANKING, paths.DIVERSITY)))
        assert ("selection_seconds" in found) == timed


def test_curves_end_at_the_size_of_a_small_pool_which_no_other_pool_takes(finished, enter_copy):
    enter_copy(finished)
    config = make_config()
    run(make_config(**QUICK, layers=[0], heads=[1, 2, 5], include_base=True))
    assert head_selector.load_selector(output(paths.SELECTOR))[1]["heads"] == [
        "base",
        "L00H01",
        "L00H02",
        "L00H05",
    ]
    curves = table_of(tables.CURVES)
    assert set(curves["n"]) == {1, 2, 3, 4} == set(table_of(paths.PAIRED)["n"])
    at = curves.set_index(["method", "n"])["pass_at_n"]
    assert at[methods.SPRINT, 4] == at[methods.ORACLE, 4]
    with pytest.raises(TableError, match="another pool of heads"):
        job.rank(Store(config), "math")
    path = Store(config).path(tables.EMBEDDINGS, embedder="phi", questions="train")
    table = read_table(path, EMBEDDINGS)
    write_table(path, table[table["question_id"] != "train-7"], EMBEDDINGS)
    with pytest.raises(TableError, match="train-7") as caught:
        job.train(Store(config), "math")
    assert "\n" not in str(caught.value)


def test_the_prompts_length_is_known_from_the_base_model_s_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = make_config()
    graded = GradedAnswers(Store(config), "tiny")
    assert np.isnan(graded.prompt_tokens("greedy", "test"))
    file = Store(config).path(tables.ANSWERS, variant="base", **GREEDY)
    safe_files.write_text(file, "")
    safe_files.write_json(record_path(file), {"prompt_tokens": 43.5})
    assert graded.prompt_tokens("greedy", "test") == 43.5


def test_a_selector_from_elsewhere_is_set_beside_the_one_at_home(finished, enter_copy):
    enter_copy(finished)
    values = yaml.safe_load(CONFIG)
    values["questions"]["other"] = {"benchmark": "generated_gsm8k", "split": "train", "n": 40}
    moved = values["selectors"]["math"] | {"train": "other", "seeds": [4, 5, 6], "max_n": 6} | QUICK
    values["selectors"]["moved"] = moved
    config = parse(values)
    assert (at_home(config, "moved"), at_home(config, "math")) == (["math"], [])
    write_questions(config, "other", simulate(40, pool=len(VARIANTS), clusters=4, seed=7))
    for step in (job.train, job.rank, job.evaluate):
        step(Store(config), "moved")
    file = Path(paths.TRANSFER.format(run="simulated", selector="moved"))
    table = pd.read_csv(file)
    assert list(table.columns) == evaluation.TRANSFER_COLUMNS
    assert table["n"].tolist() == ["1", "2", "4", "mean"]
    assert (table["against"] == "math").all()
    home = table_of(tables.CURVES).set_index(["method", "n"])["pass_at_n"]
    assert table["at_home"][2] == pytest.approx(home[methods.SPRINT, 4], abs=1e-5)
    np.testing.assert_allclose(
        table["elsewhere"] - table["at_home"], table["difference"], atol=2e-6
    )
    assert table["difference"].between(table["low"], table["high"]).all()
    job.evaluate(Store(config), "math")
    assert table_of(paths.TRANSFER).empty
    ranking = read_table(file.with_name("ranking.parquet"), tables.RANKING)
    write_table(file.with_name("ranking.parquet"), ranking[::-1], tables.RANKING)
    with pytest.raises(TableError, match="other questions"):
        passed(
            Experiment(Store(config), "moved"),
            GradedAnswers(Store(config), "tiny"),
            ranking["question_id"],
        )


def test_only_a_pool_that_solves_no_training_question_at_all_is_refused(finished, enter_copy):
    enter_copy(finished)
    config, data = make_config(**QUICK), simulate(TRAIN, pool=len(VARIANTS), clusters=4, seed=1)
    data.correct[1:] = False  # one question may be solved
    assert data.correct.any()
    write_questions(config, "train", data)
    run(config)
    assert len(table_of(tables.CURVES))
    data.correct[:] = False
    write_questions(config, "train", data)
    with pytest.raises(ConfigError, match=f"math: no head solves any of the {TRAIN} training"):
        job.train(Store(config), "math")


def test_on_a_redraw_simpler_methods_choose_their_settings_anew(done, monkeypatch):
    def chosen(train, z, options):
        return {methods.NEAREST: lambda train, own, test: np.full((TEST, 1), len(z))}

    monkeypatch.setattr(rankers, "rankers", chosen)
    monkeypatch.setattr(fitting, "rank_again", lambda *_: [])
    for setting, others in (("anew", 60), ("fixed", TRAIN)):
        experiment = Experiment(Store(make_config(redrawn_setting=setting)), "math")
        table = job._trained_again(experiment, experiment.questions("test"), None)
        known = table.groupby("training", sort=False)["heads"].first()
        assert [int(heads[0]) for heads in known] == [TRAIN, others, others, others]


def test_benchmarks_of_one_grader_are_not_one_benchmark():
    values = yaml.safe_load(CONFIG)
    math500 = {"benchmark": "math500", "split": "test"}
    values["questions"] |= {"paper": math500, "hub": {"benchmark": "math_train", "split": "train"}}
    own = {"file": "a.csv", "benchmark": "custom", "split": "test"}
    values["questions"] |= {"mine": own, "yours": {**own, "split": "train", "file": "b.csv"}}
    math = values["selectors"]["math"]
    pairs = {"a": ("train", "paper"), "b": ("hub", "paper"), "c": ("yours", "mine")}
    for name, (train, test) in pairs.items():
        values["selectors"][name] = math | {"train": train, "test": test}
    config = parse(values)
    found = {name: at_home(config, name) for name in config.selectors}
    assert found == {"math": [], "a": ["b"], "b": [], "c": []}
