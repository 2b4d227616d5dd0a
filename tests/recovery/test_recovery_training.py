"""Training: the loss is the one that is written down, however it is divided and interrupted.
Texts, and what is measured on them: perplexity beside transformers' own loss.
"""

import gzip
import json
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from small import killed_at, same
from transformers import AutoModelForCausalLM, AutoTokenizer
from words import TEXTS, count_steps, keep_every_state

from headsweep.errors import HeadsweepError, ModelError
from headsweep.experiments.recovery import text_training
from headsweep.experiments.recovery.evaluation import (
    Losses,
    generated_per_second,
    perplexity,
    text_losses,
)
from headsweep.experiments.recovery.settings import recovery
from headsweep.experiments.recovery.text_training import Progress, accelerator_for, train_round
from headsweep.experiments.recovery.texts import cut, read_texts, tenth

SMALL = {"rounds": 1, "steps": 5, "batch_size": 6, "micro_batch": 3, "learning_rate": 1e-2}


@pytest.fixture
def pieces(llama):
    return cut(TEXTS, AutoTokenizer.from_pretrained(llama), 8)


def load(folder, dropout=0.0):
    own = {"dtype": torch.float32, "attention_dropout": dropout}
    return AutoModelForCausalLM.from_pretrained(folder, **own)


def other(folder):
    model = load(folder)
    model.lm_head.weight.data.mul_(1.5)
    return model


@pytest.fixture
def trained(llama, pieces, tmp_path, monkeypatch):
    """Return a function that trains a model, and returns its weights and each step's loss."""
    keep_every_state(monkeypatch)

    def trained(state="s", model=None, pieces=pieces, **options):
        settings = recovery(**{**SMALL, **options})
        teacher = None if settings.teacher == "none" else other(llama)
        own = Progress(), accelerator_for(settings, "cpu"), tmp_path / state
        steps = range(settings.steps)
        model, progress = train_round(model or load(llama), teacher, pieces, settings, steps, *own)
        assert progress.step == settings.steps == len(progress.losses)
        return model.state_dict(), [sum(each.values()) for each in progress.losses]

    return trained


def test_one_step_is_that_of_the_written_loss(llama, pieces, trained, tmp_path):
    """Text by text, by transformers' own loss and torch's distributions, and AdamW by hand."""
    sizes = {"steps": 1, "batch_size": len(pieces), "micro_batch": len(pieces) // 2}
    mixture = {"temperature": 3.0, "distill_weight": 0.3}
    found, _ = trained(**sizes, **mixture)
    student, teacher = load(llama), other(llama)
    tokens = sum(len(piece.input_ids) - 1 for piece in pieces)
    for piece in pieces:
        ids = torch.from_numpy(piece.input_ids)[None]
        output = student(input_ids=ids, labels=ids)
        own, taught = (
            torch.distributions.Categorical(logits=logits[0, :-1] / 3.0)
            for logits in (output.logits, teacher(input_ids=ids).logits.detach())
        )
        divergence = 9.0 * torch.distributions.kl_divergence(taught, own).sum()
        (0.7 * output.loss * (ids.shape[1] - 1) + 0.3 * divergence).div(tokens).backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    state = load_file(tmp_path / "s")  # the first moments show the gradient's scale, Adam hides it
    norms = [each.norm() ** 2 for name, each in state.items() if name.endswith("exp_avg")]
    own = [each.grad.norm() ** 2 for each in student.parameters()]
    assert float(sum(norms)) == pytest.approx(0.01 * float(sum(own)), rel=1e-4)
    for parameter in student.parameters():
        decay = 0.01 if parameter.ndim > 1 else 0.0
        with torch.no_grad():  # the first step of Adam: the gradient's sign, nearly
            step = parameter.grad / (parameter.grad.abs() + 1e-8)
            parameter.mul_(1 - 1e-2 * decay).sub_(1e-2 * step)
    # Where a gradient is nearly zero, rounding decides its sign.
    sure = {name: p.grad.abs() > 1e-5 for name, p in student.named_parameters()}
    for name, mask in sure.items():
        torch.testing.assert_close(
            found[name][mask], student.state_dict()[name][mask], atol=2e-5, rtol=0, msg=name
        )
    assert sum(mask.sum() for mask in sure.values()) > 0.9 * sum(m.numel() for m in sure.values())


def test_the_rate_rises_in_a_round_and_falls_to_zero_over_all():
    shares = [text_training._share(step, range(20, 40), 60) for step in range(20, 40)]
    assert shares[:3] == pytest.approx([0.5 * 40 / 60, 39 / 60, 38 / 60])
    assert shares[-1] == pytest.approx(21 / 60)


def test_micro_batches_and_checkpointing_change_memory_only(trained):
    whole, losses = trained(micro_batch=6)
    for options in ({"micro_batch": 2}, {"gradient_checkpointing": True}):
        assert trained(repr(options), **options)[1] == pytest.approx(losses, rel=1e-4)
    for changes in ({"seed": 1}, {"teacher": "none"}, {"precision": "bf16"}):
        found, _ = trained(repr(changes), **changes)
        assert not same(found, whole)
        assert all(tensor.dtype == torch.float32 for tensor in found.values())


@pytest.mark.parametrize("lora", [None, 2])
def test_a_killed_round_ends_as_if_nothing_happened(lora, llama, trained, monkeypatch):
    def run(state):
        return trained(state, load(llama, dropout=0.3), lora=lora)[0]

    undisturbed = run("one")
    killed_at(4, lambda count: (count_steps(monkeypatch, count), run("other")))
    resumed = run("other")
    assert same(resumed, undisturbed) and not same(resumed, load(llama).state_dict())


def test_a_slow_disk_has_states_written_less_often(trained, monkeypatch):
    """A write takes 400 seconds, so that none of 5 short steps brings another one."""
    writes: list[object] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 400 * len(writes))
    monkeypatch.setattr(text_training, "time", clock)
    monkeypatch.setattr(text_training, "write_state", lambda *own, **_: writes.append(own))
    monkeypatch.setattr(text_training, "_WRITES_BETWEEN_STATES", 10)
    trained()
    assert len(writes) == 1


