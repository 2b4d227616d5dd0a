import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from huggingface_hub import ModelCard
from simulated_heads import Simulation, simulate

from headroom import paths
from headroom.config import Config, parse
from headroom.errors import TableError
from headroom.planning.store import Store, key
from headroom.record import record_path
from headroom.sprint import choosing, job, matching, methods, model
from headroom.sprint.card import card
from headroom.sprint.evaluation import PAIRED
from headroom.sprint.experiment import GradedAnswers
from headroom.tables import (
    ACCURACY,
    CURVES,
    EMBEDDINGS,
    GRADED,
    QUESTIONS,
    RANKING,
    TRAININGS,
    read_metadata,
    read_table,
    write_table,
)

LAYERS, HEADS, TRAIN, TEST, SAMPLES = 2, 6, 90, 70, 9
VARIANTS = [f"L{layer:02d}H{head:02d}" for layer in range(LAYERS) for head in range(HEADS)]
OUTPUTS = (
    *(paths.SELECTOR, paths.CHOICE, paths.RANKING, paths.TRAININGS),
    *(paths.CURVES, paths.PAIRED, paths.VOTES, paths.SENSITIVITY, paths.OVERLAP),
    paths.ABLATION,
    *(paths.DIVERSITY, paths.EMBEDDING_VALUE, paths.CHOOSING, paths.SELECTOR_CARD),
)


def make_config(**keys: object) -> Config:
    tiny = {"source": "./tiny", "layers": LAYERS, "heads": HEADS, "kv_heads": 2, "billions": 0.1}
    drawn = {"benchmark": "generated_math"}
    selector = {"model": "tiny", "train": "train", "test": "test", "embedder": "phi"}
    selector |= {"layers": "all", "sampling": ["T0.6"], "max_n": 8, "shortlist": [3, 6]}
    selector |= {"epochs": 60, "dimension": [6], "seeds": [4, 5], "bootstrap": 200}
    selector |= {"redraws": 3, "redrawn_setting": "fixed"}
    return parse(
        {
            "run": "simulated",
            "models": {"tiny": tiny},
            "questions": {
                "train": {**drawn, "split": "train", "n": TRAIN},
                "test": {**drawn, "split": "test", "n": TEST},
            },
            "decodings": {"greedy": {}, "T0.6": {"temperature": 0.6, "samples": SAMPLES}},
            "embedders": {"phi": {"model": "tiny"}},
            "selectors": {"math": selector | keys},
        }
    )


def write_questions(config: Config, name: str, data: Simulation) -> None:
    """Write embeddings, Z, and graded answers; every table in another order of questions."""
    count, names = len(data.correct), {"model": "tiny", "questions": name}
    ids = [f"{name}-{row}" for row in range(count)]
    draw, path = np.random.default_rng(count), Store(config).path
    vectors = pd.DataFrame({"question_id": ids, "vector": list(data.embeddings)})
    file = path(paths.EMBEDDINGS, embedder="phi", questions=name)
    write_table(file, vectors.sample(frac=1, random_state=1), EMBEDDINGS)
    asked = pd.DataFrame({"question_id": ids, "question": [f"{name} question {i}" for i in ids]})
    asked = asked.assign(split=name, subject=None, level=None, answer="1", solution=None)
    asked["source_row"] = np.arange(count)
    write_table(path(paths.QUESTIONS, questions=name), asked, QUESTIONS)
    base = draw.random(count) < 0.4
    z = pd.DataFrame(np.c_[base, data.correct].astype(np.int8), columns=["base", *VARIANTS])
    schema = pa.schema([*ACCURACY, *(pa.field(column, pa.int8()) for column in z)])
    table = z.assign(question_id=ids, subject=None, level=None)
    write_table(path(paths.ACCURACY, decoding="greedy", **names), table, schema)
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
        write_table(path(paths.GRADED, decoding=decoding, **names), graded, GRADED)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all steps have run."""
    folder, config = tmp_path_factory.mktemp("run"), make_config()
    with contextlib.chdir(folder):
        write_questions(config, "train", simulate(TRAIN, pool=len(VARIANTS), clusters=4, seed=1))
        write_questions(config, "test", simulate(TEST, pool=len(VARIANTS), clusters=4, seed=2))
        run(config)
    return folder


@pytest.fixture
def done(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The config of what has run, which a test only reads."""
    monkeypatch.chdir(finished)
    return make_config()


