"""Strong session snapshot isolation: generalized, and a session sees all that it committed or saw before."""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="strong-session-si",
    summary="generalized-si, and each transaction's snapshot includes its session's earlier transactions",
    promise="snapshot",
    split=True,
    session_order=True,
    real_time=(("begin", "commit"), ("commit", "commit")),
)
