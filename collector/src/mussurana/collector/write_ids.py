"""Write ids: the names of versions, unique without asking anybody.

A write id is `(tag << 32) + counter`: 63 bits, so that it fits into a signed column. The tag is drawn at random by each
process and drawn anew after a fork, so two processes share one with a probability of one in two billion for each pair;
the counter never repeats under a tag. Drawing an id is one call of a C iterator, which the interpreter makes atomic.

A tag is retired when half of its counters are used. Looking at the clock of an iterator costs an id, so only the
background thread looks, and in the time between two looks nobody can draw the other half.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import count

from mussurana.wire import COUNTER_BITS, TAG_MAX, counter_of, tag_of, write_id

COUNTER_END = 1 << COUNTER_BITS
COUNTER_RETIRE = COUNTER_END >> 1


def draw_tag() -> int:
    """Never 0: whoever stores small numbers of his own must not look like a collector."""
    return int.from_bytes(os.urandom(4), "little") % TAG_MAX + 1


class WriteIds:
    """The tags of one process, the one in use last, and how far each is settled."""

    def __init__(self, tag: int | None = None, retire: int = COUNTER_RETIRE) -> None:
        self.retire = retire
        self.tag = draw_tag() if tag is None else tag
        self.draw: Callable[[], int] = count(write_id(self.tag, 1)).__next__
        self.successor: int | None = None
        self._retired: list[int] = []

    def settled(self, upper: int, floors: Iterable[int]) -> dict[int, int]:
        """For each tag, the counter below which nothing is outstanding.

        Pre:  `upper` was drawn before the outstanding transactions were looked up; `floors` are their floors, each an
              id drawn before the first write id of its transaction.
        """
        lowest = dict.fromkeys(self._retired, COUNTER_END)
        lowest[tag_of(upper)] = counter_of(upper)
        if self.successor is not None:
            lowest[self.successor] = 1
        newer = [*self._retired, self.tag]
        for floor in floors:
            tag = tag_of(floor)
            if counter_of(floor) < lowest.get(tag, 0):
                lowest[tag] = counter_of(floor)
            if tag != self.tag and tag in newer:  # it was open while the tag changed, and may hold ids of both
                for later in newer[newer.index(tag) + 1 :]:
                    lowest[later] = 1
        return lowest

    def announce_successor(self, upper: int) -> None:
        """Draw the next tag, if it is time. It is used once the spool knows of it: see `succeed`."""
        if self.successor is None and counter_of(upper) >= self.retire:
            self.successor = draw_tag()

    def succeed(self) -> bool:
        """Use the announced tag from now on."""
        if self.successor is None:
            return False
        self._retired.append(self.tag)
        self.tag, self.successor = self.successor, None
        self.draw = count(write_id(self.tag, 1)).__next__
        return True

    def forget(self, settled: dict[int, int]) -> None:
        """Drop retired tags that the spool knows to be settled for good."""
        self._retired = [tag for tag in self._retired if settled.get(tag) != COUNTER_END]
