"""The benchmark of sweeps, the models and the floor of a sweep, the GPU script."""

import json
import random
import re
from math import isfinite
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from benchmarks import baselines, gpu, shapes, sweep
from benchmarks.baselines import RIVALS, Costs, Outcome, Work, floor, peak
from benchmarks.shapes import Expansion
from benchmarks.sweep import report
from headsweep.engine.requests import Answer, Request
from headsweep.errors import ModelError
from headsweep.models.geometry import find_heads
from headsweep.models.load import load_model
from headsweep.models.masks import pruned
from headsweep.variants import BASE, Variant, heads
from processes import python


def test_every_row_is_measured_and_no_answer_differs(tmp_path, capsys):
    figures = tmp_path / "bench.json"
    sizes = ["--heads", "4", "--questions", "5", "--max-new-tokens", "16", "--threads", "1"]
    sweep.main([*sizes, "--json", str(figures)])
    printed, found = capsys.readouterr().out, json.loads(figures.read_text())
    rows = found["rows"]
    assert tuple(rows) == tuple(RIVALS)
    failed = rows.pop("vllm")["failure"]
    assert failed.startswith("ModelError: vLLM cannot be imported")
    assert failed.endswith("; install it: pip install 'vllm>=0.20'")
    assert f"not measured: {failed}" in printed
    for name, row in rows.items():
        assert name in printed
        assert (row["differing"], row["answers"], row["setting"]) == (0, 5 * 5, [1, 1])
        assert isfinite(row["of_floor"])
    assert rows["published"]["ratio"] == 1
    engine = rows["engine"]
    assert 0 < engine["unchanged"] < 1, "some answers diverge, some do not"
    assert engine["near_ties_differing"] == 0
    assert engine["fed_flops"] > 0.5 * engine["floor_flops"] > 0
    measured = ("product_rate", "outside_seconds", "cpu_seconds")
    assert all(isfinite(engine[name]) for name in measured)
    assert "GFLOP in products" in printed
    alone = {name: value for name, value in engine.items() if name != "ratio"}
    assert "nan" not in report(found | {"rows": {"engine": alone}})
    assert found["variants"] == ["base", "L00H00", "L01H02", "L03H00", "L04H02"]


def test_no_process_is_without_a_question():
    assert sweep.settings_of([1, 2, 4], 3) == [(1, 1), (1, 2), (1, 4), (2, 1)]


def test_shares_make_up_the_whole():
    work = Work({f"q{n}": tuple(range(1, n + 2)) for n in range(8)}, (BASE, Variant(0, 1)), 5)
    parts = work.split(3)
    assert sorted(question for part in parts for question in part.prompts) == sorted(work.prompts)
    assert {part.variants for part in parts} == {work.variants}


def test_one_token_costs_what_torch_counts():
    loaded = load_model("builtin:reasoner", device="cpu", attention="eager")
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        loaded.model(torch.tensor([[5]]))
    work = Work({"q": (5,)}, (BASE,), 1)
    expected = counter.get_total_flops()
    assert floor(work, {("q", "base"): [7]}, Costs.of(loaded)) == expected
    assert isfinite(peak(loaded))


def test_a_model_of_transposed_weights_costs_what_torch_counts():
    settings = {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 8}
    model = GPT2LMHeadModel(GPT2Config(**settings)).eval()
    loaded = SimpleNamespace(model=model, geometry=find_heads(model))
    costs = Costs.of(loaded)
    assert (costs.layers, costs.projections, costs.rest) == (2, 2 * 3 * 24**2, 2 * 9 * 24**2)


class FakeCrew:
    """A crew whose engine answers, with products or none that were timed."""

    setting = (1, 1)
    costs = Costs(2, 10, 20, 4, 50)

    def __init__(self, product_seconds):
        self.timings = []
        self._product_seconds = product_seconds

    def ask(self, function):
        return [1e9]

    def measure(self, rival, work, *, timed=False):
        self.timings.append(timed)
        choices = {(q, str(v)): [5, 6] for q in work.prompts for v in work.variants}
        return 1.0, Outcome(choices, product_flops=7e9, product_seconds=self._product_seconds)


