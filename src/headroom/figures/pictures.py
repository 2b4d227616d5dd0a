"""Figures as the report shows them: drawn before, read from their files."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: data URIs for light and dark, and its words."""

    title: str
    caption: str
    alt: str
    sources: list[str]
    inches: float
    light: str
    dark: str


def read_picture(template: str, **names: Any) -> Picture | None:
    """Return a figure that was drawn; None where it was not.

    Args:
        template: its path, ``{suffix}`` and other wildcards left open.
        names: values of the other wildcards.
    """
    words = Path(template.format(suffix="json", **names))
    if not words.exists():
        return None
    light, dark = (
        base64.b64encode(Path(template.format(suffix=suffix, **names)).read_bytes()).decode()
        for suffix in ("svg", "dark.svg")
    )
    return Picture(
        **json.loads(words.read_text(encoding="utf-8")),
        light=f"data:image/svg+xml;base64,{light}",
        dark=f"data:image/svg+xml;base64,{dark}",
    )
