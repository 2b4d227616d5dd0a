"""Config section of a map: how likely known texts are without each head of a model."""

from typing import Annotated

from headsweep.config.experiments import Layers
from headsweep.config.questions import Dtype
from headsweep.config.section import DISTINCT, Count, Section


class HeadMap(Section):
    """A map of every head: known texts are scored without each head; none is generated."""

    model: str
    """Name under `models`."""
    questions: str
    """Name under `questions`: training questions, if heads are chosen by the map."""
    decoding: str = "greedy"
    """Name under `decodings`: its prompt comes before every text."""
    sampling: Annotated[tuple[str, ...], DISTINCT] = ()
    """Sampling decodings of the base model. Of each question the first right and the first wrong
    sample of one decoding are scored, both ended by the model; questions without both are left out.
    None: reference solutions alone, where the benchmark has them."""
    layers: Layers = "all"
    """Layers whose heads are in the map, numbered from 0; or all."""
    n: Count | None = None
    """Most questions whose texts are scored, the first ones; null: all."""
    noise_placebos: Count = 1
    """Noise placebos in each layer, as strong as heads that are spread over the layer."""
    dtype: Dtype | None = None
    """Type of weights and activations while scoring; null: the model's."""
    title: str | None = None
    """What the report calls it; null: what tells it from the others, or else its questions."""
