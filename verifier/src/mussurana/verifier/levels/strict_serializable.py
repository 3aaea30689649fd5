"""Strict serializable: serializable in an order that also agrees with real time, as far as the clocks can prove it."""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="strict-serializable",
    summary="serializable, and a transaction that ended before another began comes before it",
    promise="serial",
    split=False,
    session_order=True,
    real_time=(("commit", "begin"),),
)
