"""Serializable, with sessions in order ("strong session serializability"): as if transactions ran one at a time."""

from mussurana.verifier.levels import Level

LEVEL = Level(
    name="serializable",
    summary="some serial order of the transactions explains all reads and keeps each session's order",
    promise="serial",
    split=False,
    session_order=True,
)
