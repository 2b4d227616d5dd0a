"""Scores of a decoder's heads on texts that several processes share."""

from collections.abc import Sequence

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel

from headsweep.config.compression import Importance
from headsweep.experiments.compression.calibration import Scores, row_batches
from headsweep.experiments.compression.criteria import RankingInputs, loss_rises, named
from headsweep.experiments.compression.training_steps import derived_seed
from headsweep.experiments.recovery.evaluation import text_losses
from headsweep.experiments.recovery.settings import Recovery
from headsweep.experiments.recovery.text_training import precision
from headsweep.experiments.recovery.texts import Piece
from headsweep.models.geometry import HeadGeometry


def scores_on_texts(
    model: PreTrainedModel,
    geometry: HeadGeometry,
    pieces: Sequence[Piece],
    settings: Recovery,
    number: int,
    accelerator: Accelerator,
) -> Scores:
    """Return the scores of a decoder's heads on calibration texts, in every process.

    As many pieces as the settings say are drawn from all. Each process reads its share of them;
    what is summed over pieces is then summed over processes. `number` is the round's, from 0: with
    the seed it decides random scores.
    """
    order = np.random.default_rng(0).permutation(len(pieces))[: settings.calibration]
    drawn = [pieces[row] for row in order]
    share = drawn[accelerator.process_index :: accelerator.num_processes]

    def total(part: Tensor) -> Tensor:
        whole = accelerator.reduce(part.to(accelerator.device), "sum")
        return whole.to(part.device)

    def loss() -> float:
        with precision(settings, accelerator):
            losses = text_losses(model, share, settings.micro_batch)
        sums = total(torch.tensor([losses.nats.sum(), losses.tokens.sum()], dtype=torch.double))
        return float(sums[0] / sums[1])

    rows = [piece.input_ids for piece in share]
    ranked = RankingInputs(
        model,
        geometry,
        Importance(alpha=settings.alpha),
        derived_seed(settings.seed, number),
        texts=lambda: row_batches(rows, settings.micro_batch, model.device),
        drops=lambda: loss_rises(model, geometry, loss, groups=settings.unit == "group"),
        total=total,
    )
    return named(settings.criterion).scores(ranked)
