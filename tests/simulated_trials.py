"""Simulated compressions: outcomes, histories and measurements as a run has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.published import Encoder
from headroom.analysis.trials import MEASUREMENTS, Trial
from headroom.config import Config, Study, parse
from headroom.config.study import ARMS
from headroom.tables import STUDY_OUTCOMES, write_json, write_table

EFFECTS = {
    "baseline": 0.0,
    "pruning_only": -0.015,
    "without_entropy": -0.02,
    "without_norm": -0.06,
    "response_distillation": -0.01,
    "feature_distillation": -0.012,
    "random": -0.05,
    "global": -0.02,
    "attention_visualisation": -0.03,
    "distillation_only": 0.01,
    "full": -0.008,
    "joint_single_teacher": -0.01,
    "small_from_scratch": -0.04,
    "trained_on": 0.012,
    "ratio_10": 0.0,
    "ratio_20": -0.005,
    "ratio_30": -0.012,
    "ratio_40": -0.05,
    "ratio_60": -0.12,
    "alpha_0": -0.05,
    "alpha_03": -0.01,
    "alpha_07": -0.012,
    "alpha_1": -0.02,
    "plain_alpha_03": -0.02,
    "plain_alpha_07": -0.018,
    "reversed_entropy": -0.011,
}
"""Change of accuracy of each arm."""

VARIATIONS: dict[str, dict[str, Any]] = {
    **{f"ratio_{ratio}": {"ratio": ratio / 100} for ratio in (10, 20, 30, 40, 60)},
    "alpha_0": {"importance": {"alpha": 0.0}},
    "alpha_03": {"importance": {"alpha": 0.3}},
    "alpha_07": {"importance": {"alpha": 0.7}},
    "alpha_1": {"importance": {"alpha": 1.0}},
    "plain_alpha_03": {"of": "pruning_only", "importance": {"alpha": 0.3}},
    "plain_alpha_07": {"of": "pruning_only", "importance": {"alpha": 0.7}},
    "reversed_entropy": {"importance": {"entropy_sign": -1}},
}
LAYERS, HEADS = 3, 8
ENCODER = Encoder(layers=LAYERS, width=128, heads=HEADS, inner=256)
PARAMETERS, THOUGHT_HEAD = 600_123, 1_000_456


def study(**changes: Any) -> Study:
    """Return a study with every arm, unless changes say otherwise."""
    values: dict[str, Any] = {
        "solver": "tiny",
        "data": "asdiv_a",
        "arms": list(ARMS),
        "variations": VARIATIONS,
        "int8": ["baseline", "full"],
        "seeds": [0, 1, 2],
    }
    return Study.model_validate(values | changes)


def trial(
    of: Study | None = None,
    *,
    name: str = "asdiv",
    examples: int = 240,
    effects: dict[str, float] = EFFECTS,
    of_seed: float = 0.01,
    draw: int = 0,
    **changes: Any,
) -> Trial:
    """Return a simulated compression; its arms differ from the baseline by `effects`."""
    own = of or study()
    rng = np.random.default_rng(draw)
    facts = {
        "name": name,
        "subject": own.solver or own.model,
        "data": own.data or own.test,
        "papers_data": "ASDiv-A",
        "encoder": ENCODER,
    }
    return Trial(
        study=own,
        outcomes=_outcomes(own, examples, effects, of_seed, rng),
        histories={
            arm: {seed: history(own, arm, seed) for seed in own.seeds} for arm in own.settings
        },
        measurements=_measurements(own),
        **facts | changes,
    )


def _outcomes(
    own: Study, examples: int, effects: dict[str, float], of_seed: float, rng: np.random.Generator
) -> pd.DataFrame:
    easy = rng.beta(1.0, 1.2, examples)
    strata = np.where(easy < 0.2, "high", np.where(easy < 0.45, "medium", "low"))
    tables = []
    for arm in own.settings:
        for seed in own.seeds:
            luck = of_seed * rng.normal()
            for quantised in (False, True)[: 1 + (arm in own.int8)]:
                chance = np.clip(easy + effects.get(arm, 0.0) + luck - 0.01 * quantised, 0, 1)
                strict = rng.random(examples) < 0.15 + 0.7 * (chance > 0.5)
                tables.append(
                    pd.DataFrame(
                        {
                            "arm": arm,
                            "seed": seed,
                            "example_id": [f"test/{i:03}" for i in range(examples)],
                            "stratum": strata,
                            "quantised": quantised,
                            "answer": "n0 + n1",
                            "strict": strict,
                            "lenient": strict | (rng.random(examples) < 0.01),
                        }
                    )
                )
    return pd.concat(tables, ignore_index=True)


def removed(own: Study, arm: str) -> int:
    """Return how many heads an arm removes."""
    return int(own.settings[arm].ratio * LAYERS * HEADS + 1e-9)


def history(own: Study, arm: str, seed: int) -> dict[str, Any]:
    """Return how an arm went: the same number of heads in each of its rounds, as far as it goes."""
    settings = own.settings[arm]
    rng = np.random.default_rng(seed)
    total, heads = LAYERS * HEADS, LAYERS * HEADS
    order = [f"L{head // HEADS:02}H{head % HEADS:02}" for head in rng.permutation(total)]
    rounds: list[dict[str, Any]] = []
    count = settings.rounds if settings.schedule == "rounds" and not settings.scratch else 1
    for number in range(count if settings.rounds else 0):
        left = total - removed(own, arm) * (number + 1) // count
        gone = order[total - heads : total - left]
        scores = {head: round(place / total, 3) for place, head in enumerate(order)}
        kept = {head: scores[head] for head in order[total - heads :]}
        epochs = [
            {
                "epoch": epoch,
                "steps": 20 * epoch,
                "losses": _losses(settings, number, epoch, rng),
                "dev_strict": 0.4 + 0.01 * epoch,
            }
            for epoch in (1, 2, 3)
        ]
        removals = [{"step": 60 * number, "heads": gone, "scores": kept}] if gone else []
        rounds.append(
            {
                "removals": removals,
                "heads": left,
                "parameters": whole(total - left),
                "epochs": epochs,
                "best": None,
            }
        )
        heads = left
    return {
        "dev_strict": 0.45,
        "heads": total,
        "parameters": whole(0),
        "seconds": 50.0 + 60 * len(rounds) + seed,
        "tokens": 9_000 * len(rounds),
        "rounds": rounds,
        "warnings": ["the loss rose in round 2, from 0.3 to 0.4; lower exponent, or learning_rate"]
        if arm == "random" and seed
        else [],
    }


def _losses(settings: Any, number: int, epoch: int, rng: np.random.Generator) -> dict[str, float]:
    scale = 1.2 * 0.85 ** (3 * number + epoch) * (1 + 0.05 * rng.normal())
    found = {"task": scale}
    if settings.distillation.teacher != "none":
        found |= {"response": 0.3 * scale} if settings.distillation.response else {}
        found |= {"feature": 0.05 * scale} if settings.distillation.feature != "none" else {}
    return found


def whole(gone: int) -> int:
    """Return the parameters of encoder and thought head without some heads."""
    return PARAMETERS + THOUGHT_HEAD - gone * ENCODER.head_parameters


def _measurements(own: Study) -> pd.DataFrame:
    rows = []
    for arm in own.settings:
        gone = removed(own, arm)
        for quantised in (False, True)[: 1 + (arm in own.int8)]:
            for tokens in own.tokens:
                for batch in own.batches:
                    flops = tokens * (2_000_000 - 20_000 * gone)
                    seconds = 1e-3 + flops * batch * 1e-11 * (0.7 if quantised else 1)
                    whole_test = tokens == own.tokens[0] and batch == max(own.batches)
                    rows.append(
                        {
                            "arm": arm,
                            "quantised": quantised,
                            "tokens": tokens,
                            "batch": batch,
                            "seconds": seconds,
                            "parameters": PARAMETERS - gone * ENCODER.head_parameters,
                            "whole_parameters": whole(gone),
                            "flops": flops,
                            "weight_bytes": int((1.4 if quantised else 4) * whole(gone)),
                            "peak_bytes": 30_000_000 - 40_000 * gone if batch > 1 else None,
                            "test_time": seconds if whole_test else None,
                        }
                    )
    table = pd.DataFrame(rows)
    seconds = table["test_time"].astype(float)
    ratio = seconds / seconds[(table["arm"] == "baseline") & ~table["quantised"]].max()
    table = table.assign(test_time=ratio, test_time_low=0.97 * ratio, test_time_high=1.02 * ratio)
    assert set(MEASUREMENTS) <= set(table)
    return table


CONFIG: dict[str, Any] = {
    "run": "compressed",
    "problems": {
        "asdiv_a": {
            "dataset": "asdiv_a",
            "file": "asdiv_a.jsonl",
            "partition": {"protocol": "folds"},
        }
    },
    "solvers": {"tiny": {"profile": "tiny"}},
    "compressions": {"asdiv": {"solver": "tiny", "data": "asdiv_a"}},
}


def config(**studies: Study) -> Config:
    """Return a config with some compressions."""
    given = {
        name: of.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for name, of in studies.items()
    }
    return parse(CONFIG | {"compressions": given})


def fill(run: Config, trials: list[Trial]) -> None:
    """Write what a run has of trials, below the working directory."""
    for one in trials:
        keys = {"run": run.run, "compression": one.name}
        write_table(Path(paths.STUDY_OUTCOMES.format(**keys)), one.outcomes, STUDY_OUTCOMES)
        histories = json.loads(json.dumps(one.histories))
        write_json(Path(paths.HISTORIES.format(**keys)), histories)
        one.measurements.to_csv(Path(paths.MEASUREMENTS.format(**keys)), index=False)
