"""An error of this program, in the words that a round, a gap and the log have for it."""

from __future__ import annotations

import traceback

ERROR = "an error in the verifier: "


def described(error: BaseException) -> str:
    """Its kind, what it says, and where it was raised: enough to look it up, and the same each time it comes back."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
