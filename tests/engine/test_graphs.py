"""Captured decoding steps: a list of operators is replayed in the place of a GPU's graph."""

import gc
import re
import weakref
from itertools import count
from unittest.mock import MagicMock, call

import pytest
import torch
from recorded import Captures
from test_engine import assert_alike, loaded_model, random_prompts
from test_packed import SERVED, biased
from test_packed import flash as flash_of
from test_verify import plan

from headsweep.config import Decoding
from headsweep.engine import batch, graphs
from headsweep.engine import decoder as decoders
from headsweep.engine.attention import Slots, flash
from headsweep.engine.batch import DecodingBatch
from headsweep.engine.decoder import Decoder, SlotRows
from headsweep.engine.engine import Engine
from headsweep.engine.graphs import Steps, _Step, bucket, cuda_graph
from headsweep.engine.segments import FixedSegments
from headsweep.variants import BASE, Variant

HEADS = (BASE, Variant(0, 5), Variant(2, 1), Variant(3, 4), Variant(1, 4, "scaled", 50))
NOISE = (Variant(2, 3, kind="noise"), Variant(1, 2, kind="noise"), Variant(2, 3))
LEFT_OUT = Variant(1, None, "skip", 1)
NEW_TOKENS = 20


@pytest.fixture(autouse=True)
def attention():
    """ATen's operator on a CPU: no Python of ours is between it and what is recorded."""

    def kernel(queries, keys, values, offsets, slots, most, capacity, *rest, **options):
        named = {"window_size_left": None, "window_size_right": None, **options}
        (outputs,) = flash_of(queries, keys, values, offsets, slots, most, capacity, *rest, **named)
        return outputs, *(outputs.new_empty(0) for _ in range(4))

    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", kernel, "CPU")
        yield


@pytest.fixture
def loaded():
    return loaded_model(biased(SERVED["Qwen2"]), eos=(2, 40))


def answered(loaded, wanted, capture, *, checked=False, **decoding):
    """Answer with captured steps, or with eager ones; return the answers and the engine."""
    decoder = Decoder(loaded, flash)
    decoder.capture = capture
    chosen = Decoding(max_new_tokens=NEW_TOKENS, **decoding)
    engine = Engine(loaded, chosen, 7, decoder, checked=checked)
    return {answer.request: answer for answer in engine.run(wanted)}, engine


@pytest.mark.parametrize("name", SERVED)
def test_replayed_steps_give_the_tokens_of_eager_ones(name):
    loaded = loaded_model(biased(SERVED[name]), eos=(2, 40))
    wanted = plan(random_prompts((3, 29, 5, 17)), HEADS)
    expected, _ = answered(loaded, wanted, None)
    captures = Captures()
    found, engine = answered(loaded, wanted, captures)
    assert_alike(found, expected)
    assert engine.facts["path"] == "flash in graphs"
    assert "falls" not in engine.facts
    assert captures.replays >= NEW_TOKENS
    layers = len(loaded.model.model.layers)
    assert captures.recordings[0].operators.count("_flash_attention_forward") == layers


def test_samples_are_drawn_from_a_captured_steps_logits(loaded):
    wanted = plan(random_prompts((9, 4, 1)), HEADS)
    expected, _ = answered(loaded, wanted, None, temperature=0.7)
    captures = Captures()
    found, engine = answered(loaded, wanted, captures, temperature=0.7)
    assert "falls" not in engine.facts
    assert captures.replays
    assert_alike(found, expected)


@pytest.mark.parametrize("variants", [NOISE, (*NOISE, LEFT_OUT)])
def test_rows_with_noise_are_captured_and_left_out_layers_take_eager_steps(
    variants, loaded, monkeypatch
):
    wanted = plan(random_prompts((9, 4)), variants)
    expected, _ = answered(loaded, wanted, None)
    taken = []
    replayed = Steps.replayed

    def told(steps, tokens, columns, masks, replays=1):
        taken.append(replayed(steps, tokens, columns, masks, replays))
        return taken[-1]

    monkeypatch.setattr(Steps, "replayed", told)
    found, engine = answered(loaded, wanted, Captures())
    assert_alike(found, expected)
    assert "falls" not in engine.facts
    eager = sum(outputs is None for outputs in taken)
    if LEFT_OUT in variants:
        assert 0 < eager < len(taken)  # the base's steps are captured
    else:
        assert eager == 0


