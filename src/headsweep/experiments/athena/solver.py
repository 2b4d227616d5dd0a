"""A complete solver: networks, tokenizer, constants and settings; created, saved and loaded.

It solves problems by its own judgements, which drive the expansion. A value is graded strictly, and
leniently by the rule of ATHENA's released code.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from headsweep.config.solvers import Solver, Training
from headsweep.errors import BenchmarkError, ModelError, TableError
from headsweep.experiments.athena.batches import (
    Level,
    ProblemBatch,
    Rows,
    TokenizedProblem,
    collate,
    collate_texts,
    starts,
)
from headsweep.experiments.athena.encoders import new_encoder
from headsweep.experiments.athena.equations import NUMBER, Problem
from headsweep.experiments.athena.expressions import Expander, Op, harvest, schedule
from headsweep.experiments.athena.networks import Athena, Progress, SolverOutput, ThoughtHead
from headsweep.experiments.athena.problems import complexity
from headsweep.files.record import read_json, read_tensors
from headsweep.files.safe_files import atomic, write_json
from headsweep.models.geometry import HeadGeometry, evaluating
from headsweep.models.learner import WHOLE, JudgedAnswer, Terms, move
from headsweep.models.load import load_encoder

ACCEPTED_FROM = 0.5
"""The lowest reason probability at which a candidate is accepted."""
ANSWERED_FROM = 0.95
"""The lowest answer probability that ends a problem's expansion."""

_TOLERANCE = 1e-4
_MOST_PLACES = 4
_NAMED = 10  # problems in an error
_RARE = 5  # a constant in fewer training equations is taken for an error in the data
_SETTINGS = "solver.json"
_HEAD = "thought_head.safetensors"
_ENCODER = "encoder"


class Solution(NamedTuple):
    """The solver's answer to a problem."""

    expression: str
    value: float  # nan if the expression has none


