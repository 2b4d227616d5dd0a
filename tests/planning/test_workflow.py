"""What rules read and ask for; that the real Snakefile uses it is seen in tests/workflow."""

import copy
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import pytest

from example_config import VALUES
from headroom import paths
from headroom.config import Config, load, parse
from headroom.generation import journal
from headroom.jobs import command
from headroom.planning.batches import arms, find_batch, teachers
from headroom.planning.cost import card_of, generation_request, generation_seconds, training_request
from headroom.planning.exhibits import COMPRESSION_TABLES, find_exhibit
from headroom.planning.inputs import resolve
from headroom.planning.session import begin, held
from headroom.planning.workflow import Rules
from headroom.tables import QUESTIONS, write_table

STUDY: dict[str, Any] = {
    "problems": {"made": {"dataset": "generated", "n": 90}},
    "solvers": {
        "tiny": {"profile": "tiny"},
        "base": {"encoder": {"source": "owner/base", "revision": "3" * 40}},
    },
    "compressions": {
        "words": {
            "solver": "tiny",
            "data": "made",
            "arms": ["baseline", "full", "small_from_scratch"],
            "int8": ["full"],
            "measured": ["baseline", "full"],
            "seeds": [4, 0],
        },
        "fetched": {"solver": "base", "data": "made", "arms": ["baseline"]},
        "own": {"model": "big", "train": "train", "test": "test", "arms": ["baseline"]},
    },
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    return resolve(parse({**VALUES, **STUDY}))


@pytest.fixture
def groups() -> dict[str, str]:
    return {}


@pytest.fixture
def rules(config: Config, groups: dict[str, str]) -> Rules:
    return Rules(config, 3, groups)


def wildcards(rules: Rules, **names: Any) -> Any:
    """Return wildcards as Snakemake has them: keys for what has one, names for everything else."""
    keyed = ("model", "questions", "decoding", "embedder")
    return SimpleNamespace(
        **{each: rules.store.key(each, n) if each in keyed else n for each, n in names.items()}
    )


class Rule(NamedTuple):
    """A rule of Snakemake."""

    name: str


class Job(NamedTuple):
    """A job of Snakemake, as far as planning looks."""

    rule: Rule
    wildcards: Any
    jobid: int


BATCH = {"model": "big", "decoding": "greedy", "questions": "test"}


def test_jobs_of_a_layer_share_a_group(rules: Rules, groups: dict[str, str]) -> None:
    first, second, base = (
        rules.layer(wildcards(rules, **BATCH, variant=variant))
        for variant in ("L05H03", "L05H11", "base")
    )
    assert first == second != base
    assert groups == {first: "layer", base: "layer"}


def test_grading_takes_a_core_for_ten_thousand_answers_and_no_more_than_there_are(
    config: Config,
) -> None:
    judges = {}
    for cores in (3, 40, None):  # 337 variants of 500 questions
        rules = Rules(config, cores, {})
        judges[cores] = rules.judges(wildcards(rules, **BATCH))
    assert judges == {3: 3, 40: 17, None: 1}


def test_what_a_selector_reads(rules: Rules) -> None:
    asked, path = wildcards(rules, selector="math"), rules.store.path

    def file(template: str, questions: str, decoding: str = "greedy") -> str:
        names = {"model": "big", "embedder": "minilm"}
        return str(path(template, questions=questions, decoding=decoding, **names))

    train, test = (file(paths.ACCURACY, part) for part in ("train", "test"))
    texts = {f"{part}_texts": file(paths.QUESTIONS, part) for part in ("train", "test")}
    trained, ranked = ([file(paths.EMBEDDINGS, part)] for part in ("train", "test"))
    graded, sampled = file(paths.GRADED, "test"), [file(paths.GRADED, "test", "T0.6")]
    answered = {"learnt": file(paths.GRADED, "train"), "graded": graded, "sampled": sampled}
    for job, read in {
        "train_selector": {"accuracy": train, "embeddings": trained},
        "rank_heads": {"embeddings": ranked, "accuracy": train, "learnt": trained, **texts},
        "evaluate": {"accuracy": train, **answered, **texts},
    }.items():
        assert rules.of_selector(job)(asked) == read
    assert test in rules.drawn_from(asked.selector, "selector")


def test_what_a_solver_and_its_arms_read(rules: Rules, config: Config) -> None:
    baseline, full, scratch = arms(config, "words")
    start = full.file(paths.TEACHER, 4)
    asked = SimpleNamespace(**full.wildcards, seed="4")
    assert rules.compressed(asked) == {"data": paths.PROBLEMS, "teacher": start}
    asked = SimpleNamespace(**scratch.wildcards, seed="4")
    layout = full.file(paths.HISTORY, 4)
    assert rules.compressed(asked) == {"data": paths.PROBLEMS, "teacher": start, "layout": layout}
    assert rules.quantised(asked) == {"data": paths.PROBLEMS, "history": paths.HISTORY}
    own = arms(config, "own")[0]
    inputs = rules.compressed(SimpleNamespace(**own.wildcards, seed="0"))
    assert [Path(file).stem for file in inputs["answers"]] == ["base"]
    assert len(inputs["questions"]) == 2
    solver = teachers(config, config.compressions["fetched"])[0]["solver"]
    assert re.search("encoders/base-", rules.taught(SimpleNamespace(solver=solver))["encoder"])
    assert rules.taught(SimpleNamespace(solver=full.subject)) == {"data": paths.PROBLEMS}

    gathered = rules.gathered(SimpleNamespace(compression="words"))
    every = [arm.file(paths.OUTCOMES, seed) for arm in (baseline, full, scratch) for seed in (4, 0)]
    assert gathered["outcomes"] == every
    assert gathered["int8"] == [full.file(paths.INT8_OUTCOMES, seed) for seed in (4, 0)]
    measured = rules.measured(SimpleNamespace(compression="words"))
    assert measured == [arm.file(paths.HISTORY, 4) for arm in (baseline, full)]


def test_a_job_asks_for_more_at_each_attempt(rules: Rules, config: Config) -> None:
    words, full = config.compressions["words"], arms(config, "words")[1]
    trained, solver = rules.training_resources, {"solver": full.subject, "data": full.data}
    batch = find_batch(config, *BATCH.values())
    for resources, job, first in (
        (rules.generation_resources, wildcards(rules, **BATCH), generation_request(config, batch)),
        (trained, SimpleNamespace(**solver, seed="0"), training_request(config, words)),
        (
            trained,
            SimpleNamespace(**full.wildcards, seed="0"),
            training_request(config, words, full.settings),
        ),
        (
            trained,
            SimpleNamespace(compression="own"),
            training_request(config, config.compressions["own"]),
        ),
    ):
        third = [resources["gpu"](job), resources["mem_mb"](job, 3), resources["runtime"](job, 3)]
        assert third == [first.gpus, 3 * first.megabytes, 3 * first.minutes]


def test_wildcards_are_what_the_config_has(rules: Rules) -> None:
    allowed = rules.constraints
    assert allowed["sweep"] == "table"
    assert set(allowed["solver"].split("|")) == {
        arm.subject for name in ("words", "fetched") for arm in arms(rules.config, name)
    }
    assert re.fullmatch(r"base-\w{8}", allowed["encoder"])
    assert re.fullmatch(r"tiny-\w{8}\|big-\w{8}", allowed["model"])
    empty = Rules(parse({"run": "empty"}), 2, {})
    assert empty.constraints["model"] == empty.constraints["arm"] == "none"
    assert empty.answers_of_all() == empty.fetched == []


def test_what_is_fetched(rules: Rules) -> None:
    kinds = [Path(file).parts[2] for file in rules.fetched]
    expected = ["models", "models", "sources", "sources", "embedders", "problems", "encoders"]
    assert kinds == expected


def test_the_report_shows_what_the_figures_rules_make(rules: Rules) -> None:
    shown = rules.reported()
    assert len(shown) == len(set(shown))
    assert not [file for file in shown if "{" in file]
    drawn = [str(file) for file in rules.drawn("sweep", "layer", sweep="table")]
    assert {"results/mini/figures/heatmap_table_L27.png"} < set(drawn)
    assert {file for file in drawn if file.endswith(("png", ".json"))} <= set(shown)
    assert {file for name in ("words", "own") for file in rules.study_files(name)} <= set(shown)
    tables = [file for file in shown if "tables/compression_" in file]
    assert len(tables) == len(COMPRESSION_TABLES)
    assert set(rules.judged()) <= set(shown)


@pytest.mark.parametrize(("epochs", "drawn"), [(12, ["words", "fetched", "own"]), (11, [])])
def test_losses_are_drawn_where_a_round_has_three_epochs(
    config: Config, epochs: int, drawn: list[str]
) -> None:
    studies = {}
    for name, study in config.compressions.items():  # of 4 rounds
        training = study.method.training.model_copy(update={"epochs": epochs})
        method = study.method.model_copy(update={"training": training})
        studies[name] = study.model_copy(update={"method": method})
    rules = Rules(config.model_copy(update={"compressions": studies}), 2, {})
    assert rules.pictures(find_exhibit("losses")) == [
        f"results/mini/figures/losses_{name}.{{suffix}}" for name in drawn
    ]


def test_what_only_the_page_shows_makes_nothing_anew(rules: Rules) -> None:
    changed = copy.deepcopy(VALUES)
    changed["selectors"]["math"] |= {"title": "Mathematics", "versus": "T0.6"}
    changed["questions"]["test"]["title"] = "Problems"
    others = [Rules(parse(values), 2, {}) for values in (VALUES, changed)]
    keys = [each.store.key("questions", "test") for each in others]
    assert keys[0] == keys[1]
    first, second = (each.settings("selectors", "math") for each in others)
    assert first == second
    assert others[0].settings() != others[1].settings()


def test_the_time_left_is_told_from_batches_and_trainings(rules: Rules, config: Config) -> None:
    after = [Job(Rule("questions"), None, 7), Job(Rule("fetch_model"), None, 5)]
    generate = Job(Rule("generate"), wildcards(rules, **BATCH), 3)
    name, unit, seconds, waits = rules.planned(generate, after)
    assert (name, waits) == ("generate", [7, 5])
    batch = find_batch(config, *BATCH.values())
    assert seconds == 3 * generation_seconds(config, batch, card_of("auto"))
    assert rules.planned(generate, [], local=False)[2] == generation_seconds(config, batch)
    assert unit == rules.planned(generate._replace(jobid=4), [])[1] != "3"
    full = arms(config, "words")[1]
    compress = Job(Rule("compress"), SimpleNamespace(**full.wildcards, seed="0"), 8)
    assert rules.planned(compress, [])[2] > 0
    baseline = arms(config, "words")[0]
    compress = Job(Rule("compress"), SimpleNamespace(**baseline.wildcards, seed="0"), 9)
    assert rules.planned(compress, []) == ("compress", "9", 0.0, [])


def test_a_run_begins_with_its_config_and_its_plan(rules: Rules, caplog: Any) -> None:
    limiter = SimpleNamespace(max_jobs=100, timespan=1)
    job = Job(Rule("audit"), None, 2)
    workflow = SimpleNamespace(
        scheduler=SimpleNamespace(job_rate_limiter=limiter),
        dag=SimpleNamespace(dependencies={job: {}}, needrun_jobs=lambda: [job]),
        resource_settings=SimpleNamespace(cores=3),
        local_exec=True,
    )
    logger = logging.getLogger("planning")
    with caplog.at_level(logging.INFO, "planning"):
        begin(rules, workflow, logger)
    assert workflow.scheduler.job_rate_limiter is None
    assert load(rules.store.path(paths.CONFIG)) == rules.config
    said, record = caplog.records
    assert said.getMessage().startswith("In the store: 0 of ")
    assert record.planned == {2: ("audit", "2", 0.0, [])}
    assert record.cores == 3


def test_a_run_says_what_the_store_holds_and_what_is_missing(rules: Rules) -> None:
    """Two heads on all of MATH-500, 336 and base on 50 other questions, 16 samples, two prompts."""
    total = 500 * (336 + 1) + 500 * 16 + 500 + 50 * (336 + 1)
    parts = "0 of 2 models, 0 of 12 trained arms"
    assert held(rules) == f"In the store: 0 of {total:,} answers ({total:,} to generate), {parts}"

    store, names = rules.store, {"model": "big", "decoding": "greedy"}
    table = pd.DataFrame({name: ["1"] * 7 for name in ("question_id", "split", "question")})
    table = table.assign(subject=None, level=None, answer="1", solution=None, source_row=0)
    write_table(store.path(paths.QUESTIONS, questions="test"), table, QUESTIONS)
    made = [store.path(paths.ANSWERS, **names, questions="test", variant="L05H03")]
    made += [
        store.path(paths.ANSWERS, **names, questions="train", variant=v) for v in ("base", "x")
    ]
    made += [
        store.path(paths.MODEL, model="big"),
        Path(arms(rules.config, "own")[0].file(paths.HISTORY, 0)),
    ]
    for file in made:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    record = {"question_id": "q", "sample": 0, "text": 'cites "question_id": 3'}
    for variant, times in (("L05H03", 3), ("L00H11", 2), ("L01H00", 9)):
        file = store.path(paths.JOURNAL, **names, questions="test", variant=variant)
        journal.append(file, [{"engine": {"dtype": "float32"}}, *times * [record]])
    total = 7 * (336 + 1) + 7 * 16 + 7 + 50 * (336 + 1)
    found = 7 + 50 + 2 + 7  # one table of each set, two records of one journal, all of another
    parts = f"{found:,} of {total:,} answers ({total - found:,} to generate), 1 of 2 models"
    assert held(rules) == f"In the store: {parts}, 1 of 12 trained arms"


def test_a_rules_command_names_each_wildcard_of_its_job() -> None:
    assert command("generate").endswith(
        "--variant {wildcards.variant} --cores {resources.engine_cores}"
    )
    # The two spaces have always been there: without them finished jobs would look outdated.
    assert command("audit") == "headroom audit --log {log}  --published {params.folder:q}"
