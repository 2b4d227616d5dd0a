"""The real model's runs in the gallery are redrawn from its answers, as `make real` does it."""

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from mini import Snakemake

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "nightly"))
import readme  # noqa: E402

TRAINED = 6.0
"""Points by which what is trained may differ: rounding decides between settings alike."""

Redrawn = tuple[readme.Account, Path]


@pytest.fixture(scope="module", params=[readme.REAL, readme.FAMILIES], ids=lambda of: of.folder)
def redrawn(request, tmp_path_factory):
    account, folder = request.param, tmp_path_factory.mktemp("real")
    kept = readme.GALLERY / account.folder
    shutil.copy(kept / "config.json", folder)
    shutil.copytree(kept / "results", folder / "results")
    Snakemake(folder)(folder / "config.json")
    return account, folder / "results" / account.folder


def test_nothing_is_generated_and_no_question_is_told(redrawn):
    _, run = redrawn
    store = run.parent / "store"
    assert not (store / "models").exists()
    assert not (run / "logs" / "engine").exists()
    for file in (store / "questions").glob("*.parquet"):
        assert set(pd.read_parquet(file)["question"]) == {""}
    assert (run / "report.html").stat().st_size > 100_000


def test_the_gallery_and_readme_say_what_comes_out(redrawn):
    account, run = redrawn
    for kept in (readme.GALLERY / account.folder / "tables").glob("*.csv"):
        found = pd.read_csv(next(run.rglob(f"*/{account.of}/{kept.name}")))
        pd.testing.assert_frame_equal(found, pd.read_csv(kept), atol=1e-6)
    made, stated = account.text(run), account.stated()
    for found, said in zip(made.splitlines(), stated.splitlines(), strict=True):
        assert found[:20] == said[:20]
        assert readme.numbers(found) == pytest.approx(readme.numbers(said), abs=TRAINED)
