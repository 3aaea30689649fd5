"""The commands `adopt` and `unadopt`: read the catalog, say what there is to say, run the migration or print it.

One implementation, two ways in: `mussurana adopt` where the verifier is installed too, and `python -m
mussurana.collector adopt` on a host that has only the collector. What is printed is a script that psql and sqlite3
take as it is: what is for people stands in comments.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from mussurana.collector.adopt import AdoptError, Grants, Migration, Note, plan, plan_back
from mussurana.collector.catalog import FENCE_TABLE, Catalog
from mussurana.collector.catalog_postgres import QUERY, QUERY_ALL, postgres_catalog
from mussurana.collector.catalog_sqlite import sqlite_catalog
from mussurana.collector.settings import split_url

if TYPE_CHECKING:
    import psycopg

DONE, FAILED = 0, 3  # as the other commands have it: 3 is for input that cannot be used

LOCK_SECONDS_MAX = 2  # how long statements of the application may have to queue behind one of ours
LOCK_ATTEMPTS_MAX = 10
SQLITE_VERSION_MIN = (3, 35)  # the first with RETURNING, and with DROP COLUMN to take it back
WATCH_SECONDS = 2.5  # two fences of a session that is at work, by the default interval

_KEYLESS = """
SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 1, 2
"""
_USERS = """
SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
  LATERAL (SELECT a.grantee FROM aclexplode(c.relacl) a UNION SELECT c.relowner) g
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
  AND g.grantee <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
"""
_COLUMN_GRANTS = """
SELECT DISTINCT n.nspname, c.relname, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
  g.privilege_type
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid, LATERAL aclexplode(a.attacl) g
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1, 2, 3, 4
"""


@dataclass(frozen=True)
class Target:
    """A database that is open: what it is like, and how to run a statement on it."""

    title: str
    everything: Catalog
    adopted: Catalog
    keyless: tuple[str, ...]
    grants: Grants
    schema: str
    run: Callable[[str], None]
    epoch: Callable[[], int | None]  # of the fence; None without one


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `adopt` and `unadopt` to a command line."""
    adopt = commands.add_parser(
        "adopt",
        help="prepare a database for being recorded",
        description="Add the hidden columns and the fence table that recording needs, and list what hides writes.\n"
        "Adopting again adds what is missing, so this can run after every deployment.",
    )
    adopt.set_defaults(run=run_adopt, parser=adopt)
    unadopt = commands.add_parser(
        "unadopt",
        help="take that back",
        description="Drop the hidden columns and the fence table. First take the collector out of the applications:\n"
        "their statements name these columns.",
    )
    adopt.add_argument(
        "--anew",
        action="store_true",
        help="also begin a new era: the verifier lets go of what it knows, and checks tables again that somebody wrote "
        "to unseen. First end whoever did, and wait for a minute",
    )
    unadopt.set_defaults(run=run_unadopt, parser=unadopt)
    unadopt.add_argument("--force", action="store_true", help="also if an application seems to be recording still")
    for command in (adopt, unadopt):
        command.add_argument(
            "url", metavar="URL", help="postgresql://... or sqlite:///file, as for SQLAlchemy or libpq"
        )
        command.add_argument(
            "--tables", nargs="+", default=[], metavar="TABLE", help="only these (default: all that can be recorded)"
        )
        command.add_argument("--dry-run", action="store_true", help="print the SQL, change nothing")
        command.add_argument(
            "--alembic",
            type=Path,
            metavar="DIR",
            help="write an Alembic revision into this script folder instead of changing the database",
        )


def run_adopt(options: argparse.Namespace) -> int:
    def planned(target: Target) -> Migration:
        return plan(
            target.everything,
            target.adopted,
            tables=options.tables,
            keyless=target.keyless,
            grants=target.grants,
            schema=target.schema,
            anew=options.anew,
        )

    return migrate(options, planned, "adopt mussurana")


def run_unadopt(options: argparse.Namespace) -> int:
    def planned(target: Target) -> Migration:
        migration = plan_back(target.adopted, options.tables)
        if migration and not (options.dry_run or options.alembic or options.force):
            refuse_while_recording(target)
        return migration

    return migrate(options, planned, "unadopt mussurana")


def migrate(options: argparse.Namespace, planned: Callable[[Target], Migration], title: str) -> int:
    try:
        with opened(options.url) as target:
            migration = planned(target)
            say(described(target, migration))
            if options.alembic:
                say_revision(options.alembic, title, migration)
            else:
                for statement in migration.statements:
                    say(f"{statement};")
                    if not options.dry_run:
                        target.run(statement)
                say("-- nothing was changed: this was a dry run" if options.dry_run else "-- done")
    except AdoptError as error:
        print(f"mussurana {options.command}: {error}", file=sys.stderr)
        return FAILED
    return DONE


def described(target: Target, migration: Migration) -> str:
    lines = [f"-- {target.title}"]

    def add(title: str, notes: Sequence[Note]) -> None:
        if notes:
            lines.append(f"-- {title}:")
            lines.extend(f"--   {note.table}: {note.text}" for note in notes)

    add("not recorded", migration.left_out)
    add("recorded, but", migration.notes)
    if not migration:
        lines.append("-- nothing to do: it is as it should be")
    return "\n".join(lines)


def say_revision(folder: Path, title: str, migration: Migration) -> None:
    from mussurana.collector.alembic_revision import write_revision

    if migration:
        say(f"-- written: {write_revision(folder, title, migration)}")


