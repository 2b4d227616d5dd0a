"""A look at a real run that was interrupted: some tables, some journals, some heads not begun."""

import os
import re
import shutil
from contextlib import chdir
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from batch_of import batch_of
from headsweep.answers import prepare, worker
from headsweep.answers.work import Work
from headsweep.cli import main as cli
from headsweep.config import parse
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import Stopwatch
from headsweep.files.safe_files import read_table, write_json
from headsweep.files.tables import QUESTIONS
from headsweep.statistics.anytime import anytime_interval
from headsweep.store import journal
from headsweep.store.layout import Store, mark_version
from headsweep.store.revisions import resolve
from headsweep.variants import BASE, Variant
from mini import REASONER
from processes import python

pytestmark = pytest.mark.usefixtures("kept_graders")
QUESTIONS_ASKED = 11
FINISHED, FIRST, SECOND, NOT_BEGUN = (Variant(1, head) for head in range(4))
BATCH = ("tiny", "greedy", "test")
SET = {"benchmark": "generated_math", "templates": "shared", "sampling": "first", "split": "test"}
SWEEP = {"model": "tiny", "questions": "test", "layers": [1]}
CONFIG = {
    "run": "mini",
    "models": {"tiny": REASONER},
    "questions": {"test": {**SET, "n": QUESTIONS_ASKED}, "more": {**SET, "n": 17}},
    "decodings": {"greedy": {"max_new_tokens": 60}},
    "sweeps": {
        "math": SWEEP,
        "later": {**SWEEP, "questions": "more"},
        "authors": {**SWEEP, "heads": [0], "grading": "authors"},
    },
}


def save(values):
    config = resolve(parse(values))
    write_json(Path(paths.CONFIG.format(run=config.run)), config.model_dump(mode="json"))
    return config


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each variant answers to all questions, by variant, as rows of its table."""
    with chdir(tmp_path_factory.mktemp("whole")):
        prepared(CONFIG)
        config = resolve(parse(CONFIG))
        work = Work(batch_of(config, *BATCH))
        loaded = worker.load(config.models["tiny"], work.batch.keys.model, "cpu")
        requests = [(each, key) for each in work.batch.variants for key in work.unanswered(each)]
        by_variant = {}
        for variant, answer in worker.Worker(loaded, 16).run(work.unit(requests, {})):
            by_variant.setdefault(variant, {})[answer["question_id"]] = answer
        questions = read_table(Store(config).path(QUESTIONS, questions="test"), QUESTIONS)
    return by_variant, questions


def prepared(values):
    mark_version()
    config = save(values)
    prepare.prepare_model(Store(config), "tiny")
    prepare.store_split(Store(config), "test")
    prepare.draw_questions(Store(config), "test")
    return config


@pytest.fixture
def interrupted(answers, tmp_path, monkeypatch):
    """A run whose engine died: a head finished, two under way, one not begun."""
    monkeypatch.chdir(tmp_path)
    config = prepared(CONFIG)
    work, (by_variant, questions) = Work(batch_of(config, *BATCH)), answers
    ids = questions["question_id"].tolist()
    for variant in (BASE, FINISHED):
        finish(work, variant, by_variant)
    journal.append(work.journal(FIRST), [by_variant[FIRST][question] for question in ids[:8]])
    second = work.journal(SECOND)
    journal.append(second, [by_variant[SECOND][question] for question in (ids[3], ids[9])])
    # Another process has begun this; it was cut off in its last line.
    written = journal.written_here(second)
    written.with_name(f"{SECOND}.other.jsonl").write_bytes(written.read_bytes()[:-9])
    written.unlink()
    # One of them for the second time.
    journal.append(second, [by_variant[SECOND][question] for question in ids[1:5]])
    return config


def finish(work, variant, by_variant):
    journal.append(work.journal(variant), by_variant[variant].values())
    work.write(variant, Stopwatch())


def peek(capsys, *arguments, status=0):
    assert cli.main(["peek", *arguments]) == status
    said = capsys.readouterr()
    return said.err if status else said.out


def snapshot(folder):
    return {
        file: (file.lstat().st_mtime_ns, file.read_bytes() if file.is_file() else b"")
        for file in sorted([folder, *folder.rglob("*")])
    }


def is_right(text, gold):
    boxed = re.findall(r"\\boxed\{(.*?)\}", text)
    if not boxed:
        return False
    try:
        return Fraction(boxed[-1]) == Fraction(gold)
    except ValueError:
        return boxed[-1] == gold


def rows_of(said, sweep, kind):
    """Return the cells of a table of the page, by variant, and how many questions it is of."""
    part = re.split(r"^sweep ", said, flags=re.MULTILINE)
    (block,) = [text for text in part if text.startswith(f"{sweep}:")]
    match = re.search(rf"^{kind}: (\d+) of (\d+) questions.*\n((?:\S.*\n)+)", block, re.MULTILINE)
    titles, *lines = [re.split(r" {2,}", line) for line in match[3].splitlines()]
    assert titles == ["variant", "right", "gained", "lost", "gain", "from", "to"]
    return {line[0]: line[1:] for line in lines}, int(match[1]), int(match[2])


def expected(answers, ids, variant, heads):
    """Return the cells of a head's row, by another reading of the answers."""
    by_variant, questions = answers
    gold = questions.set_index("question_id")["answer"]
    pruned, base = (
        np.array(
            [is_right(by_variant[each][question]["text"], gold[question]) for question in ids], int
        )
        for each in (variant, BASE)
    )
    gained, lost = int((pruned > base).sum()), int((pruned < base).sum())
    ends = anytime_interval(np.array([gained]), np.array([lost]), len(ids), heads)
    numbers = [(gained - lost) / len(ids), *np.ravel(ends)]
    signed = [f"{100 * each:+.1f}".replace("-", "−") for each in numbers]
    signed = ["0.0" if each in ("+0.0", "−0.0") else each for each in signed]
    return [f"{100 * pruned.mean():.1f}%", f"{gained}", f"{lost}", *signed]


