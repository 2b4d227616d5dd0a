"""The tables of `headsweep plan`: what a config generates and trains, in hours and gigabytes."""

from collections.abc import Collection, Sequence

from headsweep.config import Config, Study
from headsweep.config.compression import SCORED_AT_ONCE
from headsweep.machine.processors import GPU, Card, this_cpu
from headsweep.models.footprint import gpus_of, weight_bytes
from headsweep.store.batches import Batch, batches
from headsweep.store.layout import Store
from headsweep.text import aligned, duration
from headsweep.workflow import cost, memory
from headsweep.workflow.cost import Cost
from headsweep.workflow.detectable_gain import ABOUT, ASSUMED, detectable_gains

_START_SECONDS = 30.0  # start of a job and loading of a model


def describe(store: Store) -> str:
    """Return tables of what a config generates and trains, of hours and of memory.

    All of it is counted, whether or not the store already holds it.
    """
    config = store.config
    planned = batches(store).values()
    costs = [(batch.names, cost.generation_cost(batch)) for batch in planned]
    costs += [((name, "map", ""), cost.scoring_cost(config, name)) for name in config.maps]
    costs += [
        ((name, "training", ""), cost.training_cost(config, name)) for name in config.compressions
    ]
    total = cost.total_cost([one_cost for _, one_cost in costs])
    costs.append((("total", "", ""), total))
    answer_lengths = sorted({cost.answer_length(batch) for batch in planned})
    lengths = ", ".join(map(str, answer_lengths))
    of_answers = f"answers of {lengths} tokens on average; " if planned else ""
    starts = total.jobs * _START_SECONDS / 3600
    return f"""\
run {config.run!r} (counts everything; what the store already holds is not made again)

{aligned(_amounts(costs), left=3)}

{aligned(_hours(config, planned), left=1)}
{_weights(config)}{_scoring(config)}{_training(config)}{_sight(config)}
Assumed: {of_answers}{GPU.flops / 1e12:,.0f} TFLOP/s of answers on a GPU, as
measured on one H100, and {this_cpu().flops / 1e9:,.0f} GFLOP/s on this CPU. On a cluster each job
also takes 30 s to start, {starts:,.1f} h in all. `headsweep pilot` measures the models."""


def _amounts(costs: Sequence[tuple[tuple[str, ...], Cost]]) -> list[tuple[str, ...]]:
    """Return rows of jobs, answers, tokens and disk, given costs by the names in a row."""
    rows: list[tuple[str, ...]] = [
        ("model", "decoding", "questions", "jobs", "answers", "M tokens", "disk GB")
    ]
    for names, batch_cost in costs:
        amounts = (
            f"{batch_cost.jobs:,}",
            f"{batch_cost.answers:,}",
            f"{batch_cost.tokens / 1e6:,.1f}",
        )
        rows.append((*names, *amounts, f"{batch_cost.disk_gigabytes:,.2f}"))
    return rows


def _hours(config: Config, planned: Collection[Batch]) -> list[tuple[str, ...]]:
    """Return a row for each kind of device: hours of answers, maps and training."""
    rows: list[tuple[str, ...]] = [("hours of", "generation", "maps", "training")]
    for name, card in (("a GPU", GPU), ("this CPU", this_cpu())):
        generated = sum(cost.generation_seconds(batch, card) for batch in planned)
        mapped = sum(cost.map_seconds(config, map_name, card) for map_name in config.maps)
        seconds = (generated, mapped, _trained_seconds(config, card))
        rows.append((name, *(duration(each / 3600) for each in seconds)))
    return rows


def _weights(config: Config) -> str:
    """Say what the weights of each model take."""
    said = ""
    for name, model in config.models.items():
        gpus = gpus_of(model)
        spread = f" on {gpus} GPUs" if gpus > 1 else ""
        said += f"\nWeights of {name}: {weight_bytes(model) / 1e9:,.1f} GB{spread}"
    return f"{said}\n" if said else ""


def _trained_seconds(config: Config, card: Card) -> float:
    """Return the seconds that a card takes for all trainings: of solvers, and of their arms."""
    seconds = 0.0
    for study in config.compressions.values():
        of_each_seed = [
            cost.training_seconds(config, study, settings, card)
            for settings in study.settings.values()
        ]
        if study.solver:
            of_each_seed.append(cost.training_seconds(config, study, None, card))
        for of_seed in of_each_seed:
            seconds += len(study.seeds) * of_seed
    return seconds


def _scoring(config: Config) -> str:
    """Say what scoring the heads takes, of each compression that scores them."""
    said = ""
    for name, study in config.compressions.items():
        peak = memory.scoring_memory(config, study, study.method)
        if peak:
            said += (
                f"\nScoring the heads of {name}: at most {peak:,.1f} GB, with "
                f"importance.batch_size: {study.method.importance.batch_size or SCORED_AT_ONCE} "
                f"texts of {memory.longest_text(config, study):,} tokens at once\n"
            )
    return said


def _training(config: Config) -> str:
    """Say what each training holds in memory."""
    said = ""
    for name, study in config.compressions.items():
        peak = _trained(config, study)
        if peak:
            said += (
                f"\nTraining {name}: at most {sum(peak):,.1f} GB: weights, gradients and moments "
                f"{peak.weights:,.1f}, teacher {peak.teacher:,.1f}, attention {peak.maps:,.1f}, "
                f"the rest {peak.states:,.1f}; with training.micro_batches above "
                f"{study.method.training.micro_batches} fewer texts at once\n"
            )
    return said


def _sight(config: Config) -> str:
    """Say what the sweeps could see; nothing without sweeps."""
    rows = detectable_gains(config, dict.fromkeys(config.models, ASSUMED))
    if not rows:
        return ""
    return f"\n{ABOUT} (base right and outcomes changed are assumed)\n{aligned(rows, 1)}\n"


def _trained(config: Config, study: Study) -> memory.TrainingMemory | None:
    """Return what the arm of a compression that takes most holds in training; None: none does."""
    arms = [settings for settings in study.settings.values() if settings.rounds]
    peaks = [memory.training_memory(config, study, settings) for settings in arms]
    return max(peaks, key=sum, default=None)