@dataclass(frozen=True)
class MathSolver:
    """A word-problem solver: a `headsweep.models.learner.Learner`."""

    network: Athena
    tokenizer: PreTrainedTokenizerBase
    constants: tuple[float, ...]
    settings: Solver

    at_once = 64
    """Batch size of passes without gradients."""

    @property
    def encoder(self) -> PreTrainedModel:
        """The part whose heads may be cut."""
        return self.network.encoder

    def prepare(self, problems: Sequence[Problem]) -> list[TokenizedProblem]:
        """Tokenize problems and compute their expansions.

        Raises:
            BenchmarkError: texts are too long for the encoder, or tokenizing changes how many
                numbers they have.
        """
        mask, most = self.tokenizer.mask_token, self.tokenizer.model_max_length
        texts = [problem.text.replace(NUMBER, mask) for problem in problems]
        encoded = self.tokenizer(texts, add_special_tokens=True, verbose=False)
        examples = []
        unreadable = []
        for index, problem in enumerate(problems):
            ids = np.array(encoded["input_ids"][index], np.int64)
            numbers = len(problem.numbers)
            places = np.flatnonzero(ids == self.tokenizer.mask_token_id)
            if len(ids) > most or len(places) != numbers:
                unreadable.append(
                    f"{problem.problem_id}: {len(ids)} tokens with {len(places)} places for "
                    f"{numbers} numbers"
                )
                continue
            of_text = [place is not None for place in encoded.sequence_ids(index)]
            goal = int(np.flatnonzero(of_text)[-1])  # the text ends with its question
            plan = schedule(problem.equation, numbers, self.constants, self.settings.depth)
            examples.append(TokenizedProblem(problem, ids, places, goal, plan))
        if unreadable:
            raise BenchmarkError(
                f"{len(unreadable)} problems cannot be read by the encoder, which takes at most "
                f"{most} tokens: {'; '.join(unreadable[:_NAMED])}; shorten or remove them"
            )
        return examples

    @torch.inference_mode()
    def answers(self, examples: Sequence[TokenizedProblem], batch_size: int = 64) -> list[Solution]:
        """Solve problems in evaluation mode, in their order; their schedules are ignored.

        At each depth candidates of at least `ACCEPTED_FROM` become thoughts, the most probable
        first; a problem without thoughts takes all its candidates if none is probable enough. Then
        all thoughts are judged as answers. A problem is done when one of them reaches
        `ANSWERED_FROM`, when no thought is new, or at the last depth; the most probable is its
        answer. The batch size affects only speed and rounding.
        """
        # Problems of similar length share a batch, for less padding.
        order = sorted(range(len(examples)), key=lambda index: len(examples[index].input_ids))
        solutions: dict[int, Solution] = {}
        with evaluating(self.network):
            for start in range(0, len(order), batch_size):
                places = order[start : start + batch_size]
                solved = self._solved([examples[place] for place in places])
                solutions.update(zip(places, solved, strict=True))
        return [solutions[place] for place in range(len(examples))]

    def _solved(self, examples: Sequence[TokenizedProblem]) -> list[Solution]:
        device = self.encoder.device
        texts = collate_texts(examples, self.tokenizer.pad_token_id)
        progress = Progress(self.network, move(texts, device))
        expanders = [Expander(len(example.places), self.constants) for example in examples]
        first_number = starts([len(example.places) for example in examples])
        active = list(range(len(examples)))
        owners = np.empty(0, dtype=np.int64)  # problems of all thoughts, in order of acceptance
        thoughts = [owners] * len(examples)  # places of each problem's, among all
        probabilities = np.empty(0)

        def place(op: Op, owner: int, index: int) -> int:
            """Return an operand's number over the batch."""
            if op == Op.CONSTANT:
                return index
            return index + first_number[owner] if op == Op.NUMBER else thoughts[owner][index]

        for _ in range(self.settings.depth + 1):
            offered = [
                (op, place(op, owner, left), place(op, owner, right), owner, expression)
                for owner in active
                for op, left, right, expression in expanders[owner].expand()
            ]
            if offered:
                offered.sort(key=lambda candidate: candidate[0])
                op, left, right, owner, expression = np.array(offered, dtype=np.int64).T
                candidates = move(Level.of(op, left, right, owner), device)
                probability = _sigmoid(progress.judge(candidates))
                accepted = []
                for problem in active:
                    kept = _accepted(owner == problem, probability, expanders[problem])
                    expanders[problem].thoughts += expression[kept].tolist()
                    accepted.append(kept)
                index = np.concatenate(accepted)
                owners = np.concatenate([owners, owner[index]])
                thoughts = [np.flatnonzero(owners == problem) for problem in range(len(examples))]
                progress.accept(
                    torch.as_tensor(index, device=device), move(Rows.of(owners), device)
                )
                probabilities = _sigmoid(progress.answers())
            active = [
                problem
                for problem in active
                if probabilities[thoughts[problem]].max() < ANSWERED_FROM
                and not expanders[problem].exhausted
            ]
            if not active:
                break
        solutions = []
        for example, expander, places in zip(examples, expanders, thoughts, strict=True):
            best = expander.thoughts[int(probabilities[places].argmax())]
            nodes = expander.expressions
            solutions.append(Solution(nodes.text(best), nodes.value(best, example.problem.numbers)))
        return solutions

    def collate(self, examples: Sequence[TokenizedProblem]) -> ProblemBatch:
        """Join examples to a batch."""
        return collate(examples, self.tokenizer.pad_token_id)

    def run(self, batch: ProblemBatch, *, attentions: bool = False) -> SolverOutput:
        """Judge every candidate and every thought of a batch under teacher forcing."""
        return self.network(batch, attentions=attentions)

    def task_loss(self, output: SolverOutput, batch: ProblemBatch) -> Float[Tensor, ""]:
        """Return the mean binary cross-entropy of reason and answer logits together."""
        reason = binary_cross_entropy_with_logits(output.reason, batch.targets, reduction="sum")
        answer = binary_cross_entropy_with_logits(output.answer, batch.answers, reduction="sum")
        return (reason + answer) / batch.judged

    def response_loss(
        self,
        student: SolverOutput,
        teacher: SolverOutput,
        batch: ProblemBatch,
        temperature: float,
        share: Terms = WHOLE,
    ) -> Float[Tensor, ""]:
        """Return the divergence of a student's logits from its teacher's (arXiv 2511.17577, eq. 6).

        Both judge the same candidates, under teacher forcing. Reason logits are independent;
        answer logits compete within a problem. So the loss is temperature² times the sum of two
        means of KL(teacher || student): over candidates for Bernoulli distributions, and over
        problems for the softmax over a problem's thoughts.
        """
        student_logits = student.reason.float() / temperature
        teacher_logits = teacher.reason.float() / temperature
        shares = teacher_logits.sigmoid()
        cross_entropy = binary_cross_entropy_with_logits(student_logits, shares)
        entropy = binary_cross_entropy_with_logits(teacher_logits, shares)
        owners = batch.accepted[-1][1].owner
        problems = len(batch.texts.goal)
        log_student, log_teacher = (
            _log_shares(output.answer.float() / temperature, owners, problems)
            for output in (student, teacher)
        )
        answers = kl_div(log_student, log_teacher, reduction="sum", log_target=True) / problems
        candidates = (cross_entropy - entropy) * share.candidates
        return temperature**2 * (candidates + answers * share.problems)

    def known_drops(self, geometry: HeadGeometry) -> None:
        """Return None: no sweep measures a solver's heads."""

    def verdicts(self, examples: Sequence[TokenizedProblem]) -> list[JudgedAnswer]:
        """Solve problems and grade the values; the stratum is the gold equation's complexity."""
        return [
            JudgedAnswer(
                example.example_id,
                complexity(example.problem.equation),
                expression,
                strict(value, example.problem.answer),
                lenient(value, example.problem.answer),
            )
            for example, (expression, value) in zip(examples, self.answers(examples), strict=True)
        ]

    def with_network(self, network: Athena) -> "MathSolver":
        """Return the solver with other networks."""
        return replace(self, network=network)

    def untrained(self, seed: int) -> tuple["MathSolver", Training]:
        """Return the solver with random weights and all heads of its encoder, and its recipe."""
        device = self.encoder.device
        athena = copy.deepcopy(self.network).to("cpu")
        config = athena.encoder.config
        config.get_text_config().kept_heads = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            athena.encoder = AutoModel.from_config(config)
            if getattr(athena.encoder, "pooler", None) is not None:
                athena.encoder.pooler = None
            for module in athena.head.modules():
                if isinstance(module, nn.Linear | nn.LayerNorm):
                    module.reset_parameters()
            nn.init.normal_(athena.head.constants)
        return self.with_network(athena.to(device)), self.settings.training

    def finished(self) -> "MathSolver":
        """Return the solver: its type is float32."""
        return self

    def save(self, folder: Path) -> None:
        """Write encoder and tokenizer in the hub's format, the thought head and the settings.

        A pruned encoder's config says which heads it kept.
        """
        self.encoder.save_pretrained(folder / _ENCODER)
        self.tokenizer.save_pretrained(folder / _ENCODER)
        head = self.network.head
        with atomic(folder / _HEAD) as temporary:
            safetensors.torch.save_file(head.state_dict(), temporary)
        attention = head.reason.attention
        facts = {
            "constants": self.constants,
            "heads": attention.query.out_features // attention.head_dim,
            "inner": head.reason.before.inner.out_features,
            "settings": self.settings.model_dump(mode="json"),
        }
        write_json(folder / _SETTINGS, facts)