def test_a_step_is_replayed_several_times_before_its_tokens_are_looked_at(loaded, monkeypatch):
    """Rows end within such a series, at their limit and at their ends: what follows is dropped."""
    monkeypatch.setattr(batch, "_TOKENS_OF_A_REPLAY", 1)
    wanted = plan(random_prompts((3, 29, 5, 17, 8, 2)), [BASE])
    expected, _ = answered(loaded, wanted, None)
    captures = Captures()
    takes = []
    take = DecodingBatch._take

    def told(decoded, chosen):
        takes.append(len(chosen))
        return take(decoded, chosen)

    monkeypatch.setattr(DecodingBatch, "_take", told)
    found, _ = answered(loaded, wanted, captures)
    assert_alike(found, expected)
    for request, answer in found.items():
        assert answer.margin == pytest.approx(expected[request].margin, abs=1e-5)
    assert max(takes) == graphs.MOST_REPLAYS
    lengths = {len(answer.token_ids) for answer in expected.values()}
    assert min(lengths) < max(lengths) == NEW_TOKENS


def frozen_lengths(step):
    """Take lengths from the host: the function is right, its graph keeps those of its capture."""
    lengths = step._segments.bounds(step._slots.capacity).lengths
    for row, column in enumerate(step.told[1]):
        lengths[row].fill_(column + 1)


def frozen_token(step):
    step._tokens[0].fill_(step.told[0][0])


def frozen_head(step):
    step._masks[1].factors[:, 2].fill_(step.told[0][0] % 2)


def copied_from_the_host(step):
    step._tokens.copy_(torch.tensor(step.told[0]))


def read_by_the_host(step):
    assert step._tokens[0].item() >= 0


def not_static(step):
    step._tokens.add_(step.elsewhere)


@pytest.mark.parametrize(
    ("mutant", "cause"),
    [
        (frozen_lengths, "GraphError: a captured step is .* off its function"),
        (frozen_token, "GraphError: a captured step is .* off its function"),
        (frozen_head, "GraphError: a captured step is .* off its function"),
        (copied_from_the_host, "lift_fresh cannot be captured"),
        (read_by_the_host, "item cannot be captured"),
        (not_static, r"add_ reads a tensor of torch.Size\(\[\]\) that is not static"),
    ],
)
def test_a_step_that_no_graph_can_do_falls_to_the_eager_one(mutant, cause, loaded, monkeypatch):
    """Replayed is what was captured: a frozen number, a hidden copy and a hidden wait are seen."""
    wanted = plan(random_prompts((9, 4, 1)), HEADS)
    expected, _ = answered(loaded, wanted, None)
    fill, compute = _Step._fill, _Step._compute

    def told(step, tokens, columns):
        step.told = tokens, columns
        step.elsewhere = torch.zeros((), dtype=torch.int64)
        fill(step, tokens, columns)

    def mutated(step):
        begin = FixedSegments.begin

        def begin_and_mutate(segments):
            begin(segments)
            mutant(step)

        with monkeypatch.context() as patched:
            patched.setattr(FixedSegments, "begin", begin_and_mutate)
            return compute(step)

    monkeypatch.setattr(_Step, "_fill", told)
    monkeypatch.setattr(_Step, "_compute", mutated)
    found, engine = answered(loaded, wanted, Captures())
    assert_alike(found, expected)
    assert engine.facts["path"] == "flash"
    (fall,) = engine.facts["falls"]
    assert fall.startswith("flash in graphs to flash: ")
    assert re.search(cause, fall)


def test_a_graph_that_fails_later_is_left_and_its_answers_are_made_again(loaded):
    wanted = plan(random_prompts((9, 4, 1)), HEADS)
    expected, _ = answered(loaded, wanted, None)
    captures = Captures()

    def spoilt(compute):
        replay, filled = captures(compute)

        def late():
            replay()
            if captures.replays > 12:
                filled.fill_(torch.nan)

        return late, filled

    found, engine = answered(loaded, wanted, spoilt, checked=True)
    assert_alike(found, expected)
    assert engine.facts["path"] == "flash"
    (fall,) = engine.facts["falls"]
    assert fall.startswith("flash in graphs to flash: the model's logits are not finite")


def test_trying_a_graph_out_leaves_the_slots_as_they_were(loaded):
    decoder = Decoder(loaded, flash)
    decoder.capture = Captures()
    slots = SlotRows(decoder, 5, 40)
    slots.memory.normal_()
    before = slots.memory.clone()
    with torch.inference_mode():
        step = _Step(decoder, slots, 5, {})
        assert torch.equal(slots.memory, before)
        step.run([3, 4, 5], [9, 2, slots.capacity - 1], {}, 2)
    changed = (slots.memory != before).any(-1).any(-1).any(0).any(0).nonzero().tolist()
    last = slots.capacity - 1
    # Rows 3 and 4 are nobody's; row 2 has no column left.
    assert changed == [[0, 9], [0, 10], [1, 2], [1, 3], [2, last], [3, 0], [3, 1], [4, 0], [4, 1]]


