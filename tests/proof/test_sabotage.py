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


def test_only_the_sabotaged_head_s_columns_change_and_without_it_the_model_is_as_before(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sabotage, "_NEAR", NEAR)
    questions = generate("generated_math", "train", 28, seed=0, apart=False)
    decoding = Decoding(max_new_tokens=100)
    strength = Saboteur(questions, decoding).sabotage(HEAD, 3, tmp_path)
    assert strength > 0
    whole, made = (load_model(str(source), device="cpu") for source in (SOURCE, tmp_path))
    before, after = whole.model.state_dict(), made.model.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == [f"{whole.geometry.layer(4).name}.weight"]
    columns = (before[changed[0]] != after[changed[0]]).any(dim=0)
    width = whole.geometry.layer(4).head_dim
    assert columns.nonzero().flatten().tolist() == [*range(2 * width, 3 * width)]
    sources = (SOURCE, str(tmp_path))
    z, theirs = (Saboteur(questions, decoding, each).outcomes([HEAD]) for each in sources)
    assert z[:, 0].mean() - theirs[:, 0].mean() == pytest.approx(DROP, abs=NEAR + 0.01)
    assert (z[:, 1] == theirs[:, 1]).all()
