"""Adoption as a revision of the application's own migrations, and keeping Alembic from taking it back.

Autogenerate compares the database with the models, finds columns that no model has, and would drop them. In env.py:

    from mussurana.collector.alembic_revision import include_object

    context.configure(..., include_object=include_object)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mussurana.collector.adopt import AdoptError, Migration, is_ours


def include_object(item: object, name: str | None, kind: str, reflected: bool, compare_to: object) -> bool:
    """Alembic's hook: False for what is in the database only for us."""
    return not (reflected and kind in ("table", "column") and is_ours(name or ""))


def write_revision(folder: Path, title: str, migration: Migration) -> Path:
    """Write a revision after the newest one, by the project's own template. Returns its file."""
    try:
        from alembic.script import ScriptDirectory
        from alembic.util import CommandError, rev_id
    except ImportError:
        raise AdoptError("alembic is needed to write a revision: pip install alembic") from None
    try:
        script = ScriptDirectory(str(folder))
        if len(heads := script.get_heads()) > 1:
            raise AdoptError(f"{folder} has several heads, {', '.join(heads)}; merge them first: alembic merge heads")
        written = script.generate_revision(
            rev_id(), title, refresh=True, upgrades=body(migration.statements), downgrades=body(migration.undo)
        )
    except CommandError as error:
        raise AdoptError(f"{error}; --alembic takes the folder that holds env.py and versions/") from None
    assert written is not None
    return Path(written.path)


def body(statements: Sequence[str]) -> str:
    """Python, indented as in a function. To op.execute a colon starts a parameter, unless a backslash precedes it."""
    return "\n    ".join(f"op.execute({statement.replace(':', chr(92) + ':')!r})" for statement in statements) or "pass"
