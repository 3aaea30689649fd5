"""What travels between collectors and a verifier, and how both keep it on disk.

`history_pb2` is generated from proto/history.proto, which says what every field means. `segments` are the files of the
collector's spool and of the verifier's log.
"""

from __future__ import annotations

PROTOCOL = 1
"""The version of history.proto that this package speaks."""

REFUSED_KEY = "mussurana-refused"
"""In the trailing metadata of a stream that a verifier ended: the sequence number of a fragment that it will not take,
however often it is sent. Its collector declares a gap in its place."""

FENCE_KEY = 0
"""The key of the fence row. No other key has this number."""

NOT_KNOWN_YET = "not known yet"
"""The shape of unseen writes that a collector found out about afterwards, when it read its catalog again. They may be
older than what it has told since."""

BEFORE_RECORDING = 0
"""The version of what nobody recorded being written: what was there before."""

TAG_BITS, COUNTER_BITS = 31, 32

TAG_MAX = (1 << TAG_BITS) - 2
"""One less than fits, so that the write id after the last one of a tag fits into a signed column as well."""

EPOCH_BITS = 32
"""Of the epoch of a fence, so many count fences. The bits above are its era: when the fence row was made, in seconds of
2020 and later, so that a row that is made anew has later epochs than the one before."""

ERA_BEGIN_SECONDS = 1_577_836_800
"""The begin of 2020, as Unix time."""

XID_TAG = 0
"""Of versions that are PostgreSQL's own transaction ids. No collector draws it, and all may write under it."""


def write_id(tag: int, counter: int) -> int:
    """A version's name: unique, because the tag is drawn at random and the counter never repeats under it."""
    return tag << COUNTER_BITS | counter


def tag_of(version: int) -> int:
    return version >> COUNTER_BITS


def era_of(epoch: int) -> int:
    return epoch >> EPOCH_BITS


def counter_of(version: int) -> int:
    return version & (1 << COUNTER_BITS) - 1
