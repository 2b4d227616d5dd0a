"""Simulated runs on disk: tables of the real schemas, filled from a seeded simulation."""

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

import simulated_studies
from benchmarks.proof.worlds import coins
from headsweep.config import parse
from headsweep.experiments.sprint import evaluation
from headsweep.experiments.sprint.frontier_job import compare
from headsweep.files import paths
from headsweep.files.record import RECORD, Stopwatch, find_record, write_record
from headsweep.files.safe_files import write_csv, write_table
from headsweep.files.tables import (
    ACCURACY,
    ACTIVATIONS,
    ANSWERS,
    CURVES,
    GRADED,
    POSITIONS,
    QUESTIONS,
)
from headsweep.page.figures import draw
from headsweep.results import jobs
from headsweep.store.batches import batches, pool
from headsweep.store.layout import Store, mark_version

PUBLISHED = Path(__file__).parents[1] / "config" / "published"
SUBJECTS = ("Algebra", "Counting & Probability", "Geometry", "Intermediate Algebra")
SUBJECTS += ("Number Theory", "Prealgebra", "Precalculus")
DEMO = yaml.safe_load(
    """
    run: simulated
    models:
      reasoner: {source: "builtin:reasoner", layers: 6, heads: 8, kv_heads: 4, billions: 0.001}
    questions:
      math_test: {benchmark: generated_math, split: test, n: 200}
      math_train: {benchmark: generated_math, split: train, n: 200}
    decodings: {greedy: {}, authors: {prompt: authors}, T0.6: {temperature: 0.6, samples: 16}}
    embedders: {mean: {model: reasoner}}
    sweeps:
      demo: {model: reasoner, questions: math_test, layers: [0, 2, 5], placebos: both}
    selectors:
      math: {model: reasoner, train: math_train, test: math_test, embedder: mean,
             layers: [0, 2, 5], sampling: [T0.6]}
    comparisons: {prompts: {model: reasoner, questions: math_test}}
    """
)
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


def demo():
    return parse(DEMO)


def whole():
    """Return a config of a sweep, a selector, a frontier and two compressions."""
    families = {"model": "reasoner", "train": "math_train", "test": "math_test"}
    frontiers = {"math": {**families, "sampling": ["T0.6"], "scales": {"weights": [20]}}}
    data = {"dataset": "asdiv_a", "file": "asdiv_a.jsonl", "partition": {"protocol": "folds"}}
    problems, solvers = {"asdiv_a": data}, {"tiny": {"profile": "tiny"}}
    parts = {"problems": problems, "solvers": solvers}
    parts |= {"compressions": simulated_studies.all_studies()}
    return parse(DEMO | parts | {"run": "whole", "frontiers": frontiers})


def fill(config, *, subjects=SUBJECTS, text="so \\boxed{7}"):
    store = Store(config)
    mark_version()
    for number, batch in enumerate(batches(Store(config)).values()):
        _fill_batch(store, batch, np.random.default_rng(number), subjects, text)
    for name in config.selectors:
        _fill_selector(config, partial(store.path, selector=name), config.selectors[name])
    for name in config.comparisons:
        both, columns = ("default", "authors"), ["n", "accuracy", "differ_from_first"]
        compared = numbers(product(["greedy", "authors"], both), ["decoding", "grading"], columns)
        write_csv(store.path(paths.COMPARISON, comparison=name), compared)
    simulated_studies.fill(store)


def record():
    """Give each file of the run that no record describes one of its own, as its job does."""
    for file in sorted(Path(paths.RESULTS).rglob("*")):
        is_result = file.suffix in (".csv", ".json", ".parquet") and RECORD not in file.name
        if is_result and not find_record(file):
            write_record(file, Stopwatch(), {})


