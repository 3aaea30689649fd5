"""`mussurana demo`: two simulated databases, an accepted and a rejected history, and the counterexample as a page.

The database with locks is serializable. The one with snapshots promises snapshot isolation only, and keeps that; but
sooner or later two of its transactions each decide on what the other is about to change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mussurana.verifier import check
from mussurana.verifier.formats import save
from mussurana.verifier.render.html import report_html
from mussurana.verifier.render.text import result_text
from mussurana.verifier.simulate import Workload, simulate
from mussurana.verifier.verdict import Accepted, Rejected, Settings

LEVELS = ("serializable", "strong-session-si")
WORKLOAD = Workload(
    sessions=6,
    transactions=300,
    keys=40,
    read_modify_write=True,
    skew=0.5,
    times="outer",  # when a lock was granted is nothing that a client would know
    step_ns=1_000_000,
    seed=0,  # with snapshots, two of the 255 transactions that commit make a write skew
)
EXPECTED = {
    "strict-2pl": (Accepted, Accepted),
    "snapshot": (Rejected, Accepted),
}


def demo(out: Path, say: Callable[[str], None]) -> int:
    """Exit code 0 when every verdict was the expected one, else 1."""
    out.mkdir(parents=True, exist_ok=True)
    surprises = 0
    for database, expected in EXPECTED.items():
        history = simulate(database, WORKLOAD)
        path = out / f"{database}.mus"
        save(history, path)
        say(f"A simulated database, {database}, ran {history.txn_count} transactions; what its clients saw: {path}\n\n")
        for level, kind in zip(LEVELS, expected, strict=True):
            result = check(history, Settings(level))
            say(result_text(result, source=database) + "\n")
            if isinstance(result.verdict, Rejected):
                page = out / f"{database}.{level}.html"
                page.write_text(report_html(result, database), encoding="utf-8")
                say(f"The same as a page, to open in a browser: {page}\n\n")
            if not isinstance(result.verdict, kind):
                surprises += 1
                say(f"This is a surprise: {database} should be {kind.__name__.lower()} at {level}.\n\n")
    return 1 if surprises else 0
