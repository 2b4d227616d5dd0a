import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from headsweep.cli import main as cli

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    file
    for folder in (".", "config", "config/published", "docs", "envs", ".github/ISSUE_TEMPLATE")
    for file in (ROOT / folder).glob("*.md")
)
OF_GITHUB = "../../actions/workflows/"
"""Where a document on GitHub finds the repository's workflows, whoever owns it."""
LINK = re.compile(r"(?:\]\(|src=\")([^)\s\"]+)")
PATH = re.compile(r"`((?:config|docs|envs|results|src|tests|workflow)/[\w./-]+\w)`")

BY_NAME = re.compile(
    r"(pipx?|uv|conda)\s+(pip\s+)?(install|add)\s+(-\S+\s+)*['\"]?headsweep\b(?!-)"
)
"""Installs this package from a registry. A wheel's file has a hyphen behind the name."""
FORMER = "headsweep".replace("sweep", "room")


README = (ROOT / "README.md").read_text(encoding="utf-8")


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
        if link.startswith(OF_GITHUB):
            assert (ROOT / ".github/workflows" / link.split("/")[4]).exists(), link
            continue
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    if document.name not in {"CHANGELOG.md", "LOG.md", "extend.md"}:  # what is gone, what may come
        paths = [path for path in PATH.findall(text) if not made_by_a_run(path)]
        assert [path for path in paths if not (ROOT / path).exists()] == []


def commands():
    """Yield the commands of this package in README, as lists of words."""
    for block in re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            program, *words = shlex.split(line, comments=True)
            if program == "headsweep":
                yield words


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_commands_of_readme_are_those_of_help(words, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main([words[0], "--help"])
    assert left.value.code in (0, None)
    said = capsys.readouterr().out
    assert [word for word in words if word.startswith("-") and word not in said] == []


def test_readme_is_short():
    assert len(README) <= 12_000
    first = README.partition("## Install")[0]
    assert len(first) <= 3_600, "what is read first has to fit a screen"


def test_findings_of_readme_stand_on_the_pages_that_they_link():
    """Every number of a finding, and both ends of its interval."""
    listed = README.partition("Found so far")[2].partition("## ")[0].split("\n- ")[1:]
    assert len(listed) == 4
    for finding in listed:
        pages = [ROOT / link for link in LINK.findall(finding)]
        told = "\n".join(page.read_text(encoding="utf-8") for page in pages)
        words = re.sub(r"\]\(\S+\)", "]", finding)
        numbers = re.findall(r"(?<![\w.-])[+−]?\d++(?:[.,]\d+)*+(?![\w-])", words)
        assert len(numbers) > 3
        for number in numbers:
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|[.]\d)", told), number


def tracked(pattern):
    """Yield path and match of a pattern in paths and contents that git tracks, binary ones too."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    files = [path for path in listed.split("\0") if (ROOT / path).is_file()]
    assert "pyproject.toml" in files
    for path in files:
        content = (ROOT / path).read_bytes().decode(errors="replace")
        for match in re.finditer(pattern, f"{path}\n{content}"):
            yield path, match


def test_no_text_installs_this_package_by_its_name():
    """No registry has it, and what has its name there may be another's."""
    for line in ("pip install {}", "uv pip install -U '{}==0.1.0'", "pipx install {}."):
        assert BY_NAME.search(line.format("headsweep"))
    assert not BY_NAME.search("conda run -n headsweep pip install --no-deps -e .")
    assert {path for path, _ in tracked(BY_NAME)} == set()
    assert {path for path, _ in tracked(r"headsweep\[")} == set()  # an extra of it


def test_packages_that_texts_say_to_install_have_the_ranges_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {match[1] for _, match in tracked(r"pip install[ ]'([^']+)'")}
    assert named == {*extras["gguf"], *extras["lora"], *extras["vllm"]}


def test_the_repository_s_owner_is_named_in_pyproject_alone():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    address = re.fullmatch(r"https://github\.com/([\w-]+)/headsweep", urls["Repository"])
    assert address, "the image's file, headsweep_VERSION.sif, has the repository's name"
    owner = re.compile(rf"(\b{address[1]}|(github\.com|ghcr\.io)/[\w-]+)\Z")
    named = tracked(r"/headsweep\b")  # a pattern that begins with the owner takes a second
    owned = {path for path, name in named if owner.search(name.string[: name.start()][-99:])}
    assert owned == {"pyproject.toml"}


def test_the_former_name_stands_only_where_it_is_explained():
    assert {path for path, _ in tracked(f"(?i){FORMER}")} == {"docs/LOG.md"}
