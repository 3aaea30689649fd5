"""Run suites that nobody here wrote, without the collector and through it, and compare how each test ended.

    python -m tests.compliance                            SQLAlchemy's dialect suite, on PostgreSQL and SQLite
    python -m tests.compliance --psycopg DIRECTORY        also psycopg's own tests, from a checkout of its repository

Exit code 0 if every test ended alike, 1 if one did not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mussurana.verifier.embedded_postgres import EmbeddedPostgres
from tests.compliance.runs import ADOPT_ALL, ADOPT_ONE, Outcomes, fresh_database, run

SQLALCHEMY_SETTINGS = """\
[tool:pytest]
addopts = -p sqlalchemy.testing.plugin.pytestplugin --import-mode=importlib
python_files = test_*.py
[sqla_testing]
requirement_cls = sqlalchemy.testing.requirements:SuiteRequirements
profile_file = profiles.txt
"""
PSYCOPG_TESTS = (
    "test_connection.py",
    "test_connection_async.py",
    "test_copy.py",
    "test_copy_async.py",
    "test_cursor.py",
    "test_cursor_async.py",
    "test_cursor_client.py",
    "test_cursor_client_async.py",
    "test_cursor_common.py",
    "test_cursor_common_async.py",
    "test_cursor_raw.py",
    "test_cursor_raw_async.py",
    "test_cursor_server.py",
    "test_cursor_server_async.py",
    "test_errors.py",
    "test_pipeline.py",
    "test_pipeline_async.py",
    "test_prepared.py",
    "test_prepared_async.py",
    "test_psycopg_dbapi20.py",
    "test_query.py",
    "test_rows.py",
    "test_sql.py",
    "test_tpc.py",
    "test_tpc_async.py",
    "test_transaction.py",
    "test_transaction_async.py",
    "test_typeinfo.py",
)
# Timing is not what this is about, and what a mypy plugin or a subprocess would see of us is not either.
PSYCOPG_MARKS = "not slow and not flakey and not timing and not subprocess and not mypy and not gevent"

Suite = Callable[[bool], Outcomes]  # with the collector, or without


def sqlalchemy_suite(url: str, recorded: bool, folder: Path) -> Outcomes:
    (folder / "setup.cfg").write_text(SQLALCHEMY_SETTINGS)
    (folder / "test_suite.py").write_text("from sqlalchemy.testing.suite import *\n")
    arguments = ["-c", "setup.cfg", f"--rootdir={folder}", "-p", "attached_sqlite"]
    if recorded:
        arguments += ["-p", "recorded_engines", "-p", "adopted_sqlite"]
    return run(folder, [*arguments, "--dburi", url, "test_suite.py"], {"MUSSURANA_SPOOL": f"{folder}/spool"}, [])


def on_sqlite(recorded: bool) -> Outcomes:
    with tempfile.TemporaryDirectory() as folder:
        return sqlalchemy_suite(f"sqlite:///{folder}/database.db", recorded, Path(folder))


def on_postgres(server: EmbeddedPostgres, recorded: bool) -> Outcomes:
    with tempfile.TemporaryDirectory() as folder, fresh_database(server, "compliance", ADOPT_ALL * recorded) as name:
        return sqlalchemy_suite(server.tcp_url(name, "postgresql+psycopg"), recorded, Path(folder))


def psycopg_suite(server: EmbeddedPostgres, source: Path, extra: list[Path], recorded: bool) -> Outcomes:
    with tempfile.TemporaryDirectory() as folder, fresh_database(server, "compliance", ADOPT_ONE * recorded) as name:
        arguments = [f"--rootdir={source}", "--test-dsn", server.tcp_url(name), "-m", PSYCOPG_MARKS, "-W", "default"]
        if recorded:
            arguments += ["-p", "instrumented"]
        present = [f"tests/{test}" for test in PSYCOPG_TESTS if (source / "tests" / test).exists()]
        return run(source, [*arguments, *present], {"MUSSURANA_SPOOL": f"{folder}/spool"}, [source, *extra])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compliance", description="Compare other people's tests.")
    parser.add_argument("--psycopg", type=Path, metavar="DIRECTORY", help="a checkout of psycopg's repository")
    parser.add_argument("--path", type=Path, action="append", default=[], help="where psycopg's tests find anyio")
    parser.add_argument("--only", default="", metavar="NAME", help="only suites with this in their name")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="also write what pytest printed here")
    options = parser.parse_args(arguments)
    with EmbeddedPostgres(tcp=True) as server:
        suites: dict[str, Suite] = {
            "sqlalchemy on sqlite": on_sqlite,
            f"sqlalchemy on postgresql {server.major}": lambda recorded: on_postgres(server, recorded),
        }
        if options.psycopg:
            source = options.psycopg.resolve()
            extra = [path.resolve() for path in options.path]
            suites["psycopg's own"] = lambda recorded: psycopg_suite(server, source, extra, recorded)
        alike = True
        for name, suite in suites.items():
            if options.only not in name:
                continue
            plain, recorded = suite(False), suite(True)
            differences = plain.differences(recorded)
            alike = alike and not differences
            print(f"{name}\n  without: {plain.line()}\n  with:    {recorded.line()}\n  {len(differences)} differ")
            for difference in differences:
                print(f"    {difference}")
            sys.stdout.flush()
            if options.output:
                options.output.mkdir(parents=True, exist_ok=True)
                for kind, outcomes in (("without", plain), ("with", recorded)):
                    (options.output / f"{name} {kind}.txt").write_text(outcomes.output)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
