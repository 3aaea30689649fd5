"""The textbook anomalies, one line each, with the verdict at every level and the name that a rejection gives them.

Times are in seconds and the clock drift is the default, a tenth of one.
"""

from __future__ import annotations

import pytest

from mussurana.verifier import check
from mussurana.verifier.audit import audit
from mussurana.verifier.certificate import certificate
from mussurana.verifier.verdict import Accepted, Rejected, Settings
from tests.brute_force import brute_force
from tests.notation import h
from tests.random_history import LEVELS

# Verdicts in the order of LEVELS:
#  serializable | strict-serializable || adya-si | generalized-si | strong-session-si | strong-si
ALL_YES = "yes yes  yes yes yes yes"
ALL_NO = "no  no   no  no  no  no"
NOT_SERIAL = "no  no   yes yes yes yes"
NOT_IN_SESSION_ORDER = "no  no   yes yes no  no"
STALE = "yes no   yes yes yes no"
FROM_THE_FUTURE = "yes no   yes no  no  no"
NOT_A_SNAPSHOT = "yes yes  yes no  no  no"

# what it is, the history, its verdicts, the anomaly that the first level to reject it names
TABLE = [
    # nothing wrong
    ("nothing", "", ALL_YES, ""),
    ("reads from", "[x:=1] | [x==1 x:=2]", ALL_YES, ""),
    ("own writes are seen", "[x:=1 x==1 x:=2 x==2]", ALL_YES, ""),
    ("own writes are replaced", "[x:=1<_ x:=2<1] | [x:=3<2]", ALL_YES, ""),
    ("blind writes in an order to be found", "[x:=1] | [x:=2] | [x==1] | [x==2]", ALL_YES, ""),
    ("readers in the order of the writes", "[x:=1] | [x:=2<1] | [x==1] [x==2]", ALL_YES, ""),
    ("Fekete's two writers without the reader", "[y==_ y:=20] | [x==_ y==_ x:=-11]", ALL_YES, ""),
    ("an aborted transaction may have seen anything", "[x==7 x:=1]! | [x==_]", ALL_YES, ""),
    ("list prefixes", "[x+=1] | [x+=2] | [x==(1)] | [x==(1 2)] | [x==()]", ALL_YES, ""),
    ("own appends are seen", "[x+=1] | [x==(1) x+=2 x+=3 x==(1 2 3)]", ALL_YES, ""),
    ("a row that comes back", "[x:=1<_ y==_] | [x:=2<new y:=1]", ALL_YES, ""),
    ("a row that comes back and goes again", "[x:=1<_] | [x:=2<new x:=3<2] | [x:=4<new] | [x:=5<4]", ALL_YES, ""),
    ("a new row in the transaction that deleted the old one", "[x:=1<_ x:=2<new x==2] | [x==2]", ALL_YES, ""),
    # what no order can explain
    ("G1a aborted read", "[x:=1]! | [x==1]", ALL_NO, "aborted read"),
    ("G1a aborted append", "[x+=1]! | [x==(1)]", ALL_NO, "aborted read"),
    ("G1b intermediate read", "[x:=1 x:=2] | [x==1]", ALL_NO, "intermediate read"),
    ("G1b intermediate list", "[x+=1 x+=2] | [x==(1)]", ALL_NO, "intermediate read"),
    ("a version from nowhere", "[x==7]", ALL_NO, "version never written"),
    ("replaced a version from nowhere", "[x:=1<7]", ALL_NO, "version never written"),
    ("own write not seen", "[x:=1 x==_]", ALL_NO, "internal inconsistency"),
    ("own append not seen", "[x+=1 x==()]", ALL_NO, "internal inconsistency"),
    ("fuzzy read", "[x:=1] | [x==_ x==1]", ALL_NO, "internal inconsistency"),
    ("fuzzy read by a write", "[x:=1] | [x==_ x:=2<1]", ALL_NO, "internal inconsistency"),
    # cycles at every level
    ("G0 dirty write", "[x+=1 y+=1] | [x+=2 y+=2] | [x==(1 2) y==(2 1)]", ALL_NO, "dirty write"),
    ("G1c told by writes", "[x:=1<_ y:=1<2] | [x:=2<1 y:=2<_]", ALL_NO, "circular information flow"),
    ("G1c circular information flow", "[x:=1 y==1] | [y:=1 x==1]", ALL_NO, "circular information flow"),
    ("lost update", "[x==_ x:=1] | [x==_ x:=2]", ALL_NO, "lost update"),
    ("lost update, told by the database", "[x:=1<_] | [x:=2<_]", ALL_NO, "lost update"),
    ("lost update of a version", "[x:=1] | [x==1 x:=2] | [x==1 x:=3]", ALL_NO, "lost update"),
    ("lost append", "[x==() x+=1] | [x==() x+=2]", ALL_NO, "lost update"),
    ("G-single read skew", "[x:=1 y:=1] | [x==_ y==1]", ALL_NO, "read skew"),
    ("a new row that is updated twice", "[x:=1<new] | [x:=2<1] | [x:=3<1]", ALL_NO, "lost update"),
    ("own new row not seen", "[x:=1<new x:=2<1 x==1]", ALL_NO, "internal inconsistency"),
    ("the old row after the new one", "[x:=1<_] | [x:=2<new y:=1] | [y==1 x==_]", ALL_NO, "read skew"),
    ("read skew over two writers", "[x:=1 y:=1] | [x==1 x:=2 y:=2] | [x==1 y==2]", ALL_NO, "read skew"),
    ("a mix of two writers", "[x:=1 y:=1] | [x:=2 y:=2] | [x==1 y==2]", ALL_NO, "read skew"),
    ("long fork", "[x:=1] | [y:=1] | [x==1 y==_] | [x==_ y==1]", ALL_NO, "long fork"),
    ("long fork in lists", "[x+=1] | [y+=1] | [x==(1) y==()] | [x==() y==(1)]", ALL_NO, "long fork"),
    (
        "an append to another element than a list shows before it",
        "[x+=2] | [x+=3<2] | [x==(3 2)]",
        ALL_NO,
        "circular information flow",
    ),
    ("an append after what it said that it replaced", "[x+=1<_] | [x+=2<1] | [x==(1 2)]", ALL_YES, ""),
    ("two appends to the same list", "[x+=1] | [x+=2<1] | [x+=3<1]", ALL_NO, "lost update"),
    ("lists in incompatible orders", "[x+=1] | [x+=2] | [x==(1 2)] | [x==(2 1)]", ALL_NO, "incompatible order"),
    ("an element twice", "[x+=1] | [x==(1 1)]", ALL_NO, "duplicate element"),
    # snapshot isolation permits
    ("saw a row, found it gone, and inserted it", "[x:=1<_] | [x==_ x:=2<new]", NOT_SERIAL, "lost update"),
    ("saw the old row beside its own", "[x:=1<_] | [x:=2<new x==_ x==2]", NOT_SERIAL, "internal inconsistency"),
    (
        "two rows one after the other in old snapshots",
        "[x:=1<_] | [x==_ x:=2<new x:=3<2] | [x==_ x:=4<new] | [x==4]",
        NOT_SERIAL,
        "lost update",
    ),
    ("G2-item write skew", "[x==_ y==_ x:=1] | [x==_ y==_ y:=1]", NOT_SERIAL, "write skew"),
    ("write skew in lists", "[x==() y==() x+=1] | [x==() y==() y+=1]", NOT_SERIAL, "write skew"),
    ("write skew of three", "[x==_ y:=1] | [y==_ z:=1] | [z==_ x:=1]", NOT_SERIAL, "anti-dependency cycle"),
    (
        "Fekete's read-only anomaly",
        "[y==_ y:=20] | [x==_ y==_ x:=-11] | [x==_ y==20]",
        NOT_SERIAL,
        "anti-dependency cycle",
    ),
    # sessions
    ("reads do not go back", "[x:=1] | [x==1] [x==_]", NOT_IN_SESSION_ORDER, "stale read"),
    ("own session's writes are seen", "[x:=1] [x==_]", NOT_IN_SESSION_ORDER, "stale read"),
    ("writes of a session in order", "[y:=1] [x:=1] | [x==1] [y==_]", NOT_IN_SESSION_ORDER, "stale read"),
    ("writes follow what was read", "[x:=1] | [x==1 y:=1] | [y==1] [x==_]", NOT_IN_SESSION_ORDER, "stale read"),
    ("stale snapshot of a session", "[x:=1] [x==_ y:=1] | [y==1]", NOT_IN_SESSION_ORDER, "stale read"),
    (
        "the write order is known, a session goes back",
        "[x:=1] | [x:=2<1] | [x==2] [x==1]",
        NOT_IN_SESSION_ORDER,
        "stale read",
    ),
    # real time
    ("overlapping in time", "[x:=1]@0..3 | [x==_]@2..4", ALL_YES, ""),
    ("stale within the clock drift", "[x:=1]@0..1 | [x==_]@1.1..3", ALL_YES, ""),
    ("stale beyond the clock drift", "[x:=1]@0..1 | [x==_]@1.100000001..3", STALE, "stale read"),
    ("stale read of a replaced version", "[x:=1]@0..1 | [x:=2]@2..3 | [x==1]@4..5", STALE, "stale read"),
    ("stale, whether its times are known or not", "[x:=1]@0..1 | [x==_]@2..", STALE, "stale read"),
    ("no end is known", "[x:=1]@0.. | [x==_]@2..3", ALL_YES, ""),
    ("no end is known, but when it asked to commit", "[]@1-1..2-", ALL_YES, ""),
    ("no begin is known", "[x:=1]@0..1 | [x==_]@..3", ALL_YES, ""),
    ("a write from the future", "[x==1]@0..1 | [x:=1]@2..3", FROM_THE_FUTURE, "real time inverted"),
    ("replaced a write from the future", "[x:=2<1]@0..1 | [x:=1]@2..3", FROM_THE_FUTURE, "real time inverted"),
    (
        "saw a commit later than its begin",
        "[x:=1]@0-0..4-4 | [x==1]@1-1..5-5",
        NOT_A_SNAPSHOT,
        "real time inverted",
    ),
    ("that may have been before its begin", "[x:=1]@0-0..4 | [x==1]@1-1..5-5", ALL_YES, ""),
    ("overlapping updates", "[x:=1<_]@0-0..4-4 | [x:=2<1]@1-1..5-5", NOT_A_SNAPSHOT, "real time inverted"),
    ("updates one after the other", "[x:=1<_]@0-0..1-1 | [x:=2<1]@2-2..3-3", ALL_YES, ""),
    # commits in doubt
    ("in doubt and read", "[x:=1]? | [x==1]", ALL_YES, ""),
    ("in doubt and not read", "[x:=1]? | [x==_]", ALL_YES, ""),
    ("in doubt and replaced", "[x:=1<_]? | [x:=2<_] | [x==2]", ALL_YES, ""),
    ("in doubt, read and then not", "[x:=1]? | [x==1] [x==_]", NOT_IN_SESSION_ORDER, "stale read"),
    ("in doubt takes effect after its successor", "[x:=1]? [x==_] [x==1]", ALL_YES, ""),
    ("in doubt takes effect late", "[x:=1]?@0..1 | [x==_]@2..3 [x==1]@4..5", ALL_YES, ""),
    ("in doubt follows its session", "[x:=1] [x==_ y:=1]? | [y==1]", NOT_IN_SESSION_ORDER, "stale read"),
    ("in doubt, read, and impossible", "[x==9 y:=1]? | [y==1]", ALL_NO, "version never written"),
    ("in doubt, not read, and impossible", "[x==9 y:=1]?", ALL_YES, ""),
    ("lost update with one in doubt that was read", "[x==_ x:=1]? | [x==_ x:=2] | [x==1]", ALL_NO, "lost update"),
]

