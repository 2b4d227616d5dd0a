"""A process that holds one model and answers sweeps: `python -m headroom.bench.worker KIND`.

Jobs and replies are JSON objects, one per line. Only the standard library is imported before the
first job, because vLLM has its own environment.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]


def serve(start: Callable[[Job], Callable[[Job], Job]]) -> None:
    """Answer jobs from standard input until it ends.

    The first line sets the worker up. Output of libraries goes to standard error. The reply to a
    failed job is its error in one line; the worker continues.

    Args:
        start: takes the first job, returns the function that answers all others.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer: Callable[[Job], Job] | None = None
    for line in sys.stdin:
        begin = time.process_time()
        reply: Job = {}
        try:
            if answer is None:
                answer = start(json.loads(line))
            else:
                reply = answer(json.loads(line))
        except Exception as error:  # a failed rival is a row of the table
            reply = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        reply["cpu_seconds"] = time.process_time() - begin
        print(json.dumps(reply), file=replies, flush=True)


def start_torch(setup: Job) -> Callable[[Job], Job]:
    """Load a model; return a function that answers jobs with any of `rivals.RIVALS`."""
    from dataclasses import asdict

    import torch

    from headroom.bench.floor import Costs, peak
    from headroom.bench.rivals import RIVALS, Work
    from headroom.models.load import load_model
    from headroom.variants import Variant

    torch.set_num_threads(setup["threads"])
    loaded = load_model(setup["folder"], dtype=setup["dtype"], device=setup["device"])
    fed = 0

    def count(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal fed
        fed += output.shape[:-1].numel()

    last = loaded.geometry.output_projection(loaded.model, loaded.geometry.layers[-1].index)
    last.register_forward_hook(count)

    def answer(job: Job) -> Job:
        nonlocal fed
        if "rival" not in job:
            costs = asdict(Costs.of(loaded))
            return {"costs": costs, "peak": peak(loaded.device, loaded.dtype)}
        prompts = {question: tuple(prompt) for question, prompt in job["prompts"].items()}
        variants = tuple(Variant.parse(name) for name in job["variants"])
        by = RIVALS[job["rival"]].answer
        assert by is not None
        fed = 0
        outcome = by(loaded, Work(prompts, variants, job["max_new_tokens"]))
        return {
            "choices": [[*key, row] for key, row in outcome.choices.items()],
            "near_ties": outcome.near_ties,
            "statistics": {"fed": fed, **outcome.statistics},
        }

    return answer


def start_vllm(setup: Job) -> Callable[[Job], Job]:
    """Load a model in vLLM; return a function that answers sweeps."""
    os.environ["OMP_NUM_THREADS"] = str(setup["threads"])
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from headroom.config import Decoding
    from headroom.generation.requests import Request
    from headroom.generation.vllm import VllmEngine, VllmModel
    from headroom.variants import Variant

    model = VllmModel(setup["folder"], setup["dtype"])

    def answer(job: Job) -> Job:
        requests = [
            Request(question, tuple(prompt), Variant.parse(variant))
            for question, prompt in job["prompts"].items()
            for variant in job["variants"]
        ]
        engine = VllmEngine(model, Decoding(max_new_tokens=job["max_new_tokens"]))
        choices = []
        for found in engine.run(requests):
            end = model.eos_token_ids[:1] if found.stop_reason == "eos" else ()
            key = found.request.question_id, str(found.request.variant)
            choices.append([*key, [*found.token_ids, *end]])
        return {"choices": choices, "near_ties": [], "statistics": {}}

    return answer


if __name__ == "__main__":
    serve({"torch": start_torch, "vllm": start_vllm}[sys.argv[1]])
