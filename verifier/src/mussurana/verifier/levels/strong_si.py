"""Strong snapshot isolation: every snapshot includes all that was committed before it in real time."""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="strong-si",
    summary="strong-session-si, and each snapshot includes everything that committed before it began",
    promise="snapshot",
    split=True,
    session_order=True,
    real_time=(("begin", "commit"), ("commit", "commit"), ("commit", "begin")),
)
