"""A statement of many megabytes is cut with a note wherever it goes; the counterexample that quotes it can be had."""

from __future__ import annotations

import json
from pathlib import Path

from mussurana.verifier.commands.serve import machine_factory
from mussurana.verifier.daemon import client
from mussurana.verifier.daemon.client import Target
from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.violations import CUT, STATEMENT_CHARACTERS_MAX
from mussurana.verifier.render.words import ELLIPSIS
from mussurana.wire.history_pb2 import SessionEvent
from tests.attack.test_webhook import Receiver
from tests.cli.command import Command
from tests.cli.conftest import mussurana
from tests.daemon.collector import TestCollector
from tests.daemon.conftest import running
from tests.daemon.watching import send, until
from tests.rounds.feeding import Wire
from tests.web.page import get

__all__ = ["mussurana"]

TEXT = "SELECT 'é' FROM " + "x" * (15 << 20)


def test_a_violation_with_statements_of_15_megabytes_can_be_had_in_every_form(data: Path, mussurana: Command) -> None:
    receiver = Receiver()
    made = Wire().make("a", "0 x==0 y:=a1", "1 y==0 x:=a2")
    made.op_statement = b"".join(number.to_bytes(4, "little") for number in (1, 2, 1, 2))
    made.statement.add(number=1, text=TEXT)
    made.statement.add(number=2, text="UPDATE t")
    for session in (0, 1):
        made.session_event.add(what=SessionEvent.OPEN, session=session, name=f"session {session}")
    machine = machine_factory(load(None, {}, {}))
    with (
        running(data, machine, settings={"webhook_url": receiver.url, "checkpoint_interval_seconds": "0.1"}) as daemon,
        TestCollector(daemon.address, b"a" * 16) as collector,
    ):
        collector.send(made)
        collector.wait_durable(1)
        until(lambda: daemon.service.violations.summaries(), 300)
        (violation,) = daemon.service.violations.summaries()
        told = mussurana("explain", violation.id, "--address", daemon.address)
        assert told.code == 0
        assert f"SELECT {ELLIPSIS} FROM xxx" in told.out
        plain = mussurana("explain", violation.id, "--address", daemon.address, "--json")
        assert CUT in plain.out
        assert len(plain.out) < 50_000
        for form in ("json", "svg", "html", "story"):
            answer = get(daemon.http_port, f"/api/violations/{violation.id}.{form}")
            assert answer.status == 200
            assert len(answer.content) < 200_000
        until(lambda: receiver.received, 20)
    receiver.close()
    files = [path for folder in ("journal", "violations") for path in (data / folder).iterdir()]
    assert sum(path.stat().st_size for path in files) < 1 << 20


def test_a_violation_that_was_stored_with_a_long_statement_can_be_had(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 2, marks=[1])
        (id,) = [each.id for each in daemon.service.violations.summaries()]
        stored = daemon.service.violations.get(id)
        assert stored is not None
        operation = {"kind": "read", "key": "x", "version": "1", "previous": "", "statement": TEXT}
        transaction = {"label": "T1", "txn": 0, "session": "s", "context": "", "operations": [operation]}
        stored["counterexample"]["transactions"] = [transaction]
        stored["id"] = "older"
        daemon.service.violations.add([stored])
        reply = client.explain(Target(daemon.address), "older")
        (shown,) = json.loads(reply.counterexample)["transactions"][0]["operations"]
        assert shown["statement"].endswith(CUT)
        assert len(shown["statement"]) == STATEMENT_CHARACTERS_MAX


def test_more_than_four_megabytes_of_answer_are_taken(data: Path) -> None:
    with running(data) as daemon:
        send(daemon, 1, 2, marks=[1])
        (id,) = [each.id for each in daemon.service.violations.summaries()]
        stored = daemon.service.violations.get(id)
        assert stored is not None
        operation = {"kind": "read", "key": "x" * 1000, "version": "1", "previous": "", "statement": "y" * 9000}
        transaction = {"label": "T1", "txn": 0, "session": "s", "context": "", "operations": [operation] * 12}
        stored["counterexample"]["transactions"] = [transaction] * 100
        stored["id"] = "large"
        daemon.service.violations.add([stored])
        assert len(client.explain(Target(daemon.address), "large").counterexample) > 10 << 20
