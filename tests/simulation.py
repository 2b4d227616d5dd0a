"""A simulated run: tables of the real schemas, filled from a seeded simulation."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headroom import paths
from headroom.config import Config, parse
from headroom.planning.batches import Batch, batches, pool
from headroom.planning.store import Store, key
from headroom.record import Stopwatch, record_path, write_record
from headroom.sprint import choosing, evaluation, matching
from headroom.tables import (
    ACCURACY,
    ACTIVATIONS,
    ANSWERS,
    CURVES,
    GRADED,
    POINTS,
    QUESTIONS,
    write_json,
    write_table,
)

PUBLISHED = Path(__file__).parents[1] / "config" / "published"
SUBJECTS = (
    "Algebra",
    "Counting & Probability",
    "Geometry",
    "Intermediate Algebra",
    "Number Theory",
    "Prealgebra",
    "Precalculus",
)
DEMO: dict[str, Any] = {
    "run": "simulated",
    "models": {
        "reasoner": {
            "source": "builtin:reasoner",
            "layers": 6,
            "heads": 8,
            "kv_heads": 4,
            "billions": 0.001,
        }
    },
    "questions": {
        "math_test": {"benchmark": "generated_math", "split": "test", "n": 200},
        "math_train": {"benchmark": "generated_math", "split": "train", "n": 200},
    },
    "decodings": {
        "greedy": {},
        "authors": {"prompt": "authors"},
        "T0.6": {"temperature": 0.6, "samples": 16},
    },
    "embedders": {"mean": {"model": "reasoner"}},
    "sweeps": {
        "demo": {
            "model": "reasoner",
            "questions": "math_test",
            "layers": [0, 2, 5],
            "placebos": "both",
        }
    },
    "selectors": {
        "math": {
            "model": "reasoner",
            "train": "math_train",
            "test": "math_test",
            "embedder": "mean",
            "layers": [0, 2, 5],
            "sampling": ["T0.6"],
        }
    },
    "comparisons": {"prompts": {"model": "reasoner", "questions": "math_test"}},
}
METHODS = {
    "SPRINT": (0.62, 0.84),
    "sampling T=0.1": (0.61, 0.70),
    "sampling T=0.6": (0.60, 0.81),
    "sampling T=0.9": (0.55, 0.83),
    "random heads": (0.59, 0.80),
    "greedy cover": (0.63, 0.85),
    "best single head": (0.64, 0.64),
    "base greedy": (0.61, 0.61),
    "all heads (oracle)": (0.87, 0.87),
}


def demo() -> Config:
    """Return a config in the shape of the demo."""
    return parse(DEMO)


def paper_scale() -> Config:
    """Return a config of four models, 7 layers of each, one with 504 heads; 500 questions."""
    shapes = {"Qwen2.5-7B-Instruct": (28, 28), "Qwen2.5-Math-1.5B-Instruct": (28, 12)}
    shapes |= {"Llama-3-8B-Instruct": (32, 32), "Wide-72B": (28, 72)}
    sizes = {"kv_heads": 4, "billions": 7}
    values = DEMO | {
        "run": "paper",
        "models": {
            name: {"source": name, "layers": layers, "heads": heads, **sizes}
            for name, (layers, heads) in shapes.items()
        },
        "questions": {"math500": {"benchmark": "generated_math", "split": "test", "n": 500}},
        "embedders": {},
        "selectors": {},
        "comparisons": {},
        "sweeps": {
            name: {"model": name, "questions": "math500", "layers": list(range(0, 28, 4))}
            for name in shapes
        },
    }
    return parse(values)


def fill(
    config: Config,
    *,
    subjects: tuple[str, ...] = SUBJECTS,
    text: str = "so \\boxed{7}",
    alike: bool = False,
) -> None:
    """Write every table that figures read, below the working directory.

    Where all pruned models are to answer alike, their answers are written once and linked.
    """
    for number, batch in enumerate(batches(config)):
        _fill_batch(config, batch, np.random.default_rng(number), subjects, text, alike)
    for name in config.models:
        path = Path(paths.MODEL.format(model=key(config, "models", name)))
        write_json(path, {"folder": "somewhere"})
        write_record(path, Stopwatch(), {})
    for name in config.selectors:
        curves, paired = simulated_curves()
        path = Path(paths.CURVES.format(run=config.run, selector=name))
        write_table(path, curves, CURVES, {"test_questions": 200})
        write_record(path, Stopwatch(), {})
        for template in (paths.PAIRED, paths.VOTES):
            paired.to_csv(Path(template.format(run=config.run, selector=name)), index=False)
        trials = pd.DataFrame({"geometry": ["sphere", "ball"], "pass_at_4": [0.71234, 0.7]})
        trials = trials.assign(n=["mean", "1"], chosen=[True, False])
        write_table(
            Path(paths.POINTS.format(run=config.run, selector=name)),
            _points(config, name, np.random.default_rng(5)),
            POINTS,
        )
        tables = {
            paths.CHOICE: trials,
            paths.SENSITIVITY: trials,
            paths.ABLATION: trials,
            paths.EMBEDDING_VALUE: embedding_table(),
            paths.DIVERSITY: diversity_table(),
            paths.CHOOSING: choosing_table(),
        }
        for template, table in tables.items():
            path = Path(template.format(run=config.run, selector=name))
            table.to_csv(path, index=False)
    for name in config.comparisons:
        path = Path(paths.COMPARISON.format(run=config.run, comparison=name))
        path.parent.mkdir(parents=True, exist_ok=True)
        _comparison().to_csv(path, index=False)


def simulated_curves(limit: int = 16) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return curves that rise from the first to the last value of `METHODS`, and differences."""
    n = np.arange(1, limit + 1)
    curves, values = [], {}
    for method, (first, last) in METHODS.items():
        values[method] = first + (last - first) * np.log2(n) / np.log2(limit)
        curves.append(
            pd.DataFrame(
                {
                    "method": method,
                    "n": n,
                    "pass_at_n": values[method],
                    "low": values[method] - 0.05,
                    "high": values[method] + 0.045,
                    "majority": None,
                    "distinct_answers": np.sqrt(n),
                    "agreement": 1 / np.sqrt(n),
                    "tokens": 90.0 * n,
                }
            )
        )
    paired = [
        pd.DataFrame(
            {
                "method": method,
                "n": n,
                "difference": values["SPRINT"] - values[method],
                "low": values["SPRINT"] - values[method] - 0.03,
                "high": values["SPRINT"] - values[method] + 0.028,
            }
        )
        for method in METHODS
        if method != "SPRINT"
    ]
    return pd.concat(curves, ignore_index=True), paired_table(pd.concat(paired, ignore_index=True))


