"""What rules read and ask for; that the real Snakefile uses it is seen in tests/workflow."""

import logging
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
import yaml
from snakemake.utils import format as snakemake_format
from snakemake_executor_plugin_slurm.utils import set_gres_string

import warm
from batch_of import batch_of
from example_config import STUDIES, VALUES, changed
from headsweep.config import load, parse
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ANSWERS, PROBLEMS, QUESTIONS
from headsweep.machine.processors import CORE, GPU, card_of
from headsweep.models.footprint import host_megabytes, parameters
from headsweep.results.exhibits import find_exhibit
from headsweep.store import journal
from headsweep.store.batches import GROUP, arms
from headsweep.store.layout import Store
from headsweep.store.map_scores import texts_key
from headsweep.store.revisions import resolve
from headsweep.variants import BASE
from headsweep.workflow import session
from headsweep.workflow.cost import (
    arm_test_seconds,
    generation_seconds,
    measuring_seconds,
    scoring_seconds,
    training_seconds,
)
from headsweep.workflow.memory import training_memory
from headsweep.workflow.resources import PROFILE, SMALL_JOB, UNNAMED
from headsweep.workflow.rules import Rules
from headsweep.workflow.session import bring_to_present, describe_store, shell_prefix
from mini import ROOT


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return resolve(parse(STUDIES))


@pytest.fixture
def rules(config):
    return Rules(Store(config), 3, {})


def wildcards(rules, **names):
    """Return wildcards as Snakemake has them: keys for what has one, names for everything else."""
    keyed = ("model", "questions", "decoding", "embedder")
    return SimpleNamespace(
        **{each: rules.store.key(each, n) if each in keyed else n for each, n in names.items()}
    )


def job(rule, jobid, wildcards=None):
    made = Mock(jobid=jobid, wildcards=wildcards)
    made.rule.name = rule
    return made


TRAINED_ON = VALUES["questions"]["train"] | {"sampling": "clusters", "embedder": "mean"}
BATCH = {"model": "big", "decoding": "greedy", "questions": "test"}


def test_jobs_of_a_layer_share_a_group_and_grading_takes_a_core_for_ten_thousand_answers(config):
    groups = {}
    for cores, judges in ((3, 3), (40, 17), (None, 1)):  # 337 variants of 500 questions
        rules = Rules(Store(config), cores, groups)
        assert rules.judges(wildcards(rules, **BATCH)) == judges
    first, second, base = (
        rules.job_group(wildcards(rules, **BATCH, variant=variant))
        for variant in ("L05H03", "L05H11", "base")
    )
    assert first == second != base
    assert groups == {first: "layer", base: "layer"}