def new_solver(settings: Solver, problems: Sequence[Problem], seed: int) -> MathSolver:
    """Return an untrained solver whose vocabulary and constants are those of training problems.

    The thought head has the encoder's width, number of heads and inner width; the seed decides the
    weights that are not pretrained.

    Raises:
        ModelError: the encoder cannot be loaded.
    """
    if settings.encoder.source is None:
        texts = (problem.text.replace(NUMBER, " ") for problem in problems)
        encoder, tokenizer = new_encoder(settings.encoder, texts, seed)
    else:
        encoder, tokenizer = load_encoder(settings.encoder.source, settings.encoder.revision)
    constants = harvest((problem.equation for problem in problems), at_least=_RARE)
    shape = encoder.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        heads, inner = shape.num_attention_heads, shape.intermediate_size
        head = ThoughtHead(shape.hidden_size, heads, inner, settings.dropout, len(constants))
    return MathSolver(Athena(encoder, head), tokenizer, constants, settings)


def load_solver(folder: Path) -> MathSolver:
    """Read a solver that `MathSolver.save` wrote.

    Raises:
        ModelError: a part is missing, damaged, or does not fit the others.
    """
    encoder, tokenizer = load_encoder(str(folder / _ENCODER))
    try:
        facts = read_json(folder / _SETTINGS)
        stored = facts["settings"]
        known_settings = {name: stored[name] for name in stored if name in Solver.model_fields}
        settings = Solver.model_validate(known_settings)
        constants = tuple(map(float, facts["constants"]))
        width = encoder.config.hidden_size
        heads = facts["heads"]
        inner = facts["inner"]
        head = ThoughtHead(width, heads, inner, settings.dropout, len(constants))
        head.load_state_dict(read_tensors(folder / _HEAD)[1])
    except (TableError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder} is not a solver ({reason:.200}); train it again") from None
    return MathSolver(Athena(encoder, head), tokenizer, constants, settings)


