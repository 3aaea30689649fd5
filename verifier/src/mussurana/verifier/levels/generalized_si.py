"""Generalized snapshot isolation: Adya's, and nobody reads from, or commits before, what the clocks prove to be later.

Snapshots may still be old, so the clocks order what comes before a commit and never what comes before a begin.
"""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="generalized-si",
    summary="adya-si, and commits happen in real time: a snapshot may be old but is never from the future",
    promise="snapshot",
    split=True,
    session_order=False,
    real_time=(("begin", "commit"), ("commit", "commit")),
)