def test_no_group_has_more_variants_than_an_allocation_answers_for():
    profile = yaml.safe_load((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    assert profile["group-components"] == {"layer": GROUP}
    config = load(ROOT / "config/frontier.yaml")
    batch = batch_of(config, "qwen2.5-math-1.5b", "greedy", "math500")
    sizes = Counter(batch.groups.values())
    assert max(sizes.values()) == 64
    assert {name: sizes[name] for name in sizes if "None" in name} == {
        "None": 64,
        "None.1": 64,
        "None.2": 17,
    }
    assert batch.groups[BASE] == "None"
    rules, grouped = Rules(Store(config), 8, groups := {}), Counter[str]()
    names = {"model": batch.model, "decoding": batch.decoding, "questions": batch.questions}
    for variant in batch.variants:
        grouped[rules.job_group(wildcards(rules, **names, variant=str(variant)))] += 1
    assert sorted(grouped.values()) == sorted(sizes.values())
    assert groups == dict.fromkeys(grouped, "layer")


def test_the_executor_asks_for_the_gpus_of_a_job_and_for_the_card_of_the_profile_s_hint(rules):
    assert "gpu" in rules.resources.generation
    text = (ROOT / "workflow/profiles/slurm/config.yaml").read_text()
    resources = {**yaml.safe_load(text)["set-resources"]["generate"], "gpu": 2}
    assert set_gres_string(SimpleNamespace(resources=resources)) == " --gpus=2"
    hints = re.findall(r"`(\w+: \w+)` beside engine_cores", text)
    assert len(hints) == 1
    resources |= yaml.safe_load(hints[0])
    assert set_gres_string(SimpleNamespace(resources=resources)) == " --gpus=h100:2"


@pytest.mark.parametrize(
    ("options", "here"),
    [
        (["--cores", "2"], True),
        (["--jobs", "2"], True),
        (["--executor", "slurm", "--jobs", "3", "--dry-run"], False),
    ],
)
def test_whether_jobs_run_here_is_known_while_the_snakefile_is_read(options, here, tmp_path):
    telling = """
from headsweep.workflow import session

Path("told").write_text(str(session.runs_here(workflow)))


rule all:
"""
    (tmp_path / "Snakefile").write_text(telling, encoding="utf-8")
    command, environment = [*warm.SNAKEMAKE, *options], warm.environment()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "told").read_text(encoding="utf-8") == str(here)


def test_embeddings_by_a_model_have_threads_here_and_one_each_on_a_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = changed(VALUES, "embedders/own", {"model": "tiny"})
    drawn = VALUES["questions"]["train"] | {"sampling": "clusters", "embedder": "own"}
    config = resolve(parse(changed(values, "questions/train", drawn)))
    monkeypatch.setattr("headsweep.workflow.resources.host_memory", lambda: 1)
    rules = Rules(Store(config), 3, {})
    for embedder, threads in (("own", 3), ("minilm", 1)):
        assert rules.resources.embedding_threads(wildcards(rules, embedder=embedder)) == threads
    for questions, threads in (("train", 3), ("test", 1)):
        assert rules.resources.drawing_threads(wildcards(rules, questions=questions)) == threads
    elsewhere = Rules(Store(config), 3, {}, local=False)
    assert elsewhere.resources.embedding_threads(wildcards(elsewhere, embedder="own")) == 1


def test_jobs_of_a_group_ask_for_one_start_together_however_many_are_left(config):
    batch = batch_of(config, *BATCH.values())
    rules = Rules(Store(config), 8, {})
    minutes = rules.resources.generation["runtime"]
    (name, size), *_ = Counter(batch.groups.values()).most_common(1)
    members = [str(variant) for variant, group in batch.groups.items() if group == name]
    assert size > 2
    asked = [minutes(wildcards(rules, **BATCH, variant=each), 1) for each in members]
    assert asked == asked[:1] * size
    files = dict(zip(map(str, batch.variants), batch.answers, strict=True))
    for done in members[1:]:
        Path(files[done]).parent.mkdir(parents=True, exist_ok=True)
        Path(files[done]).touch()
    minutes = Rules(Store(config), 8, {}).resources.generation["runtime"]
    last = minutes(wildcards(rules, **BATCH, variant=members[0]), 1)
    assert last == minutes(wildcards(rules, **BATCH), 1)
    assert last - asked[0] in (4, 5)


def test_what_arms_and_solvers_read_beyond_a_solver_from_scratch(rules, config):
    baseline, full, scratch, _ = arms(config, "words")
    from_scratch = SimpleNamespace(**scratch.wildcards, seed="4")
    assert rules.data_of_arm(from_scratch) == [PROBLEMS.path]
    assert rules.teacher_of_arm(from_scratch) == [full.file(paths.TEACHER, 4)]
    assert rules.layout_of_arm(from_scratch) == [full.file(paths.HISTORY, 4)]
    assert rules.answers_of_arm(from_scratch) == []

    of_model = SimpleNamespace(**arms(config, "own")[0].wildcards, seed="0")
    data = [re.sub("-.*", "", Path(file).parent.name) for file in rules.data_of_arm(of_model)]
    assert data == ["big", "questions", "questions"]
    (answers,) = rules.answers_of_arm(of_model)
    assert re.search(r"/train-\w+/base\.parquet$", answers)
    assert rules.teacher_of_arm(of_model) == rules.layout_of_arm(of_model) == []

    fetched = SimpleNamespace(solver=arms(config, "fetched")[0].subject)
    (encoder,) = rules.encoder_of_solver(fetched)
    assert re.search("encoders/base-", encoder)
    histories = [arm.file(paths.HISTORY, 4) for arm in (baseline, full)]
    assert rules.measured_arms(SimpleNamespace(compression="words")) == histories


def test_a_job_asks_for_more_at_each_attempt(rules, config):
    full = arms(config, "words")[1]
    solver = SimpleNamespace(solver=full.subject, data=full.data, seed="0")
    arm = SimpleNamespace(**full.wildcards, seed="0")
    # Weights, gradients, moments and a teacher; an arm's at their peak.
    megabytes = 8000 + 30 * parameters(config, full.study) / 1e6
    peak = 8000 + 1000 * sum(training_memory(config, full.study, full.settings))
    resources = rules.resources
    embedded = wildcards(rules, questions="test", embedder="minilm")
    for functions, wanted, first in (
        (resources.training, solver, int(megabytes)),
        (resources.training, arm, int(max(megabytes, peak))),
        (resources.training, SimpleNamespace(compression="own"), 8000 + 30 * 1500),
        (resources.embedding, embedded, SMALL_JOB.megabytes),
        (resources.drawing, wildcards(rules, questions="test"), SMALL_JOB.megabytes),
    ):
        assert [functions["mem_mb"](wanted, attempt) for attempt in (1, 3)] == [first, 3 * first]
        minutes = functions["runtime"](wanted, 1)
        assert functions["runtime"](wanted, 3) == 3 * minutes > 0
    seconds = training_seconds(config, full.study, None, CORE)
    assert resources.training["runtime"](solver, 1) == math.ceil(10 + 2 * seconds / 60)
    assert resources.embedding["runtime"](embedded, 1) == SMALL_JOB.minutes


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_to_embed_by_a_model_a_job_asks_for_the_model_in_float32(device, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = changed(VALUES, "embedders/mean", {"model": "big"})
    values = changed(values, "models/big/dtype", "bfloat16")
    config = resolve(parse(changed(values, "models/big/device", device)))
    rules = Rules(Store(config), 3, {})
    job = wildcards(rules, embedder="mean", questions="test")
    wide = config.models["big"].model_copy(update={"dtype": "float32"})
    assert rules.resources.embedding["gpu"](job) == (device == "auto")
    assert rules.resources.embedding["mem_mb"](job, 1) == host_megabytes(wide) > 8000
    # 12,000 problems of 120 tokens, of which 40 are drawn: on one core they take hours.
    drawn = changed(values, "questions/train", TRAINED_ON | {"n": 40})
    rules = Rules(Store(resolve(parse(changed(drawn, "models/big/device", device)))), 3, {})
    drawing = wildcards(rules, questions="train")
    assert rules.resources.drawing["gpu"](drawing) == (device == "auto")
    minutes = rules.resources.drawing["runtime"](drawing, 1)
    assert minutes == 60 if device == "auto" else minutes > 60 * 24


def test_wildcards_are_what_the_config_has_and_what_is_fetched(rules):
    assert re.fullmatch(r"base\\-\w{8}", rules.constraints["encoder"])
    assert re.fullmatch(r"tiny\\-\w{8}\|big\\-\w{8}", rules.constraints["model"])
    assert re.fullmatch(r"\w+\\-test\\-\w{8}\|\w+\\-train\\-\w{8}", rules.constraints["source"])
    kinds = " ".join(Path(file).parts[2] for file in rules.fetched)
    assert kinds == "models models sources sources embedders problems problems encoders"
    empty = Rules(Store(parse({"run": "empty"})), 2, {})
    assert empty.constraints["model"] == empty.constraints["arm"] == "none"
    assert empty.answers_of_all() == empty.fetched == []


@pytest.mark.parametrize(("epochs", "drawn"), [(12, True), (11, False)])
def test_losses_are_drawn_where_a_round_has_three_epochs(epochs, drawn):
    method = {"rounds": 4, "training": {"epochs": epochs}}
    found = Rules(Store(parse(changed(STUDIES, "compressions/words/method", method))), 2, {})
    pictures = found.files.pictures(find_exhibit("losses"))
    assert ("results/mini/figures/losses_words.{suffix}" in pictures) == drawn


def test_what_only_the_page_shows_makes_nothing_anew(rules):
    shown = changed(STUDIES, "selectors/math/title", "Mathematics")
    shown = changed(shown, "selectors/math/versus", "T0.6")
    shown = changed(shown, "questions/test/title", "Problems")
    of_sections = {"sweeps": "table", "comparisons": "math", "compressions": "words"}
    for section, name in of_sections.items():
        shown = changed(shown, f"{section}/{name}/title", "Another")
    before, after = (Rules(Store(parse(values)), 2, {}) for values in (STUDIES, shown))
    assert before.store.key("questions", "test") == after.store.key("questions", "test")
    for section, name in {**of_sections, "selectors": "math"}.items():
        assert before.settings(section, name) == after.settings(section, name)
    assert [arm.key for arm in arms(before.config, "words")] == [
        arm.key for arm in arms(after.config, "words")
    ]
    assert before.settings() != after.settings()


def test_the_time_left_is_told_from_batches_trainings_tests_and_maps(config):
    mapped = {"model": "big", "questions": "train", "layers": [0, 4]}
    config = resolve(parse(changed(STUDIES, "maps/own", mapped)))
    here, elsewhere = (Rules(Store(config), 3, {}, local=local) for local in (True, False))
    batch = batch_of(config, *BATCH.values())
    generate, unit = wildcards(here, **BATCH), "/".join(batch.keys)
    after = [job("questions", 7), job("fetch_model", 5)]
    planned = here.resources.planned(job("generate", 3, generate), after)
    assert (*planned[:2], planned[3]) == ("generate", unit, [7, 5])
    assert here.resources.planned(job("table", 4), []) == ("table", "4", 0.0, [])

    texts = SimpleNamespace(texts=texts_key(config, "own"))
    layers = [SimpleNamespace(**vars(texts), layer=f"L0{layer}") for layer in (0, 4)]
    words, own = config.compressions["words"], config.compressions["own"]
    baseline, full, *_ = (
        SimpleNamespace(**arm.wildcards, seed="0") for arm in arms(config, "words")
    )
    solver = SimpleNamespace(solver=full.subject, data=full.data, seed="0")
    arm = SimpleNamespace(**arms(config, "own")[0].wildcards, seed="0")
    everything, study = SimpleNamespace(compression="own"), own.settings["baseline"]
    for rules, cores, card in ((here, 3, card_of("auto")), (elsewhere, 1, GPU)):
        training = card if card == GPU else CORE  # a training has one thread, but for a GPU's
        threads = cores if card == GPU else 1
        for rule, of, seconds in (
            ("generate", generate, cores * generation_seconds(batch, card)),
            ("score", layers[0], cores * scoring_seconds(config, "own", 0, card)),
            ("score", layers[1], cores * scoring_seconds(config, "own", 4, card)),
            # These solvers are too small for a GPU.
            ("teacher", solver, training_seconds(config, words, None, CORE)),
            ("compress", full, training_seconds(config, words, words.settings["full"], CORE)),
            ("compress", arm, threads * training_seconds(config, own, study, training)),
            ("quantise", arm, arm_test_seconds(config, own, CORE)),
            ("measure_compression", everything, cores * measuring_seconds(config, own, card)),
        ):
            assert rules.resources.planned(job(rule, 9, of), [])[2] == seconds > 0
        cheaper = rules.resources.planned(job("compress", 9, baseline), [])[2]
        assert cheaper < rules.resources.planned(job("compress", 9, full), [])[2]


def test_a_run_says_what_the_store_holds_and_what_is_missing(rules):
    """Two heads on seven questions, 336 and base on 50 others, 16 samples, two prompts."""
    store, names = rules.store, {"model": "big", "decoding": "greedy"}
    table = pd.DataFrame({name: list("0123456") for name in ("question_id", "split", "question")})
    table = table.assign(subject=None, level=None, answer="1", solution=None, source_row=0)
    write_table(store.path(QUESTIONS, questions="test"), table, QUESTIONS)
    answered = (("test", "L05H03"), ("train", "base"), ("train", "x"))
    made = [store.path(ANSWERS, **names, questions=q, variant=v) for q, v in answered]
    made.append(Path(arms(rules.config, "own")[0].file(paths.HISTORY, 0)))
    for file in (*made, store.path(paths.MODEL, model="big")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    begun = {"question_id": "6", "sample": 0, "token_ids": [5, 6], "margin": 0.5}
    record = begun | {"text": 'cites "stop_reason": 3', "stop_reason": "eos"}
    for variant, answers in (("L05H03", "012"), ("L00H11", "24"), ("L01H00", "012345655")):
        file = store.path(paths.JOURNAL, **names, questions="test", variant=variant)
        records = [{**record, "question_id": question} for question in answers]
        journal.append(file, [{"engine": {"dtype": "float32"}}, *records, begun])
    total = 7 * (336 + 1) + 7 * 16 + 7 + 50 * (336 + 1)
    found = 7 + 50 + 2 + 7  # one table of each set, two answers of one journal, all of another
    parts = f"{found:,} of {total:,} answers ({total - found:,} to generate), 1 of 2 models"
    assert describe_store(rules) == f"In the store: {parts}, 1 of 20 trained arms"


def test_a_name_is_no_pattern():
    rules = Rules(
        Store(parse(changed(VALUES, "sweeps", {"a.b": VALUES["sweeps"]["table"]}))), 2, {}
    )
    allowed = re.compile(rules.constraints["sweep"])
    assert allowed.fullmatch("a.b")
    assert not allowed.fullmatch("a+b")


def test_the_prefix_of_shell_commands_survives_the_name_of_the_environment(tmp_path, monkeypatch):
    programs = f"{tmp_path}/my {{env}} 'a' $(touch PWNED);\n&/bin"
    monkeypatch.setattr(sys, "executable", f"{programs}/python")
    command = (
        snakemake_format(shell_prefix("mini")) + 'printf "%s\\0" "${PATH%%:*}" "$HEADSWEEP_CONFIG"'
    )
    said = subprocess.check_output(["bash", "-c", command], cwd=tmp_path, text=True)
    assert said.split("\0") == [programs, "results/mini/config.json", ""]
    assert not list(tmp_path.iterdir())


def test_files_dated_in_the_future_come_to_the_present_in_their_order(tmp_path):
    begin, hour = time.time_ns(), 3_600_000_000_000
    ages = {"past": -hour, "a/input": hour, "next": hour + 1}
    ages |= {"a/b/output": 2 * hour, "beside": 2 * hour}
    for name, age in ages.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
        os.utime(file, ns=(begin, begin + age))
    os.link(tmp_path / "a/b/output", tmp_path / "second name")
    (tmp_path / "dangling").symlink_to("nowhere")

    assert bring_to_present(tmp_path) == 5

    modified = {file.name: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert modified["past"] == begin - hour
    assert modified["input"] < modified["next"] < modified["output"]
    assert modified["output"] == modified["beside"] == modified["second name"]
    assert begin - 1_000_000 < modified["input"] <= modified["output"] <= time.time_ns()
    assert bring_to_present(tmp_path) == 0


def test_a_store_that_is_a_link_is_brought_to_the_present_too(tmp_path):
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    results.mkdir()
    elsewhere.mkdir()
    (results / "store").symlink_to(elsewhere)
    (elsewhere / "table").touch()
    os.utime(elsewhere / "table", (time.time() + 3600,) * 2)
    assert bring_to_present(results) == 1


def test_only_a_run_that_was_asked_for_the_report_tells_its_findings(rules, caplog):
    findings = rules.store.path(paths.FINDINGS)
    findings.parent.mkdir(parents=True)
    findings.write_text("old\n")
    log = logging.getLogger("run")
    for asked, said in ((["fetch"], False), (["all", "report_page"], True)):
        caplog.clear()
        workflow = Mock()
        workflow.dag.jobs = [job(name, 1) for name in asked]
        with caplog.at_level(logging.INFO):
            session.tell_findings(rules, workflow, log)
        assert bool(caplog.records) == said
    assert "left out" not in caplog.text
    table = rules.config.sweeps["table"]
    rules.config = rules.config.model_copy(update={"waiting": {"later": table}})
    with caplog.at_level(logging.INFO):
        session.tell_findings(rules, workflow, log)
    assert "sweeps.later is left out: give the same command again" in caplog.text


def test_titles_that_tables_of_selectors_and_maps_hold_are_params_of_their_rules():
    values = changed(STUDIES, "questions/school", {"benchmark": "gsm8k", "split": "train", "n": 9})
    values = changed(values, "selectors/away", VALUES["selectors"]["math"] | {"train": "school"})
    values = changed(values, "maps/own", {"model": "big", "questions": "school"})
    values = changed(values, "selectors/math/title", "At home")
    rules = Rules(Store(parse(changed(values, "questions/test/title", "Sums"))), 2, {})
    transferred = rules.titles_at_home(SimpleNamespace(selector="away"))
    assert transferred["math"] == "At home" and "away" in transferred
    assert rules.titles_at_home(SimpleNamespace(selector="math")) == {}
    assert rules.titles_beside_map(SimpleNamespace(map="own"))["test"] == "Sums"
    for rule, param in (("sprint", "titles_at_home"), ("map", "titles_beside_map")):
        text = (ROOT / f"workflow/rules/{rule}.smk").read_text(encoding="utf-8")
        assert f"titles=RULES.{param}," in text


def test_jobs_are_not_submitted_to_a_partition_that_nobody_has_named(config, monkeypatch):
    monkeypatch.setattr(session, "check_devices", lambda *_: None)
    named = {"slurm_partition": "gpus", "slurm_account": UNNAMED, "mem_mb": 8000}
    needed = job("generate", 1)
    needed.resources, needed.is_local = named, False
    at_home = job("all", 2)
    at_home.resources, at_home.is_local = {"slurm_partition": UNNAMED}, True
    workflow = Mock(dag=SimpleNamespace(needrun_jobs=lambda: [needed, at_home]))
    with pytest.raises(
        ConfigError, match=f"^slurm_account: '{UNNAMED}'.* into {PROFILE}, or into a copy"
    ):
        session.begin(Rules(Store(config), 2, {}, local=False), workflow, logging.getLogger("run"))
    assert not Path(paths.RESULTS).exists()
    shipped = yaml.safe_load((ROOT / PROFILE).read_text(encoding="utf-8"))["default-resources"]
    assert [shipped["slurm_partition"], shipped["slurm_account"]] == [UNNAMED] * 2


def test_a_run_waits_for_the_sweep_without_snakemake_that_does_the_same(config, monkeypatch):
    monkeypatch.setattr(session, "check_devices", lambda *_: None)
    Path(paths.RESULTS).mkdir()
    code = "from sys import argv; from pathlib import Path; from headsweep.files.locks import Locks"
    code += "; locks = Locks(Path(argv[1])); print(locks.take(argv[2]), flush=True); input()"
    command = [sys.executable, "-c", code, paths.RUN_LOCK, config.run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout.readline() == b"True\n"
        with pytest.raises(ConfigError, match=f"run '{config.run}' is under way in this folder"):
            session.begin(Rules(Store(config), 2, {}), Mock(), logging.getLogger("run"))
    assert not Path(paths.CONFIG.format(run=config.run)).exists()
