"""What the rivals of a benchmark have to do: questions, variants, a limit on the answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headroom.variants import Variant

Key = tuple[str, str]
"""Question and variant."""


@dataclass(frozen=True)
class Work:
    """A sweep: every question is answered by every variant."""

    prompts: dict[str, tuple[int, ...]]
    """Token ids, by question."""
    variants: tuple[Variant, ...]
    """The base model first."""
    max_new_tokens: int

    def split(self, by: str, parts: int) -> list["Work"]:
        """Share the work out among workers, by `questions` or by `variants`.

        Each part has questions of all lengths.
        """
        if by == "variants":
            return [replace(self, variants=self.variants[part::parts]) for part in range(parts)]
        ordered = sorted(self.prompts.items(), key=lambda item: len(item[1]))
        return [replace(self, prompts=dict(ordered[part::parts])) for part in range(parts)]

    def first(self, *, questions: int | None = None, variants: int | None = None) -> "Work":
        """Return a part: the first questions, the base model and heads of all layers."""
        base, *pruned = self.variants
        count = len(self.variants) if variants is None else variants
        return replace(
            self,
            prompts=dict(list(self.prompts.items())[:questions]),
            variants=(base, *spread(pruned, count - 1)),
        )


def spread(heads: Sequence[Variant], count: int) -> list[Variant]:
    """Choose heads evenly over all layers and heads."""
    count = min(count, len(heads))
    return [heads[place * len(heads) // count] for place in range(count)]
