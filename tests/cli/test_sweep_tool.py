"""A user's own random Llama and a CSV of twenty questions, from the command line alone."""

import contextlib
import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from transformers import GenerationConfig
from transformers import PreTrainedTokenizerFast as Fast

import headsweep
from headsweep.answers import client, prepare
from headsweep.cli import commands
from headsweep.cli import main as cli
from headsweep.cli.asked import Asked
from headsweep.config import SYSTEM_PROMPT
from headsweep.errors import ConfigError, EngineError
from headsweep.files.record import record_path
from headsweep.results.run import Run

pytestmark = pytest.mark.usefixtures("warm_engines")
HEAD_DIM = 8
NEW_TOKENS = 5
QUESTIONS = [f"{a} plus {a * a % 19}" for a in range(20)]
ENDS = [1, *range(45, 59)]  # tokens: so many that most answers end


def generated(folder, head, layer=1):
    """Return each answer by `generate` on weights set to zero, and whether it has ended."""
    model = headsweep.load_model(str(folder))
    tokenizer = Fast.from_pretrained(folder)
    if head is not None:
        columns = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        model.model.layers[layer].self_attn.o_proj.weight.data[:, columns] = 0
    texts = []
    for question in QUESTIONS:
        prompt = f"{SYSTEM_PROMPT}\n\nQuestion: {question}\nAnswer:"
        inputs = tokenizer(prompt, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        tokens = out[0, inputs["input_ids"].shape[1] :].tolist()
        has_ended = tokens[-1] in ENDS
        texts.append((tokenizer.decode(tokens[:-1] if has_ended else tokens), has_ended))
    return texts


def last_number(text, has_ended):
    """Return the final answer; one that was cut before it has none."""
    return (re.findall(r"\d+", text if has_ended else "") or [""])[-1]


@pytest.fixture(scope="module")
def swept(warm_engines, llama, tmp_path_factory):
    """A finished sweep: its folder and its command, without `--out`."""
    folder = tmp_path_factory.mktemp("swept")
    shutil.copytree(llama, folder / "my-llama")
    llama = folder / "my-llama"
    GenerationConfig(eos_token_id=ENDS, pad_token_id=0).save_pretrained(llama)
    golds = [last_number(*answer) or "1" for answer in generated(llama, 2)]
    kinds = [f"kind {number % 3}" for number in range(20)]
    with (folder / "mine.csv").open("w", newline="") as stream:
        table = zip(QUESTIONS, golds, kinds, strict=True)
        csv.writer(stream).writerows([("prompt", "gold", "kind"), *table])
    commands = ["sweep", "--model", str(llama), "--benchmark", str(folder / "mine.csv")]
    commands += ["--question-column", "prompt", "--answer-column", "gold", "--grader", "numeric"]
    commands += ["--subject-column", "kind", "--max-new-tokens", str(NEW_TOKENS), "--layers", "1"]
    commands += ["--device", "cpu", "--batch-size", "7"]
    assert cli.main([*commands, "--heads", "2,5", "--out", str(folder / "out")]) == 0
    return folder, commands


def test_a_sweep_answers_and_grades_as_generate_with_zeroed_weights(swept):
    run = Run(swept[0] / "out/results/sweep")
    gold = run.questions("questions")["answer"].tolist()
    z = run.z()
    for name, head in (("base", None), ("L01H02", 2), ("L01H05", 5)):
        texts = generated(swept[0] / "my-llama", head)
        expected = [last_number(*text) == right for text, right in zip(texts, gold, strict=True)]
        assert z[name].tolist() == expected, name
    assert z["L01H02"].mean() > z["base"].mean()  # the gold answers are its own
    assert run.heads()["variant"].tolist() == ["base", "L01H02", "L01H05"]
    with contextlib.chdir(swept[0] / "out"):
        assert client.status() == []  # its engine has left
    assert not [*(swept[0] / "out/results/store/.journal").rglob("*.parquet")]
    assert z["subject"].tolist()[:4] == ["kind 0", "kind 1", "kind 2", "kind 0"]


def test_more_heads_keep_what_is_answered(swept, monkeypatch, capsys):
    folder, commands = swept
    asked, answer = [], client.run
    monkeypatch.setattr(client, "run", lambda *given: (asked.append(str(given[1])), answer(*given)))
    assert cli.main([*commands, "--heads", "2,3,5", "--out", str(folder / "out")]) == 0
    assert asked == ["L01H03"]
    printed = capsys.readouterr().out
    assert re.search(r"base model: [\d.]+% of 20 questions", printed)
    gains = r"\nL01H0\d +[\d.]+% +([+−]\d+\.\d|0\.0) +\[ *([+−]\d+\.\d|0\.0), "
    assert len(re.findall(gains, printed)) == 3  # points, not percent
    run = Run(folder / "out/results/sweep")
    ranked = sorted(["L01H02", "L01H03", "L01H05"], key=lambda head: -run.z()[head].mean())
    assert [line[:6] for line in printed.splitlines() if line.startswith("L01H")] == ranked
    assert "sweep 'heads': model on questions" in repr(run)
    assert len(run.answers("L01H05")) == len(QUESTIONS)


def test_an_answer_whose_table_was_removed_is_given_again(swept, monkeypatch):
    folder, commands = swept
    (table,) = (folder / "out/results/store").glob("model-*/*/*/L01H05.parquet")
    table.unlink()
    asked, answer = [], client.run
    monkeypatch.setattr(client, "run", lambda *given: (asked.append(str(given[1])), answer(*given)))
    for _ in range(2):
        assert cli.main([*commands, "--heads", "2,3,5", "--out", str(folder / "out")]) == 0
    assert asked == ["L01H05"]
    assert record_path(table).stat().st_mtime_ns >= table.stat().st_mtime_ns


def test_a_model_of_unequal_layers_is_swept_whole(swept, tmp_path, capsys):
    llama = swept[0] / "my-llama"
    """Layer 0 keeps heads 2 to 5 of 6. A pruned model's heads are numbered as it has them."""
    smaller, out = tmp_path / "smaller", tmp_path / "out"
    headsweep.prune(str(llama), smaller, heads=["L00H00", "L00H01"])
    commands = [each.replace(str(llama), str(smaller)) for each in swept[1]]
    commands[commands.index("--layers") + 1] = "all"
    assert cli.main([*commands, "--heads", "4", "--out", str(out)]) == 2
    assert "heads: [4]; layer 0 of model has 4; name fewer, or all" in capsys.readouterr().err
    assert cli.main([*commands, "--out", str(out)]) == 0
    run = Run(out / "results/sweep")
    names = [f"L{layer:02d}H{head:02d}" for layer, most in ((0, 4), (1, 6)) for head in range(most)]
    assert run.heads()["variant"].tolist() == ["base", *names]
    for layer, head in ((0, 3), (1, 5)):
        found = run.answers(f"L{layer:02d}H{head:02d}")["text"]
        pairs = zip(found, generated(smaller, head, layer), strict=True)
        assert all(own == re.sub(r"\[\w+\] ?", "", text).strip() for own, (text, _) in pairs)
    (z,) = out.rglob("results/sweep/accuracy/**/*.parquet")
    again = headsweep.prune(
        str(smaller), tmp_path / "again", ratio=0.2, criterion="causal", accuracy=z
    )
    drops = -run.z()[names].mean()
    pairs = [names[start : start + 2] for start in range(0, 10, 2)]
    lowest = min(pairs, key=lambda pair: (drops[pair].mean(), pair))
    assert [str(head) for head in again.removed] == lowest


def questions_of(benchmark, **options):
    return Asked(model="a model", benchmark=benchmark, **options).questions


def test_a_local_file_of_another_kind_is_no_dataset_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = questions_of("data/mine.parquet")
    assert found["dataset"] == "data/mine.parquet"
    Path("data").mkdir()
    for name in ("mine.parquet", "mine.json", "mine.CSV"):
        Path("data", name).touch()
        with pytest.raises(ConfigError, match=rf"'data/{name}' .*; files end in \.csv or \.jsonl"):
            questions_of(f"data/{name}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep --layers 0 --benchmark maths", "benchmark 'maths' is not known"),
        ("sweep --layers 0 --benchmark math_train", "sweep: questions.questions: math_train has"),
        ("sweep --layers 0 --benchmark nowhere.csv", "nowhere.csv is missing; put it there"),
        (
            "sweep --layers 0 --benchmark me/mine",
            "questions.questions.revision: '' is not a commit",
        ),
        ("map --benchmark math500", "map: questions.questions: math500 has only split 'test'"),
        ("map --benchmark gsm8k --samples 40000", "map: decodings.samples.samples: "),
    ],
)
def test_what_is_asked_is_refused_before_a_model_is_looked_for(words, message, capsys):
    assert cli.main([*words.split(), "--model", "./nowhere"]) == 2
    assert message in capsys.readouterr().err


