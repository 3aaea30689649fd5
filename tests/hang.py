"""Run tests again and again, and look closely at a run that stands still.

    python -m tests.hang tests/collector/psycopg tests/collector/sqlalchemy --hours 8
    make hang-hunt ARGS="--hours 8"

A run that says nothing for a while is examined before it is ended: the Python stacks of all threads of pytest, the
native stacks of all its processes (gdb, where there is one), what each of them waits for, and what its database servers
are doing. That goes into a file beside the output of the run. pytest gets this module as a plugin and writes its stacks
on SIGUSR1. Every process of a run inherits a word in its environment, by which it is found again.

The exit code is 1 if a run stood still, and 2 if one failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "out" / "hang"
TESTS = ("tests/collector/psycopg", "tests/collector/sqlalchemy", "tests/collector/recording")

MARK = "MUSSURANA_HANG_HUNT"

QUIET_SECONDS_MAX = 180.0
"""The longest test takes half a minute, and several times that on a machine that is busy with other things."""

LOOK_SECONDS = 0.2
EXAMINE_SECONDS_MAX = 30.0  # for each process: a debugger may be stopped by what it looks at

SERVER = re.compile(r"postgres -D (/tmp/mussurana-pg-\w+)/data .*?-c port=(\d+)")
"""What the embedded servers are started with."""

SERVER_QUESTION = (
    "SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 200) FROM pg_stat_activity"
)


def pytest_configure() -> None:
    """In a run: on SIGUSR1 write the stacks of all threads to standard error, which is not captured yet."""
    faulthandler.register(signal.SIGUSR1, file=os.dup(2), all_threads=True)


@dataclass
class Tally:
    """How the runs ended."""

    passed: int = 0
    failed: int = 0
    stood_still: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        runs = self.passed + self.failed + self.stood_still
        return (
            f"{runs} runs in {self.seconds / 3600:.2f} h: {self.passed} passed, {self.failed} failed, "
            f"{self.stood_still} stood still"
        )


def run_once(tests: list[str], output: Path, quiet_seconds_max: float) -> str:
    """Run pytest; return "passed", "failed" or "stood still", of which the report is beside the output."""
    mark = uuid.uuid4().hex
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "pytest",
        "-vv",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.hang",
        *tests,
    ]
    with output.open("wb") as file:
        pytest = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | {MARK: mark},
            start_new_session=True,
        )
        try:
            while pytest.poll() is None:
                said = output.stat()
                patience = quiet_seconds_max if said.st_size else max(quiet_seconds_max, QUIET_SECONDS_MAX)
                if time.time() - said.st_mtime > patience:
                    with output.with_suffix(".report").open("w") as report:
                        report.write(examine(pytest.pid, mark))
                    return "stood still"
                time.sleep(LOOK_SECONDS)
        finally:
            end(pytest, mark)
    return "passed" if pytest.returncode == 0 else "failed"


def end(pytest: subprocess.Popen[bytes], mark: str) -> None:
    """End what is left of a run."""
    for process in (pytest.pid, *marked(mark)):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    pytest.wait()


def marked(mark: str) -> list[int]:
    """The processes that were started, directly or not, by the run with this mark."""
    word = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and word in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def examine(pytest: int, mark: str) -> str:
    """All that can be seen of a run from outside. Its output then has the Python stacks as well."""
    os.kill(pytest, signal.SIGUSR1)
    parts = []
    for process in sorted({pytest, *marked(mark)}):
        folder = Path("/proc") / str(process)
        try:
            said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = [line for line in (folder / "status").read_text().splitlines() if line.startswith(("State", "Thr"))]
            waits = {each.name: _content(each / "wchan") for each in (folder / "task").iterdir()}
            files = [f"{each.name}: {os.readlink(each)}" for each in (folder / "fd").iterdir()]
        except OSError:  # it has ended, or belongs to somebody else
            continue
        parts += [f"=== {process} {said}", *state, f"waits in {waits}", *files, _native_stacks(process)]
    servers = sorted(set(SERVER.findall("\n".join(parts))))
    return "\n".join(parts + [_server_says(folder, port) for folder, port in servers])


def _content(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return "?"


def _native_stacks(process: int) -> str:
    if shutil.which("gdb") is None:
        return "no gdb"
    return _said_by(["gdb", "-p", str(process), "-batch", "-nx", "-ex", "thread apply all backtrace 40"])


def _server_says(folder: str, port: str) -> str:
    code = f"import psycopg; print(*psycopg.connect(host={folder!r}, port={port}, user='postgres', connect_timeout=5)"
    code += f".execute({SERVER_QUESTION!r}), sep='\\n')"
    return f"=== {folder}\n" + _said_by([sys.executable, "-c", code])


def _said_by(command: list[str]) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=EXAMINE_SECONDS_MAX, errors="replace")
        return ran.stdout + ran.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hang", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help=f"what pytest is given; {' '.join(TESTS)} if nothing")
    parser.add_argument("--hours", type=float, default=1.0, help="no run begins after that")
    parser.add_argument("--runs", type=int, default=1 << 30, help="at most so many")
    parser.add_argument("--quiet-seconds", type=float, default=QUIET_SECONDS_MAX, help="when a run stands still")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for outputs and reports")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    tally, started = Tally(), time.monotonic()
    for number in range(1, options.runs + 1):
        output = options.folder / f"{os.getpid()}-{number}.log"
        outcome = run_once(list(options.tests), output, options.quiet_seconds)
        tally.passed += outcome == "passed"
        tally.failed += outcome == "failed"
        tally.stood_still += outcome == "stood still"
        tally.seconds = time.monotonic() - started
        print(f"{time.strftime('%H:%M:%S')} {outcome}; {tally}", flush=True)
        if outcome == "passed":
            output.unlink()
        else:
            print(f"  {output}", flush=True)
        if tally.seconds > 3600 * options.hours:
            break
    return 1 if tally.stood_still else 2 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