def test_no_config_of_accelerate_changes_the_precision(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        assert accelerator_for(recovery(), "cpu").mixed_precision == "no"
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


def test_processes_that_share_a_model_are_refused(monkeypatch):
    sharded = SimpleNamespace(distributed_type=DistributedType.FSDP)
    monkeypatch.setattr(text_training, "Accelerator", lambda **_: sharded)
    with pytest.raises(ModelError, match=r"accelerate runs FSDP, .* accelerate launch --multi_gpu"):
        accelerator_for(recovery(), "auto")


def test_lora_trains_little_and_leaves_no_trace(llama, trained, tmp_path):
    (found, _), before = trained(lora=2), load(llama).state_dict()
    assert found.keys() == before.keys()
    changed = {name for name in before if not torch.equal(found[name], before[name])}
    assert changed == {name for name in before if "_proj" in name}
    difference = (found[min(changed)] - before[min(changed)]).double()
    assert torch.linalg.matrix_rank(difference, tol=1e-5) == 2
    assert (tmp_path / "s").stat().st_size < 100_000


def test_what_cannot_be_trained_is_refused(llama, trained, tmp_path):
    with pytest.raises(ModelError, match="batch size 6 is no multiple of 4"):
        trained(micro_batch=4)
    (tmp_path / "s").write_bytes(b"half a file")
    with pytest.raises(ModelError, match=r"is damaged .* remove it"):
        trained()
    model = load(llama)
    model.lm_head.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match="task part of the loss is nan at step 1; lower"):
        trained("new", model)


CHAT = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3"}]
ROWS = [
    {"text": "w1 w2\nw3", "problem": "w4", "solution": "w5 w6"},
    {"text": "w7", "problem": "w8", "solution": "w9"},
]