def test_no_question_is_not_taken_for_all_of_them():
    assert questions_of("math500", n=0)["n"] == 0
    assert "n" not in questions_of("math500")


def test_a_home_folder_is_written_out_in_the_command_that_goes_on(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    again = "headsweep run /home/me/out/config.json --directory /home/me/out"
    assert commands._again(Path("~/out"), "config.json") == again


def test_prompts_that_are_too_long_are_all_named_before_the_first_answer(swept, tmp_path, capsys):
    rows = (swept[0] / "mine.csv").read_text().splitlines()
    long = [f"{'7 ' * 3000},1,kind 0"] * 2
    (tmp_path / "long.csv").write_text("\n".join([*rows, *long]) + "\n")
    commands = [
        *swept[1],
        "--benchmark",
        str(tmp_path / "long.csv"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.main(commands) != 0
    said = capsys.readouterr().err
    assert re.search(r"prompts of 2 questions have \d+ tokens or more, .*: 000020, 000021", said)
    assert not [*(tmp_path / "out/results/store").rglob("*.jsonl")]


TAKING = """
import sys
from pathlib import Path
from headsweep.files.locks import Locks
locks = Locks(Path(sys.argv[1]))
print(locks.take("sweep"), flush=True)
sys.stdin.read()
"""


def test_a_second_sweep_in_a_folder_is_refused_while_the_first_is_at_work(swept, tmp_path, capsys):
    _, words = swept
    lock = tmp_path / "out/results/.lock"
    taking = [sys.executable, "-c", TAKING, str(lock)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(taking, text=True, **pipes) as other:
        assert other.stdout.readline() == "True\n"
        assert cli.main([*words, "--out", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()[-1:]
        assert re.search("run 'sweep' is under way there; wait for its end", line)
        assert not (tmp_path / "out/results/sweep").exists()
        other.communicate()


def test_answers_that_were_cut_are_told(swept, tmp_path, capsys):
    commands = [*swept[1], "--heads", "2", "--out", str(swept[0] / "out")]
    assert cli.main(commands) == 0
    said = capsys.readouterr().out
    table = pd.read_csv(swept[0] / "out/results/sweep/controls/heads/heads.csv")
    cut = table["truncated"].mean()
    assert cut > 0.02
    assert f"{100 * cut:.1f}% of all answers were cut; `headsweep try` says where" in said


def test_a_file_is_no_folder_for_results(swept, tmp_path, capsys):
    (tmp_path / "out").touch()
    assert cli.main([*swept[1], "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"--out .*out: no such folder can be made \(File exists\); name another", line)


@pytest.mark.parametrize("fails", ["before its questions", "while it answers"])
def test_a_sweep_that_fails_leaves_the_finished_run_of_its_folder_as_it_was(
    fails, swept, tmp_path, monkeypatch, capsys
):
    folder, commands = swept
    out = folder / "out"
    files = [*(out / "results/sweep").glob("config.json*"), out / "results/sweep/models.json"]
    before = {file: file.read_bytes() for file in files if file.exists()}
    assert len(before) > 1
    other = [*commands, "--heads", "2", "--max-new-tokens", "6", "--out", str(out)]
    if fails == "before its questions":
        other += ["--n", "7", "--split", "other"]
        monkeypatch.setattr(prepare, "draw_questions", failing)
    else:
        monkeypatch.setattr(client, "run", failing)
    assert cli.main(other) == 2
    assert "it fails" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before
    assert len(Run(out / "results/sweep").z()) == len(QUESTIONS)


def failing(*_):
    raise EngineError("it fails")
