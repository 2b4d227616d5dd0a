"""What a plan assumes of models and benchmarks before anything is measured."""

HEAD_DIM = 128
"""Assumed width of a model's head."""

LENGTHS = {
    "math500": (120, 550),
    "math_train": (120, 550),
    "gsm8k": (120, 300),
    "generated_math": (25, 45),
    "generated_gsm8k": (25, 45),
    "custom": (120, 200),
}
"""Assumed mean lengths of a prompt and an answer; the decoding's limit caps the latter."""