@pytest.mark.parametrize(
    ("on_gpu", "product_seconds", "timed"), [(False, 0.5, True), (False, 0, True), (True, 1, False)]
)
def test_products_are_told_where_they_are_timed_and_not_on_a_gpu(on_gpu, product_seconds, timed):
    crew = FakeCrew(product_seconds)
    work = Work({"q": (1, 2)}, (BASE, Variant(0, 1)), 8)
    rows, outcomes = {"engine": {}}, {}
    sweep._measure(crew, rows, outcomes, work, 1, on_gpu=on_gpu)
    assert any(crew.timings) == timed
    told = not on_gpu and product_seconds > 0
    assert ("fed_flops" in rows["engine"]) == told
    facts = {"variants": ["base", "L00H01"], "questions": 1, "shape": "demo", "rows": rows}
    last = report(facts | {"near_tie": 0.25}).splitlines()[-1]
    assert ("GFLOP in products" in last) == told
    assert "100.0% of the pruned models' answers unchanged" in last
    assert "near ties (margin at most 0.25): 0" in last


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 0), (torch.bfloat16, 1)])
def test_a_near_tie_is_one_of_the_models_type(dtype, near):
    loaded = SimpleNamespace(dtype=dtype, eos_token_ids=(2,))
    asked = Request("q", (1,), BASE)
    runner = SimpleNamespace(run=lambda _: [Answer(asked, (5,), "eos", 0.2)])
    outcome = Outcome()
    baselines._collect(runner, loaded, Work({"q": (1,)}, (BASE,), 8), outcome)
    assert len(outcome.near_ties) == near
    assert outcome.choices == {("q", "base"): [5, 2]}


def brute_force(work, choices, costs):
    """Add up the costs of all distinct (operation, function so far, tokens so far)."""
    distinct = {}
    for question, prompt in work.prompts.items():
        for variant in work.variants:
            own = choices[question, str(variant)]
            text = (*prompt, *own[:-1])
            pruned = costs.layers if variant.layer is None else variant.layer
            for end in range(1, len(text) + 1):
                tokens = text[:end]
                needed = end >= len(prompt)  # a token is chosen here
                for layer in range(costs.layers):
                    into = variant if layer > pruned else BASE
                    out_of = variant if layer >= pruned else BASE
                    distinct["projections", layer, into, tokens] = costs.projections
                    if needed or layer < costs.layers - 1:
                        distinct["attention", layer, into, tokens] = costs.attention * end
                        distinct["rest", layer, out_of, tokens] = costs.rest
                if needed:
                    distinct["logits", variant, tokens] = costs.logits
    return sum(distinct.values())


@pytest.mark.parametrize("seed", range(5))
def test_floor_is_the_cost_of_distinct_tokens(seed):
    rng = random.Random(seed)
    costs = Costs(layers=3, projections=101, rest=1009, attention=11, logits=10007)
    variants = (BASE, *heads(range(3), range(2)))
    prompts, choices = {}, {}
    for number in range(4):
        # First tokens tell the questions apart: nothing is shared between questions.
        prompts[f"q{number}"] = (number, *rng.choices(range(10), k=rng.randrange(5)))
        base = [100, *rng.choices(range(10), k=rng.randrange(1, 6))]
        choices[f"q{number}", "base"] = base
        for variant in variants[1:]:
            kept = rng.randrange(len(base) + 1)
            # Where a head's answer leaves the base answer, its tokens are its own.
            own = [1000 + variant.layer * 10 + variant.head] * rng.randrange(1, 4)
            choices[f"q{number}", str(variant)] = base if kept == len(base) else base[:kept] + own
    work = Work(prompts, variants, 9)
    assert floor(work, choices, costs) == brute_force(work, choices, costs)


_WITHOUT = """
import importlib.util, sys
lacking = {"pydantic", "datasets", "snakemake", "pandas", "pyarrow", "jaxtyping"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in lacking:
            raise ModuleNotFoundError(name)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *of: None if name in lacking else found(name, *of)
sys.meta_path.insert(0, Refuse())
from benchmarks.gpu import main
for stage in sys.argv[1:]:
    main([stage])
"""


def test_the_stages_run_with_few_packages():
    """In one process: an import takes seconds. `exact` is a part of `smoke`."""
    printed = python("-c", _WITHOUT, "smoke", "7b")
    told = ["TFLOP/s", "'differing': 0", "three batches each", "3 rows, dense", "torch.bfloat16"]
    told += ["'path': 'dense'", "engine, decoding", "engine, sweep, 90% forced"]
    assert [words for words in told if words not in printed] == [], printed
    assert "falls" not in printed
    forced = re.findall(r"sweep, (\d+)% forced: .* (\d+)% accepted", printed)
    assert len(forced) == 4
    assert all(abs(int(found) - int(asked)) <= 13 for asked, found in forced), forced