def paired_table(differences: pd.DataFrame) -> pd.DataFrame:
    """Return differences with the columns that a simulation leaves out: one seed, one draw."""
    found = differences.reindex(columns=evaluation.PAIRED).assign(by_questions=0.01, resembling=0)
    found = found.assign(band_low=found["low"], band_high=found["high"])
    return found.assign(peak=2, peak_low=1, peak_high=4)


def simulated_z(
    n: int, names: list[str], rng: np.random.Generator, subjects: tuple[str, ...] = SUBJECTS
) -> pd.DataFrame:
    """Return an accuracy matrix in which a head flips one outcome in seven, and a few do harm."""
    ability = rng.normal(0.6, 1, n)
    level = np.clip(np.round(3.2 - ability + rng.normal(0, 0.8, n)), 1, 5).astype(int)
    base = rng.random(n) < 1 / (1 + np.exp(-ability))
    columns = {}
    for name in names:
        other = rng.random(n) < 1 / (1 + np.exp(-ability + (rng.random() < 0.06) * 2))
        columns[name] = np.where(rng.random(n) < 1 / 7, other, base).astype("int8")
    columns["base"] = base.astype("int8")
    frame = pd.DataFrame({"question_id": [f"test/{i:03}" for i in range(n)]})
    frame["subject"] = [subjects[i % len(subjects)] for i in range(n)]
    frame["level"] = level.astype("int8")
    return pd.concat([frame, pd.DataFrame(columns)], axis=1)


