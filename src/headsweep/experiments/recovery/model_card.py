"""What a recovered decoder's model card says: how heads were chosen, how it was measured."""

from collections.abc import Sequence

from headsweep.experiments.compression.criteria import named
from headsweep.experiments.recovery.benchmark import Benchmark
from headsweep.experiments.recovery.settings import Recovery
from headsweep.experiments.recovery.texts import Piece

_HOW = (
    "Before: the source model. Pruned: the same heads removed from it, nothing trained. Recovered: "
    "this model. Perplexity is that of {texts} held-out texts, {tokens:,} tokens; its 95% "
    "intervals are those of other such texts.{again} Speed is that of greedy generation, on "
    "{device}."
)
_AGAIN = " Of these texts {count} are also trained on, which flatters it."
_ANSWERED = (
    " Right answers are those to {questions} questions, the same for all, answered greedily in at "
    "most {tokens} tokens; differences are paired."
)
_CONTROLLED = " Control: the same training with nothing removed."


def chosen_by(settings: Recovery) -> str:
    """Return how heads were chosen."""
    about = named(settings.criterion).about.format(alpha=settings.alpha, seed=settings.seed)
    if settings.criterion == "causal":
        about = "smallest rise of the loss on texts"
    return f"{about}, in {settings.rounds} rounds of removal and training"


def measured_how(
    testing: Sequence[Piece],
    benchmark: Benchmark | None,
    device: str,
    *,
    also_trained_on: int,
    controlled: bool,
) -> str:
    """Return how decoders were measured, on held-out pieces and the questions of a benchmark.

    So many of the held-out texts were `also_trained_on`.
    """
    how = _HOW.format(
        texts=len({piece.text for piece in testing}),
        tokens=sum(piece.targets for piece in testing),
        again=_AGAIN.format(count=also_trained_on) if also_trained_on else "",
        device=device,
    )
    if benchmark:
        most = benchmark.decoding.max_new_tokens
        how += _ANSWERED.format(questions=len(benchmark.questions), tokens=most)
    if controlled:
        how += _CONTROLLED
    return how
