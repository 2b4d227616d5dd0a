import os

import pytest
import torch

from benchmarks.proof import sabotage
from benchmarks.proof.sabotage import DROP, SOURCE, Saboteur
from headsweep.benchmarks.generated import generate
from headsweep.config import Decoding
from headsweep.models.load import load_model
from headsweep.variants import Variant

HEAD = Variant(4, 2)
NEAR = 0.15  # few questions give coarse shares


def changed_columns(folder):
    """Return the head's columns before and after, the only ones of the model that differ."""
    whole, made = (load_model(str(source), device="cpu") for source in (SOURCE, folder))
    before, after = whole.model.state_dict(), made.model.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == [f"{whole.geometry.layer(4).name}.weight"]
    columns = (before[changed[0]] != after[changed[0]]).any(dim=0)
    width = whole.geometry.layer(4).head_dim
    own = columns.nonzero().flatten()
    assert own.tolist() == [*range(2 * width, 3 * width)]
    return before[changed[0]][:, own], after[changed[0]][:, own]


def test_noise_is_doubled_then_bisected_and_changes_the_head_s_columns_only(tmp_path, monkeypatch):
    accuracies = iter([0.9, 0.8, 0.1, 0.75, 0.58])  # the whole model's; with 2, 4, 3 and 3.5 norms
    monkeypatch.setattr(Saboteur, "_accuracy", lambda _: next(accuracies))
    questions = generate("generated_math", "train", 3, seed=0, apart=False)
    assert Saboteur(questions, Decoding()).sabotage(HEAD, 3, tmp_path) == 3.5
    before, after = changed_columns(tmp_path)
    assert (after - before).norm().item() == pytest.approx(3.5 * before.norm().item(), rel=1e-4)


@pytest.mark.skipif("HEADSWEEP_NIGHTLY" not in os.environ, reason="nightly: answers for a minute")
def test_a_sabotage_costs_what_it_aims_at_and_without_its_head_the_model_is_as_before(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sabotage, "_NEAR", NEAR)
    questions = generate("generated_math", "train", 28, seed=0, apart=False)
    decoding = Decoding(max_new_tokens=100)
    assert Saboteur(questions, decoding).sabotage(HEAD, 3, tmp_path) > 0
    changed_columns(tmp_path)
    sources = (SOURCE, str(tmp_path))
    z, theirs = (Saboteur(questions, decoding, each).outcomes([HEAD]) for each in sources)
    assert z[:, 0].mean() - theirs[:, 0].mean() == pytest.approx(DROP, abs=NEAR + 0.01)
    assert (z[:, 1] == theirs[:, 1]).all()
