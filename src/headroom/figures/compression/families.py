"""Arms that differ from the method in one setting only: its ratio, or its alpha."""

from headroom.config.arms import arm
from headroom.config.compression import Compression
from headroom.figures.compression.evidence import Trial


def ratios_of(trial: Trial) -> dict[float, str]:
    """Return the arms that differ from the method in their ratio only, by rising ratio."""
    method = trial.study.method
    found = {
        settings.ratio: name
        for name, settings in trial.settings.items()
        if settings.ratio > 0
        and _alike(settings.model_copy(update={"ratio": method.ratio}), method)
    }
    return dict(sorted(found.items()))


def mixtures_of(trial: Trial, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ in alpha only, by rising alpha.

    They differ so from the method, or, without distillation, from pruning alone.
    """
    method = trial.study.method if distilled else arm("pruning_only", trial.study.method)
    if method.importance.criterion != "mixed":
        return {}
    alpha = {"alpha": method.importance.alpha}
    found = {}
    for name, settings in trial.settings.items():
        importance = settings.importance.model_copy(update=alpha)
        if _alike(settings.model_copy(update={"importance": importance}), method):
            found[settings.importance.alpha] = name
    return dict(sorted(found.items()))


def _alike(settings: Compression, method: Compression) -> bool:
    return settings.decisive() == method.decisive()
