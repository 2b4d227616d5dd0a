"""A process that holds one model in vLLM and answers sweeps; for an environment that has vLLM."""

import os
from collections.abc import Callable

from headroom.bench.channel import Job, serve


def start(setup: Job) -> Callable[[Job], Job]:
    """Load the model; return what answers jobs."""
    os.environ["OMP_NUM_THREADS"] = str(setup["threads"])
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from headroom.config import Decoding
    from headroom.generation.requests import Request
    from headroom.generation.vllm import VllmEngine, VllmModel
    from headroom.variants import Variant

    decoding = Decoding(max_new_tokens=setup["max_new_tokens"])
    ends = setup["eos_token_ids"]
    model = VllmModel(setup["folder"], setup["dtype"], eos_token_ids=ends)
    engine = VllmEngine(model, decoding, margins=False)

    def answer(job: Job) -> Job:
        requests = [
            Request(question, tuple(prompt), Variant.parse(variant))
            for question, prompt in job["prompts"].items()
            for variant in job["variants"]
        ]
        choices = []
        for found in engine.run(requests):
            row = list(found.token_ids)
            if found.stop_reason == "eos":
                row.append(ends[0])
            choices.append([found.request.question_id, str(found.request.variant), row])
        return {"choices": choices, "statistics": {}}

    return answer


if __name__ == "__main__":
    serve(start)
