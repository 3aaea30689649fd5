"""What recording adds to the life of a short process, and to its end: a script with SQLAlchemy and PostgreSQL.

    python -m bench.closing [--runs 10]

Each round runs the script once in each way, in turn, so that a busy machine is as busy for all. The figures are
medians: the time from the script's last statement to the end of its process, and that of the whole process; then the
processor time of it, which others on the machine change less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.online.ports import free_port
from mussurana.collector.__main__ import main as collector
from mussurana.verifier.embedded_postgres import EmbeddedPostgres

SCRIPT = """
import sys, time
from sqlalchemy import create_engine, text
engine = create_engine(sys.argv[1], **({"plugins": ["mussurana"]} if len(sys.argv) > 2 else {}))
for number in range(20):
    with engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET balance = balance + 1 WHERE id = :id"), {"id": 1 + number % 2})
print(time.time(), flush=True)
"""
TABLE = "CREATE TABLE accounts (id int PRIMARY KEY, balance int); INSERT INTO accounts VALUES (1, 0), (2, 0)"
WAIT_SECONDS_MAX = 60.0


def once(url: str, recorded: bool) -> tuple[float, float, float]:
    """Seconds from the last statement to the end of the process, of all of it, and of the processor."""
    began, before = time.time(), os.times()
    command = [sys.executable, "-c", SCRIPT, url, *(["recorded"] if recorded else [])]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX)
    ended, after = time.time(), os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return ended - float(ran.stdout), ended - began, used


def main() -> int:
    import psycopg

    parser = argparse.ArgumentParser(prog="bench.closing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mussurana-closing-")))
        server = stack.enter_context(EmbeddedPostgres(tcp=True))
        with psycopg.connect(server.conninfo()) as connection:
            connection.execute(TABLE)
        collector(["adopt", server.url()])
        port = free_port()
        serve = [
            "serve",
            "--ingest-listen",
            f"127.0.0.1:{port}",
            "--http-listen",
            f"127.0.0.1:{free_port()}",
            "--data",
            str(folder / "data"),
        ]
        daemon = subprocess.Popen([sys.executable, "-m", "mussurana.verifier", *serve], stderr=subprocess.DEVNULL)
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)
        url = server.tcp_url(scheme="postgresql+psycopg")
        ways = {
            "not recorded": url,
            "spool only": f"{url}?mussurana_spool={folder}/only",
            "to a daemon": f"{url}?mussurana_spool={folder}/daemon&mussurana_verifier=127.0.0.1:{port}",
            "to nobody": f"{url}?mussurana_spool={folder}/nobody&mussurana_verifier=127.0.0.1:9",
        }
        taken: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for _ in range(options.runs):
            for way, address in ways.items():
                taken[way].append(once(address, way != "not recorded"))
        for way, times in taken.items():
            end, whole, used = (statistics.median(each) for each in zip(*times, strict=True))
            print(f"{way:14} {end:6.2f} s to its end, {whole:6.2f} s in all, {used:6.2f} s of the processor")
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while list((folder / "daemon").glob("*-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        print(f"{len(list((folder / 'daemon').glob('*-*')))} folders are left of those for the daemon")
    return 0


if __name__ == "__main__":
    sys.exit(main())