def _fill_selector(config, file, section):
    curves, paired = simulated_curves()
    setting = {"geometry": "sphere", "diversity": 0.001, "embedder": "mean"}
    facts = {"test_questions": 200, "setting": setting}
    write_table(file(CURVES), curves, CURVES, facts)
    heads = [str(variant) for variant in pool(config, section)]
    asked = [f"test/{number:03}" for number in range(config.questions[section.test].n or 100)]
    kinds = ["head"] * len(heads) + ["question"] * len(asked)
    points = pd.DataFrame({"kind": kinds, "name": heads + asked})
    vectors = list(np.random.default_rng(5).normal(size=(len(kinds), 5)))
    write_table(file(POSITIONS), points.assign(vector=vectors), POSITIONS)
    of_setting = ["geometry", "embedder", "seed", "chosen"]
    of_choice = ["dimension", "diversity", "weight_decay", "learning_rate", "epochs"]
    of_choice += ["pass_at_1", "pass_at_4", "mean_pass"]
    settings = [("sphere", "mean", 0, True), ("ball", "mean", 0, False)]
    of_n = ["1", "2", evaluation.MEAN]
    weighed = product(["SPRINT"], evaluation.IGNORING, of_n)
    readings = product(["sphere, λ = 0.1"], ["sphere"], ["mean"], of_n, ["sphere, λ = 0"])
    of_reading = ["reading", "geometry", "embedder", "n", "against"]
    shortlists = [("joint cover", 16, 16, True), ("joint cover", 32, 16, False)]
    of_weighed = ["method", "against", "n"]
    alike = pd.DataFrame({"question_id": asked, "degree": "none", "training_id": None})
    tables = {
        paths.CHOICE: numbers(settings, of_setting, of_choice),
        paths.ABLATION: numbers(readings, of_reading, evaluation.ABLATION_COLUMNS),
        paths.SENSITIVITY: numbers(
            shortlists, ["criterion", "k", "n", "chosen"], evaluation.SENSITIVITY_COLUMNS
        ),
        paths.TRANSFER: pd.DataFrame(columns=evaluation.TRANSFER_COLUMNS),
        paths.OVERLAP: alike.assign(equal=0, resembles=0),
        paths.PAIRED: paired,
        paths.VOTES: paired,
        paths.EMBEDDING_VALUE: numbers(weighed, of_weighed, evaluation.WORTH_COLUMNS),
        paths.DIVERSITY: numbers(
            [("SPRINT", 1), ("SPRINT", 2)],
            evaluation.DIVERSITY_COLUMNS[:2],
            evaluation.DIVERSITY_COLUMNS,
        ),
    }
    for template, table in tables.items():
        write_csv(file(template), table)


def numbers(keys, of, columns):
    """Return a table with keys, and columns of numbers; ends of intervals lie on both sides."""
    table = pd.DataFrame(keys, columns=list(of))
    for name in columns:
        if name not in table:
            value = {"low": 0.11, "high": 0.37, "freedom": np.inf}
            table[name] = value.get(name.split("_")[-1], 0.24)
    return table


def simulated_curves(limit=16):
    """Return curves that rise from first to last of `METHODS`, and differences of one seed.

    The oracle, which comes last, has none.
    """
    n = np.arange(1, limit + 1)
    curves, paired = [], []
    for method, (first, last) in METHODS.items():
        value = first + (last - first) * np.log2(n) / np.log2(limit)
        own = pd.DataFrame({"method": method, "n": n, "pass_at_n": value, "tokens": 90.0 * n})
        own = own.assign(low=value - 0.05, high=value + 0.045, majority=None)
        curves.append(own.assign(distinct_answers=np.sqrt(n), agreement=1 / np.sqrt(n)))
        lead = curves[0]["pass_at_n"] - value
        ends = {"difference": lead, "low": lead - 0.03, "high": lead + 0.028}
        ends |= {"band_low": ends["low"], "band_high": ends["high"]}
        ends |= {"peak": 2, "by_questions": 0.01, "p": 0.04, "adjusted": 0.04, "freedom": np.inf}
        paired.append(own[["method", "n"]].assign(**ends))
    differences = pd.concat(paired[1:-1], ignore_index=True).reindex(
        columns=evaluation.PAIRED_COLUMNS
    )
    return pd.concat(curves, ignore_index=True), differences


