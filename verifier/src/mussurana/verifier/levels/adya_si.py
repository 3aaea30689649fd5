"""Adya's snapshot isolation: snapshots may be arbitrarily old, even within a session."""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="adya-si",
    summary="every transaction reads one snapshot, and no two that overlap write the same key",
    promise="snapshot",
    split=True,
    session_order=False,
)
