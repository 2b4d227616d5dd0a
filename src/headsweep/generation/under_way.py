"""The answers that an engine has begun and not handed over."""

from collections import defaultdict
from collections.abc import Callable

from headsweep.generation.requests import Answer, Request, Row
from headsweep.generation.unit import Begun


class UnderWay:
    """Rows whose answers are not handed over, by request.

    Some wait to go on: memory has run out, or an engine before this one was stopped. Another thread
    may ask for `tokens` and `begun` at any time.
    """

    def __init__(self, new_row: Callable[[Request], Row]) -> None:
        self._new_row = new_row
        self._rows: dict[Request, list[Row]] = defaultdict(list)
        self._waiting: dict[Request, list[Row]] = {}

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._waiting.clear()

    def resume(self, request: Request, begun: Begun) -> None:
        """Let a request's row go on from tokens that it had elsewhere."""
        row = self._new_row(request)
        row.tokens = list(begun.token_ids)
        row.margin = begun.margin
        self._waiting[request] = [row]

    def is_waiting(self, request: Request) -> bool:
        """Tell whether a row of a request waits to go on."""
        return bool(self._waiting.get(request))

    def text_length(self, request: Request) -> int:
        """Return how many tokens of a request are fed at first: its prompt, and what has begun."""
        begun = self._waiting[request][-1].tokens if self.is_waiting(request) else ()
        return len(request.prompt) + len(begun)

    def take(self, request: Request) -> Row:
        """Return a row for a request: one that waits to go on, or a new one."""
        row = self._waiting[request].pop() if self.is_waiting(request) else self._new_row(request)
        self._rows[request].append(row)
        return row

    def take_ended(self, request: Request) -> Answer | None:
        """Return the answer of a row that waits though it has ended: it was not handed over."""
        waiting = self._waiting.get(request, [])
        row = next((row for row in waiting if row.answer), None)
        if row is None:
            return None
        waiting.remove(row)
        self._rows[request].append(row)
        return row.answer

    def interrupt(self) -> None:
        """Have all rows that have tokens wait to go on; forget the others."""
        for request, rows in self._rows.items():
            self._waiting.setdefault(request, []).extend(row for row in rows if row.tokens)
        self._rows.clear()

    def forget(self, request: Request) -> None:
        """Drop a row whose answer is handed over."""
        rows = self._rows.get(request, [])
        ended = [row for row in rows if row.answer]
        if ended:
            rows.remove(ended[0])
        if not rows:
            self._rows.pop(request, None)

    @property
    def tokens(self) -> int:
        """How many tokens the rows have."""
        return sum(len(row.tokens) for rows in [*self._rows.values()] for row in [*rows])

    @property
    def begun(self) -> dict[Request, Begun]:
        """What another engine needs to go on with the rows that have tokens."""
        found = {}
        for request, rows in [*self._rows.items()]:
            for row in [*rows]:
                # Tokens first: their gaps are in the margin before they are in the row.
                if row.answer is None and (tokens := [*row.tokens]):
                    found[request] = Begun(tokens, row.margin)
        return found
