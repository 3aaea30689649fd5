"""Programs for the tests of forks and kills: `python -m tests.collector.recording.processes NAME SPOOL ...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mussurana.collector.recorder import COMMITTED, recorder_for
from tests.collector.recording.observed import commit, quick, see


def _parsed(arguments: tuple[str, ...]) -> dict[str, Any]:
    pairs = (argument.split("=") for argument in arguments)
    return {name: float(value) if name.endswith("_seconds") else value for name, value in pairs}


def write_until_killed(spool: Path, *arguments: str) -> None:
    """Commit transactions, and tell each one to standard output after it has been handed over."""
    recorder = recorder_for(quick(spool, **_parsed(arguments)))
    session = recorder.open_session("conn 1", fenced=False)
    while True:
        version = commit(recorder, session, "a/1")[0]
        os.write(1, f"{version}\n".encode())


def fork_while_recording(spool: Path, verifier: str) -> None:
    """Record in a parent and eight children, which inherit an open session and an open transaction."""
    recorder = recorder_for(quick(spool, verifier=verifier))
    session = recorder.open_session("parent", fenced=False)
    commit(recorder, session, "a/parent")
    recorder.flush(5)
    open_txn = session.begin()
    see(open_txn, "write", "a/open", recorder.write_id())
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            session.end(open_txn, COMMITTED)  # the parent's: nothing of it may be sent from here
            own = recorder.open_session(f"child {number}", fenced=False)
            ids = [version for _ in range(100) for version in commit(recorder, own, f"a/{number}")]
            ids += commit(recorder, session, "a/inherited")
            os.write(1, "".join(f"{version}\n" for version in ids).encode())
            sys.exit(0)
        children.append(child)
        os.write(
            1, "".join(f"{version}\n" for version in commit(recorder, recorder.open_session("more"), "b")).encode()
        )
    session.end(open_txn, COMMITTED)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 8, codes


if __name__ == "__main__":
    if sys.argv[1] == "write_until_killed":
        write_until_killed(Path(sys.argv[2]), *sys.argv[3:])
    else:
        fork_while_recording(Path(sys.argv[2]), sys.argv[3])