def simulated_z(n, names, rng, subjects=SUBJECTS):
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


def graded(z, names):
    """Return an answer to each question by each variant, right where Z says so."""
    how = {"id_vars": ["question_id"], "var_name": "variant", "value_name": "correct"}
    table = z.melt(value_vars=names, **how).astype({"correct": bool})
    same = {"answer": "7", "group": 0, "tokens": 90, "verdict": "judged", "stop_reason": "eos"}
    return table.assign(**same, margin=0.25)


def _fill_batch(store, batch, rng, subjects, text):
    config, file = store.config, batch.path
    n = config.questions[batch.questions].n or 100
    samples = config.decodings[batch.decoding].samples
    names = [str(variant) for variant in batch.variants]
    z = simulated_z(n, names, rng, subjects)
    write_table(file(ACCURACY), z, ACCURACY)
    first = graded(z, names)
    drawn = [first["correct"], *(rng.permutation(first["correct"]) for _ in range(1, samples))]
    every = [first.assign(sample=sample, correct=own) for sample, own in enumerate(drawn)]
    section = config.models[batch.model]
    places = product(range(section.layers), range(section.heads))
    measured = pd.DataFrame(places, columns=["layer", "head"])
    measured = measured.assign(share=1 / section.heads, norm=2.5, output_norm=1.5, noise_norm=1.5)
    write_table(file(ACTIVATIONS), measured, ACTIVATIONS)
    write_table(file(GRADED), pd.concat(every, ignore_index=True), GRADED)
    write_record(file(GRADED), Stopwatch(), {})
    rows = z[["question_id", "subject", "level"]].assign(split="test", answer="7", solution=None)
    rows = rows.assign(question=f"What is 3 + 4? {text}", source_row=range(n))
    write_table(file(QUESTIONS), rows, QUESTIONS)
    plain = f"Three and four: {text}"
    tokens = [rng.integers(3, 90, rng.integers(2, 9)).tolist() for _ in range(n)]
    for variant in batch.variants:
        turned = (z[str(variant)] != z["base"]).to_numpy() | (rng.random(n) < 0.05)
        turned &= not variant.is_base
        answers = z[["question_id"]].assign(sample=0, stop_reason="eos", margin=0.25)
        answers["text"] = np.where(turned, f"{plain[:6]}and {variant} {plain[6:]}", plain)
        answers["token_ids"] = [
            [*own[:2], 2, *own[3:]] if other else own
            for own, other in zip(tokens, turned, strict=True)
        ]
        write_table(file(ANSWERS, variant=variant), answers, ANSWERS)


def write(config, *, figures=True):
    """Write what follows from a filled run: tables, what is held against papers, and figures."""
    for name in config.frontiers:
        compare(Store(config), name)
    for sweep in config.sweeps:
        jobs.write_tables(Store(config), sweep, PUBLISHED)
        jobs.write_controls(Store(config), sweep)
    if config.compressions:
        jobs.write_compression_tables(Store(config), PUBLISHED)
    jobs.write_audit(Store(config), PUBLISHED)
    jobs.write_claims(Store(config), PUBLISHED)
    for kind in ("sweep", "selector", "compression") if figures else ():
        for name in getattr(config, f"{kind}s"):
            draw.draw(Store(config), kind, name)
    if figures and config.sweeps:
        draw.draw(Store(config), "run")


def gaining(draw, questions, heads, changed, gain):
    """Return coins of which the first head, which changes as many outcomes, gains so much.

    `gain` is its true gain, `changed` the share of outcomes that each head changes; fractions.
    """
    outcomes = coins(draw, questions, heads, changed)
    base = outcomes[:, 0]
    # Of the outcomes changed, (changed + gain) / 2 of all questions were wrong before.
    chances = np.where(base, changed - gain, changed + gain)
    outcomes[:, 1] = base ^ (draw.random(questions) < chances)
    return outcomes