def refuse_while_recording(target: Target) -> None:
    """Whoever records moves the fence. Idle applications do not, so this is a safeguard and no proof."""
    before = target.epoch()
    if before is None:
        return
    time.sleep(WATCH_SECONDS)
    if target.epoch() != before:
        raise AdoptError(
            "an application is recording right now, and its statements would fail without these columns. "
            "Take the collector out of it (or set MUSSURANA_ENABLED=false), restart it and try again; "
            "--force skips this"
        )


@contextmanager
def opened(url: str) -> Iterator[Target]:
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme in ("postgresql", "postgres"):
        with opened_postgres(url) as target:
            yield target
    elif scheme == "sqlite" or (not scheme and Path(url).exists()):
        with opened_sqlite(url) as target:
            yield target
    else:
        raise AdoptError(f"{url!r} is not a database that can be adopted; write postgresql://... or sqlite:///file")


def libpq_url(url: str) -> str:
    """A URL of SQLAlchemy's as libpq takes it: no driver, and none of the parameters that are not libpq's."""
    plain, _ = split_url(url)
    head, _, query = plain.partition("?")
    rest = "&".join(part for part in query.split("&") if not part.startswith("plugin="))
    return f"postgresql:{head.partition(':')[2]}" + (f"?{rest}" if rest else "")


@contextmanager
def opened_postgres(url: str) -> Iterator[Target]:
    try:
        import psycopg
    except ImportError:
        raise AdoptError("psycopg is needed to reach PostgreSQL: pip install 'psycopg[binary]'") from None
    try:
        connection = psycopg.connect(libpq_url(url), autocommit=True)
    except psycopg.Error as error:
        raise AdoptError(f"cannot connect: {str(error).strip()}") from None
    with connection:

        def rows(query: str) -> list[tuple[Any, ...]]:
            return connection.execute(query.encode()).fetchall()

        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS_MAX}s'".encode())
        yield Target(
            title=f"PostgreSQL {connection.info.server_version // 10000}, database {connection.info.dbname}",
            everything=postgres_catalog(rows(QUERY_ALL)[0][0], every_table=True),
            adopted=postgres_catalog(rows(QUERY)[0][0]),
            keyless=tuple(name if schema == "public" else f"{schema}.{name}" for schema, name in rows(_KEYLESS)),
            grants=Grants(
                frozenset(user for (user,) in rows(_USERS)),
                tuple((schema, name, role, right) for schema, name, role, right in rows(_COLUMN_GRANTS)),
            ),
            schema=rows("SELECT coalesce(current_schema(), 'public')")[0][0],
            run=lambda statement: run_patiently(connection, statement),
            epoch=lambda: fence_epoch(rows),
        )


def run_patiently(connection: psycopg.Connection, statement: str) -> None:
    """Give way to the application: never wait long for a lock, since whatever comes after us waits too."""
    import psycopg

    for attempt in range(1, LOCK_ATTEMPTS_MAX + 1):
        try:
            connection.execute(statement.encode())
            return
        except psycopg.errors.LockNotAvailable:
            say(f"-- busy: a transaction holds a lock on it; attempt {attempt} of {LOCK_ATTEMPTS_MAX}")
            time.sleep(LOCK_SECONDS_MAX)
        except psycopg.Error as error:
            hint = " (as a user who owns the table)" if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
            raise AdoptError(
                f"{str(error).strip()}\nWhat is above is done. Solve this and run it again{hint}."
            ) from None
    raise AdoptError(
        "the table was in use all the time. What is above is done; run this again when its long transactions end. "
        "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start shows them"
    )


@contextmanager
def opened_sqlite(url: str) -> Iterator[Target]:
    path = url if not urlsplit(url).scheme else unquote(urlsplit(url).path.removeprefix("/"))
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise AdoptError(f"SQLite {sqlite3.sqlite_version} is too old: version 3.35 or newer is needed")
    if not Path(path).is_file():
        raise AdoptError(f"there is no file {path!r}; an absolute path takes four slashes: sqlite:////path")
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        everything = sqlite_catalog(connection.execute, every_table=True)
    except sqlite3.Error as error:
        raise AdoptError(f"{path}: {error}") from None

    def rows(query: str) -> list[tuple[Any, ...]]:
        return connection.execute(query).fetchall()

    def run(statement: str) -> None:
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            raise AdoptError(f"{error}\nWhat is above is done. Solve this and run it again.") from None

    try:
        keyed = {name for _, name in everything.tables}
        candidates = rows(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'create virtual%' ORDER BY 1"
        )
        yield Target(
            title=f"SQLite {sqlite3.sqlite_version}, {path}",
            everything=everything,
            adopted=sqlite_catalog(connection.execute),
            keyless=tuple(
                name
                for (name,) in candidates
                if name.lower() not in keyed and name != FENCE_TABLE and not name.startswith("sqlite_")
            ),
            grants=Grants(),
            schema="main",
            run=run,
            epoch=lambda: fence_epoch(rows),
        )
    finally:
        connection.close()


def fence_epoch(rows: Callable[[str], list[tuple[Any, ...]]]) -> int | None:
    try:
        found = rows(f"SELECT epoch FROM {FENCE_TABLE} WHERE id = 1")
    except Exception:  # no such table, in the words of either driver
        return None
    return int(found[0][0]) if found else None


def say(text: str) -> None:
    print(text, flush=True)
