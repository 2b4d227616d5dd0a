"""vLLM as a backend, in an environment of its own: the engine's answers and margins.

HEADSWEEP_VLLM names the Python of an environment with vLLM and what the jobs import.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import tiny_models
import torch
from test_engine import assert_alike, random_prompts

from comparing import NEAR_TIE
from headsweep.answers import worker
from headsweep.config import Decoding, parse
from headsweep.engine.devices import visible_devices
from headsweep.engine.engine import Answer, Engine, Request
from headsweep.errors import ConfigError, ModelError
from headsweep.files import paths
from headsweep.models.load import load_model
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant, heads
from headsweep.workflow.preflight import check_devices

VARIANTS = (
    BASE,
    *heads([0, 2], [0, 3, 5]),
    Variant(1, 4, "scaled", 150),
    Variant(3, 2, "scaled", 50),
    Variant(1, None, "skip", 1),
    Variant(2, None, "skip", 2),
    BASE,
)
"""The last again: what was changed is put back."""
NEW_TOKENS = 12

ENGINE = """
import json, sys
from headsweep.config import Decoding
from headsweep.errors import ModelError
from headsweep.engine.requests import Request
from headsweep.engine.vllm import VllmEngine, VllmModel
from headsweep.variants import Variant

folder, job = sys.argv[1], json.loads(sys.argv[2])
model = VllmModel(folder, "float32", "auto", job["ranks"])
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
    [Request(q, tuple(p), Variant.parse(v)) for q, p in job["prompts"]] for v in job["variants"]
]
drawn = [Request(q, tuple(p), sample=n) for q, p in job["prompts"] for n in range(8)]
hot = {"temperature": 1.5, "samples": 8}
print("\\n" + json.dumps({
    "greedy": [run(requests) for requests in greedy],
    "samples": run(drawn, **hot),
    "backwards": run(drawn[::-1], **hot)[::-1],
    "refused": [refused(Variant.parse(v)) for v in ("L00H06", "L03K02", "L00N05")],
}))
"""


@pytest.mark.parametrize(("ranks", "cores"), [(1, "nobind"), (2, "0|1")])
def test_vllm_gives_the_answers_and_margins_of_the_engine(tmp_path, tokenizer, ranks, cores):
    python = os.environ.get("HEADSWEEP_VLLM")
    if not python:
        pytest.skip("vLLM: set HEADSWEEP_VLLM to the Python of an environment that has it")
    # vLLM's CPU attention wants heads 32 wide.
    biases = {"attention_bias": True, "mlp_bias": True}
    ends = [2, 40, 41, 42]
    model = tiny_models.build(tiny_models.wide("Llama", head_dim=32, eos_token_id=ends, **biases))
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(std=0.2)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    prompts = {f"q{len(prompt)}": prompt for prompt in random_prompts((2, 5, 11, 23))}
    job = {
        "prompts": list(prompts.items()),
        "variants": list(map(str, VARIANTS)),
        "new_tokens": NEW_TOKENS,
        "ranks": ranks,
    }
    variables = {
        "PYTHONPATH": str(Path(paths.__file__).parents[1]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": cores,
    }
    command = [python, "-c", ENGINE, str(tmp_path), json.dumps(job)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    # Behind it, vLLM may tell of ranks that end.
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"')))
    requests = [Request(q, prompt, v) for v in set(VARIANTS) for q, prompt in prompts.items()]
    engine = Engine(load_model(str(tmp_path), device="cpu"), Decoding(max_new_tokens=NEW_TOKENS), 8)
    expected = {answer.request: answer for answer in engine.run(requests)}
    assert len({answer.token_ids for answer in expected.values()}) > 4, "heads matter"
    assert {answer.stop_reason for answer in expected.values()} == {"eos", "length"}
    assert told["greedy"][0] == told["greedy"][-1], "the base model is as it was"
    greedy = {
        Request(q, prompts[q], Variant.parse(variant)): (tuple(tokens), *rest)
        for answers in told["greedy"]
        for q, variant, tokens, *rest in answers
    }
    answers = {request: Answer(request, *answer) for request, answer in greedy.items()}
    assert_alike(answers, expected, NEAR_TIE)
    tokens = [answer[2] for answer in told["samples"]]
    assert tokens == [answer[2] for answer in told["backwards"]]
    assert len({tuple(answer) for answer in tokens}) > 24, "samples differ"
    head, layer, noise = told["refused"]
    assert head.startswith("L00H06 is not in the model")
    assert layer.startswith("L03K02 is not in the model")
    assert noise.startswith("L00N05: vLLM prunes and scales heads and leaves layers out, no more")


def test_what_vllm_cannot_do_is_refused_before_the_first_job(run_config, monkeypatch):
    values = run_config.model_dump(mode="json")
    values["models"]["tiny"]["backend"] = "vllm"
    monkeypatch.setattr("headsweep.workflow.preflight.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ModelError, match=r"models\.tiny\.backend: vllm is not installed here"):
        check_devices(Store(parse(values)))
    values["sweeps"]["some"]["placebos"] = "noise"
    with pytest.raises(ConfigError, match=r"some\.placebos: 'noise', but .* has backend vllm"):
        parse(values)
    values["models"]["tiny"]["device"] = "balanced"
    with pytest.raises(ConfigError, match="not by device `balanced`"):
        parse(values)


def test_more_ranks_than_gpus_are_refused_before_the_first_job(run_config, tmp_path, monkeypatch):
    for number in range(2):
        (tmp_path / f"nvidia{number}").touch()
    monkeypatch.setattr("headsweep.machine.processors._DEVICES", tmp_path)
    monkeypatch.setattr("headsweep.workflow.preflight.find_spec", lambda name: name)
    monkeypatch.setattr("headsweep.workflow.preflight.usable_gpu_count", lambda: 2)
    monkeypatch.setattr("shutil.which", lambda name: None)
    values = run_config.model_dump(mode="json")
    values["models"]["tiny"] |= {"backend": "vllm", "device": "auto", "tensor_parallel": 2}
    check_devices(Store(parse(values)))
    values["models"]["tiny"]["tensor_parallel"] = 3
    with pytest.raises(ModelError, match=r"tiny\.tensor_parallel: 3, but there are 2 GPUs here"):
        check_devices(Store(parse(values)))


def test_a_copy_of_the_model_has_the_gpus_of_its_worker_and_a_rank_on_each(
    run_config, tmp_path, monkeypatch
):
    made = []
    monkeypatch.setattr(worker, "VllmModel", lambda *given: made.append(given))
    section = run_config.models["tiny"].model_copy(
        update={"backend": "vllm", "tensor_parallel": 2, "dtype": "bfloat16"}
    )
    key = Store(run_config).key("model", "tiny")
    worker.load(section, key, "cuda:2,3")
    assert [given[1:] for given in made] == [("bfloat16", "cuda:2,3", 2)]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_devices("2,3") == "2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")
    assert visible_devices("2,3") == "GPU-c,GPU-d"