def test_a_batch_that_has_ended_leaves_its_memory_at_once(loaded):
    """Nothing waits for Python's collector: the next batch of a GPU would find no memory."""
    decoder = Decoder(loaded, flash)
    decoder.capture = Captures()
    rows = SlotRows(decoder, 5, 40)
    with torch.inference_mode():
        rows._steps.replayed([3, 4], [0, 0], {})
    ended = weakref.ref(rows)
    gc.disable()
    try:
        del rows
        assert ended() is None
    finally:
        gc.enable()


def test_slots_that_have_grown_are_captured_anew(loaded):
    decoder = Decoder(loaded, flash)
    decoder.capture = captures = Captures()
    slots = Slots(decoder.weights)
    slots.reserve(2, 10)
    steps = Steps(decoder, slots)
    with torch.inference_mode():
        steps.replayed([3, 4], [0, 0], {})
        steps.replayed([3, 4], [1, 1], {})
        assert len(captures.recordings) == 1
        slots.reserve(2, 100)
        steps.replayed([3, 4], [2, 2], {})
    assert len(captures.recordings) == 2


def test_noisy_weights_take_eager_steps_and_leave_the_graphs_of_the_models_own(loaded, monkeypatch):
    monkeypatch.setattr(Decoder, "on_gpu", True)
    monkeypatch.setattr(Engine, "_on_gpu", True)
    own = plan(random_prompts((9, 4)), HEADS)
    noisy = plan(random_prompts((9, 4)), [Variant(seed=1, kind="weights", scale=300)])
    expected, _ = answered(loaded, own + noisy, None)
    assert len({expected[each].token_ids for each in noisy + own[:2]}) == 4
    captures = Captures()
    found, engine = answered(loaded, own, captures)
    replays = captures.replays
    assert replays
    found |= {answer.request: answer for answer in engine.run(noisy)}
    assert captures.replays == replays
    assert_alike(found, expected)
    again = {answer.request: answer for answer in engine.run(own)}
    assert captures.replays > replays
    assert_alike(again, {each: expected[each] for each in own})
    assert engine.facts["path"] == "flash in graphs"


@pytest.fixture
def cuda(monkeypatch):
    """PyTorch's calls for graphs, recorded: what they do on a GPU, `benchmarks.gpu smoke` asks."""
    graphs._shared_memory.cache_clear()
    recorded, numbers = MagicMock(), count()
    recorded.MemPool.side_effect = lambda: MagicMock(id=next(numbers))
    recorded.current_device.return_value = 3
    recorded.default_generators[3].clone_state.return_value = "free"
    monkeypatch.setattr(torch, "cuda", recorded)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", recorded.end, raising=False)
    yield recorded
    graphs._shared_memory.cache_clear()


def test_graphs_are_captured_on_the_gpu_of_their_model_into_one_memory(cuda):
    device = torch.device("cuda:3")
    for _ in range(2):
        cuda_graph(cuda.compute, device)
    assert cuda.device.call_args_list == 2 * [call(device)]
    within = r"device\(\)\.__\w+__|graph\(\)\.__\w+__|compute"
    captured = ["compute", "graph().__enter__", "compute", "graph().__exit__"]
    names = [name for name, *_ in cuda.mock_calls if re.fullmatch(within, name)]
    assert names == 2 * ["device().__enter__", *captured, "device().__exit__"]
    assert [each.kwargs["pool"] for each in cuda.graph.call_args_list] == [0, 0]


def test_a_capture_that_fails_leaves_stream_generator_and_memory_as_they_were(cuda):
    stream, generator = cuda.current_stream(), cuda.default_generators[3]

    def fails():
        if cuda.graph.called:  # which changes both
            cuda.current_stream.return_value = MagicMock()
            generator.clone_state.return_value = "captured"
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        cuda_graph(fails, torch.device("cuda:3"))
    cuda.set_stream.assert_called_once_with(stream)
    generator.graphsafe_set_state.assert_called_once_with("free")
    cuda.end.assert_called_once_with(3, 0)
    cuda_graph(cuda.compute, torch.device("cuda:3"))  # another engine's
    assert cuda.graph.call_args.kwargs["pool"] == 1
    cuda.end.assert_called_once()


def test_few_sizes_are_captured():
    sizes = [1, 2, 3, 5, 64, 65, 128, 129, 460]
    assert [bucket(rows, 460) for rows in sizes] == [1, 2, 4, 8, 64, 128, 128, 192, 460]
    assert bucket(3, 3) == 3


def test_only_flash_attention_is_captured(loaded, monkeypatch):
    assert Decoder.of(loaded, graphs=True).capture is None  # dense: its width grows
    monkeypatch.setattr(decoders, "best", lambda _: flash)
    monkeypatch.setattr(decoders, "_TRIAL", 3)  # Triton's kernels are interpreted here
    assert Decoder.of(loaded, graphs=False).capture is None
    made = Decoder.of(loaded, graphs=True)
    assert made.attend is flash
    assert made.capture.func is cuda_graph
    assert made.capture.keywords == {"device": loaded.device}
