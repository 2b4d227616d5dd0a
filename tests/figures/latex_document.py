"""Sets tables with pdfLaTeX, and says what it complained about."""

import shutil
import subprocess
from pathlib import Path

import pytest

HOSTILE = (
    r"\input{/etc/passwd}",
    "<script>alert(1)</script>",
    "a | b\n# c **d** [e](f) $x^2_i$ `g`",
    "100% & more ~ # { } ^ _ \" ' --",
    "Алгебра 数学 é",
)
"""Names that markup must not be made of."""


def typeset(folder: Path, *tables: str) -> str:
    """Set tables on A4 paper and return the log of the last run; skips without pdfLaTeX.

    Raises:
        AssertionError: they do not compile, or do not fit.
    """
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed")
    document = (
        r"\documentclass[a4paper]{article}\usepackage[margin=2cm]{geometry}"
        r"\usepackage{array,booktabs,longtable,lscape}\begin{document}"
        + "\n".join(tables)
        + r"\end{document}"
    )
    (folder / "table.tex").write_text(document, encoding="utf-8")
    for _ in range(3):  # longtable learns its widths
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
            cwd=folder,
            capture_output=True,
            text=True,
            encoding="latin-1",
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-2000:]
        if "Rerun" not in done.stdout and "Table widths have changed" not in done.stdout:
            break
    for complaint in ("Overfull", "Float too large", "root:", "Table widths have changed"):
        before, found, after = done.stdout.partition(complaint)
        assert not found, before[-300:] + found + after[:500]
    return done.stdout
