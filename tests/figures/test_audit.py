import numpy as np
import pandas as pd
import pytest

from headroom.analysis.published import (
    ENCODERS,
    FIGURE_5,
    HEAD_PRUNING,
    SIZES,
    audit,
    conditions,
    cuts,
    head_pruning,
)
from simulation import PUBLISHED


@pytest.fixture(scope="module")
def found():
    return audit(head_pruning(PUBLISHED), seed=0)


def test_every_published_accuracy_is_the_count_that_was_printed():
    table = head_pruning(PUBLISHED)
    files = [pd.read_csv(PUBLISHED / name)["accuracy"] for name in (HEAD_PRUNING, FIGURE_5)]
    printed = pd.concat(files).dropna().to_numpy()
    assert len(table) == 2620 + 88
    assert (np.abs(table["accuracy"] - printed) < 0.00501).all()
    assert set(table["n"]) == set(SIZES.values())
    assert sum(SIZES.values()) == 500


def test_gains_are_those_of_the_printed_tables(found):
    pairs = found[0].set_index(["exhibit", "layer", "subject"])
    example = pairs.loc[("Table 2", 15, "Counting & Probability")]
    assert example["gain"] == pytest.approx(6 / 38)  # the paper's own example, +16%
    assert pairs.loc[("Table 4", 15, "Prealgebra"), "gain"] == 0
    summary = found[1].set_index("exhibit")
    assert list(summary.index) == [f"Table {number}" for number in (1, 2, 3, 4)] + ["Figure 5"]
    # most of Table 2 is not legible; Figure 5 is one layer
    assert list(summary["pairs"]) == [28, 11, 27, 28, 7]
    figure = pd.read_csv(PUBLISHED / FIGURE_5).query("subject == 'Geometry'").set_index("head")
    best = figure["accuracy"].drop("none").max() - figure.loc["none", "accuracy"]
    assert pairs.loc[("Figure 5", 21, "Geometry"), "gain"] == pytest.approx(best, abs=0.01)
    # Worked out apart from this code, from the paper's tables.
    medians = [-0.001, 0.020, 0.004, -0.005]
    assert summary["median_head"].tolist()[:4] == pytest.approx(medians, abs=0.0025)


def test_chance_explains_the_published_gains_but_not_a_planted_one(found):
    assert (found[1]["chance_low"] <= found[1]["gain"]).all()
    assert (found[1]["gain"] <= found[1]["chance_high"] + 1e-9).all()
    assert found[1]["beyond"].max() <= 2
    table = head_pruning(PUBLISHED)
    table = table[table["model"] == "Meta-Llama-3-8B-Instruct"].copy()
    table.loc[table["head"] == 7, "accuracy"] += 0.15
    assert audit(table, seed=0)[1].iloc[0]["beyond"] > 12


def test_encoders_have_the_parameters_that_transformers_counts():
    import torch
    from transformers import RobertaConfig, RobertaModel

    encoder = ENCODERS["ATHENA-base"]
    config = RobertaConfig(
        vocab_size=encoder.vocabulary,
        hidden_size=encoder.width,
        num_hidden_layers=2,
        num_attention_heads=encoder.heads,
        intermediate_size=encoder.inner,
        max_position_embeddings=514,
        type_vocab_size=1,
    )
    with torch.device("meta"):
        model = RobertaModel(config, add_pooling_layer=False)
    two_layers = type(encoder)(2, encoder.width, encoder.heads, encoder.inner)
    assert two_layers.parameters == sum(p.numel() for p in model.parameters())
    assert encoder.parameters == 124_055_040


def test_published_cuts_exceed_what_the_heads_hold():
    table = cuts(conditions(PUBLISHED))
    assert len(table) == 8
    base = table[table["published_model"] == "ATHENA-base"].drop_duplicates("ratio")
    assert list(base["heads"]) == [28, 36, 43]
    most = 100 * table["published_parameters_at_most"]
    assert list(most[base.index].round(1)) == [4.4, 5.7, 6.8]
    assert ENCODERS["ATHENA-base"].cut(0.25, 40)[2] == pytest.approx(0.0848, abs=1e-4)
    assert (100 * table["published_parameters"] > 2 * most).all()
    flops = table.dropna(subset="published_flops")
    assert (flops["published_flops"] > flops["published_flops_at_most"]).all()
