import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from processes import python

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    file
    for folder in (".", "config", "config/published", "envs", ".github/ISSUE_TEMPLATE")
    for file in (ROOT / folder).glob("*.md")
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:config|envs|results|src|tests|workflow)/[\w./-]+\w)`")


def anchors(document):
    """The anchors that GitHub gives to a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def made_by_a_run(path):
    return path.startswith("results/") and not path.startswith("results/gallery")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    if document.name not in {"CHANGELOG.md", "LOG.md", "extend.md"}:  # what is gone, what may come
        paths = [path for path in PATH.findall(text) if not made_by_a_run(path)]
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_package_works_from_its_wheel(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    python("-m", *build, tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    listed = subprocess.check_output(["git", "ls-files", "src"], cwd=ROOT, text=True).splitlines()
    kept = [Path(file).relative_to("src") for file in listed if (ROOT / file).exists()]
    assert [file for file in kept if not (tmp_path / "site" / file).exists()] == []
    code = (
        "import headroom.cli as cli; print(cli.__file__); raise SystemExit(cli.main(['--version']))"
    )
    found = python("-P", "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert found.startswith(str(tmp_path / "site"))
