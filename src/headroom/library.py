"""The library: what `import headroom` offers for models, sweeps and finished runs.

import headroom

model = headroom.load_model("results/store/model")
with headroom.pruned(model, layer=5, head=3):
    model.generate(...)
headroom.prune("Qwen/Qwen2.5-Math-1.5B-Instruct", "smaller", ratio=0.25)

heads = headroom.sweep("./my-llama", "mine.csv", layers=[5], grader="numeric")
run = headroom.load("results/demo")
print(run, run.z("math"), run.heads("math"))
headroom.Solver("results/demo", selector="math").solve(["What is 3 times 7?"])
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from headroom.compression.pruning import Pruned, prune
from headroom.models import masks
from headroom.models.geometry import find_heads
from headroom.models.load import load_checkpoint as load_model
from headroom.tool.reward import RewardModel
from headroom.tool.run import Run, load
from headroom.tool.solve import Solver
from headroom.tool.sweep import sweep
from headroom.variants import Variant

__all__ = [
    "Pruned",
    "RewardModel",
    "Run",
    "Solver",
    "load",
    "load_model",
    "prune",
    "pruned",
    "sweep",
]

_Model = TypeVar("_Model", bound=nn.Module)


@contextmanager
def pruned(model: _Model, layer: int, head: int) -> Iterator[_Model]:
    """Take one attention head out of a model inside a ``with`` block, and put it back afterwards.

        with headroom.pruned(model, layer=5, head=3):
            model.generate(...)

    It works for any decoder or encoder of transformers that has heads, whatever calls the model:
    `generate`, pipelines, a training loop. Blocks within one another take out several heads. The
    result is that of zeroing the weights that read the head; the weights are not touched.

    A model under `torch.compile` runs uncompiled inside the block, and compiled again after it:
    compiled code does not look for masks that were not there when it was made.

    Args:
        model: a model of transformers, compiled or not.
        layer: counted from 0.
        head: a query head, counted from 0 as it stands in the model.

    Raises:
        ModelError: the model has no such head, or none that can be told apart.
    """
    plain = getattr(model, "_orig_mod", model)
    variant = Variant(layer, head)
    with (
        torch.compiler.set_stance("force_eager"),
        masks.pruned(plain, find_heads(plain), variant),
    ):
        yield model
