"""vLLM as a backend, in an environment of its own: the engine's answers and margins.

HEADROOM_VLLM names the Python of an environment made from envs/vllm.txt.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headroom
from headroom.config import Decoding
from headroom.generation.engine import Engine, Request
from headroom.models.geometry import find_heads
from headroom.models.load import LoadedModel
from headroom.variants import BASE, heads

VARIANTS = (BASE, *heads([0, 2], [0, 3, 5]))
NEW_TOKENS = 12
ENDS = (2, 40, 41, 42)
SCRIPT = """
import json, sys
from headroom.config import Decoding
from headroom.errors import ModelError
from headroom.generation.requests import Request
from headroom.generation.vllm import VllmEngine
from headroom.variants import Variant

folder, job = sys.argv[1], json.loads(sys.argv[2])
decoding = Decoding(max_new_tokens=job["new_tokens"])
engine = VllmEngine(folder, decoding, job["ends"])
requests = [
    Request(q, tuple(p), Variant.parse(v)) for v in job["variants"] for q, p in job["prompts"]
]
found = [
    [a.request.question_id, str(a.request.variant), a.token_ids, a.stop_reason, a.margin]
    for a in engine.run(requests)
]
try:
    list(engine.run([Request("q", (5, 6), Variant(0, 6))]))
except ModelError as error:
    found.append(str(error))
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def vllm_python() -> str:
    python = os.environ.get("HEADROOM_VLLM")
    if not python:
        pytest.skip("vLLM: set HEADROOM_VLLM to the Python of an environment that has it")
    return python


def test_vllm_gives_the_answers_and_margins_of_the_engine(vllm_python: str, tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=56,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        bos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.2)
    model.save_pretrained(tmp_path)
    generator = torch.Generator().manual_seed(3)
    prompts = {
        f"q{length}": tuple(torch.randint(3, 97, (length,), generator=generator).tolist())
        for length in (2, 5, 11, 23)
    }
    job = {
        "prompts": list(prompts.items()),
        "variants": [str(variant) for variant in VARIANTS],
        "new_tokens": NEW_TOKENS,
        "ends": ENDS,
    }
    done = subprocess.run(
        [vllm_python, "-c", SCRIPT, str(tmp_path), json.dumps(job)],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(headroom.__file__).parents[1]),
            "VLLM_CPU_KVCACHE_SPACE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *found, refusal = json.loads(done.stdout.splitlines()[-1])
    loaded = LoadedModel(
        model=model,
        tokenizer=None,
        geometry=find_heads(model),
        folder=tmp_path,
        device=model.device,
        dtype=model.dtype,
        pad_token_id=0,
        eos_token_ids=ENDS,
    )
    requests = [Request(q, prompt, v) for v in VARIANTS for q, prompt in prompts.items()]
    expected = {
        (answer.request.question_id, str(answer.request.variant)): answer
        for answer in Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 8).run(requests)
    }
    assert len(found) == len(expected) == len(VARIANTS) * 4
    assert len({answer.token_ids for answer in expected.values()}) > 4, "heads matter"
    assert {answer.stop_reason for answer in expected.values()} == {"eos", "length"}
    for question, variant, tokens, reason, margin in found:
        answer = expected[question, variant]
        assert (tuple(tokens), reason) == (answer.token_ids, answer.stop_reason)
        assert margin == pytest.approx(answer.margin, abs=1e-3)
    assert refusal.startswith("L00H06 is not in the model")


def test_sampling_and_a_missing_vllm_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from headroom.errors import ModelError
    from headroom.generation.vllm import VllmEngine

    with pytest.raises(ModelError, match=r"temperature 0\.6 is refused"):
        VllmEngine("folder", Decoding(temperature=0.6), [2])
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with pytest.raises(ModelError, match=r"install headroom\[vllm\]"):
        VllmEngine("folder", Decoding(), [2])