def test_each_table_is_of_the_questions_that_all_of_its_heads_have_answered(
    interrupted, answers, capsys
):
    said = peek(capsys, "mini")
    assert said.startswith("run 'mini' in results/mini: a look, not a verdict\n")
    done = 2 * QUESTIONS_ASKED + 8 + 4
    share = f"{done} of {5 * QUESTIONS_ASKED} answers ({100 * done / 55:.1f}%)"
    said_of_math = "sweep math: tiny answers MATH-like (greedy): 3 of 4 heads have begun"
    assert f"{said_of_math}, {share}\n" in said
    assert re.search("^sweep later: tiny .*: its questions are not drawn yet$", said, re.MULTILINE)
    ids = answers[1]["question_id"].tolist()
    whole, common, total = rows_of(said, "math", "finished")
    assert (common, total) == (QUESTIONS_ASKED, QUESTIONS_ASKED)
    assert whole.pop("base") == [expected(answers, ids, BASE, 4)[0]]
    assert whole == {str(FINISHED): expected(answers, ids, FINISHED, 4)}
    part, common, total = rows_of(said, "math", "under way")
    assert (common, total) == (4, QUESTIONS_ASKED)
    assert part.pop("base") == [expected(answers, ids[1:5], BASE, 4)[0]]
    assert part == {
        str(variant): expected(answers, ids[1:5], variant, 4) for variant in (FIRST, SECOND)
    }
    # One head in the sweep: its interval has to hold for no other.
    alone, _, _ = rows_of(said, "authors", "finished")
    assert alone[str(FINISHED)][4:] == expected(answers, ids, FINISHED, 1)[4:]
    assert alone[str(FINISHED)][4:] != whole[str(FINISHED)][4:]
    words = set(re.findall(r"[\w*]+", said))
    assert not words & {"p", "q", "helps", "hurts", "significant", "shown", "*"}
    assert "short answers\nend first" in said


