"""How much one collector may have the verifier remember; what goes beyond it is refused before it is acknowledged.

The verifier keeps something for each session that is open, for each tag of write ids and for each kind of statement
that a collector counts. A process of an application has few of each, and a sender with more of them would take memory
and time from all others. What passes a quota ends its sender's stream with RESOURCE_EXHAUSTED, and names the fragment,
so that the sender can declare a gap in its place.

Names of keys and statements have no quota, since an application may touch as many rows as it likes: of those the
machine keeps the last ones. The same goes for gaps, which it joins. One fragment is bounded in `rounds/bounds.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from mussurana.wire.history_pb2 import Fragment, SessionEvent

SESSIONS_MAX = 50_000
"""Open at a time: about 600 bytes each, and a tenth of a microsecond in each round. A session is a connection of one
process, of which databases take some thousands."""

TAGS_MAX = 1_000
"""A process draws one, and the next one after two billion writes."""

STATEMENT_KINDS_MAX = 50_000
"""Of (table, shape, how much was seen). Collectors tell at most 20,100 apart."""

QUOTAS = ("sessions", "tags", "statement kinds")


class OverQuota(Exception):
    """A collector wants more than its share. The message says of what."""

    def __init__(self, quota: str, count: int, most: int) -> None:
        super().__init__(f"{count:,} {quota} of one collector; at most {most:,} are kept")
        self.quota = quota


@dataclass
class Ledger:
    """What one collector has so far. Since the daemon started: sessions that went quiet before are not counted."""

    sessions: set[int] = field(default_factory=set)  # open ones
    tags: set[int] = field(default_factory=set)
    kinds: set[int] = field(default_factory=set)  # hashes of them

    def charge(self, fragment: Fragment) -> None:
        """Take a fragment into account. OverQuota: it is too much, and nothing of it was."""
        content = fragment.txn_session
        sessions = set(struct.unpack(f"<{len(content) // 4}I", content))
        closed = set()
        for event in fragment.session_event:
            if event.what == SessionEvent.CLOSE:
                closed.add(event.session)
            elif event.what == SessionEvent.OPEN:
                sessions.add(event.session)
        tags = {progress.tag for progress in fragment.write_ids}
        tags |= {some.tag for gap in fragment.gap for some in gap.write_ids}
        kinds = {hash((seen.table, seen.shape, seen.observed)) for seen in fragment.coverage}
        new = (sessions - closed) - self.sessions
        new_tags, new_kinds = len(tags - self.tags), len(kinds - self.kinds)
        _expect("sessions", len(self.sessions) - len(closed & self.sessions), len(new), SESSIONS_MAX)
        _expect("tags", len(self.tags), new_tags, TAGS_MAX)
        _expect("statement kinds", len(self.kinds), new_kinds, STATEMENT_KINDS_MAX)
        self.sessions |= new
        self.sessions -= closed
        self.tags |= tags
        self.kinds |= kinds


def _expect(quota: str, before: int, new: int, most: int) -> None:
    if new and before + new > most:
        raise OverQuota(quota, before + new, most)
