"""The solver's networks and its batches, against one problem at a time."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from headsweep.config.solvers import Encoder, Solver
from headsweep.errors import BenchmarkError, ModelError
from headsweep.experiments.athena import solver as module
from headsweep.experiments.athena.equations import NUMBER, Problem, parse
from headsweep.experiments.athena.expressions import UNARY, Expander, Op
from headsweep.experiments.athena.solver import lenient, load_solver, new_solver, strict
from headsweep.models.learner import accuracy, move

SETTINGS = Solver(
    encoder=Encoder(layers=2, width=12, heads=3, intermediate=20, min_count=1), depth=6
)
MIXED = [
    ("one [NUM] two [NUM] three ?", "(n0-1)*2/n1"),
    ("first [NUM] ?", "n0"),
    ("three [NUM] [NUM] two [NUM] words one first ?", "n0+n1*n2-n0/2"),
    ("[NUM] one two three first words [NUM] and [NUM] [NUM] ?", "(n0+n1)*(n2-n3)"),
    ("two [NUM] ?", "n0*3.14*n0"),
]


def problem(text, equation):
    numbers = tuple(2.5 + place for place in range(text.count(NUMBER)))
    return Problem(text[:12], text, numbers, parse(equation), 1.0, "train")


@pytest.fixture(scope="module")
def solver():
    problems = [problem(*row) for row in MIXED] * 5
    solver = new_solver(SETTINGS, problems, seed=3)
    assert solver.constants == (1.0, 2.0, 3.14)
    with torch.no_grad():  # networks that tell candidates apart
        for parameter in solver.network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(1)))
    solver.network.eval()
    return solver


@pytest.fixture(scope="module")
def examples(solver):
    return solver.prepare([problem(*row) for row in MIXED])


@pytest.fixture(scope="module")
def batch(solver, examples):
    return solver.collate(examples)


@pytest.fixture(scope="module")
def output(solver, batch):
    with torch.no_grad():
        return solver.network(batch)


def test_a_batch_without_a_step_to_learn_is_made(solver):
    """No constant of the equation is one of the solver's, so that no candidate is right."""
    without, ordinary = problem("[NUM] apples ?", "5 + 7"), problem(*MIXED[0])
    alone = solver.collate(solver.prepare([without]))
    assert alone.targets.sum() == 0
    together = solver.collate(solver.prepare([without, ordinary]))
    assert len(together.targets) > len(alone.targets)


class OneByOne:
    """The solver of the specification, for one problem, without padding, masks or batches."""

    def __init__(self, solver, example):
        self.head = solver.network.head
        ids = torch.from_numpy(example.input_ids)[None]
        states = solver.encoder(input_ids=ids).last_hidden_state[0]
        self.numbers = [states[place] for place in example.places]
        self.first, self.goal = states[0], states[[example.goal]]
        self.expander = Expander(len(example.places), solver.constants)

    def feed_forward(self, layer, x):
        return x + layer.outer(nn.functional.gelu(layer.inner(layer.norm(x))))

    def attend(self, layer, queries, memory):
        heads = []
        for first in range(0, queries.shape[1], layer.head_dim):
            part = slice(first, first + layer.head_dim)
            key, value = (project(memory)[:, part] for project in (layer.key, layer.value))
            scores = layer.query(queries)[:, part] @ key.T / math.sqrt(layer.head_dim)
            heads.append(scores.softmax(dim=1) @ value)
        return layer.output(torch.cat(heads, dim=1))

    def embed(self, op, left, right, thoughts):
        if op == Op.NUMBER:
            return self.numbers[left]
        if op == Op.CONSTANT:
            inner = self.head.constant_inner(self.head.constant_norm(self.head.constants[left]))
            return self.head.constant_outer(nn.functional.gelu(inner))
        if op in UNARY:
            return self.feed_forward(self.head.unary[op.name], thoughts[left])
        merge = self.head.merges[op.name]
        pair = merge.norm(torch.stack([thoughts[left], thoughts[right]]))
        mixed = self.attend(merge.attention, pair, pair).sum(dim=0)
        return self.feed_forward(merge.forward_layer, mixed + thoughts[left] + thoughts[right])

    def judge(self, judge, embedding, memory):
        x = self.feed_forward(judge.before, embedding)
        heard = self.attend(judge.attention, judge.norm(x)[None], judge.memory_norm(memory))
        x = self.feed_forward(judge.after, x + heard[0])
        return x, judge.verdict(x)[0]

    def levels(self, keep, depth):
        """Yield the reason logits of each level, and the answer logits of all thoughts by then.

        `keep` gets the reason logits and returns the places of the candidates to accept.
        """
        thoughts, premises = [], [self.first]
        for _ in range(depth + 1):
            candidates, memory = self.expander.expand(), torch.stack(premises)
            embedded = [self.embed(op, left, right, thoughts) for op, left, right, _ in candidates]
            judged = [self.judge(self.head.reason, one, memory) for one in embedded]
            logits = torch.tensor([logit for _, logit in judged])
            for place in keep(logits):
                self.expander.thoughts.append(candidates[place][3])
                thoughts.append(embedded[place])
                premises.append(judged[place][0])
            answers = [self.judge(self.head.answer, one, self.goal)[1] for one in thoughts]
            yield logits, torch.tensor(answers)


