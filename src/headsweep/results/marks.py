"""The mark of a result: what a test or an interval shows, before anybody puts it into words."""

from enum import Enum


class Mark(Enum):
    """What is shown of a change. The value is what a page or a terminal prints."""

    BETTER = "▲"
    WORSE = "▼"
    NOT_SHOWN = "–"
    LOOK = "!"
    """Something is shown, and it takes a second look to know what."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of_interval(cls, low: float, high: float) -> "Mark":
        """Return the mark of an interval of a change: above zero, below it, or around it."""
        if low > 0:
            return cls.BETTER
        return cls.WORSE if high < 0 else cls.NOT_SHOWN
