"""What `check` says where several databases were recorded in one place: a verdict for each, and the worst as exit code.

As text they follow each other. As JSON they are one object, `{verdict, databases}`: in `databases` an object for each,
as it would be alone, with `database: {name, identity}` in front; or with `error`, a sentence, where it could not be
checked. `verdict` is "rejected" if one is, else "unknown" if one is or could not be checked, else "accepted".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mussurana.verifier.commands.base import ACCEPTED, BAD_INPUT, REJECTED, UNKNOWN, code_of, say, terminal_columns

if TYPE_CHECKING:
    from mussurana.verifier.formats import Recording
    from mussurana.verifier.verdict import Result

WORST_FIRST = (REJECTED, BAD_INPUT, UNKNOWN, ACCEPTED)


class Several:
    def __init__(self, path: str, is_json: bool, rendered: Callable[..., str]) -> None:
        """`rendered` makes text or JSON of a result, as cli.py does."""
        self._path, self._is_json, self._rendered = path, is_json, rendered
        self._codes: list[int] = []
        self._shown: list[dict[str, Any]] = []

    def tell(self, recording: Recording, result: Result) -> None:
        """Say a verdict, or keep it for the end if all of them are one object."""
        if self._is_json:
            self._shown.append(_named(recording) | json.loads(self._rendered(result, self._path, ".json")))
        else:
            source = f"{self._path}, {recording.name}"
            say(("\n" if self._codes else "") + self._rendered(result, source, ".txt", terminal_columns()))
        self._codes.append(code_of(result))

    def fail(self, recording: Recording, error: str) -> None:
        """It could not be checked, which was said already."""
        self._shown.append(_named(recording) | {"error": error})
        self._codes.append(BAD_INPUT)

    def end(self) -> int:
        """Say what was kept; returns the exit code."""
        worst = next(code for code in WORST_FIRST if code in self._codes)
        if self._is_json:
            verdict = {REJECTED: "rejected", ACCEPTED: "accepted"}.get(worst, "unknown")
            say(json.dumps({"verdict": verdict, "databases": self._shown}) + "\n")
        return worst


def _named(recording: Recording) -> dict[str, Any]:
    return {"database": {"name": recording.name, "identity": recording.identity}}
