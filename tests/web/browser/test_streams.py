"""The whole of it: recorded streams into a daemon with the real machine, and what a browser then shows."""

from __future__ import annotations

import heapq
import os
import time
from pathlib import Path

import pytest

from mussurana.verifier.commands.serve import check_fragment, machine_factory
from mussurana.verifier.daemon.client import Target
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.replay.send import Sender
from mussurana.verifier.replay.translate import streams
from mussurana.verifier.simulate import Workload, simulate
from tests.daemon.conftest import Running, running
from tests.web.browser.conftest import Windows

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

COMPILING_SECONDS = 240.0
"""The kernels, where nobody has used them before."""


def feed(daemon: Running, database: str) -> list[Sender]:
    """All that two collectors recorded of a simulated database; they stay connected."""
    history = simulate(database, WORKLOAD)
    parts = streams(history, time.time_ns(), 2)
    senders = [Sender(Target(daemon.address), os.urandom(16), f"web-{n}", "roster") for n in range(2)]
    merged = heapq.merge(
        *([(sent.after_ns, n, sent.fragment) for sent in part] for n, part in enumerate(parts)),
        key=lambda sent: sent[:2],
    )
    for _, number, fragment in merged:
        fragment.sealed_ns = time.time_ns()
        senders[number].send(fragment)
    return senders


@pytest.mark.parametrize(
    ("database", "headline"),
    [("strict-2pl", "No violation in the last hour"), ("snapshot", "1 violation in the last hour")],
)
def test_what_a_database_did_is_what_the_page_says(
    tmp_path: Path, windows: Windows, database: str, headline: str
) -> None:
    window = windows()
    machine = machine_factory(load(None, {}, {}))
    with running(tmp_path / "data", machine, check_fragment()) as daemon:
        page = window.open(daemon.http_port)
        senders = feed(daemon, database)
        window.wait("document.querySelector('[data-tile=rounds] .value').textContent.trim() > '0'", COMPILING_SECONDS)
        window.wait(f"document.getElementById('headline').textContent === {headline!r}")
        assert page.inner_text("[data-tile=collectors] .value") == "2 connected"
        page.wait_for_timeout(1500)
        window.photograph(f"stream-{database}")
        if database == "snapshot":
            page.click(".violations a")
            page.wait_for_selector(".card")
            assert page.inner_text("h1") == "Write skew (G2-item)"
            assert len(page.query_selector_all(".card")) >= 2
            assert "No serial order has both." in page.inner_text("#story")
            window.photograph("stream-snapshot-violation")
        for sender in senders:
            sender.close()
    window.errors = [error for error in window.errors if "ERR_" not in error]
