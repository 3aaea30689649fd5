"""What collectors say about themselves, for people: shapes of statements that were not seen, and gaps."""

from __future__ import annotations

from mussurana.verifier.daemon.feed import Feeder
from mussurana.verifier.daemon.gaps import GAPS_KEPT_MAX, REASON_CHARACTERS_MAX, Gap, Gaps
from mussurana.verifier.daemon.log import FRAGMENT, Entry
from mussurana.verifier.daemon.metrics import Metrics
from mussurana.verifier.daemon.sequences import Sequences
from mussurana.verifier.daemon.statements import OTHERS, Statements
from mussurana.wire.history_pb2 import Coverage, Fragment
from tests.daemon.collector import fragment
from tests.daemon.fake_machine import FakeMachine

COLLECTOR = b"c" * 16


def test_totals_of_collectors_become_counts_by_shape() -> None:
    metrics = Metrics(["serializable"])
    for total in (5, 5, 12):
        made = Fragment(sealed_ns=7)
        made.coverage.add(table="orders", shape="COPY", observed=Coverage.UNOBSERVED_WRITE, statement_count=total)
        made.coverage.add(table="orders", shape="SELECT", observed=Coverage.FULL, statement_count=10 * total)
        metrics.count_reports(COLLECTOR, made)
    shapes = metrics.statements.shapes()
    assert [(each.table, each.shape, each.observed, each.statements) for each in shapes] == [
        ("orders", "COPY", "unobserved_write", 12)
    ]
    assert metrics.statements.fully_seen() == 120


def test_beyond_a_limit_shapes_are_counted_together() -> None:
    statements = Statements(shapes_max=2)
    for number in range(5):
        statements.missed("t", f"shape {number}", "partial", 10 - number, 1)
    assert [(each.shape, each.statements) for each in statements.shapes()] == [
        (OTHERS, 8 + 7 + 6),
        ("shape 0", 10),
        ("shape 1", 9),
    ]


def test_the_latest_gaps_are_kept_and_all_are_counted() -> None:
    gaps = Gaps()
    for number in range(GAPS_KEPT_MAX + 3):
        gaps.note(Gap(number, COLLECTOR, "declared", "spool full"))
    assert [gap.received_ns for gap in gaps.latest()][:2] == [GAPS_KEPT_MAX + 2, GAPS_KEPT_MAX + 1]
    assert len(gaps.latest()) == GAPS_KEPT_MAX
    assert gaps.counts() == {"declared": GAPS_KEPT_MAX + 3}


def test_declared_gaps_and_missing_fragments_are_noted_with_their_reason() -> None:
    gaps = Gaps()
    feeder = Feeder(FakeMachine(), Sequences(), Metrics(["serializable"]), gaps=gaps)
    declared = fragment(1)
    declared.gap.add(reason="x" * 1000, txn_count=17)
    feeder.feed(Entry(FRAGMENT, COLLECTOR, 1, 100, declared.SerializeToString()))
    feeder.feed(Entry(FRAGMENT, COLLECTOR, 5, 200, fragment(5).SerializeToString()))
    lost, told = gaps.latest()
    assert (told.cause, told.txns, told.received_ns) == ("declared", 17, 100)
    assert told.reason == "x" * REASON_CHARACTERS_MAX
    assert (lost.cause, lost.fragments, lost.received_ns) == ("damaged", 3, 200)