def test_every_kind_of_file_gives_its_texts(tmp_path):
    lines, both = "\n\n".join(map(json.dumps, ROWS)).encode(), ["problem", "solution"]
    for name, content, fields, texts in (
        ("a.jsonl", lines, (), ["w1 w2\nw3", "w7"]),
        ("b.jsonl.gz", gzip.compress(lines), both, ["w4\n\nw5 w6", "w8\n\nw9"]),
        ("b.JSONL.GZ", gzip.compress(lines), both, ["w4\n\nw5 w6", "w8\n\nw9"]),
        ("c.txt", b"w1 w2\n\n w3\n", (), ["w1 w2", " w3"]),
        ("C", b"w1 w2\n\n w3\n", (), ["w1 w2", " w3"]),
        ("d.jsonl", json.dumps({"messages": CHAT}).encode(), (), [CHAT]),
    ):
        (tmp_path / name).write_bytes(content)
        assert read_texts(tmp_path / name, fields) == texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no file"),
        ("\n \n", "has no text"),
        ('{"text": "a"}\n{', "line 2 is not JSON"),
        ("[1]", r"line 1 is \[1\], not an object"),
        ('{"title": "a", "n": 3}', "line 1 has no text in the field text, only in: title"),
        ('{"text": " "}', "line 1 has no text in the field text"),
        ('{"messages": [{"role": "user"}]}', "each of the messages needs the texts role and con"),
        ('{"messages": []}', "each of the messages needs"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(content, message, tmp_path):
    file = tmp_path / "texts.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(HeadsweepError, match=message):
        read_texts(file)


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.TSV", "a.parquet", "a.csv.gz", "a.txt"])
def test_a_file_of_another_kind_is_no_text(name, tmp_path):
    (tmp_path / name).write_text('[{"text": "w1"}]')
    message = r"neither .jsonl, .jsonl.gz nor plain text .*; convert it to one JSON object a line"
    if name == "a.txt":
        message = "a.txt is plain text, which has no fields; leave out --fields, or give .jsonl"
    with pytest.raises(HeadsweepError, match=message):
        read_texts(tmp_path / name, ["text"])


def test_at_most_two_thousand_texts_are_held_out():
    for given, held_out in ((20, 2), (19_999, 1999), (30_000, 2000)):
        texts = [str(number) for number in range(given)]
        parts = tenth(texts)
        assert [len(part) for part in parts] == [held_out, given - held_out]
        assert sorted([*parts[0], *parts[1]]) == sorted(texts)


def test_pieces_hold_every_token_once_and_conversations_are_written_by_the_template(llama):
    tokenizer = AutoTokenizer.from_pretrained(llama)
    pieces = cut(TEXTS, tokenizer, length=4)
    assert max(len(piece.input_ids) for piece in pieces) == 4
    for number, text in enumerate(TEXTS):
        joined = [int(each) for one in pieces if one.text == number for each in one.input_ids]
        ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id]
        assert joined == ids[: len(joined)]
        assert len(ids) - len(joined) == (len(ids) % 4 == 1)  # a last token alone predicts nothing
    (piece,) = cut([CHAT], tokenizer, length=30)
    expected = tokenizer.apply_chat_template(CHAT, tokenize=True, return_dict=True)["input_ids"]
    assert piece.input_ids.tolist() == expected
    assert tokenizer.decode(expected) == "user w1 w2 [END] assistant w3 [END]"


def test_conversations_that_no_template_writes_are_refused(llama):
    tokenizer = AutoTokenizer.from_pretrained(llama)
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ModelError, match=r"template refuses messages \(roles must alternate\)"):
        cut([CHAT], tokenizer, length=30)
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match="has no chat template; give texts, not messages"):
        cut([CHAT], tokenizer, length=30)


def test_the_loss_of_a_text_is_that_of_its_pieces(llama):
    model = AutoModelForCausalLM.from_pretrained(llama)
    pieces = cut(TEXTS, AutoTokenizer.from_pretrained(llama), length=5)
    found = text_losses(model, pieces, 5)
    for number in range(len(TEXTS)):
        own = [torch.from_numpy(each.input_ids)[None] for each in pieces if each.text == number]
        with torch.no_grad():
            losses = [float(model(ids, labels=ids).loss) * (ids.shape[1] - 1) for ids in own]
        assert found.nats[number] == pytest.approx(sum(losses), rel=1e-5)
        assert found.tokens[number] == sum(ids.shape[1] - 1 for ids in own)


def test_a_ratio_of_perplexities_is_narrower_as_the_difficulty_of_texts_cancels():
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, 60, size=40)
    nats = tokens * (2.0 + draw.normal(0, 0.6, size=40))
    harder = Losses(nats + 0.1 * tokens + draw.normal(0, 1, size=40), tokens)
    own, ratio = perplexity(Losses(nats, tokens)), perplexity(harder, Losses(nats, tokens))
    assert own.low < own.value < own.high and ratio.low < math.exp(0.1) < ratio.high
    assert own.value == pytest.approx(math.exp(nats.sum() / tokens.sum()))
    assert ratio.value == pytest.approx(perplexity(harder).value / own.value)
    assert math.log(ratio.high / ratio.low) < 0.5 * math.log(own.high / own.low)


def test_generation_is_timed_at_its_full_length(llama, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(llama)
    made, generate = [], model.generate
    monkeypatch.setattr(model, "generate", lambda **o: made.append(generate(**o)) or made[-1])
    (speed,) = generated_per_second([model], "cpu")
    assert {tuple(each.shape) for each in made} == {(1, 48), (8, 48)}
    assert set(speed) == {"tokens_per_second_batch_1", "tokens_per_second_batch_8"}
    assert min(speed.values()) > 0
