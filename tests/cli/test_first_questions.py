"""`headsweep try`: the first questions of a sweep, which that sweep takes over."""

import heapq
import re
import shlex
from dataclasses import replace

import pandas as pd
import pytest

from headsweep.benchmarks.draws import draw
from headsweep.benchmarks.generated import generate
from headsweep.cli import main as cli
from headsweep.cli.asked import Asked
from headsweep.cli.first_questions import Limit, Tried, choose_grader, choose_limit, described_try
from headsweep.cli.own_prompt import source_of
from headsweep.config import parse
from headsweep.errors import HeadsweepError
from headsweep.files.record import read_record
from headsweep.files.tables import ANSWERS
from headsweep.results.run import Run
from headsweep.store.batches import batches
from headsweep.workflow import preflight
from mini import REASONER

pytestmark = pytest.mark.usefixtures("warm_engines")
ROWS = 13
LIMIT = 60
FIRST = ["builtin:reasoner", "mine.csv", "--question-column", "q", "--layers", "2"]
OPTIONS = ["--max-new-tokens", str(LIMIT), "--device", "cpu", "--cores", "1"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A folder in which `try` was given, and what it has printed."""
    folder = tmp_path_factory.mktemp("tried")
    rows = generate("generated_gsm8k", "test", ROWS, 0, apart=True)
    table = pd.DataFrame({"q": rows["question"], "answer": rows["answer"]})
    table.to_csv(folder / "mine.csv", index=False)
    return folder


def steps_of(lengths, together):
    """Return the steps in which answers of some lengths are decoded, so many at a time."""
    rows = [0] * together
    for length in lengths:
        heapq.heapreplace(rows, rows[0] + length)
    return max(rows)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_sweep_takes_no_longer_than_try_says_and_half_of_it_at_least(batch_size):
    """Of answers that are no faster than those of `try`; one of the ten repeats itself."""
    config = parse({"run": "own", "models": {"model": REASONER | {"batch_size": batch_size}}})
    tokens = [52, 124, 135, 185, 203, 208, 229, 233, 367, 2048]
    looping = [length == 2048 for length in tokens]
    answers = pd.DataFrame({"tokens": tokens, "cut": looping, "looping": looping})
    together, seconds_of_a_step = batch_size or 10, 0.7
    seconds = seconds_of_a_step * steps_of(reversed(tokens), together)
    tried = Tried(config, answers, seconds, 30, "", Limit(1024, ""))
    lengths = [min(length, 1024) for length in tokens] * 3 * (1 + 2 * 4)  # of two layers
    exact = seconds_of_a_step * steps_of(lengths, together)
    assert exact <= 3600 * tried.hours((1, 4), tried.questions) <= 2 * exact


def test_of_a_sweep_that_takes_longer_than_a_night_fewer_questions_are_proposed():
    model = REASONER | {"batch_size": 10}
    config = parse(
        {
            "run": "own",
            "models": {"model": model},
            "questions": {"questions": {"benchmark": "custom", "file": "m.csv", "split": "test"}},
            "decodings": {"greedy": {"max_new_tokens": 2048}},
        }
    )
    rows = pd.DataFrame({"tokens": [700] * 10, "cut": False, "looping": False})
    told = rows.assign(question_id="a", question="?", gold="3", text="3", answer="3", correct=True)
    tried = Tried(config, told, 1200, 500, "", Limit(2048, ""))
    said = described_try(tried, {"model": "m", "benchmark": "mine.csv", "layers": (2,)})
    # 500 questions, the model and 4 heads, ten at a time: 250 batches of 1,200 s, and one more.
    assert "a sweep of layer 2: 83.7 h at most" in said
    assert "with 40 questions 7.0 h at most; a larger --n keeps their answers" in said
    assert (
        "next: headsweep sweep --model m --benchmark mine.csv --layers 2 --grader math --n 40"
        in said
    )
    short = described_try(
        replace(tried, seconds=12), {"model": "m", "benchmark": "b", "layers": (2,)}
    )
    assert "--n" not in short


def given(words, capsys):
    assert cli.main(words) == 0
    return capsys.readouterr()


def test_the_sweep_that_try_proposes_takes_its_answers_over(tried, monkeypatch, capsys):
    monkeypatch.chdir(tried)
    said = given(["try", *FIRST, *OPTIONS], capsys)
    printed = said.out
    assert "reasoner answers mine.csv (greedy): 0 of 10 answers are there" in said.err
    assert "reasoner answers mine.csv (greedy): 10 of 10 answers are there" in said.err
    assert "final answer: nan" not in printed
    assert "grader: numeric; all 13 gold answers are numbers" in printed
    assert re.search(r"a sweep of layer 2: [\d.]+ (min|h) at most", printed)
    (following,) = re.findall(r"next: headsweep (.*)", printed)
    assert "mine.csv-" not in said.err  # keys are for files
    words = shlex.split(following)
    assert words[words.index("--grader") + 1] == "numeric"
    said = given(words, capsys).err
    assert f"reasoner answers mine.csv (greedy): 10 of {5 * ROWS} answers are there" in said
    run = Run("headsweep-sweep/results/sweep")
    (batch,) = batches(run.store).values()
    file = run.root / batch.path(ANSWERS, variant="base")
    record = read_record(file)
    assert (record["answers"], record["reused"]) == (ROWS, 10)
    assert len(run.heads()) == 5

    # The counts are those of the sweep's own tables, on the ten questions.
    z = run.z().set_index("question_id")["base"]
    tables = [
        pd.read_parquet(each) for each in tried.glob("*/results/store/model-*/*/*/base.parquet")
    ]
    asked = min(tables, key=len)
    assert (len(asked), len(z)) == (10, ROWS)
    right = int(z[asked["question_id"]].sum())
    cut = int((asked["stop_reason"] == "length").sum())
    assert re.search(rf"right +{right} of 10\n", printed)
    assert re.search(rf"cut at {LIMIT} tokens +{cut} of 10", printed)


def test_a_gpu_that_is_not_there_is_refused_before_an_engine_starts(tried, monkeypatch, capsys):
    monkeypatch.chdir(tried)
    monkeypatch.setattr(preflight, "gpu_count", lambda: 0)
    assert cli.main(["try", *FIRST, "--device", "cuda", "--out", "elsewhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "device: 'cuda', but there is no GPU; use auto or cpu" in line


def answers(*rows):
    """Return answers as tuples of tokens, whether it was cut and whether it loops."""
    return pd.DataFrame(rows, columns=["tokens", "cut", "looping"])


@pytest.mark.parametrize(
    ("rows", "tokens", "why"),
    [
        (
            [(70, False, False), (31, False, True)],
            512,
            "none was cut, and the longest answer that ended has 70 tokens",
        ),
        ([(70, False, False), (512, True, False), (512, True, True)], 1024, "1 of 3 were cut and"),
        ([(70, False, False), (512, True, True)], 256, "repeat themselves, and the longest"),
        ([(300, False, False), (512, True, True)], 512, "repeat themselves, and the longest"),
        ([(9, False, False), (512, True, True)], 64, "has 9 tokens"),
        ([(512, True, True)] * 2, 512, "all were cut and repeat themselves"),
        ([(70, False, False), (480, True, False)], 512, "where the model reads no more"),
    ],
)
def test_the_limit_follows_from_what_was_cut(rows, tokens, why):
    limit = choose_limit(512, answers(*rows))
    assert limit.tokens == tokens
    assert re.search(why, limit.why)


@pytest.mark.parametrize(
    ("golds", "grader"),
    [
        (["3", "-1,200", r"\frac{1}{2}"], "numeric"),
        (["B", "(c)"], "choice"),
        (["x^2+1", "3", r"\sqrt{2}\text{ cm}"], "math"),
        (["Paris", "3"], "exact"),
        (["3", "2 apples"], "exact"),
    ],
)
def test_the_grader_fits_all_gold_answers(golds, grader):
    assert choose_grader(golds)[0] == grader


PROMPT = """
template: |-
  Solve these.
  {examples}Q: {question}
  A:
example: |+
  Q: {question}
  A: {solution} So {answer}.

stop: ["\\nQ:"]
"""


def test_a_prompt_file_shows_rows_that_are_not_asked(tmp_path):
    rows = pd.DataFrame(
        {
            "q": [f"{n} and {n}?" for n in range(6)],
            "a": [str(2 * n) for n in range(6)],
            "how": [f"{n}+{n}={2 * n}." for n in range(5)] + [None],
        }
    )
    rows.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "prompt.yaml").write_text(PROMPT)
    columns = {"question": "q", "answer": "a", "solution": "how"}
    asked = Asked(
        model="a model",
        benchmark=tmp_path / "mine.csv",
        n=3,
        columns=columns,
        prompt_file=tmp_path / "prompt.yaml",
        examples=[4, 1],
        max_new_tokens=44,
    )
    questions, prompt = asked.questions, asked.greedy()
    assert prompt == {
        "max_new_tokens": 44,
        "template": "Solve these.\nQ: 4 and 4?\nA: 4+4=8. So 8.\n\nQ: 1 and 1?\n"
        "A: 1+1=2. So 2.\n\nQ: {question}\nA:",
        "stop": ["\nQ:"],
    }
    config = parse(
        {"run": "own", "questions": {"mine": questions}, "decodings": {"greedy": prompt}}
    )
    source = source_of(questions)
    assert source["solution"].tolist()[0] == "0+0=0." and pd.isna(source["solution"].iloc[5])
    section = config.questions["mine"]
    drawn = draw(source, section, None)
    assert len(drawn) == 3
    assert not {1, 4} & {*drawn["source_row"]}
    every = draw(source, section.model_copy(update={"n": None}), None)
    assert every["source_row"].tolist() == [0, 2, 3, 5]
    assert {*drawn["source_row"]} <= {*every["source_row"]}
    with pytest.raises(HeadsweepError, match=r"no row 9; choose from 0 to 5"):
        replace(asked, examples=[9]).greedy()
    with pytest.raises(HeadsweepError, match="row 000005 has no solution"):
        replace(asked, examples=[5]).greedy()
    with pytest.raises(HeadsweepError, match="go together"):
        replace(asked, examples=None).greedy()
    with pytest.raises(HeadsweepError, match="give --prompt-file too"):
        replace(asked, prompt_file=None).greedy()


def test_a_benchmark_by_name_is_read_from_a_file(tmp_path):
    file = tmp_path / "part.jsonl"
    file.write_text('{"question": "1+2?", "answer": "It is 3.\\n#### 3"}\n')
    asked = Asked(model="a model", benchmark="gsm8k", split="train", file=file)
    source = source_of(asked.questions)
    assert source[["answer", "solution"]].to_numpy().tolist() == [["3", "It is 3."]]
    with pytest.raises(HeadsweepError, match="give your own table as the benchmark itself"):
        _ = replace(asked, benchmark="mine.csv").questions