def test_rivals_of_the_engine_have_no_attention_either_that_compiles_at_each_width(monkeypatch):
    was = torch.backends.cuda.cudnn_sdp_enabled()
    seen = []
    monkeypatch.setattr(gpu, "rates", lambda _: None)
    for name in ("exact", "lives", "steps"):
        monkeypatch.setattr(
            gpu, name, lambda *_: seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        )
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        gpu.main(["smoke"])
        gpu.main(["exact"])
        assert seen == [False] * 4
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)


IDS = torch.randint(4, 300, (2, 19), generator=torch.Generator().manual_seed(0))
SMALL = dict(zip(shapes._NAMES, (24, 40, 3, 6, 2, 10, 53), strict=True))
LARGE = dict(zip(shapes._NAMES, (72, 100, 7, 20, 4, 40, 131), strict=True))
FILLER = 5


@pytest.fixture(scope="module")
def models():
    """A small model, and the same embedded into the large shape."""
    like = Qwen2Config(tie_word_embeddings=True, max_position_embeddings=64, rope_theta=500.0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        small = Qwen2ForCausalLM(shapes.resized(like, SMALL)).eval()
        for parameter in small.parameters():  # biases and norms too
            parameter.normal_(std=0.3)
    return small, Expansion(SMALL, LARGE).apply(small, FILLER)


@pytest.mark.parametrize("variant", [BASE, Variant(0, 4), Variant(1, 0), Variant(2, 5)], ids=str)
def test_expansion_preserves_logits_with_and_without_a_pruned_head(models, variant):
    small, large = models
    ids = torch.randint(53, (3, 41), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        base = small(ids).logits
        with pruned(small, find_heads(small), variant):
            expected = small(ids).logits
        with pruned(large, find_heads(large), Expansion(SMALL, LARGE).variant(variant)):
            found = large(ids).logits
    assert variant == BASE or (base - expected).abs().max() > 0.01
    assert found.shape == (3, 41, 131)
    torch.testing.assert_close(found[..., :53], expected, atol=1e-4, rtol=0)
    new = expected[..., FILLER, None].expand(-1, -1, 131 - 53)
    torch.testing.assert_close(found[..., 53:], new, atol=1e-4, rtol=0)


def test_the_demo_grows_to_46_million_parameters_and_answers_as_before(tmp_path):
    loaded = load_model("builtin:reasoner", device="cpu")
    folder, carrying = shapes.make("46m", loaded, tmp_path / "large", torch.float32)
    large = load_model(str(folder), device="cpu")
    assert 46e6 < large.model.num_parameters() < 47e6
    ends = (Variant(0, 0), Variant(10, 6))
    assert (len(carrying), carrying[0], carrying[-1]) == (6 * 4, *ends)
    with torch.inference_mode():
        expected, found = loaded.model(IDS).logits, large.model(IDS).logits
    torch.testing.assert_close(found[..., : expected.shape[-1]], expected, atol=1e-4, rtol=1e-5)
    assert large.eos_token_ids == loaded.eos_token_ids


def test_random_weights_have_shape_and_type_and_what_does_not_fit_is_refused(tmp_path, monkeypatch):
    for name in ("46m", "qwen2.5-1.5b"):
        monkeypatch.setitem(shapes.SIZES, name, LARGE)
    loaded = load_model("builtin:reasoner", device="cpu")
    with pytest.raises(ModelError, match="hidden_size 72 is no multiple of the model's 128"):
        shapes.make("46m", loaded, tmp_path / "large", torch.float32)
    for change in ({"num_hidden_layers": 8}, {"num_attention_heads": 12}):
        with pytest.raises(ModelError, match="does not fit into"):
            Expansion(SMALL | change, LARGE)
    folder, _ = shapes.make("qwen2.5-1.5b", loaded, tmp_path / "large", torch.bfloat16)
    made = Qwen2ForCausalLM.from_pretrained(folder)
    assert shapes.sizes(made.config) == LARGE
    assert made.dtype == torch.bfloat16
