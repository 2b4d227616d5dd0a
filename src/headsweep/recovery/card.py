"""What a recovered decoder's model card says: how heads were chosen, how it was measured."""

from collections.abc import Sequence

from headsweep.compression.criteria import named
from headsweep.recovery.benchmark import Benchmark
from headsweep.recovery.settings import Recovery
from headsweep.recovery.texts import Piece

_HOW = (
    "Before: the source model. Pruned: the same heads removed from it, nothing trained. Recovered: "
    "this model. Perplexity is that of {texts} held-out texts, {tokens:,} tokens; intervals "
    "resample texts. Speed is that of greedy generation, on {device}."
)
_ANSWERED = (
    " Right answers are those to {questions} questions, the same for all, answered greedily in at "
    "most {tokens} tokens; differences are paired."
)
_TURNS = " Losses count the assistant's turns only, in training and here."
_CONTROLLED = " Control: the same training with nothing removed."


def chosen_by(settings: Recovery) -> str:
    """Return how heads were chosen."""
    about = named(settings.criterion).about.format(alpha=settings.alpha, seed=settings.seed)
    if settings.criterion == "causal":
        about = "smallest rise of the loss on texts"
    return f"{about}, in {settings.rounds} rounds of removal and training"


def measured_how(
    settings: Recovery,
    testing: Sequence[Piece],
    benchmark: Benchmark | None,
    device: str,
    *,
    controlled: bool,
) -> str:
    """Return how decoders were measured, on held-out pieces and the questions of a benchmark."""
    how = _HOW.format(
        texts=len({piece.text for piece in testing}),
        tokens=sum(piece.targets for piece in testing),
        device=device,
    )
    if benchmark:
        most = benchmark.decoding.max_new_tokens
        how += _ANSWERED.format(questions=len(benchmark.questions), tokens=most)
    if controlled:
        how += _CONTROLLED
    if settings.assistant_only:
        how += _TURNS
    return how
