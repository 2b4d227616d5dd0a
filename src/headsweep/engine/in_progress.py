"""The answers that an engine has begun and not handed over."""

import math
from collections.abc import Callable

from headsweep.engine.requests import Answer, Request, Row
from headsweep.engine.unit import Begun


class RowsInProgress:
    """Rows whose answers are not handed over, one for each request.

    Some wait to go on: memory has run out, or an engine before this one was stopped. Another thread
    may ask for `tokens`, `begun` and `withdrawn` at any time.
    """

    def __init__(self, new_row: Callable[[Request], Row]) -> None:
        self._new_row = new_row
        self._rows: dict[Request, Row] = {}
        self._waiting: dict[Request, Row] = {}
        self._attempts: dict[Request, int] = {}
        """How often a request was begun anew, of those that were; see `unit.Begun`."""

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._waiting.clear()
        self._attempts.clear()

    def withdraw(self) -> None:
        """Have all rows begin anew: the tokens that they have may be wrong."""
        rows = self._waiting | self._rows
        begun = [request for request, row in rows.items() if row.tokens]
        attempts = {request: self._attempts.get(request, 0) + 1 for request in begun}
        # Rows first: `begun` gives no row a later attempt than its own.
        self._rows.clear()
        self._waiting.clear()
        self._attempts |= attempts

    def resume(self, request: Request, begun: Begun) -> None:
        """Let a request's row go on from tokens that it had elsewhere, if it had any."""
        if begun.attempt:
            self._attempts[request] = begun.attempt
        if begun.token_ids:
            row = self._new_row(request)
            row.tokens = list(begun.token_ids)
            row.resumed = len(row.tokens)
            row.margin = begun.margin
            self._waiting[request] = row

    def is_waiting(self, request: Request) -> bool:
        """Tell whether a row of a request waits to go on."""
        return request in self._waiting

    def text_length(self, request: Request) -> int:
        """Return how many tokens of a request are fed at first: its prompt, and what has begun."""
        begun = self._waiting[request].tokens if self.is_waiting(request) else ()
        return len(request.prompt) + len(begun)

    def take(self, request: Request) -> Row:
        """Return a row for a request: one that waits to go on, or a new one."""
        row = self._waiting.pop(request, None) or self._new_row(request)
        self._rows[request] = row
        return row

    def take_ended(self, request: Request) -> Answer | None:
        """Return the answer of a row that waits though it has ended: it was not handed over."""
        if not self.is_waiting(request) or self._waiting[request].answer is None:
            return None
        return self.take(request).answer

    def interrupt(self) -> None:
        """Have all rows that have tokens wait to go on; forget the others."""
        self._waiting |= {request: row for request, row in self._rows.items() if row.tokens}
        self._rows.clear()

    def forget(self, request: Request) -> None:
        """Drop a row whose answer is handed over."""
        self._rows.pop(request, None)
        self._attempts.pop(request, None)

    @property
    def tokens(self) -> int:
        """How many tokens the rows have."""
        return sum(len(row.tokens) for row in [*self._rows.values()])

    @property
    def begun(self) -> dict[Request, Begun]:
        """What another engine needs to go on with the rows that have tokens, and `withdrawn`."""
        attempts = dict(self._attempts)
        begun = self.withdrawn
        for request, row in [*self._rows.items()]:
            # Tokens first: their gaps are in the margin before they are in the row.
            if row.answer is None and (tokens := [*row.tokens]):
                begun[request] = Begun(tokens, row.margin, attempts.get(request, 0))
        return begun

    @property
    def withdrawn(self) -> dict[Request, Begun]:
        """Requests that were begun anew, without tokens: former records of them do not count."""
        attempts = [*self._attempts.items()]
        return {request: Begun([], math.inf, attempt) for request, attempt in attempts}