def _fill_batch(
    config: Config,
    batch: Batch,
    rng: np.random.Generator,
    subjects: tuple[str, ...],
    text: str,
    alike: bool,
) -> None:
    keys = Store(config).keys(**batch.names)
    n = config.questions[batch.questions].n or 100
    samples = config.decodings[batch.decoding].samples
    names = [str(variant) for variant in batch.variants]
    z = simulated_z(n, names, rng, subjects)
    variants = pa.schema([*ACCURACY, *(pa.field(name, pa.int8(), False) for name in names)])
    path = Path(paths.ACCURACY.format(run=config.run, **keys))
    write_table(path, z, variants)
    write_record(path, Stopwatch(), {})
    graded = z.melt(id_vars=["question_id"], value_vars=names, var_name="variant")
    graded = graded.rename(columns={"value": "correct"}).astype({"correct": bool})
    graded = graded.assign(answer="7", group=0, tokens=90, stop_reason="eos", margin=0.25)
    drawn = [graded["correct"], *(rng.permutation(graded["correct"]) for _ in range(1, samples))]
    graded = pd.concat(
        [graded.assign(sample=sample, correct=own) for sample, own in enumerate(drawn)],
        ignore_index=True,
    )
    graded["verdict"] = np.where(graded.index % 211 == 5, "timeout", "judged")
    section = config.models[batch.model]
    places = pd.MultiIndex.from_product([range(section.layers), range(section.heads)])
    measured = places.to_frame(index=False, name=["layer", "head"])
    measured = measured.assign(share=1 / section.heads, norm=2.5, output_norm=1.5, noise_norm=1.6)
    write_table(Path(paths.ACTIVATIONS.format(**keys)), measured, ACTIVATIONS)
    path = Path(paths.GRADED.format(run=config.run, **keys))
    write_table(path, graded, GRADED)
    write_record(path, Stopwatch(), {"verdicts": graded["verdict"].value_counts().to_dict()})
    rows = z[["question_id", "subject", "level"]].assign(
        split="test", question=f"What is 3 + 4? {text}", answer="7", solution=None
    )
    rows["source_row"] = range(n)
    write_table(Path(paths.QUESTIONS.format(**keys)), rows, QUESTIONS)
    plain = [f"Three and four: {text}"] * n
    tokens = [rng.integers(3, 90, rng.integers(2, 9)).tolist() for _ in range(n)]
    files = list(map(Path, Store(config).answers(batch)))
    for variant, file in zip(batch.variants, files, strict=True):
        if alike and file not in files[:2]:
            os.link(files[1], file)
            os.link(record_path(files[1]), record_path(file))
            continue
        turned = (z[str(variant)] != z["base"]).to_numpy() | (rng.random(n) < 0.05)
        turned &= not variant.is_base
        answers = z[["question_id"]].assign(sample=0, stop_reason="eos", margin=0.25)
        answers["text"] = [
            f"{base[:6]}and {variant} {base[6:]}" if other else base
            for base, other in zip(plain, turned, strict=True)
        ]
        answers["token_ids"] = [
            [*own[:2], 2, *own[3:]] if other else own
            for own, other in zip(tokens, turned, strict=True)
        ]
        write_table(file, answers, ANSWERS)
        write_record(file, Stopwatch(), {"answers": n, "new_tokens": 8 * n, "reused": 0})


def _points(config: Config, name: str, rng: np.random.Generator) -> pd.DataFrame:
    section = config.selectors[name]
    heads = [str(variant) for variant in pool(config, section)]
    asked = [f"test/{number:03}" for number in range(config.questions[section.test].n or 100)]
    kinds = ["head"] * len(heads) + ["question"] * len(asked)
    vectors = list(rng.normal(size=(len(kinds), 5)))
    return pd.DataFrame({"kind": kinds, "name": heads + asked, "vector": vectors})


def _comparison() -> pd.DataFrame:
    rows = [("greedy", "default", 122), ("greedy", "authors", 119)]
    rows += [("authors", "default", 120), ("authors", "authors", 117)]
    frame = pd.DataFrame(rows, columns=["decoding", "grading", "correct"])
    frame = frame.assign(n=200, accuracy=frame["correct"] / 200, no_answer=7, truncated=5)
    return frame.assign(differ_from_default=[0, 3, 8, 11])


def embedding_table(
    difference: float = 0.031, low: float = 0.012, high: float = 0.05, p: float = 0.002
) -> pd.DataFrame:
    """Return whether the embedding matters, the same in every row."""
    rows = []
    for against in ("shuffled questions", "greedy cover", "heads drawn from the pool"):
        own = p if against == "shuffled questions" else None
        for n in ("1", "2", "mean"):
            row = ("SPRINT", "test", "all heads", 24, against, n, 0.75, 0.719)
            rows.append((*row, difference, low, high, own))
    return pd.DataFrame(rows, columns=matching.COLUMNS)


def diversity_table() -> pd.DataFrame:
    """Return diversity and cost of SPRINT, undefined for one answer."""
    one = ("SPRINT", 1, 0.7, 1.0, 1.0, 1.0, None, None, None, 90.4, 90.4, 1.0, 140.4)
    two = ("SPRINT", 2, 0.8, 1.25, 1.2, 1.31, 0.75, 0.7, 0.8, 181.2, 97.6, 1.75, 268.7)
    return pd.DataFrame([one, two], columns=evaluation.DIVERSITY)


def choosing_table(over: float = 0.013, low: float = -0.01, high: float = 0.034) -> pd.DataFrame:
    """Return what each rule recovers of Pass@N, and what the verifier has over the majority."""
    rows = []
    for n, ceiling in ((1, 0.7), (8, 0.8), (16, 0.85)):
        rows += [
            ("SPRINT", "oracle", n, ceiling, ceiling - 0.05, ceiling + 0.05, 1, 1, 1, 0, 0, 0),
            ("SPRINT", "first", n, 0.7, 0.64, 0.76, 0.7 / ceiling, 0.8, 0.95, -0.05, -0.09, -0.01),
            ("SPRINT", "majority", n, 0.752, 0.69, 0.81, 0.94, 0.9, 0.97, 0, 0, 0),
            ("SPRINT", "agreement", n, 0.752, 0.69, 0.81, 0.94, 0.9, 0.97, 0, 0, 0),
            ("SPRINT", "verifier", n, 0.765, 0.7, 0.82, 0.956, 0.92, 0.98, over, low, high),
        ]
    return pd.DataFrame(rows, columns=choosing.COLUMNS)
