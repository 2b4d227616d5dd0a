import base64
import html
import os
import shutil
import time
import zipfile
import zlib

import pandas as pd
import pytest

from comparing import assert_same
from example_config import changed
from headsweep.cli.export import export
from headsweep.errors import ConfigError
from mini import MINIATURE, ROOT, Snakemake, planned, planned_again
from processes import python


def test_a_run_makes_what_the_store_lacks_and_what_lies_behind_a_job_that_reruns(copied):
    values = {**MINIATURE, "run": "second", "selectors": {}, "comparisons": {}}
    values["sweeps"] = {"more": {"model": "tiny", "questions": "test", "layers": [1]}}
    counts = planned(Snakemake(copied)(values, "--dry-run"))
    assert counts["generate"] == 2  # heads 1 and 2; base, 0 and 3 are in the store
    assert not {"fetch_model", "source", "questions"} & set(counts)

    (model,) = (copied / "results/store/models").glob("*/model.json")
    (answers,) = (copied / "results/store").glob("tiny-*/greedy-*/test-*/L01H03.parquet")
    (accuracy,) = (copied / "results/mini/accuracy").glob("tiny-*/greedy-*/test-*.parquet")
    path = str(model.relative_to(copied)).encode()
    (copied / ".snakemake/incomplete" / base64.b64encode(path).decode()).touch()  # killed there
    for gone, left in ((accuracy, {"grade"}), (answers, {"generate", "grade"})):
        gone.unlink()
        dry = Snakemake(copied)(
            MINIATURE, "--dry-run", "--rerun-incomplete", str(accuracy.relative_to(copied))
        )
        assert planned(dry).keys() == {"fetch_model", *left, "total"}


def test_no_answer_is_lost_where_its_model_and_questions_are_made_again(copied):
    (model,) = (copied / "results/store/models").glob("*/model.json")
    (table,) = (copied / "results/store").glob("tiny-*/greedy-*/test-*/L01H03.parquet")
    others = {file: file.stat().st_ino for file in table.parent.glob("*.parquet") if file != table}
    (questions,) = (copied / "results/store/questions").glob("test-*.parquet")
    (accuracy,) = (copied / "results/mini/accuracy").glob("tiny-*/greedy-*/test-*.parquet")
    for gone in (model, table, questions, accuracy):
        gone.unlink()
    Snakemake(copied)(MINIATURE, "--cores", "2", str(accuracy.relative_to(copied)))
    assert table.exists()
    assert {file: file.stat().st_ino for file in others} == others  # the very files of before


def test_whatever_a_finished_run_has_lost_is_made_again(copied):
    found = planned_again(copied, MINIATURE)
    assert [file for file, again in found.items() if not again] == []
    assert len(found) > 60
    run, store = copied / "results/mini", copied / "results/store"
    tables = [run / "controls/math/spread.csv", run / "figures/levels.svg"]
    before = [file.read_bytes() for file in tables]
    removed = [
        *tables,
        *store.glob("models/*/model.json"),
        *store.glob("embedders/*-????????.json"),
    ]
    for file in removed:
        file.unlink()
    Snakemake(copied)(MINIATURE)
    assert [file for file in removed if not file.exists()] == []
    assert [file.read_bytes() for file in tables] == before


def test_a_whole_run_that_has_lost_its_config_gets_it_again(copied):
    """Nothing else is left to do: a user may have removed a damaged one."""
    config = copied / "results/mini/config.json"
    before = config.read_bytes()
    config.unlink()
    done = Snakemake(copied)(MINIATURE, "--cores", "2")
    assert "Nothing to be done" in done.stdout + done.stderr
    assert config.read_bytes() == before


def test_published_numbers_of_any_date_serve_and_others_rerun_what_shows_them(tmp_path):
    """Snakemake takes an input that is newer than the output for a wrong clock."""
    for name in ("Snakefile", "workflow", "config"):
        copy = shutil.copy2 if (ROOT / name).is_file() else shutil.copytree
        copy(ROOT / name, tmp_path / name)
    published = tmp_path / "config/published"
    for file in published.iterdir():
        os.utime(file, (time.time() + 86_400,) * 2)
    snakemake = Snakemake(tmp_path, snakefile=tmp_path / "Snakefile")
    table = "results/mini/audit/sprint.csv"
    snakemake(MINIATURE, "--cores", "1", table)
    dry = snakemake(MINIATURE, "--dry-run", table)
    assert "Nothing to be done" in dry.stdout + dry.stderr
    with (published / "sprint_claims.csv").open("a") as file:
        file.write("\n")
    assert "audit" in planned(snakemake(MINIATURE, "--dry-run", table))


