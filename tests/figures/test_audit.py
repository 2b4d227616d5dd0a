from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headroom.analysis.audit import ENCODERS, arithmetic, audit
from headroom.analysis.published import FIGURE_5, HEAD_PRUNING, SIZES, head_pruning
from headroom.errors import TableError

PUBLISHED = Path(__file__).parents[2] / "config" / "published"


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
    nothing = pairs.loc[("Table 4", 15, "Prealgebra")]
    assert nothing["gain"] == 0
    counts = found[1].set_index("exhibit")["pairs"]
    assert list(counts.index) == [f"Table {number}" for number in (1, 2, 3, 4)] + ["Figure 5"]
    # most of Table 2 is not legible; Figure 5 is one layer
    assert list(counts) == [28, 11, 27, 28, 7]
    figure = pd.read_csv(PUBLISHED / FIGURE_5).query("subject == 'Geometry'").set_index("head")
    best = figure["accuracy"].drop("none").max() - figure.loc["none", "accuracy"]
    assert pairs.loc[("Figure 5", 21, "Geometry"), "gain"] == pytest.approx(best, abs=0.01)


def test_chance_explains_the_published_gains(found):
    for row in found[1].itertuples():
        assert row.chance_low <= row.gain <= row.chance_high + 1e-9
        assert row.beyond <= 2
        assert row.mean_low < 0 < row.mean_high
        assert row.over_mean == pytest.approx(row.over_mean_by_chance, abs=0.012)


def test_a_planted_effect_is_not_explained_away(found):
    table = head_pruning(PUBLISHED)
    table = table[table["model"] == "Meta-Llama-3-8B-Instruct"].copy()
    table.loc[table["head"] == 7, "accuracy"] += 0.15
    planted = audit(table, seed=0)[1].iloc[0]
    assert planted["beyond"] > 12
    assert planted["common"] > 0.2


def test_a_subject_that_math_has_not_is_refused(tmp_path):
    text = (PUBLISHED / HEAD_PRUNING).read_text().replace("Geometry", "Geography")
    (tmp_path / HEAD_PRUNING).write_text(text)
    (tmp_path / FIGURE_5).write_text((PUBLISHED / FIGURE_5).read_text())
    with pytest.raises(TableError, match="subjects \\['Geography'\\] are not the paper's"):
        head_pruning(tmp_path)


def test_encoders_have_the_parameters_that_transformers_counts():
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
    import torch

    with torch.device("meta"):
        model = RobertaModel(config, add_pooling_layer=False)
    two_layers = type(encoder)(2, encoder.width, encoder.heads, encoder.inner)
    assert two_layers.parameters == sum(p.numel() for p in model.parameters())
    assert encoder.parameters == 124_055_040


def test_published_cuts_exceed_what_the_heads_hold():
    table = arithmetic(PUBLISHED)
    assert len(table) == 8
    base = table[table["model"] == "ATHENA-base"].drop_duplicates("ratio")
    assert list(base["heads"]) == [28, 36, 43]
    assert list(base["parameters_at_most"].round(1)) == [4.4, 5.7, 6.8]
    assert ENCODERS["ATHENA-base"].flops_cut(0.25, 40) == pytest.approx(0.0848, abs=1e-4)
    assert (table["parameters"] > 2 * table["parameters_at_most"]).all()
    assert (table["flops"].dropna() > table["flops_at_most"][table["flops"].notna()]).all()
