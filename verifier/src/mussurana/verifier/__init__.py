"""Mussurana's verifier: is this history serializable, or snapshot isolated, and how do we know?

>>> from mussurana.verifier import Settings, check
>>> from mussurana.verifier.formats import load
>>> result = check(load("history.mus"), Settings("serializable"))  # doctest: +SKIP
"""

from mussurana.verifier.engine.check import check
from mussurana.verifier.history import History, HistoryBuilder, HistoryError
from mussurana.verifier.verdict import Accepted, Rejected, Result, Settings, Unknown

__all__ = [
    "Accepted",
    "History",
    "HistoryBuilder",
    "HistoryError",
    "Rejected",
    "Result",
    "Settings",
    "Unknown",
    "check",
]
