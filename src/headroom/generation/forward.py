"""One forward pass of a model of any architecture, its rows pruned, with few logits."""

import inspect
from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from headroom.models.load import LoadedModel
from headroom.models.masks import HeadMasks, variant_masks
from headroom.variants import Variant


class Forward:
    """Runs a model on token ids and a key/value cache.

    Args:
        loaded: the model.
        masks: in force on it.
    """

    def __init__(self, loaded: LoadedModel, masks: HeadMasks) -> None:
        self.loaded = loaded
        self._masks = masks
        self._variants: list[Variant] = []
        self.fed = 0
        """Tokens fed so far, those of all rows."""
        accepted = inspect.signature(loaded.model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_keep = "logits_to_keep" in accepted

    def __call__(
        self,
        tokens: Int[Tensor, "batch tokens"],
        positions: Int[Tensor, "batch tokens"],
        variants: Sequence[Variant],
        cache: Cache,
        *,
        visible: Int[Tensor, "batch columns"] | None = None,
        keep: int = 1,
    ) -> Float[Tensor, "rows keep vocabulary"]:
        """Return the logits of the last `keep` positions, float32.

        Args:
            tokens: fed to the model.
            positions: of these tokens; a single row holds for all.
            variants: what each row prunes. A batch of one row becomes as many rows as there are
                variants where the first of them is pruned.
            cache: keys and values of earlier tokens, which those of these are added to.
            visible: which columns of the cache and then of these tokens each row sees; all by
                default.
            keep: how many positions' logits to return.
        """
        # One mask serves rows that are all alike, unless it has to make several of a single one.
        alike = len(tokens) > 1 and len(set(variants)) == 1
        self._mask(list(variants[:1] if alike else variants))
        device = self.loaded.device
        options: dict[str, Any] = {}
        if self._takes_positions:
            options["position_ids"] = positions.to(device)
        if self._takes_keep:
            options["logits_to_keep"] = keep
        output = self.loaded.model(
            input_ids=tokens.to(device),
            attention_mask=None if visible is None else visible.to(device),
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        self.fed += len(output.logits) * tokens.shape[1]
        return output.logits[:, -keep:].float()

    def _mask(self, variants: list[Variant]) -> None:
        if variants != self._variants:
            loaded = self.loaded
            masks = variant_masks(loaded.geometry, variants, loaded.device, loaded.dtype)
            self._masks.replace(masks)
            self._variants = variants
