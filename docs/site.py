"""Hooks of the documentation site: pages keep their paths in the repository, so links hold.

What the site has no page for, a link to a folder or to GitHub, leads to the repository.
"""

import re
import tomllib
from pathlib import Path

from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_FOLDERS = (".", "config", "config/published", "docs", "envs")
_FOLDERS += ("results/gallery", "results/gallery/*")
_KINDS = ("*.md", "*.png")
_OF_GITHUB = "../../"
"""Begins links that GitHub resolves against the repository's own pages, such as its workflows."""
_LINK = re.compile(r"(\]\()([^)#\s]+)")


def on_config(config: ProperDocsConfig) -> ProperDocsConfig:
    """Take the repository's address from where the owner is named."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.repo_url, config.repo_name = project["urls"]["Repository"], "GitHub"
    return config


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Return the markdown and the pictures of the repository."""
    found = [file for file in files if file.src_dir != config.docs_dir]  # those of the theme
    for folder in _FOLDERS:
        for kind in _KINDS:
            for path in sorted(_ROOT.glob(f"{folder}/{kind}")):
                uri = path.relative_to(_ROOT).as_posix()
                found.append(File(uri, str(_ROOT), config.site_dir, config.use_directory_urls))
    return Files(found)


def on_page_markdown(markdown: str, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Send links to what is no page of the site to the repository."""
    folder = (_ROOT / page.file.src_uri).parent

    def sent(match: re.Match[str]) -> str:
        link = match[2]
        if "://" in link:
            return match[0]
        if link.startswith(_OF_GITHUB):
            return f"{match[1]}{config.repo_url}/{link.removeprefix(_OF_GITHUB)}"
        target = (folder / link).resolve()
        if not target.is_dir():
            return match[0]
        if (target / "README.md").is_file():
            return f"{match[0]}/README.md"
        return f"{match[1]}{config.repo_url}/tree/main/{target.relative_to(_ROOT).as_posix()}"

    return _LINK.sub(sent, markdown)