@pytest.fixture
def config(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The same in a copy."""
    monkeypatch.chdir(shutil.copytree(finished, tmp_path / "copy"))
    return make_config()


def output(template: str) -> Path:
    return Path(template.format(run="simulated", selector="math"))


def run(config: Config) -> None:
    for step in (job.train, job.rank, job.evaluate):
        step(config, "math")


def z_of(config: Config, questions: str) -> pd.DataFrame:
    names = {"model": "tiny", "decoding": "greedy", "questions": questions}
    path = Store(config).path(paths.ACCURACY, **names)
    return read_table(path, ACCURACY, exact=False).set_index("question_id")


def test_answers_have_the_order_and_the_costs_of_what_was_asked(done: Config) -> None:
    graded = GradedAnswers(done, "tiny")
    ids, variants = ["test-9", "test-4", "test-61"], ["L01H03", "base", "L00H05"]
    found = graded.of("greedy", "test", variants, ids)
    assert (found.correct == z_of(done, "test").loc[ids, variants].to_numpy()).all()
    assert (found.shared == [0.5, 1, 0]).all() and (found.own == [0.5, 0, 1]).all()
    assert (found.computed == found.tokens).all()
    names = {"model": "tiny", "decoding": "T0.6", "questions": "test"}
    table = read_table(Store(done).path(paths.GRADED, **names), GRADED).set_index("question_id")
    few = graded.of("T0.6", "test", ["base"], ids, samples=4)
    for row, question in enumerate(ids):
        own = table.loc[question].sort_values("sample")["tokens"]
        assert few.tokens[row].tolist() == own.tolist()[:4]


def test_the_jobs_write_tables_that_agree_with_each_other(done: Config) -> None:
    selector, facts = model.load(output(paths.SELECTOR))
    assert facts["heads"] == VARIANTS
    assert selector.setting.dimension == 6
    choice = pd.read_csv(output(paths.CHOICE))
    assert len(choice) == 2 * 5 * 2 * 2
    assert choice["chosen"].sum() == 2

    ranking = read_table(output(paths.RANKING), RANKING)
    assert all(sorted(heads) == VARIANTS for heads in ranking["heads"])
    curves = read_table(output(paths.CURVES), CURVES)
    assert list(curves["method"].unique()) == [
        *(methods.SPRINT, methods.NEAREST, methods.REGRESSION),
        *(methods.RANDOM, methods.POOL, methods.COVER, methods.SINGLE),
        *("sampling T=0.6", methods.BASE, methods.ORACLE),
    ]
    at = curves.set_index(["method", "n"])["pass_at_n"]
    assert curves["n"].max() == 8

    z = z_of(done, "test")
    trainings = read_table(output(paths.TRAININGS), TRAININGS)
    whole = trainings[(trainings["training"] == "all") & (trainings["method"] == methods.SPRINT)]
    assert [VARIANTS[head] for head in whole["heads"].iloc[0]] == list(ranking["heads"].iloc[0])
    for n in (1, 8):
        hits = [
            z.loc[row.question_id, [VARIANTS[head] for head in row.heads[:n]]].any()
            for row in whole.itertuples()
        ]
        assert len(hits) == 2 * TEST
        assert at[methods.SPRINT, n] == pytest.approx(np.mean(hits))
    assert at[methods.BASE, 5] == pytest.approx(z["base"].mean())
    assert at[methods.ORACLE, 1] == pytest.approx(z[VARIANTS].any(axis=1).mean())
    learnt = z_of(done, "train")[VARIANTS]
    assert at[methods.SINGLE, 3] == pytest.approx(z[learnt.mean().idxmax()].mean())
    assert at[methods.SPRINT, 1] > at[methods.COVER, 1] + 0.2  # the planted structure

    names = {"model": "tiny", "decoding": "T0.6", "questions": "test"}
    sampled = Store(done).path(paths.GRADED, **names)
    share = read_table(sampled, GRADED).groupby("question_id")["correct"].mean()
    assert at["sampling T=0.6", 1] == pytest.approx(share.mean())

    differences = pd.read_csv(output(paths.PAIRED)).set_index(["method", "n"])
    wanted = at[methods.SPRINT, 4] - at[methods.RANDOM, 4]
    assert differences.loc[(methods.RANDOM, 4), "difference"] == pytest.approx(wanted, abs=1e-5)
    assert (differences[["by_questions", "by_draw", "by_seed"]] >= 0).all(axis=None)
    tried = pd.read_csv(output(paths.ABLATION))
    assert set(trainings["training"]) == {"all", *(f"redraw {i}" for i in range(3))} | {
        *(f"without fold {i}" for i in range(5)),
        *tried["reading"],
    }
    assert set(tried["reading"]) == {
        f"{geometry}, λ = {value}"
        for geometry in ("sphere", "ball")
        for value in ("0", "1e-05", "0.001", "0.1", "1")
    }
    assert tried["pass_at_n"].between(tried["low"], tried["high"]).all()


def test_votes_are_leads_of_the_majority_of_n_heads(done: Config) -> None:
    table = pd.read_csv(output(paths.VOTES))
    assert list(table.columns) == PAIRED
    assert list(table["method"].unique()) == ["sampling T=0.6", methods.BASE]
    assert list(table["n"]) == [*range(1, 9)] * 2
    curves = read_table(output(paths.CURVES), CURVES).set_index(["method", "n"])["majority"]
    for row in table.itertuples():
        lead = curves[methods.SPRINT, row.n] - curves[row.method, row.n]
        assert row.difference == pytest.approx(lead, abs=1e-5)
        assert row.low <= row.difference <= row.high


def test_the_embedding_matters_where_it_reveals_the_cluster(done: Config) -> None:
    table = pd.read_csv(output(paths.EMBEDDING_VALUE))
    assert list(table.columns) == matching.COLUMNS
    found = table.set_index(["method", "against", "n"])
    assert set(table["method"]) == {methods.SPRINT, methods.NEAREST, methods.REGRESSION}
    for method in (methods.SPRINT, methods.NEAREST):
        assert found.loc[(method, matching.SHUFFLED, "mean"), "p"] < 0.01
    assert found.loc[(methods.SPRINT, matching.SHUFFLED, "mean"), "low"] > 0
    curves = read_table(output(paths.CURVES), CURVES).set_index(["method", "n"])["pass_at_n"]
    row = found.loc[(methods.SPRINT, matching.COVER, "4")]
    assert row["other"] == pytest.approx(curves[methods.COVER, 4], abs=1e-5)
    z, ranking = z_of(done, "test"), read_table(output(paths.RANKING), RANKING)  # the first seed's
    own = [z.loc[one.question_id, list(one.heads[:4])].any() for one in ranking.itertuples()]
    assert row["sprint"] == pytest.approx(np.mean(own), abs=1e-5)


def test_choosing_starts_from_the_same_answers_as_pass_at_n(done: Config) -> None:
    table = pd.read_csv(output(paths.CHOOSING))
    assert list(table.columns) == choosing.COLUMNS
    at = table.set_index(["method", "rule", "n"])["accuracy"]
    curves = read_table(output(paths.CURVES), CURVES).set_index(["method", "n"])
    for method in (methods.SPRINT, "sampling T=0.6"):
        for n in (1, 2, 8):
            for rule, column in ((choosing.ORACLE, "pass_at_n"), (choosing.MAJORITY, "majority")):
                wanted = curves.loc[(method, n), column]
                assert at[method, rule, n] == pytest.approx(wanted, abs=1e-5)
    assert at[methods.SPRINT, choosing.VERIFIER, 1] == at[methods.SPRINT, choosing.ORACLE, 1]


def test_a_selector_has_a_model_card(done: Config) -> None:
    written = ModelCard.load(output(paths.SELECTOR_CARD))
    assert written.data.library_name == "headroom"
    assert "head-selector" in written.data.tags
    assert written.data.base_model is None  # ./tiny is a folder
    curves = read_table(output(paths.CURVES), CURVES).set_index(["method", "n"])
    shown = "{:.1f} ({:.1f} to {:.1f})".format(*(100 * curves.loc[("SPRINT", 4)].iloc[:3]))
    for part in ("./tiny, revision", "12: L00H00 to L01H05", f"on {TEST} test", shown):
        assert part in written.text, part
    hub = done.models["tiny"].model_copy(update={"source": "some/model", "revision": "0" * 40})
    facts = read_metadata(output(paths.CURVES))
    of_hub = done.model_copy(update={"models": {"tiny": hub}})
    again = ModelCard(card(of_hub, "math", facts, curves.reset_index()))
    assert again.data.base_model == "some/model"
    assert f"some/model, revision {'0' * 40}" in again.text


def test_running_again_gives_the_same_bytes_and_every_file_has_a_record(config: Config) -> None:
    first = {template: output(template).read_bytes() for template in OUTPUTS}
    run(config)
    for template in OUTPUTS:
        assert output(template).read_bytes() == first[template], template
        record = json.loads(record_path(output(template)).read_text())
        assert record["embedder"] == key(config, "embedders", "phi")
    for template in (paths.RANKING, paths.DIVERSITY):
        assert json.loads(record_path(output(template)).read_text())["selection_seconds"] > 0


def test_curves_end_at_the_size_of_a_small_pool(config: Config) -> None:
    small = make_config(layers=[0], heads=[1, 2, 5], include_base=True)
    run(small)
    assert model.load(output(paths.SELECTOR))[1]["heads"] == ["base", "L00H01", "L00H02", "L00H05"]
    curves = read_table(output(paths.CURVES), CURVES)
    assert set(curves["n"]) == {1, 2, 3, 4}
    at = curves.set_index(["method", "n"])["pass_at_n"]
    assert at[methods.SPRINT, 4] == at[methods.ORACLE, 4]
    assert set(pd.read_csv(output(paths.PAIRED))["n"]) == {1, 2, 3, 4}


def test_a_selector_of_another_pool_is_refused(config: Config) -> None:
    job.train(make_config(layers=[0]), "math")
    with pytest.raises(TableError, match="another pool of heads"):
        job.rank(config, "math")


def test_an_embedding_that_is_missing_is_named_in_one_line(config: Config) -> None:
    path = Store(config).path(paths.EMBEDDINGS, embedder="phi", questions="train")
    table = read_table(path, EMBEDDINGS)
    write_table(path, table[table["question_id"] != "train-7"], EMBEDDINGS)
    with pytest.raises(TableError, match="train-7") as caught:
        job.train(config, "math")
    assert "\n" not in str(caught.value)


def test_jobs_that_write_tables_do_not_load_torch() -> None:
    modules = "sprint.job, compression.arm_tables, athena.problems, analysis.jobs, figures.draw"
    code = f"""if True:
        import importlib, sys
        for name in "{modules}".split(", "):
            importlib.import_module(f"headroom.{{name}}")
            assert not {{"torch", "transformers", "sklearn"}} & set(sys.modules), name"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_prompts_length_is_known_from_a_variant_that_took_over_fewest_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config()
    graded = GradedAnswers(config, "tiny")
    asked = {"model": "tiny", "decoding": "greedy", "questions": "test"}
    assert np.isnan(graded.prompt_tokens("greedy", "test"))
    told = [("base", 70, None), ("L00H01", 30, 41.0), ("L00H02", 10, 43.5), ("L01H00", 20, 40.0)]
    for variant, reused, length in told:
        file = Store(config).path(paths.ANSWERS, variant=variant, **asked)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        facts = {"reused": reused} | ({"prompt_tokens": length} if length else {})
        record_path(file).write_text(json.dumps(facts))
    assert graded.prompt_tokens("greedy", "test") == 43.5
