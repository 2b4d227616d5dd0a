"""A complete solver: networks, tokenizer, constants and settings; created, saved and loaded."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from headroom.athena.batches import Batch, Example, collate
from headroom.athena.equations import NUMBER, Problem
from headroom.athena.expressions import harvest, schedule
from headroom.athena.inference import Solution, lenient, solve, strict
from headroom.athena.networks import Athena, Output, ThoughtHead
from headroom.athena.problems import complexity
from headroom.config.compression import Solver, Training
from headroom.errors import BenchmarkError, ModelError
from headroom.models.geometry import HeadGeometry, evaluating
from headroom.models.learner import Verdict, quantised
from headroom.models.load import load_encoder, new_encoder
from headroom.tables import atomic, write_json

_RARE = 5  # a constant in fewer training equations is taken for an error in the data
_SETTINGS = "solver.json"
_HEAD = "thought_head.safetensors"
_ENCODER = "encoder"


@dataclass(frozen=True)
class MathSolver:
    """A word-problem solver: a `headroom.models.learner.Learner`."""

    athena: Athena
    tokenizer: PreTrainedTokenizerBase
    constants: tuple[float, ...]
    settings: Solver

    at_once = 64
    """Batch size of passes without gradients."""

    @property
    def network(self) -> Athena:
        """The network to train."""
        return self.athena

    @property
    def encoder(self) -> PreTrainedModel:
        """The part whose heads may be cut."""
        return self.athena.encoder

    @property
    def recipe(self) -> Training:
        """The recipe for training it from scratch."""
        return self.settings.training

    def prepare(self, problems: Sequence[Problem]) -> list[Example]:
        """Tokenize problems and compute their expansions.

        Raises:
            BenchmarkError: a text is too long for the encoder, or tokenizing changes how many
                numbers it has.
        """
        mask, most = self.tokenizer.mask_token, self.tokenizer.model_max_length
        texts = [problem.text.replace(NUMBER, mask) for problem in problems]
        encoded = self.tokenizer(texts, add_special_tokens=True, verbose=False)
        examples = []
        for index, problem in enumerate(problems):
            ids, numbers = np.array(encoded["input_ids"][index], np.int64), len(problem.numbers)
            places = np.flatnonzero(ids == self.tokenizer.mask_token_id)
            if len(ids) > most or len(places) != numbers:
                raise BenchmarkError(
                    f"problem {problem.problem_id}: {len(ids)} tokens with {len(places)} places "
                    f"for {numbers} numbers; the encoder reads at most {most} tokens: shorten or "
                    f"remove it"
                )
            of_text = [place is not None for place in encoded.sequence_ids(index)]
            goal = int(np.flatnonzero(of_text)[-1])  # the text ends with its question
            plan = schedule(problem.equation, numbers, self.constants, self.settings.depth)
            examples.append(Example(problem, ids, places, goal, plan))
        return examples

    @torch.inference_mode()
    def answers(self, examples: Sequence[Example], batch_size: int = 64) -> list[Solution]:
        """Solve problems in evaluation mode, in their order; see `headroom.athena.inference`.

        The batch size affects only speed and rounding.
        """
        # Problems of similar length share a batch, for less padding.
        order = sorted(range(len(examples)), key=lambda index: len(examples[index].input_ids))
        found: dict[int, Solution] = {}
        with evaluating(self.athena):
            for start in range(0, len(order), batch_size):
                places = order[start : start + batch_size]
                batch = [examples[place] for place in places]
                padding = self.tokenizer.pad_token_id
                solved = solve(self.athena, batch, self.constants, padding, self.settings.depth)
                found.update(zip(places, solved, strict=True))
        return [found[place] for place in range(len(examples))]

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Join examples to a batch."""
        return collate(examples, self.tokenizer.pad_token_id)

    def run(self, batch: Batch, *, attentions: bool = False) -> Output:
        """Judge every candidate and every thought of a batch under teacher forcing."""
        return self.athena(batch, attentions=attentions)

    def task_loss(self, output: Output, batch: Batch) -> Float[Tensor, ""]:
        """Return the mean binary cross-entropy of reason and answer logits together."""
        reason = binary_cross_entropy_with_logits(output.reason, batch.targets, reduction="sum")
        answer = binary_cross_entropy_with_logits(output.answer, batch.answers, reduction="sum")
        return (reason + answer) / batch.judged

    def response_loss(
        self, student: Output, teacher: Output, batch: Batch, temperature: float
    ) -> Float[Tensor, ""]:
        """Return the divergence of a student's logits from its teacher's (arXiv 2511.17577, eq. 6).

        Both judge the same candidates, under teacher forcing. Reason logits are independent;
        answer logits compete within a problem. So the loss is temperature² times the sum of two
        means of KL(teacher || student): over candidates for Bernoulli distributions, and over
        problems for the softmax over a problem's thoughts.
        """
        asked, right = (output.reason.float() / temperature for output in (student, teacher))
        shares = right.sigmoid()
        cross_entropy, entropy = (
            binary_cross_entropy_with_logits(logits, shares) for logits in (asked, right)
        )
        owners, problems = batch.accepted[-1][1].owner, len(batch.texts.input_ids)
        log_student, log_teacher = (
            _log_shares(output.answer.float() / temperature, owners, problems)
            for output in (student, teacher)
        )
        answers = kl_div(log_student, log_teacher, reduction="sum", log_target=True) / problems
        return temperature**2 * (cross_entropy - entropy + answers)

    def known_drops(self, geometry: HeadGeometry) -> None:
        """Return None: no sweep measures a solver's heads."""

    def verdicts(self, examples: Sequence[Example]) -> list[Verdict]:
        """Solve problems and grade the values; the stratum is the gold equation's complexity."""
        return [
            Verdict(
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
        return replace(self, athena=network)

    def untrained(self, seed: int) -> "MathSolver":
        """Return the solver with random weights and all heads of its encoder."""
        device, athena = self.encoder.device, copy.deepcopy(self.athena).to("cpu")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            athena.encoder = _new_weights(self.encoder)
            _forget(athena.head)
        return self.with_network(athena.to(device))

    def quantised(self) -> "MathSolver":
        """Return a copy whose linear layers, also the thought head's, have 8-bit weights."""
        return self.with_network(quantised(self.athena))

    def finished(self) -> "MathSolver":
        """Return the solver: its type is float32."""
        return self

    def save(self, folder: Path) -> None:
        """Write encoder and tokenizer in the hub's format, the thought head and the settings.

        A pruned encoder's config says which heads it kept.
        """
        self.athena.encoder.save_pretrained(folder / _ENCODER)
        self.tokenizer.save_pretrained(folder / _ENCODER)
        with atomic(folder / _HEAD) as temporary:
            safetensors.torch.save_file(self.athena.head.state_dict(), temporary)
        attention = self.athena.head.reason.attention
        facts = {
            "constants": self.constants,
            "heads": attention.query.out_features // attention.head_dim,
            "inner": self.athena.head.reason.before.inner.out_features,
            "settings": self.settings.model_dump(mode="json"),
        }
        write_json(folder / _SETTINGS, facts)


def new_solver(settings: Solver, problems: Sequence[Problem], seed: int) -> MathSolver:
    """Return an untrained solver whose vocabulary and constants are those of training problems.

    Args:
        settings: encoder and thought head; the head has the width, the number of heads and the
            inner width of the encoder.
        problems: the training part.
        seed: decides the weights that are not pretrained.

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
        facts = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
        known = {k: v for k, v in facts["settings"].items() if k in Solver.model_fields}
        settings = Solver.model_validate(known)
        constants = tuple(map(float, facts["constants"]))
        width, heads, inner = encoder.config.hidden_size, facts["heads"], facts["inner"]
        head = ThoughtHead(width, heads, inner, settings.dropout, len(constants))
        head.load_state_dict(safetensors.torch.load_file(folder / _HEAD))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{folder} is not a solver ({reason:.200}); train it again") from None
    return MathSolver(Athena(encoder, head), tokenizer, constants, settings)


def _new_weights(encoder: PreTrainedModel) -> PreTrainedModel:
    """Return an encoder of the same architecture, with all heads and random weights."""
    config = copy.deepcopy(encoder.config)
    config.get_text_config().kept_heads = {}
    new = AutoModel.from_config(config)
    if getattr(new, "pooler", None) is not None:
        new.pooler = None
    return new


def _forget(head: ThoughtHead) -> None:
    """Reset a thought head to random weights."""
    for module in head.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            module.reset_parameters()
    nn.init.normal_(head.constants)


def _log_shares(
    logits: Float[Tensor, " thoughts"], owners: Int[Tensor, " thoughts"], problems: int
) -> Float[Tensor, " thoughts"]:
    """Return each thought's log-softmax over the thoughts of its problem."""
    foreign = owners != torch.arange(problems, device=owners.device)[:, None]
    rows = logits.expand(problems, -1).masked_fill(foreign, -torch.inf)
    return rows.log_softmax(-1)[owners, torch.arange(len(owners), device=owners.device)]
