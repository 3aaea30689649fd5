"""Mussurana's verifier: is this history serializable, or snapshot isolated, and how do we know?

>>> from mussurana.verifier import Settings, check
>>> from mussurana.verifier.formats import load
>>> result = check(load("history.mus"), Settings("serializable"))  # doctest: +SKIP

The names are imported when they are first used, so that `mussurana --help` need not wait for numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "engine.check": ("check",),
    "history": ("History", "HistoryBuilder", "HistoryError"),
    "verdict": ("Accepted", "Rejected", "Result", "Settings", "Unknown"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
