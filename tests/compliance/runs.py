"""Running a suite of tests in a process of its own, and how each of its tests ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from mussurana.collector.catalog import FENCE_TABLE, HIDDEN_COLUMNS, WID
from mussurana.verifier.embedded_postgres import EmbeddedPostgres

PLUGINS = Path(__file__).parent / "plugins"
RUN_SECONDS_MAX = 1800

# SQLAlchemy's suite wants these to be there; no test of it uses them, and the server of the wheel does not have them.
PRETEND = """
SET allow_system_table_mods = on;
INSERT INTO pg_extension
SELECT 90000 + row_number() OVER (), name, 10, 2200, true, '1.0', NULL, NULL FROM unnest(ARRAY['citext', 'hstore']) name
WHERE name NOT IN (SELECT name FROM pg_available_extensions);
"""

ADD_COLUMNS = ", ".join(f"ADD COLUMN IF NOT EXISTS {column} bigint" for column in HIDDEN_COLUMNS)
# Every table that a test creates is adopted at once. Those that tests see as temporary stay as they are.
ADOPT_ALL = f"""
CREATE TABLE public.{FENCE_TABLE} (id int PRIMARY KEY, epoch bigint NOT NULL, {WID} bigint);
INSERT INTO public.{FENCE_TABLE} VALUES (1, 0, NULL);
CREATE FUNCTION pg_catalog.mussurana_adopt() RETURNS event_trigger LANGUAGE plpgsql AS $body$
DECLARE made record;
BEGIN
  FOR made IN SELECT DISTINCT d.objid FROM pg_event_trigger_ddl_commands() d JOIN pg_class c ON c.oid = d.objid
    WHERE d.object_type = 'table' AND c.relpersistence <> 't' AND NOT c.relispartition
      AND EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p')
      AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)
  LOOP
    EXECUTE format('ALTER TABLE %s {ADD_COLUMNS}',
      made.objid::regclass);
  END LOOP;
END $body$;
CREATE EVENT TRIGGER mussurana_adopt ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
  EXECUTE FUNCTION pg_catalog.mussurana_adopt();
"""


@dataclass(frozen=True)
class Outcomes:
    """How each test ended, by its name."""

    by_test: Mapping[str, str]
    output: str

    def line(self) -> str:
        counted = Counter(self.by_test.values())
        return ", ".join(f"{counted[name]} {name}" for name in ("passed", "failed", "error", "skipped"))

    def differences(self, other: Outcomes) -> list[str]:
        names = sorted(self.by_test.keys() | other.by_test.keys())
        missing = "not there"
        return [
            f"{name}: {self.by_test.get(name, missing)}, with the collector {other.by_test.get(name, missing)}"
            for name in names
            if self.by_test.get(name) != other.by_test.get(name)
        ]


def run(folder: Path, arguments: list[str], environment: Mapping[str, str], paths: list[Path]) -> Outcomes:
    """pytest in `folder`, with `paths` in front of what it imports from."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        search = os.pathsep.join(map(str, [PLUGINS, *paths]))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--tb=native"),
                *("-o", f"cache_dir={tempfile.gettempdir()}/mussurana-compliance-cache"),
                f"--junitxml={report.name}",
                *arguments,
            ],
            cwd=folder,
            env={**os.environ, **environment, "PYTHONPATH": search},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        if not Path(report.name).stat().st_size:
            raise RuntimeError(f"the tests could not be run:\n{done.stdout}")
        return Outcomes(outcomes_in(Path(report.name)), done.stdout)


def outcomes_in(report: Path) -> dict[str, str]:
    """By test, from pytest's report. A test that passed, and then failed to clean up, is an error."""
    found: dict[str, str] = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if "failure" in kinds else "error" if "error" in kinds else ""
        kind = kind or ("skipped" if "skipped" in kinds else "passed")
        name = f"{case.get('classname')}::{case.get('name')}"
        found[name] = kind if found.get(name, "passed") == "passed" else found[name]
    return found


# Where tests create tables and use them in one transaction, in which no catalog is read, these stay as they are. One
# adopted table is enough for everything to be looked at and every transaction to be followed.
ADOPT_ONE = f"""
CREATE TABLE public.{FENCE_TABLE} (id int PRIMARY KEY, epoch bigint NOT NULL, {WID} bigint);
INSERT INTO public.{FENCE_TABLE} VALUES (1, 0, NULL);
CREATE TABLE public.adopted (id int PRIMARY KEY);
ALTER TABLE public.adopted {ADD_COLUMNS};
"""


@contextmanager
def fresh_database(server: EmbeddedPostgres, name: str, preparation: str) -> Iterator[str]:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(server.conninfo(name), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA test_schema")
        connection.execute(PRETEND.encode())
        connection.execute(preparation.encode())
    try:
        yield name
    finally:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
