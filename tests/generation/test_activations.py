from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from test_engine import loaded_model, random_prompts

import inline
from headroom import paths
from headroom.errors import TableError
from headroom.generation import activations
from headroom.generation.work import Work
from headroom.record import read_record
from headroom.tables import ACTIVATIONS, read_table
from headroom.variants import BASE, Variant, noise_direction


def test_shares_are_those_of_a_plain_loop_over_tokens():
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]))
    texts = random_prompts((5, 8))
    table = activations.measure(loaded, texts).set_index(["layer", "head"])
    layer = loaded.geometry.layer(2)
    shares, norms = [], []

    def look(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        for token in inputs[0][0]:
            lengths = [token[layer.columns(head)].norm().item() for head in range(6)]
            norms.append(lengths)
            shares.append(np.square(lengths) / token.norm().item() ** 2)

    loaded.geometry.output_projection(loaded.model, 2).register_forward_pre_hook(look)
    for text in texts:
        loaded.model(torch.tensor([text]))
    assert len(shares) == 13
    assert table.loc[2, "share"].tolist() == pytest.approx(np.mean(shares, axis=0).tolist())
    assert table.loc[2, "norm"].tolist() == pytest.approx(np.mean(norms, axis=0).tolist())
    assert table["share"].groupby("layer").sum().tolist() == pytest.approx([1] * tiny_models.LAYERS)


def test_lengths_behind_the_projection_are_those_of_its_outputs():
    """Of a head: the projection's output with its slice alone; of noise: with the noise alone."""
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]))
    text = random_prompts((7,))[0]
    table = activations.measure(loaded, [text]).set_index(["layer", "head"])
    layer = loaded.geometry.layer(1)
    projection = loaded.geometry.output_projection(loaded.model, 1)
    inputs = []
    handle = projection.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    loaded.model(torch.tensor([text]))
    handle.remove()
    with torch.no_grad():
        nothing = projection(torch.zeros(layer.width))  # the bias
        for head in range(6):
            alone = torch.zeros_like(inputs[0])
            alone[:, layer.columns(head)] = inputs[0][:, layer.columns(head)]
            noise = torch.from_numpy(noise_direction(Variant(1, head, kind="noise"), layer.width))
            noise = alone.norm(dim=1, keepdim=True) * noise
            for column, added in (("output_norm", alone), ("noise_norm", noise)):
                wanted = (projection(added) - nothing).norm(dim=1).mean().item()
                assert table.loc[(1, head), column] == pytest.approx(wanted, rel=1e-4)


def test_the_job_reads_prompts_with_the_base_models_answers(run_config):
    with pytest.raises(TableError, match="base"):
        activations.run(run_config, "tiny", "greedy", "small")
    inline.run(run_config, "tiny", "greedy", "small", BASE)
    activations.run(run_config, "tiny", "greedy", "small")
    work = Work(run_config, "tiny", "greedy", "small")
    path = Path(paths.ACTIVATIONS.format(**work.keys))
    table = read_table(path, ACTIVATIONS, exact=False)
    assert len(table) == tiny_models.LAYERS * tiny_models.QUERY_HEADS
    record = read_record(path)
    assert record["texts"] == 4
    assert record["tokens"] > sum(map(len, work.base().values())) > 0
