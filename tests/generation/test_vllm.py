"""vLLM as a backend, in an environment of its own: the engine's answers and margins.

HEADSWEEP_VLLM names the Python of an environment with vLLM and what the jobs import.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import tiny_models
from test_engine import assert_alike, random_prompts

from comparing import NEAR_TIE
from headsweep import paths
from headsweep.config import Decoding, parse
from headsweep.errors import ConfigError, ModelError
from headsweep.generation.engine import Answer, Engine, Request
from headsweep.models.load import load_model
from headsweep.planning.inputs import check_devices
from headsweep.variants import BASE, Variant, heads

VARIANTS = (BASE, *heads([0, 2], [0, 3, 5]))
NEW_TOKENS = 12

ENGINE = """
import json, sys
from headsweep.config import Decoding
from headsweep.errors import ModelError
from headsweep.generation.requests import Request
from headsweep.generation.vllm import VllmEngine, VllmModel
from headsweep.variants import Variant

folder, job = sys.argv[1], json.loads(sys.argv[2])
model = VllmModel(folder)
def run(requests, **decoding):
    engine = VllmEngine(model, Decoding(max_new_tokens=job["new_tokens"], **decoding))
    return [
        [a.request.question_id, str(a.request.variant), a.token_ids, a.stop_reason, a.margin]
        for a in engine.run(requests)
    ]
def refused(variant):
    try:
        run([Request("q", (5, 6), variant)])
    except ModelError as error:
        return str(error)
greedy = [
    Request(q, tuple(p), Variant.parse(v)) for v in job["variants"] for q, p in job["prompts"]
]
drawn = [Request(q, tuple(p), sample=n) for q, p in job["prompts"] for n in range(8)]
hot = {"temperature": 1.5, "samples": 8}
print("\\n" + json.dumps({
    "greedy": run(greedy),
    "samples": run(drawn, **hot),
    "backwards": run(drawn[::-1], **hot)[::-1],
    "refused": [refused(Variant(0, 6)), refused(Variant(0, 5, kind="noise"))],
}))
"""


def test_vllm_gives_the_answers_and_margins_of_the_engine(tmp_path, tokenizer):
    python = os.environ.get("HEADSWEEP_VLLM")
    if not python:
        pytest.skip("vLLM: set HEADSWEEP_VLLM to the Python of an environment that has it")
    # vLLM's CPU attention wants heads 32 wide.
    model = tiny_models.build(tiny_models.wide("Llama", head_dim=32, eos_token_id=[2, 40, 41, 42]))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    prompts = {f"q{len(prompt)}": prompt for prompt in random_prompts((2, 5, 11, 23))}
    asked = {"prompts": list(prompts.items()), "variants": list(map(str, VARIANTS))}
    asked["new_tokens"] = NEW_TOKENS
    variables = {
        "PYTHONPATH": str(Path(paths.__file__).parents[1]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    command = [python, "-c", ENGINE, str(tmp_path), json.dumps(asked)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    requests = [Request(q, prompt, v) for v in VARIANTS for q, prompt in prompts.items()]
    engine = Engine(load_model(str(tmp_path), device="cpu"), Decoding(max_new_tokens=NEW_TOKENS), 8)
    expected = {answer.request: answer for answer in engine.run(requests)}
    assert len({answer.token_ids for answer in expected.values()}) > 4, "heads matter"
    assert {answer.stop_reason for answer in expected.values()} == {"eos", "length"}
    greedy = {
        Request(q, prompts[q], Variant.parse(variant)): (tuple(tokens), *rest)
        for q, variant, tokens, *rest in found["greedy"]
    }
    assert_alike({each: Answer(each, *told) for each, told in greedy.items()}, expected, NEAR_TIE)
    tokens = [answer[2] for answer in found["samples"]]
    assert tokens == [answer[2] for answer in found["backwards"]]
    assert len({tuple(answer) for answer in tokens}) > 24, "samples differ"
    assert found["refused"][0].startswith("L00H06 is not in the model")
    assert found["refused"][1].startswith("L00N05: vLLM prunes heads and no more")


def test_what_vllm_cannot_do_is_refused_before_the_first_job(run_config, monkeypatch):
    values = run_config.model_dump(mode="json")
    values["models"]["tiny"]["backend"] = "vllm"
    monkeypatch.setattr("headsweep.planning.inputs.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ModelError, match=r"models\.tiny\.backend: vllm is not installed here"):
        check_devices(parse(values))
    values["sweeps"]["some"]["placebos"] = "noise"
    with pytest.raises(ConfigError, match=r"some\.placebos: 'noise', but .* has backend vllm"):
        parse(values)
    values["models"]["tiny"]["device"] = "balanced"
    with pytest.raises(ConfigError, match="not `balanced`"):
        parse(values)
