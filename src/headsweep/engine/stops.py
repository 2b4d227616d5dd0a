"""Texts before which an answer ends, as the next question that a model without a chat would ask."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_MORE = 8
"""Tokens before those that a stop can have: they may decode otherwise at a text's beginning."""


class Stops:
    """Looks for texts at the end of an answer in progress."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._texts = tuple(texts)
        # A token that is written has a byte or more.
        self._most = _MORE + max(len(text.encode()) for text in texts)

    def reached(self, token_ids: Sequence[int]) -> bool:
        """Tell whether the last token of an answer has brought one of the texts."""
        tail = self._tokenizer.decode(token_ids[-self._most :], skip_special_tokens=True)
        return any(text in tail for text in self._texts)


def text_of(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], stops: Sequence[str]
) -> str:
    """Return an answer's text, up to the first of some texts."""
    text: str = tokenizer.decode(token_ids, skip_special_tokens=True)
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return text[: min(places)] if places else text
