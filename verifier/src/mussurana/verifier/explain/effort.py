"""How much a story may cost, counted in transactions that are looked at.

Unlike time this is the same for the same history, so that a round that is taken again after a restart tells the same.
"""

from __future__ import annotations

from dataclasses import dataclass

SEARCH_TXNS = 10_000
"""What a second of searching counts as: so many transactions are decided in it where nothing has to be searched."""


@dataclass
class Effort:
    txns_left: float

    @property
    def is_spent(self) -> bool:
        return self.txns_left <= 0

    def look(self, txns: int) -> bool:
        """Whether there is any left to look at so many transactions, which then counts."""
        is_left = not self.is_spent
        self.txns_left -= txns
        return is_left

    def search(self) -> bool:
        """The same for a second of searching; returns whether it is spent."""
        return not self.look(SEARCH_TXNS)


def boundless() -> Effort:
    return Effort(float("inf"))
