import gc
import json
import sys
from contextlib import contextmanager

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from headsweep.cli import main as cli
from headsweep.cli.solve import Solver
from headsweep.errors import ConfigError, ModelError
from headsweep.models.source import BUILTIN
from headsweep.results.run import Run
from mini import MINIATURE, Snakemake, left_over, planned_again
from processes import wait_until, working_in


def test_the_page_answers_what_the_run_asks_and_nothing_is_left_over_or_to_do(finished, copied):
    folder, run = finished[0], finished[0] / "results/mini"
    assert "\nbase greedy,2," in (run / "sprint/math/votes.csv").read_text("utf-8")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Does choosing heads beat sampling?" in page
    assert "Can heads go for good?" not in page

    for place in ("../elsewhere", ".snakemake/locks", ".snakemake/incomplete"):
        assert [file for file in (folder / place).rglob("*") if not file.is_dir()] == []
    assert not left_over(folder)
    wait_until(lambda: not working_in(folder))  # a server of its jobs leaves once it has heard
    done = Snakemake(copied)(MINIATURE)
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_run_tells_what_the_store_lacks_its_findings_and_its_report(finished):
    folder, said = finished
    answers = 15 * 7 + 15 * 3 + 15 + 20 * 3  # test: heads, samples, authors' prompt; train: heads
    held = f"In the store: 0 of {answers} answers ({answers} to generate), 0 of 1 models"
    assert held in said.splitlines()
    found = (folder / "results/mini/findings.txt").read_text(encoding="utf-8").splitlines()
    assert "\n".join(["Findings", *(f"  {sentence}" for sentence in found)]) in said
    # The run had another folder (--directory) than where it was started.
    assert f"Done. Open {folder / 'results/mini/report.html'}" in said.splitlines()


def test_a_run_looks_inside_its_heads_where_answers_first_differ(finished):
    """Each look is plain transformers' attention at the tokens whose text it names."""
    store = finished[0] / "results/store"
    (file,) = store.glob("looks/*/*/*/heads-*.parquet")
    looks = pd.read_parquet(file)
    folder = store.joinpath(*file.relative_to(store).parts[1:-1])
    answers = {
        name: pd.read_parquet(folder / f"{name}.parquet").set_index("question_id")
        for name in ("base", "L01H00", "L01H03")
    }
    base = answers.pop("base")
    (questions,) = (pd.read_parquet(each) for each in store.glob("questions/test-*.parquet"))
    questions = questions.set_index("question_id")["question"]
    differing = {
        (question, name)
        for name, own in answers.items()
        for question in base.index
        if [*own["token_ids"][question]] != [*base["token_ids"][question]]
    }
    assert {*zip(looks["question_id"], looks["variant"], strict=True)} == differing
    assert len(differing) > 3

    tokenizer = AutoTokenizer.from_pretrained(BUILTIN["builtin:reasoner"])
    source = BUILTIN["builtin:reasoner"]
    model = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager").float()
    for row in looks.head(6).itertuples():
        prompt = row.before + questions[row.question_id] + row.after
        before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        ids = [*before, *base["token_ids"][row.question_id][: row.shared]]
        with torch.no_grad():
            output = model(torch.tensor([ids]), output_attentions=True)
        head = int(row.variant[-2:])
        weights, places = output.attentions[1][0, head, -1].topk(len(row.weights))
        assert row.weights == pytest.approx(weights.numpy(), abs=1e-4)
        whole = prompt + base["text"][row.question_id]
        named = [whole[a : a + b] for a, b in zip(row.starts, row.lengths, strict=True)]
        assert named == [tokenizer.decode([ids[place]]) for place in places]
        assert tokenizer.decode([int(output.logits[0, -1].argmax())]) == row.base_token
        assert whole[: row.end] == prompt + tokenizer.decode(ids[len(before) :])


