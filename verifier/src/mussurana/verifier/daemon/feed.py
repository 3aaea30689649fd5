"""From the log into the machine: each fragment once and in order, and a gap wherever some are missing.

All of it follows from the log alone, so that feeding it again after a restart does the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError

from mussurana.verifier.daemon.board import public_id
from mussurana.verifier.daemon.gaps import REASON_CHARACTERS_MAX, Gap, Gaps
from mussurana.verifier.daemon.log import FRAGMENT, LOST, RESUMED, SECRET, Entry
from mussurana.verifier.daemon.machine import Machine
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.rounds.fragments import BadFragment
from mussurana.wire.history_pb2 import Fragment

logger = logging.getLogger(__name__)


class Feeder:
    def __init__(
        self,
        machine: Machine,
        fed: Sequences,
        metrics: Metrics,
        refuse: Callable[[bytes, str], None] = lambda collector, message: None,
        gaps: Gaps | None = None,
    ) -> None:
        """`refuse` is told of a fragment that the machine did not take, and whose it was."""
        self.machine, self.fed, self._metrics, self._refuse = machine, fed, metrics, refuse
        self._gaps = gaps or Gaps()

    def feed(self, entry: Entry) -> Fragment | None:
        """Returns the fragment, if it was a new one and the machine took it."""
        if entry.kind == RESUMED:
            self.machine.resume(entry.received_ns)
            return None
        if entry.kind == SECRET:
            entry.note_in(self.fed)
            return None
        if entry.sequence <= self.fed.last(entry.collector):
            return None  # there twice, after a sync that failed
        expected = self.fed.last(entry.collector) + 1
        if entry.kind == LOST:
            first, last, reason = entry.lost_range()
            self._lose(entry, max(first, expected), last, reason, "not kept")
            self.fed.note(entry.collector, entry.sequence, entry.received_ns)
            return None
        if entry.kind != FRAGMENT:
            return None
        if entry.sequence > expected:
            self._lose(entry, expected, entry.sequence - 1, "damaged in the verifier's log", "damaged")
        fragment = Fragment()
        is_taken = False
        try:
            fragment.ParseFromString(entry.content)
            self.machine.feed(entry.collector, fragment, entry.received_ns)
            is_taken = True
        except (BadFragment, DecodeError) as error:
            self._lose(entry, entry.sequence, entry.sequence, f"not understood: {error}", "not understood")
            self._refuse(entry.collector, str(error))
            if error.__cause__ is not None:  # not the collector's fault
                logger.error("a fragment could not be taken in", exc_info=error, extra={"event": "feeding_failed"})
        else:
            for declared in fragment.gap:
                self._note(entry, "declared", declared.reason, txns=declared.txn_count)
            self._metrics.count_reports(entry.collector, fragment)
        self.fed.note(entry.collector, entry.sequence, entry.received_ns)
        return fragment if is_taken else None  # of what was not taken no verdict will come

    def lose_all_before(self, sequences: Sequences, reason: str = "before the verifier's log begins") -> None:
        """For a log whose beginning is gone and no checkpoint that knows it: all that it held is a gap."""
        for collector, last in sequences.items():
            entry = Entry.lost(collector, 1, last.sequence, reason, last.received_ns)
            self._lose(entry, 1, last.sequence, reason, "damaged")
        self.fed.take_in(sequences)

    def _lose(self, entry: Entry, first: int, last: int, reason: str, cause: str) -> None:
        if last < first:
            return
        self.machine.lose(entry.collector, first, last, entry.received_ns)
        self._note(entry, cause, reason, fragments=last - first + 1)
        logger.warning(
            "fragments %d to %d of collector %s are a gap: %s",
            first,
            last,
            public_id(entry.collector),
            reason,
            extra={"event": "gap", "collector": public_id(entry.collector), "cause": cause},
        )

    def _note(self, entry: Entry, cause: str, reason: str, fragments: int = 0, txns: int = 0) -> None:
        self._metrics.gaps.labels(cause).inc()
        shown = reason[:REASON_CHARACTERS_MAX]
        self._gaps.note(Gap(entry.received_ns, entry.collector, cause, shown, fragments, txns))