def test_another_title_redraws_what_shows_it_and_measures_nothing_anew(copied):
    dry = Snakemake(copied)(changed(MINIATURE, "questions/test/title", "Sums"), "--dry-run")
    shown = {"table", "draw_sweep_math", "draw_selector", "draw_run", "claims", "report_page"}
    assert planned(dry).keys() == {*shown, "all", "total"}


def test_by_its_other_name_the_workflow_reruns_nothing_and_its_report_has_captions(copied):
    catalogued = Snakemake(copied, snakefile="workflow/Snakefile")
    dry = catalogued(MINIATURE, "--dry-run")
    assert "Nothing to be done" in dry.stdout + dry.stderr
    catalogued(MINIATURE, "--report", "report.zip")
    with zipfile.ZipFile(copied / "report.zip") as report:
        page = report.read("report/report.html").decode()  # beside it is the run's own page
    text = html.unescape(page)  # docutils writes @ as a number
    for caption in ("workflow", "table", "report"):
        words = (ROOT / f"workflow/report/{caption}.rst").read_text().split()[3:8]
        assert " ".join(words) in text, caption


def test_an_exported_run_is_remade_without_model_or_benchmark(finished, tmp_path):
    first, exported = finished[0] / "results/mini", tmp_path / "exported"
    files = export(first, exported)
    # A clone or a download dates files as it likes: here what others are made from is the newest.
    files.sort(key=lambda file: (file.stem == "base", zlib.crc32(file.name.encode())))
    for place, file in enumerate(files):
        os.utime(file, (1e9 + place,) * 2)
    shutil.rmtree(exported / "results/mini")  # all that is derived
    Snakemake(exported)(exported / "config.json")
    assert not (exported / "results/store/models").exists()
    assert not (exported / "results/store/sources").exists()
    assert_same(first, exported / "results/mini", frozenset({"report.html"}))  # it states times


def test_an_export_is_a_dataset_that_may_leave_texts_out_and_its_card_names_its_tables(
    finished, tmp_path
):
    files = export(finished[0] / "results/mini", tmp_path / "dataset", without_texts=True)
    tables = [file for file in files if file.parent.name == "questions"]
    assert len(tables) == 2
    for file in tables:
        known = pd.read_parquet(finished[0] / file.relative_to(tmp_path / "dataset"))
        known["solution"] = known["solution"].mask(known["solution"].notna())
        pd.testing.assert_frame_equal(pd.read_parquet(file), known.assign(question=""))
    code = """
import sys, datasets
for name in datasets.get_dataset_config_names(sys.argv[1]):
    for split, table in datasets.load_dataset(sys.argv[1], name, cache_dir=sys.argv[2]).items():
        print(name, split, len(table), len(table.column_names))
"""
    folders = (tmp_path / "dataset", tmp_path / "cache")
    said = python("-c", code, *folders, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    test = ["base", "L01H00", "L01H03", "L01N00", "L01N03", "placebo01", "placebo02"]
    assert said.splitlines() == [
        "questions-test test 15 8",
        "embeddings-tiny--test test 15 2",
        "questions-train train 20 8",
        "embeddings-tiny--train train 20 2",
        *(f"answers-tiny--greedy--test {variant} 15 6" for variant in test),
        "accuracy-tiny--greedy--test test 15 10",
        *(f"answers-tiny--greedy--train {variant} 20 6" for variant in test[:3]),
        "accuracy-tiny--greedy--train train 20 6",
        "answers-tiny--T0.6--test base 45 6",
        "accuracy-tiny--T0.6--test test 15 6",
        "answers-tiny--authors--test base 15 6",
    ]


def test_a_run_without_answers_is_not_exported(copied, tmp_path):
    (gone,) = (copied / "results/store").glob("tiny-*/greedy-*/test-*/L01H03.parquet")
    gone.unlink()
    with pytest.raises(ConfigError, match=r"L01H03\.parquet and 0 more files are missing; run"):
        export(copied / "results/mini", tmp_path / "new")
    with pytest.raises(ConfigError, match=r"is not a run: neither it nor"):
        export(copied / "results/store", tmp_path / "new")
    assert not (tmp_path / "new").exists()