def test_the_selector_of_a_finished_run_solves_questions(finished, capsys):
    run = Run(finished[0] / "results/mini")
    rows = run.questions("test").head(4)
    (file,) = run.folder.glob("graded/*/greedy-*/test-*.parquet")
    graded = pd.read_parquet(file).set_index(["question_id", "variant"])["answer"]
    texts = rows["question"].tolist()
    for question, ranked, solved in zip(
        rows["question_id"],
        pd.read_parquet(run.folder / "sprint/math/ranking.parquet")["heads"],
        Solver(run.folder, n=2).solve(texts),
        strict=False,
    ):
        heads = [head for candidate in solved.candidates for head in candidate.heads]
        assert sorted(heads) == sorted(ranked[:2])
        assert solved.base == (None if pd.isna(given := graded[question, "base"]) else given)
        for candidate in solved.candidates:
            own = graded[question, candidate.heads[0]]
            assert candidate.answer == (None if pd.isna(own) else own)
        assert solved.agreement == float(len(solved.candidates) == 1 and solved.answer is not None)

    # A verifier that likes long texts takes the place of the majority.
    found = Solver(run.folder, n=2, verifier=lambda _, given: list(map(len, given))).solve(texts)
    for solved in found:
        answered = [c for c in solved.candidates if c.answer is not None]
        assert answered == sorted(answered, key=lambda c: -(c.score or 0))

    with pytest.raises(ConfigError, match=r"returned \[1.0\] for 2 texts"):
        Solver(run.folder, n=2, verifier=lambda *_: [1.0]).solve(texts[:1])

    seen = []
    solver = Solver(run.folder, n=2, verifier=lambda *_: seen.append(0))
    with pytest.raises(ModelError, match=r"prompts of 2 questions have .*: 34, 36; leave"):
        solver.solve([texts[0]] * 33 + ["one " * 2000, texts[0], "one " * 3000])
    assert not seen  # no question is answered before

    assert cli.main(["solve", "--run", str(run.folder), "-n", "1", "--json", texts[0]]) == 0
    assert json.loads(capsys.readouterr().out)["question"] == texts[0]
    assert cli.main(["solve", "--run", str(run.folder), "-n", "9", texts[0]]) == 2
    assert "9 heads are requested; ask for 1 to 2" in capsys.readouterr().err


def test_a_solver_has_its_gpu_as_long_as_it_lives(finished, monkeypatch):
    told = []

    @contextmanager
    def placed(section):
        told.append(f"{section.device} held")
        try:
            yield "cpu"
        finally:  # as `placed` itself lets go of the GPU
            told.append("released")

    monkeypatch.setattr(sys.modules[Solver.__module__], "placed", placed)
    solver = Solver(finished[0] / "results/mini", n=2)
    solver.solve(["1 + 1 = ?"])
    assert told == ["cpu held"]
    del solver
    gc.collect()
    assert told == ["cpu held", "released"]


FAMILIES = yaml.safe_load(
    """
    run: families
    frontiers:
      math: {model: tiny, train: train, test: test, scales: {scaled: [50, 200], weights: [20]},
             sampling: [T0.6], layers: [1, 4], members: 3, max_n: 3, bootstrap: 50}
    """
)
FAMILIES |= {name: MINIATURE[name] for name in ("models", "questions", "decodings")}


def test_families_are_answered_graded_and_compared(copied):
    done = Snakemake(copied)(FAMILIES)
    assert "solved by any answer with the tokens of" in done.stdout + done.stderr
    run = copied / "results/families"
    tables = {file.stem: pd.read_csv(file) for file in (run / "frontier/math").glob("*.csv")}
    assert tables.keys() == {"members", "scales", "curves", "paired", "complement", "families"}
    assert (run / "figures/families_math.png").stat().st_size > 10_000
    members = tables["members"].set_index("member")
    (test,) = run.glob("accuracy/*/greedy-*/test-*.parquet")
    (train,) = run.glob("accuracy/*/greedy-*/train-*.parquet")
    z, learnt = pd.read_parquet(test), pd.read_parquet(train)
    own = members[members["family"] != "sampling"]
    assert set(own.index) <= set(z.columns)
    for name, row in own.iterrows():
        assert row["accuracy"] == pytest.approx(z[name].mean(), rel=1e-5)
        assert row["train_accuracy"] == pytest.approx(learnt[name].mean(), rel=1e-5)
    assert members["family"].value_counts().eq(3).all()
    assert (tables["curves"]["computed"] > 0).all()
    assert set(tables["paired"]["versus"]) <= {"sampling", "scaled", "skip", "weights", "noise"}
    found = planned_again(copied, FAMILIES, "compare_families draw_frontier")
    assert [file for file, again in found.items() if not again] == []
