"""The second paper's claims, judged from a run's compressions.

A claim about the paper's solvers is judged on these only; of other solvers it is said what was
measured. A claim about the method as such is judged on whatever solvers the run has, and the reason
names them. What intervals leave open cannot be judged.
"""

from collections.abc import Mapping, Sequence

from headroom.figures.compression import claims_method as method
from headroom.figures.compression.claims_numbers import (
    BASE,
    LARGE,
    Judge,
    arms,
    condition,
    mixed,
    named,
    strata,
)
from headroom.figures.compression.evidence import Trial
from headroom.figures.judgement import Judgement, unjudged

_LOSS = ("before", "after", "drop")

JUDGES: Mapping[str, Judge] = {
    "Math23k, 30% pruning: parameter reduction": condition(BASE, "Math23k", 0.3, "parameters"),
    "Math23k, 30% pruning: speedup": condition(BASE, "Math23k", 0.3, "speed"),
    "Math23k, 30% pruning: FLOPs reduction": condition(BASE, "Math23k", 0.3, "flops"),
    "Math23k, 30% pruning: accuracy": condition(BASE, "Math23k", 0.3, *_LOSS),
    "Math23k, increasing the ratio reduces parameters, memory and computation": method.each(
        method.more_saves_more,
        "compression at two ratios whose speed and size were measured",
        trained=False,
    ),
    "ASDiv-A, 25% pruning: accuracy": condition(BASE, "ASDiv-A", 0.25, *_LOSS),
    "ASDiv-A, 25% pruning: parameter reduction / speedup": condition(
        BASE, "ASDiv-A", 0.25, "parameters", "speed"
    ),
    "ATHENA-large, Math23k, 25%: accuracy drop / parameters / speed": condition(
        LARGE, "Math23k", 0.25, "drop", "parameters", "speed"
    ),
    "ATHENA-base, Math23k, 25%: accuracy drop / parameters / speed": condition(
        BASE, "Math23k", 0.25, "drop", "parameters", "speed"
    ),
    "ATHENA-large, ASDiv-A, 25%: accuracy / parameters / speed": condition(
        LARGE, "ASDiv-A", 0.25, *_LOSS, "parameters", "speed"
    ),
    "overall at 25%: accuracy loss / parameters / speed / memory": condition(
        BASE, "Math23k", 0.25, "drop", "parameters", "speed", "memory"
    ),
    "parameter reduction against what heads hold (ATHENA-base, 30%)": condition(
        BASE, None, 0.3, "parameters"
    ),
    "parameter reduction against what heads hold (ATHENA-large, 25%)": condition(
        LARGE, None, 0.25, "parameters"
    ),
    "larger models contain more redundant heads, making the optimization more effective": (
        method.larger_loses_less
    ),
    "best alpha": method.each(method.best_alpha, "two arms that differ in alpha only"),
    "alpha = 0 / alpha = 1": arms(mixed(0.0, 1.0)),
    "accuracy for alpha between 0.3 and 0.7": arms(mixed(0.3, 0.5, 0.7), least=True),
    "simple / complex problems: accuracy drop": strata("low", "high"),
    "removing entropy": arms(named("without_entropy")),
    "weight norm and entropy contribute comparably": method.each(
        method.comparable, "arms of norm alone, entropy alone and a mixture"
    ),
    "pruning only / without norm": arms(named("pruning_only", "without_norm")),
    "response / feature distillation": arms(named("response_distillation", "feature_distillation")),
    "random / global threshold / attention visualization pruning": arms(
        named("random", "global", "attention_visualisation")
    ),
    "distillation only": arms(named("distillation_only")),
    "all pruned variants of Table 4 share speed and memory figures": method.each(
        method.alike_in_speed,
        "two pruned arms whose speed and size were measured",
        trained=False,
    ),
    "recursive distillation gain over single-round distillation": method.each(
        method.recursion_gains, "arms full and joint single teacher"
    ),
}
"""The judge of each claim that a run can decide."""


def judge(claim: str, value: str, trials: Sequence[Trial]) -> Judgement:
    """Judge a claim by what a run's compressions measured.

    Args:
        claim: as transcribed.
        value: what it states.
        trials: the compressions of the run.
    """
    if not trials:
        return unjudged("the run has no compressed model")
    if claim not in JUDGES:
        return unjudged("nothing that a run measures decides it")
    return JUDGES[claim](trials, value)
