"""A process that holds one model and answers sweeps by any rival: `python -m` this module."""

from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import nn

from headroom.bench.channel import Job, serve
from headroom.bench.floor import Costs, peak
from headroom.bench.profile import idle_share
from headroom.bench.rivals import RIVALS
from headroom.bench.work import Work
from headroom.models.load import LoadedModel, load_model
from headroom.variants import Variant


def start(setup: Job) -> Callable[[Job], Job]:
    """Load the model; return what answers jobs."""
    torch.set_num_threads(setup["threads"])
    loaded = load_model(setup["folder"], dtype=setup["dtype"], device=setup["device"])

    def answer(job: Job) -> Job:
        match job["task"]:
            case "peak":
                return {"peak": peak(loaded.device, loaded.dtype)}
            case "costs":
                return {"costs": asdict(Costs.of(loaded))}
            case "profile":
                return {"idle": idle_share(lambda: _sweep(loaded, job))}
            case _:
                return _sweep(loaded, job)

    return answer


def _sweep(loaded: LoadedModel, job: Job) -> Job:
    work = Work(
        prompts={question: tuple(prompt) for question, prompt in job["prompts"].items()},
        variants=tuple(Variant.parse(name) for name in job["variants"]),
        max_new_tokens=job["max_new_tokens"],
    )
    fed = 0

    def count(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal fed
        fed += output.shape[:-1].numel()

    last = loaded.geometry.layers[-1].index
    hook = loaded.geometry.output_projection(loaded.model, last).register_forward_hook(count)
    try:
        outcome = RIVALS[job["rival"]].answer(loaded, work)
    finally:
        hook.remove()
    fed = int(outcome.statistics.get("fed", fed))
    choices = [[*key, row] for key, row in outcome.choices.items()]
    return {
        "choices": choices,
        "near_ties": outcome.near_ties,
        "fed": fed,
        "statistics": outcome.statistics,
    }


if __name__ == "__main__":
    serve(start)
