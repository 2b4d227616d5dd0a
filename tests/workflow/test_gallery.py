"""The real model's run in the gallery is redrawn from its answers, as `make real` does it."""

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from mini import Snakemake

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "nightly"))
import readme  # noqa: E402

KEPT = readme.GALLERY / readme.REAL_RUN
TRAINED = 6.0
"""Points by which what is trained may differ: rounding decides between settings alike."""


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    shutil.copy(KEPT / "config.json", folder)
    shutil.copytree(KEPT / "results", folder / "results")
    Snakemake(folder)(folder / "config.json")
    return folder / "results" / readme.REAL_RUN


def test_nothing_is_generated_and_no_question_is_told(redrawn: Path) -> None:
    store = redrawn.parent / "store"
    assert not (store / "models").exists()
    assert not (redrawn / "logs" / "engine").exists()
    for file in (store / "questions").glob("*.parquet"):
        assert set(pd.read_parquet(file)["question"]) == {""}
    assert (redrawn / "report.html").stat().st_size > 100_000


def test_the_gallery_and_readme_say_what_comes_out(redrawn: Path) -> None:
    for kept in (KEPT / "tables").glob("*.csv"):
        found = pd.read_csv(next(redrawn.rglob(f"controls/*/{kept.name}")))
        pd.testing.assert_frame_equal(found, pd.read_csv(kept), atol=1e-6)
    made, stated = readme.REAL.text(redrawn), readme.REAL.stated()
    for found, said in zip(made.splitlines(), stated.splitlines(), strict=True):
        assert found[:20] == said[:20]
        assert readme.numbers(found) == pytest.approx(readme.numbers(said), abs=TRAINED)