def test_a_batch_moves_with_all_of_its_tensors(batch):
    shown = repr(move(batch, torch.device("meta")))
    assert shown.count("device='meta'") == repr(batch).count("tensor(") > 20


@torch.no_grad()
def test_a_batch_gives_the_logits_of_its_problems_one_by_one(solver, examples, batch, output):
    owners = torch.cat([level.rows.owner for level in batch.levels])
    for owner, example in enumerate(examples):
        plan = example.schedule
        right = iter(np.split(plan.target, np.cumsum(np.bincount(plan.depth))))
        plain = OneByOne(solver, example)
        levels = plain.levels(lambda _, right=right: np.flatnonzero(next(right)), max(plan.depth))
        reason, answers = zip(*levels, strict=True)
        own = output.reason[owners == owner]
        # Within a level a batch stands by operation, as each problem does.
        torch.testing.assert_close(own, torch.cat(reason), rtol=1e-4, atol=1e-4)
        mine = batch.accepted[-1][1].owner == owner
        torch.testing.assert_close(output.answer[mine], answers[-1], rtol=1e-4, atol=1e-4)
        thoughts = np.flatnonzero(plan.target)
        stands = np.lexsort((plan.op[thoughts], plan.depth[thoughts]))
        assert batch.answers[mine].tolist() == (stands == plan.answer).tolist()
    assert output.reason.std() > 0.1


def test_the_loss_is_the_mean_over_all_verdicts(solver, batch, output):
    share = torch.cat([output.reason, output.answer]).double().sigmoid()
    right = torch.cat([batch.targets, batch.answers]).bool()
    expected = -torch.where(right, share, 1 - share).log().mean().item()
    assert solver.task_loss(output, batch).item() == pytest.approx(expected, rel=1e-5)


def test_solving_follows_the_rules_step_by_step(solver, examples, monkeypatch):
    """The same search, over one problem at a time with the plain networks."""
    monkeypatch.setattr(module, "ACCEPTED_FROM", 0.6)
    monkeypatch.setattr(module, "ANSWERED_FROM", 0.97)
    found = solver.answers(examples, batch_size=3)
    assert any(len(solution.expression) > 2 for solution in found)
    for solution, example in zip(found, examples, strict=True):
        assert solution.expression == search(solver, example, accepted=0.6, answered=0.97)


@torch.no_grad()
def search(solver, example, accepted, answered):
    plain = OneByOne(solver, example)
    expander = plain.expander

    def keep(logits):
        shares = logits.sigmoid().tolist()
        kept = [place for place, share in enumerate(shares) if share >= accepted]
        if not kept and not expander.thoughts:
            kept = range(len(shares))
        return sorted(sorted(kept, key=lambda place: -shares[place])[: expander.room])

    for _, answers in plain.levels(keep, SETTINGS.depth):
        if answers.max().sigmoid() >= answered or expander.exhausted:
            break
    return expander.expressions.text(expander.thoughts[answers.argmax()])


def test_texts_longer_than_the_encoder_reads_are_refused_together(solver):
    short, *long = (problem(" ".join(["one"] * n) + f" {NUMBER} ?", "n0") for n in (5, 600, 700))
    one = r": 604 tokens with 1 places for 1 numbers; .*: 704 tokens "
    with pytest.raises(BenchmarkError, match=rf"^2 problems .* at most 512 tokens: .*{one}"):
        solver.prepare([long[0], short, long[1]])


def test_a_saved_solver_is_the_same_and_a_damaged_one_is_refused(
    solver, examples, batch, output, tmp_path
):
    solver.save(tmp_path / "solver")
    loaded = load_solver(tmp_path / "solver")
    assert loaded.settings == SETTINGS and loaded.constants == solver.constants
    again = loaded.prepare([example.problem for example in examples])
    assert loaded.answers(again) == solver.answers(examples)
    with torch.no_grad():
        assert torch.equal(loaded.network.eval()(batch).reason, output.reason)
    (tmp_path / "solver" / "thought_head.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"^.*is not a solver.*$"):
        load_solver(tmp_path / "solver")


def test_verdicts_are_its_solutions_by_complexity(solver, examples):
    verdicts = solver.verdicts(examples)
    assert [one.example_id for one in verdicts] == [one.example_id for one in examples]
    assert [one.stratum for one in verdicts] == ["medium", "low", "medium", "medium", "low"]
    assert [one[2:] for one in verdicts] == [
        (text, strict(value, 1.0), lenient(value, 1.0)) for text, value in solver.answers(examples)
    ]
    assert accuracy(solver, examples) == sum(one.strict for one in verdicts) / 5
    assert accuracy(solver, []) is None
