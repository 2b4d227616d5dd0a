r"""Templates of the MATH-like benchmark: three problems for each of MATH's seven subjects.

A template draws its numbers from `rng` within limits set by the level, 1 (easy) to 5 (hard), and
returns the question, a worked solution of two to four steps whose last one is boxed, and the gold
answer. Answers are integers, or LaTeX where the subject calls for it: ``\frac{3}{8}``, ``45\pi``,
``5+14i``, ``\sqrt{13}``.
"""

from headroom.benchmarks import templates_advanced, templates_elementary
from headroom.benchmarks.problem import Template

SUBJECTS: dict[str, tuple[Template, ...]] = {
    "Algebra": templates_elementary.ALGEBRA,
    "Counting & Probability": templates_elementary.COUNTING,
    "Geometry": templates_advanced.GEOMETRY,
    "Intermediate Algebra": templates_advanced.INTERMEDIATE_ALGEBRA,
    "Number Theory": templates_elementary.NUMBER_THEORY,
    "Prealgebra": templates_elementary.PREALGEBRA,
    "Precalculus": templates_advanced.PRECALCULUS,
}
"""Templates of each subject, in MATH's spelling."""
