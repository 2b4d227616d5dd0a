"""What does a reasoning model gain by losing an attention head?"""

from typing import Any

__version__ = "0.1.0"
__all__ = (
    "Pruned",
    "Run",
    "Solver",
    "load",
    "load_model",
    "prune",
    "prune_and_recover",
    "pruned",
    "sweep",
)


def __getattr__(name: str) -> Any:
    """Import the library on first use: torch alone takes seconds."""
    if name in __all__:
        from headroom import library

        return getattr(library, name)
    raise AttributeError(f"module 'headroom' has no attribute {name!r}")
