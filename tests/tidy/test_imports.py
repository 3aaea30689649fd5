"""Who may import whom: a room is a folder, or a file that stands beside the folders. Late imports count as well.

What is under EXCEPTIONS should not be and is; each may only go.
"""

from __future__ import annotations

from tests.tidy.trees import imported, trees

VALUES = {"history", "verdict", "levels", "kernels"}
CHECKING = VALUES | {"engine", "explain", "solvers"}
MAY_IMPORT = {
    "wire": set[str](),
    "collector": {"wire", "collector/sql"},
    "collector/sql": {"wire"},
    "history": set[str](),
    "levels": set[str](),
    "kernels": set[str](),
    "verdict": {"history"},
    "conclusions": {"history"},
    "audit": {"conclusions", "history"},
    "certificate": {"audit", "history", "verdict"},
    "engine": VALUES,
    "solvers": {"engine"},
    "explain": VALUES | {"engine"},
    "simulate": {"history"},
    "rounds": CHECKING | {"wire"},
    "formats": VALUES | {"rounds", "wire"},
    "render": {"history", "verdict"},
    "replay": {"history", "wire"},
    "daemon": VALUES | {"rounds", "render", "wire"},
    "progress": set[str](),
    "embedded_postgres": set[str](),
    "": CHECKING,
}
WHATEVER = {"commands", "demo", "cli", "overtime", "__main__"}  # they put everything together; nobody else imports them

EXCEPTIONS = {
    ("collector/sql", "collector"),
    ("conclusions", "audit"),
    ("audit", ""),
    ("engine", "explain"),  # engine/check.py, which is above both
    ("engine", "solvers"),
    ("render", "wire"),
    ("replay", "daemon"),
    ("replay", "engine"),
    ("daemon", "commands"),
}


def room(module: str) -> str:
    """Of "verifier/rounds/machine": "rounds"; of the collector's package "collector" or "collector/sql"."""
    package, *parts = module.removesuffix(".py").removesuffix("/__init__").split("/")
    if package == "verifier":
        return parts[0] if parts else ""
    return "collector/sql" if parts[:1] == ["sql"] else package


def test_rooms_import_only_whom_they_may() -> None:
    wrong = {
        (own, other)
        for path in trees()
        for other in map(room, imported(path))
        if (own := room(path)) not in WHATEVER and other != own and other not in MAY_IMPORT[own]
    }
    assert wrong == EXCEPTIONS


def test_every_room_is_known() -> None:
    assert {room(path) for path in trees()} == {*MAY_IMPORT, *WHATEVER}