def test_it_changes_nothing_and_waits_for_no_lock(interrupted, capsys):
    work, locks = Work(batch_of(interrupted, *BATCH)), Locks(Path(paths.STORE_LOCKS))
    assert all(locks.take(work.lock(variant)) for variant in work.batch.variants)
    before = snapshot(Path())
    peek(capsys)
    assert snapshot(Path()) == before


def test_heads_are_sorted_by_gain_and_the_finished_ones_stay_apart(interrupted, answers, capsys):
    """A head that begins costs no other a line. Each sweep is graded by its own rules."""
    by_variant, questions = answers
    work, gold = Work(batch_of(interrupted, *BATCH)), questions.set_index("question_id")["answer"]
    # The authors take the first box, others the last.
    first_right = "\\boxed{{{gold}}} or \\boxed{{no}}"
    texts = {FINISHED: first_right, FIRST: "", SECOND: "so \\boxed{{{gold}}}"}
    for file in (work.output(FINISHED), work.finished(FINISHED)):
        file.unlink()
    for variant, text in texts.items():
        journal.remove(work.journal(variant))
        rows = {
            question: {**row, "text": text.format(gold=gold[question])}
            for question, row in by_variant[variant].items()
        }
        finish(work, variant, {variant: rows})
    first = questions["question_id"].iloc[:1]
    journal.append(work.journal(NOT_BEGUN), [by_variant[NOT_BEGUN][question] for question in first])
    said = peek(capsys)
    rows, common, _ = rows_of(said, "math", "finished")
    assert (list(rows), common) == (["base", "L01H02", "L01H00", "L01H01"], QUESTIONS_ASKED)
    assert [rows[f"L01H{head:02}"][0] for head in (2, 0, 1)] == ["100.0%", "0.0%", "0.0%"]
    assert rows_of(said, "authors", "finished")[0]["L01H00"][0] == "100.0%"
    rows, common, _ = rows_of(said, "math", "under way")
    assert (list(rows), common) == (["base", "L01H03"], 1)


def test_a_table_that_takes_its_journal_s_place_meanwhile_is_seen(
    interrupted, answers, capsys, monkeypatch
):
    work, read = Work(batch_of(interrupted, *BATCH)), journal.read
    finish(work, FIRST, answers[0])
    table = work.output(FIRST)
    table.rename("aside")
    work.finished(FIRST).unlink()

    def just_written(path):
        if path == work.journal(FIRST) and not table.exists():
            Path("aside").rename(table)
        return read(path)

    monkeypatch.setattr(journal, "read", just_written)
    rows, _, _ = rows_of(peek(capsys, "results/mini"), "math", "finished")
    assert str(FIRST) in rows


def test_a_table_that_snakemake_has_removed_for_the_time_of_a_run_counts(interrupted, capsys):
    Work(batch_of(interrupted, *BATCH)).output(FINISHED).unlink()
    assert str(FINISHED) in rows_of(peek(capsys), "math", "finished")[0]


def test_without_a_run_they_are_listed_and_the_only_unfinished_one_is_looked_at(
    interrupted, answers, capsys
):
    only = {"math": SWEEP}
    save({**CONFIG, "run": "other", "sweeps": only})
    Path("results/other/report.html").touch()
    os.utime("results/other/config.json", (1, 1))
    said = peek(capsys)
    assert [re.split(r" {2,}", line) for line in said.splitlines()] == [
        ["run", "models that have answered", "report"],
        ["mini", "2 of 10", "no report yet"],
        ["other", "2 of 5", "report: results/other/report.html"],
        [""],
        ["the heads of one: `headsweep peek mini`"],
    ]
    said = peek(capsys, "--page", status=2)
    assert "2 runs here are unfinished; name one of mini, other" in said
    assert len(said.splitlines()) == 1
    os.utime("results/other/report.html", (0, 0))  # it is of an earlier config
    assert re.search(r"^other +2 of 5 +no report yet$", peek(capsys), re.MULTILINE)
    save({**CONFIG, "run": "mini", "sweeps": {}})
    said = peek(capsys)
    listed, _, sweeps = said.partition("\n\n")
    assert re.search(r"^mini +0 of 0 +no report yet$", listed, re.MULTILINE)
    assert sweeps.startswith("run 'other' in results/other: ")
    assert "run 'mini' has no sweeps" in peek(capsys, "mini", status=2)
    work = Work(batch_of(interrupted, *BATCH))
    for variant in (FIRST, SECOND, NOT_BEGUN):
        journal.remove(work.journal(variant))
        finish(work, variant, answers[0])
    assert peek(capsys).endswith("\n\nthe heads of one: `headsweep peek other`\n")
    assert "0 runs here are unfinished" in peek(capsys, "--page", status=2)
    said = peek(capsys, "other")
    assert "4 of 4 heads have begun, 55 of 55 answers (100.0%)" in said
    assert "under way" not in said
    assert len(rows_of(said, "math", "finished")[0]) == 5
    Path("results/other").rename("results/another one")
    assert peek(capsys).endswith("\n\nthe heads of one: `headsweep peek 'another one'`\n")
    Path("results/another one").rename("results/other")
    Path("results/other/config.json").write_text("{", encoding="utf-8")
    assert re.search("^other +config file results/other/config.json is", peek(capsys), re.MULTILINE)


