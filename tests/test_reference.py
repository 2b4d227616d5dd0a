"""The reference in the page of how-tos is current."""

from pathlib import Path

from headroom.reference import page

PAGE = Path(__file__).parents[1] / "config" / "README.md"


def test_the_reference_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run `make reference`"
