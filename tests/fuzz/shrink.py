"""Makes a failing history smaller: drops transactions, operations and details for as long as it still fails.

Works on the notation, so that what comes out is what gets printed and what a test can be made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mussurana.verifier.history import History
from tests.notation import h, show


def shrink(history: History, fails: Callable[[History], bool]) -> str:
    """The notation of a history that fails, while none that has one part less does.

    The notation numbers transactions session by session; where that makes the failure vanish, nothing gets smaller.
    """
    text = show(history)
    smaller: str | None = text if fails(h(text)) else None
    while smaller is not None:
        text = smaller
        smaller = next((candidate for candidate in _smaller(text) if fails(h(candidate))), None)
    return text


_PARTS = (
    r"\[[^\]]*\][^\s|]*",  # a transaction
    r"\w+(?::=|==|\+=)(?:\([^)]*\)|[^\s\]]+)",  # an operation
    r"@[\d.\-]+",  # its times
    r"-\d+(?=\.\.)|(?<=\.\.)\d+-",  # an inner time
    r"<[\d_-]+",  # the version that a write replaced
    r"[!?]",  # its status
)


def _smaller(text: str) -> Iterator[str]:
    """The text without one of its parts; the largest first."""
    for part in _PARTS:
        for found in re.finditer(part, text):
            yield _tidy(text[: found.start()] + text[found.end() :])


def _tidy(text: str) -> str:
    """Without superfluous blanks and empty sessions."""
    sessions = [re.sub(r"\s+", " ", session).strip() for session in text.split("|")]
    return " | ".join(session.replace("[ ", "[").replace(" ]", "]") for session in sessions if session)
