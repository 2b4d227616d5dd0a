from pathlib import Path

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


def test_measures_are_those_of_each_head_alone_and_of_noise_alone():
    loaded = loaded_model(tiny_models.build(tiny_models.DECODERS[0]))
    texts = random_prompts((5, 8))
    table = activations.measure(loaded, texts).set_index(["layer", "head"])
    layer = loaded.geometry.layer(1)
    projection = loaded.geometry.output_projection(loaded.model, 1)
    inputs = []
    handle = projection.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    with torch.no_grad():
        for text in texts:
            loaded.model(torch.tensor([text]))
        handle.remove()
        joined = torch.cat(inputs)
        assert joined.shape == (13, layer.width)
        nothing = projection(torch.zeros(layer.width))  # the bias
        for head in range(6):
            alone = torch.zeros_like(joined)
            alone[:, layer.columns(head)] = joined[:, layer.columns(head)]
            norm = alone.norm(dim=1)
            direction = noise_direction(Variant(1, head, kind="noise"), layer.width)
            noise = torch.outer(norm, torch.from_numpy(direction))
            wanted = {
                "share": (norm / joined.norm(dim=1)) ** 2,
                "norm": norm,
                "output_norm": (projection(alone) - nothing).norm(dim=1),
                "noise_norm": (projection(noise) - nothing).norm(dim=1),
            }
            for column, values in wanted.items():
                found = table.loc[(1, head), column]
                assert found == pytest.approx(values.mean().item(), rel=1e-4)
    assert table["share"].groupby("layer").sum().tolist() == pytest.approx([1] * tiny_models.LAYERS)


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
