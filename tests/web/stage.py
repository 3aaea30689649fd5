"""Something for the page to show: an hour of rounds, violations, collectors, put into a daemon before it starts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from random import Random
from typing import Any

from mussurana.verifier.daemon.board import CollectorInfo
from mussurana.verifier.daemon.gaps import Gap
from mussurana.verifier.daemon.ingest import Link
from mussurana.verifier.daemon.journal import Round, violation_json
from mussurana.verifier.daemon.service import Service
from mussurana.verifier.daemon.violations import Violations
from mussurana.verifier.rounds.alarms import AlarmChange
from mussurana.verifier.rounds.outcome import Gauges, Violation
from mussurana.verifier.verdict import Rejected, Result
from tests.daemon.fake_machine import FakeMachine
from tests.render import samples

SECOND_NS = 10**9
LEVEL = "serializable"


class CalmMachine(FakeMachine):
    """Gauges of a machine that has something to do."""

    def gauges(self) -> Gauges:
        now_ns = time.time_ns()
        return Gauges(
            retained={LEVEL: 12_480},
            waiting=3,
            waiting_since_ns=now_ns - 400_000_000,
            epoch={LEVEL: 3581},
            epoch_reached_ns={LEVEL: now_ns - SECOND_NS},
            table_keys={LEVEL: 88_123},
            sessions_open=48,
            sessions_idle=12,
            unknown_txns=17,
            unchecked_reads={"absent": 15, "lost": 9},
            lost_fragments=0,
            clashing_tags=0,
            begun_anew=0,
            lost_txns=1284,
            in_doubt=1,
        )


def a_round(number: int, finished_ns: int, verdict: str = "accepted", **other: Any) -> Round:
    values: dict[str, Any] = {
        "number": number,
        "level": LEVEL,
        "verdict": verdict,
        "reason": "",
        "violations": (),
        "further_violations": 0,
        "epoch": number * 2,
        "txn_count": 1000,
        "retained": 12_000,
        "forgotten": 1000,
        "finished_ns": finished_ns,
        "lag_seconds": (0.2, 0.35, 0.4),
        "seconds": {"total": 0.02},
        "choices": {},
    }
    return Round(**{**values, **other})


def an_hour(now_ns: int, rejected: Iterable[int] = (), unknown: Iterable[int] = ()) -> tuple[Round, ...]:
    """A round every two seconds, with a busy time, a slow moment and a pause; numbers in the two lists are verdicts."""
    rng = Random(7)
    rounds = []
    for number in range(1, 1801):
        if 700 < number < 790:
            continue
        wave = 1 + 0.5 * math.sin(number / 180) + 0.2 * rng.random()
        slow = 6 * math.exp(-(((number - 1250) / 22) ** 2))
        verdict = "rejected" if number in rejected else "unknown" if number in unknown else "accepted"
        rounds.append(
            a_round(
                number,
                now_ns - (1800 - number) * 2 * SECOND_NS,
                verdict,
                reason="The budget of 2 s ended; it is tried again with more." if verdict == "unknown" else "",
                violations=(f"v{number:04d}a81c",) if verdict == "rejected" else (),
                txn_count=int(2400 * wave),
                retained=int(9000 * wave + 2500 * slow),
                lag_seconds=(0.14 * wave + slow / 3, 0.3 * wave + slow, 0.36 * wave + slow),
                seconds={"total": 0.011 * wave + slow / 8},
            )
        )
    return tuple(rounds)


def a_violation(id: str, result: Result, found_ns: int, number: int = 1) -> dict[str, Any]:
    assert isinstance(result.verdict, Rejected)
    return violation_json(
        Violation(id, result.settings.level, number, number * 2, found_ns, result.verdict.counterexample)
    )


def tell(store: Violations, violations: list[dict[str, Any]]) -> None:
    """Store violations that were found and told."""
    store.add(violations)
    store.change([AlarmChange(each["id"], "told", "", each["found_ns"]) for each in violations])


def collectors(service: Service, now_ns: int) -> None:
    for number, (name, age_seconds, is_connected) in enumerate(
        [("web-1/4711", 1, True), ("web-2/913", 1, True), ("worker-a/77", 190, True), ("web-1/4690", 4000, False)], 1
    ):
        info = CollectorInfo(
            bytes([number]) * 16,
            name,
            "postgresql://db-1/roster",
            "0.1.0",
            is_connected,
            durable_sequence=number * 7919,
            last_seen_ns=now_ns - age_seconds * SECOND_NS,
        )
        service.ingest._links[info.id] = Link(info, info.durable_sequence, info.durable_sequence)


def busy(service: Service) -> None:
    """An hour without violations, but for what could not be seen."""
    now_ns = time.time_ns()
    service.board.publish(an_hour(now_ns, unknown=(1251,)))
    collectors(service, now_ns)
    statements = service.metrics.statements
    statements.saw_fully(2_481_337)
    statements.missed("orders", "SELECT with GROUP BY", "unobserved_read", 8_120, now_ns)
    statements.missed("audit_log", "COPY", "unobserved_write", 12, now_ns)
    statements.missed("", "CALL", "partial", 431, now_ns)
    service.board.gaps.note(Gap(now_ns - 900 * SECOND_NS, bytes([3]) * 16, "declared", "spool full", txns=1284))
    service.board.gaps.note(
        Gap(now_ns - 300 * SECOND_NS, bytes([4]) * 16, "not kept", "the collector no longer has them", fragments=3)
    )


def caught(service: Service) -> None:
    """The same with violations, the latest a minute ago."""
    now_ns = time.time_ns()
    busy(service)
    found = {600: samples.long_fork, 1640: samples.lost_update, 1770: samples.write_skew}
    service.board._rounds.clear()
    service.board.publish(an_hour(now_ns, rejected=found, unknown=(1251,)))
    tell(
        service.violations,
        [
            a_violation(f"v{number:04d}a81c", make(), now_ns - (1800 - number) * 2 * SECOND_NS, number)
            for number, make in found.items()
        ],
    )