def test_the_run_of_a_sweep_that_was_typed_here_is_found(interrupted, tmp_path, capsys):
    whole = peek(capsys)
    for place in ("headsweep-sweep", "older"):
        (tmp_path / place).mkdir()
    Path("results").rename("headsweep-sweep/results")
    said = peek(capsys)
    assert said == whole.replace("results/mini", "headsweep-sweep/results/mini")
    assert "name one: headsweep-sweep/results/mini" in peek(capsys, "nine", status=2)
    save({**CONFIG, "run": "done", "sweeps": {}})
    shutil.copytree("headsweep-sweep/results", "older/results")
    said = peek(capsys)
    assert [re.split(r" {2,}", line) for line in said.splitlines()[1:4]] == [
        ["done", "0 of 0", "no report yet"],
        ["headsweep-sweep/results/mini", "2 of 10", "no report yet"],
        ["older/results/mini", "2 of 10", "no report yet"],
    ]
    named = (
        "2 runs here are unfinished; name one of done, headsweep-sweep/results/mini, older/resul"
    )
    assert named in peek(capsys, "--page", status=2)
    assert peek(capsys, "older/results/mini") == whole.replace("results/mini", "older/results/mini")


def test_without_a_run_it_says_so_and_before_the_first_answer_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert f"no run is in {tmp_path}/results, nor in those" in peek(capsys, status=2)
    assert "'nine' is not a run" in peek(capsys, "nine", status=2)
    work = Work(batch_of(prepared({**CONFIG, "sweeps": {"math": SWEEP}}), *BATCH))
    said = peek(capsys)
    assert "0 of 4 heads have begun, 0 of 55 answers (0.0%)" in said
    assert "gain, from, to" not in said  # there is no table
    # The base model has answered nothing that the head has.
    answer = {"sample": 0, "token_ids": [7], "text": "", "stop_reason": "eos", "margin": 1.0}
    (first, _), (second, _) = work.unanswered(BASE)[:2]
    journal.append(work.journal(BASE), [{"question_id": first, **answer}])
    journal.append(work.journal(FIRST), [{"question_id": second, **answer}])
    said = peek(capsys)
    assert "under way: 0 of 11 questions" in said
    assert "gain, from, to" not in said


def test_a_damaged_table_is_named(interrupted, capsys):
    file = Work(batch_of(interrupted, *BATCH)).output(FINISHED)
    content = bytearray(file.read_bytes())
    content[300] ^= 1
    file.write_bytes(content)
    assert f"{file} cannot be read" in peek(capsys, status=2)


def test_a_look_from_elsewhere_imports_no_torch(interrupted, tmp_path):
    code = "import sys; from headsweep.cli.main import main; status = main(['peek', sys.argv[1]]); "
    code += "sys.exit(status or 'torch' in sys.modules)"
    (elsewhere := tmp_path / "elsewhere").mkdir()
    said = python("-c", code, tmp_path / "results/mini", cwd=elsewhere)
    assert "L01H02" in said