CASES = [
    pytest.param(text, level, verdict == "yes", id=f"{name}, {level}")
    for name, text, verdicts, _ in TABLE
    for level, verdict in zip(LEVELS, verdicts.split(), strict=True)
]


@pytest.mark.parametrize(("text", "level", "accepted"), CASES)
def test_brute_force_agrees_with_the_textbook(text: str, level: str, accepted: bool) -> None:
    assert brute_force(h(text), Settings(level)) == accepted


@pytest.mark.parametrize(("text", "level", "accepted"), CASES)
def test_check_agrees_with_the_textbook(text: str, level: str, accepted: bool) -> None:
    history = h(text)
    result = check(history, Settings(level))
    assert isinstance(result.verdict, Accepted if accepted else Rejected)
    audited = audit(certificate(result, history), history)
    assert audited.ok, audited.message


@pytest.mark.parametrize(
    ("name", "text", "verdicts", "anomaly"), [pytest.param(*row, id=row[0]) for row in TABLE if row[3]]
)
def test_rejections_are_named_as_in_the_textbook(name: str, text: str, verdicts: str, anomaly: str) -> None:
    level = next(level for level, verdict in zip(LEVELS, verdicts.split(), strict=True) if verdict == "no")
    verdict = check(h(text), Settings(level)).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.counterexample.anomaly == anomaly
    if name.startswith("G"):
        assert verdict.counterexample.adya == name.split()[0]
    assert verdict.counterexample.adya.endswith("-session") == (verdicts == NOT_IN_SESSION_ORDER)
    assert verdict.counterexample.adya.endswith("-realtime") == ("@" in text)


@pytest.mark.parametrize("text", [text for _, text, verdicts, _ in TABLE if verdicts == NOT_IN_SESSION_ORDER])
@pytest.mark.parametrize("level", LEVELS)
def test_without_session_order_a_session_may_go_back(text: str, level: str) -> None:
    settings = Settings(level, session_order=False)
    assert brute_force(h(text), settings)
    assert isinstance(check(h(text), settings).verdict, Accepted)