def strict(predicted: float, gold: float) -> bool:
    """Return whether a value is finite and within 1e-4 max(1, |gold|) of the gold value."""
    return math.isfinite(predicted) and abs(predicted - gold) <= _TOLERANCE * max(1, abs(gold))


def lenient(predicted: float, gold: float) -> bool:
    """Return whether two values agree by the rule of ATHENA's released code.

    They must differ by less than 10^-k, where k is the smaller of their numbers of printed
    decimals, at most 4. A whole number prints one decimal (``5.0``), so whole answers may be off
    by almost 0.1. Failed arithmetic counts as 0.
    """
    if not math.isfinite(predicted):
        predicted = 0.0
    printed = [repr(float(value)).partition("e")[0] for value in (predicted, gold)]
    decimals = [len(digits.partition(".")[2]) for digits in printed]
    return abs(predicted - gold) < 10.0 ** -min(*decimals, _MOST_PLACES)


def _accepted(
    its_own: Bool[np.ndarray, " candidates"],
    probability: Float[np.ndarray, " candidates"],
    expander: Expander,
) -> Int[np.ndarray, " accepted"]:
    """Return which candidates of a problem become thoughts, in ascending order.

    Those are the most probable ones that are probable enough, as many as there is room for. Of a
    problem without thoughts they are taken from all candidates if none is probable enough.
    """
    kept = np.flatnonzero(its_own & (probability >= ACCEPTED_FROM))
    if not len(kept) and not expander.thoughts:
        kept = np.flatnonzero(its_own)
    best_first = np.argsort(-probability[kept], kind="stable")
    return np.sort(kept[best_first[: expander.room]])


def _sigmoid(logits: Float[Tensor, " items"]) -> Float[np.ndarray, " items"]:
    return logits.float().sigmoid().cpu().numpy().astype(np.float64)


def _log_shares(
    logits: Float[Tensor, " thoughts"], owners: Int[Tensor, " thoughts"], problems: int
) -> Float[Tensor, " thoughts"]:
    """Return each thought's log-softmax over the thoughts of its problem."""
    foreign = owners != torch.arange(problems, device=owners.device)[:, None]
    rows = logits.expand(problems, -1).masked_fill(foreign, -torch.inf)
    return rows.log_softmax(-1)[owners, torch.arange(len(owners), device=owners.device)]
