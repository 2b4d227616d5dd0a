"""The benchmark of sweeps, its models, the GPU script."""

import json
import os
import re
from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2ForCausalLM

from benchmarks import baselines, gpu, shapes, sweep
from benchmarks.baselines import RIVALS, Outcome, Work
from benchmarks.sweep import report
from headsweep.engine.requests import Answer, Request
from headsweep.errors import ModelError
from headsweep.models.load import load_model
from headsweep.variants import BASE, Variant
from processes import python

LONG = pytest.mark.skipif(
    "HEADSWEEP_NIGHTLY" not in os.environ, reason="nightly: scripts of developers"
)


@LONG
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
    assert rows["published"]["ratio"] == 1
    engine = rows["engine"]
    assert 0 < engine["unchanged"] < 1, "some answers diverge, some do not"
    assert engine["near_ties_differing"] == 0
    assert engine["cpu_seconds"] > 0
    told = f"engine: {engine['unchanged']:.1%} of the pruned models' answers unchanged; near ties"
    assert told in printed
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


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 0), (torch.bfloat16, 1)])
def test_a_near_tie_is_one_of_the_models_type(dtype, near):
    loaded = SimpleNamespace(dtype=dtype, eos_token_ids=(2,))
    asked = Request("q", (1,), BASE)
    runner = SimpleNamespace(run=lambda _: [Answer(asked, (5,), "eos", 0.2)])
    outcome = Outcome()
    baselines._collect(runner, loaded, Work({"q": (1,)}, (BASE,), 8), outcome)
    assert len(outcome.near_ties) == near
    assert outcome.choices == {("q", "base"): [5, 2]}


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


@LONG
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


def test_random_weights_have_shape_and_type_and_other_models_are_refused(tmp_path, monkeypatch):
    small = dict(zip(shapes._NAMES, (72, 100, 7, 20, 4, 40, 131), strict=True))
    monkeypatch.setitem(shapes.SIZES, "qwen2.5-1.5b", small)
    loaded = load_model("builtin:reasoner", device="cpu")
    folder, every = shapes.make("qwen2.5-1.5b", loaded, tmp_path / "large", torch.bfloat16)
    made = Qwen2ForCausalLM.from_pretrained(folder)
    assert {name: getattr(made.config, name) for name in small} == small
    assert made.dtype == torch.bfloat16
    assert len(every) == 28 * 12
    loaded.model.config.tie_word_embeddings = False
    with pytest.raises(ModelError, match="needs a Qwen2 with tied embeddings"):
        shapes.make("qwen2.5-1.5b", loaded, tmp_path / "other", torch.bfloat16)
