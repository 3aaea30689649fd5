"""Results made by hand, one for each kind of picture that a renderer has to get right."""

from __future__ import annotations

import numpy as np

from mussurana.verifier.history import LeftOut
from mussurana.verifier.verdict import (
    Accepted,
    Case,
    Choices,
    Counterexample,
    EdgeKind,
    Event,
    Rejected,
    Result,
    Settings,
    ShownOperation,
    ShownTransaction,
    Step,
    Unknown,
    Witness,
)

MORNING_NS = 1_714_730_651_000_000_000  # 2024-05-03 10:04:11 UTC
MS = 1_000_000

HOSTILE = "<script>alert(1)</script>"
HOSTILE_ATTRIBUTE = "\"' onmouseover='alert(2)' x=\"&lt;b&gt;]]>--><img src=x onerror=alert(3)>"
HOSTILE_CONTROL = "bell\x07 esc\x1b[31m null\x00 rtl\u202eevil newline\n</style></svg>\ud800\uffff end"
LONG_KEY = "orders/" + "k" * 186 + "/latest"


def txn(
    label: str,
    session: str,
    position: int,
    *operations: ShownOperation,
    name: str = "",
    status: str = "committed",
    times_ns: tuple[int | None, int | None] = (None, None),
) -> ShownTransaction:
    return ShownTransaction(
        label=label,
        txn=int(label[1:]) * 100 + position,
        session=session,
        position=position,
        name=name,
        status=status,  # type: ignore[arg-type]
        begin_ns=times_ns[0],
        committed_ns=times_ns[1],
        operations=operations,
    )


def read(key: str, version: str, statement: str = "") -> ShownOperation:
    return ShownOperation("read", key, version, statement=statement)


def wrote(key: str, version: str, previous: str = "", statement: str = "") -> ShownOperation:
    return ShownOperation("write", key, version, previous, statement)


def added(key: str, version: str) -> ShownOperation:
    return ShownOperation("append", key, version)


def step(
    source: int,
    target: int,
    kind: EdgeKind,
    key: str,
    why: str,
    *,
    events: tuple[Event, Event] = ("", ""),
) -> Step:
    def named(number: int, event: Event) -> str:
        return f"T{number + 1}" + (f"'s {event}" if event else "")

    reason = f"{named(source, events[0])} comes before {named(target, events[1])}, because {why}."
    return Step(source, target, events[0], events[1], kind, key, reason)


def rejected(counterexample: Counterexample, level: str = "serializable", **more: object) -> Result:
    values: dict[str, object] = {
        "transactions": 9564,
        "sessions": 24,
        "seconds": {"load": 0.21, "build": 0.03, "prune": 0.013, "solve": 0.0, "explain": 0.002, "total": 0.255},
        "choices": Choices(111_947, 109_668, 0),
        "conflicts": 0,
        **more,
    }
    return Result(Rejected(counterexample), Settings(level), **values)  # type: ignore[arg-type]


def at(begin_ms: int, end_ms: int) -> tuple[int, int]:
    return MORNING_NS + begin_ms * MS, MORNING_NS + end_ms * MS


def write_skew() -> Result:
    select = "SELECT on_call FROM doctors WHERE shift = %s AND on_call"
    update = "UPDATE doctors SET on_call = %s WHERE id = %s"
    return rejected(
        Counterexample(
            "write skew",
            "G2-item",
            "T1 and T2 each read what the other then replaced, so neither can come first.",
            (
                txn(
                    "T1",
                    "web-3 / conn 17",
                    9021,
                    read("doctors/7", "v41", select),
                    wrote("doctors/9", "v58", "v12", update),
                    times_ns=at(203, 219),
                ),
                txn(
                    "T2",
                    "web-1 / conn 4",
                    8830,
                    read("doctors/9", "v12"),
                    wrote("doctors/7", "v60", "v41"),
                    times_ns=at(207, 221),
                ),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 1, "rw", "doctors/7", "T1 read doctors/7 at v41 and T2 replaced v41 by v60"),
                        step(1, 0, "rw", "doctors/9", "T2 read doctors/9 at v12 and T1 replaced v12 by v58"),
                    ),
                    "No serial order has both.",
                ),
            ),
        ),
        left_out=(LeftOut("aborted transactions that nobody read", 12),),
    )


def lost_update() -> Result:
    return rejected(
        Counterexample(
            "lost update",
            "G-single",
            "T1 and T2 both read stock/4 at 10 and both replaced it, so one update is lost.",
            (
                txn(
                    "T1", "0", 3, read("stock/4", "10"), wrote("stock/4", "11"), times_ns=(1_203_000_000, 1_219_000_000)
                ),
                txn(
                    "T2", "1", 7, read("stock/4", "10"), wrote("stock/4", "12"), times_ns=(1_207_000_000, 1_221_000_000)
                ),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 1, "ww", "stock/4", "T2 replaced what T1 wrote"),
                        step(1, 0, "rw", "stock/4", "T2 read stock/4 at 10 and T1 replaced 10 by 11"),
                    ),
                    "No serial order has both.",
                ),
            ),
        )
    )


def long_fork() -> Result:
    return rejected(
        Counterexample(
            "long fork",
            "G2-item",
            "T3 and T4 saw the writes of T1 and T2 in opposite orders.",
            (
                txn("T1", "client 1", 0, wrote("x", "1")),
                txn("T2", "client 2", 0, wrote("y", "1")),
                txn("T3", "client 3", 0, read("x", "1"), read("y", "initial")),
                txn("T4", "client 4", 0, read("x", "initial"), read("y", "1")),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 2, "wr", "x", "T3 read x at 1, which T1 wrote"),
                        step(2, 1, "rw", "y", "T3 read y at its initial version and T2 replaced that by 1"),
                        step(1, 3, "wr", "y", "T4 read y at 1, which T2 wrote"),
                        step(3, 0, "rw", "x", "T4 read x at its initial version and T1 replaced that by 1"),
                    ),
                    "No serial order has all four.",
                ),
            ),
        )
    )


def stale_read_in_real_time() -> Result:
    return rejected(
        Counterexample(
            "stale read",
            "G-single-realtime",
            "T2 began after T1 had ended, and still did not see what T1 wrote.",
            (
                txn("T1", "web-1", 40, wrote("profile/77", "v3", "v2"), name="save profile", times_ns=at(10, 30)),
                txn("T2", "web-2", 12, read("profile/77", "v2"), name="show profile", times_ns=at(450, 458)),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 1, "realtime", "", "T1 had ended 420 ms before T2 began, more than clocks may drift"),
                        step(1, 0, "rw", "profile/77", "T2 read profile/77 at v2 and T1 replaced v2 by v3"),
                    ),
                    "No serial order has both.",
                ),
            ),
        ),
        "strict-serializable",
    )


def broken_session() -> Result:
    return rejected(
        Counterexample(
            "G-single-session",
            "G-single",
            "The session web-5 first saw cart/9 at v8 and later an older version of it.",
            (
                txn("T1", "web-2", 3, wrote("cart/9", "v8", "v7")),
                txn("T2", "web-5", 21, read("cart/9", "v8")),
                txn("T3", "web-5", 24, read("cart/9", "v7")),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 1, "wr", "cart/9", "T2 read cart/9 at v8, which T1 wrote"),
                        step(1, 2, "session", "", "session web-5 ran T2 before T3"),
                        step(2, 0, "rw", "cart/9", "T3 read cart/9 at v7 and T1 replaced v7 by v8"),
                    ),
                    "No serial order has all three.",
                ),
            ),
        )
    )


def same_session() -> Result:
    return rejected(
        Counterexample(
            "G-single-session",
            "G-single",
            "The session web-5 did not see its own write.",
            (
                txn("T1", "web-5", 3, wrote("cart/9", "v8", "v7")),
                txn("T2", "web-5", 4, read("cart/9", "v7"), *(read(f"item/{n}", f"v{n}") for n in range(30))),
            ),
            (
                Case(
                    (),
                    (
                        step(0, 1, "session", "", "session web-5 ran T1 before T2"),
                        step(1, 0, "rw", "cart/9", "T2 read cart/9 at v7 and T1 replaced v7 by v8"),
                    ),
                    "No serial order has both.",
                ),
            ),
        )
    )


def aborted_read() -> Result:
    return rejected(
        Counterexample(
            "aborted read",
            "G1a",
            "T2 read a version that T1 wrote and rolled back.",
            (
                txn("T1", "web-1", 5, wrote("balance/42", "v7"), status="aborted", times_ns=at(0, 900)),
                txn("T2", "web-9", 2, read("balance/42", "v7"), times_ns=at(40, 55)),
            ),
            (),
            ("T2 read balance/42 at v7, which T1 wrote and rolled back.",),
        )
    )


def two_cases() -> Result:
    return rejected(
        Counterexample(
            "G2-item",
            "G2-item",
            "However T1's and T2's writes of x are ordered, the reads of T3 and T4 do not fit.",
            (
                txn("T1", "s1", 0, wrote("x", "1"), wrote("y", "1")),
                txn("T2", "s2", 0, wrote("x", "2"), read("y", "initial")),
                txn("T3", "s3", 0, read("x", "1"), read("z", "initial")),
                txn("T4", "s2", 1, read("x", "2"), wrote("z", "1")),
            ),
            (
                Case(
                    ("Suppose T1 wrote x before T2 did.",),
                    (
                        step(0, 1, "ww", "x", "that is the assumption"),
                        step(1, 0, "rw", "y", "T2 read y at its initial version and T1 replaced that by 1"),
                    ),
                    "No serial order has both.",
                ),
                Case(
                    ("Suppose T2 wrote x before T1 did.",),
                    (
                        step(0, 2, "wr", "x", "T3 read x at 1, which T1 wrote"),
                        step(2, 3, "rw", "z", "T3 read z at its initial version and T4 replaced that by 1"),
                        step(
                            3,
                            0,
                            "rw",
                            "x",
                            "T4 read x at 2 and T1 replaced 2 by 1",
                        ),
                    ),
                    "No serial order has all three.",
                ),
            ),
        ),
        seconds={"total": 12.5},
        conflicts=1,
    )


def snapshot_events() -> Result:
    return rejected(
        Counterexample(
            "read skew",
            "G-single",
            "T1 saw one of T2's two writes but not the other.",
            (
                txn("T1", "teller 1", 5, read("account/1", "v1"), read("account/2", "v9"), times_ns=at(0, 40)),
                txn(
                    "T2",
                    "teller 2",
                    8,
                    wrote("account/1", "v8", "v1"),
                    wrote("account/2", "v9", "v2"),
                    times_ns=at(9, 21),
                ),
            ),
            (
                Case(
                    (),
                    (
                        step(
                            1,
                            0,
                            "wr",
                            "account/2",
                            "T1 read account/2 at v9, which T2 wrote",
                            events=("commit", "begin"),
                        ),
                        step(
                            0,
                            1,
                            "rw",
                            "account/1",
                            "T1 read account/1 at v1 and T2 replaced v1 by v8",
                            events=("begin", "commit"),
                        ),
                    ),
                    "No order of begins and commits has both.",
                ),
            ),
        ),
        "adya-si",
    )


def snapshot_cycle() -> Result:
    """Four events on three lanes, one of them with two transactions."""
    begin_commit: tuple[Event, Event] = ("begin", "commit")
    commit_begin: tuple[Event, Event] = ("commit", "begin")
    return rejected(
        Counterexample(
            "G-nonadjacent-session",
            "",
            "T3 saw T1 but not T2, which the session of T1 had committed earlier.",
            (
                txn("T1", "a", 2, wrote("x", "5"), wrote("audit-log", "5")),
                txn("T2", "a", 1, wrote("y", "4")),
                txn("T3", "b", 0, read("x", "5"), read("y", "initial"), wrote("z", "1")),
                txn("T4", "c", 0, read("z", "1"), wrote("w", "2")),
            ),
            (
                Case(
                    (),
                    (
                        step(1, 0, "session", "", "session a committed T2 before it began T1", events=commit_begin),
                        step(0, 2, "wr", "x", "T3 read x at 5, which T1 wrote", events=commit_begin),
                        step(2, 3, "wr", "z", "T4 read z at 1, which T3 wrote", events=commit_begin),
                        step(3, 1, "rw", "y", "T4 read y before T2 replaced it", events=begin_commit),
                    ),
                    "No order of begins and commits has all four.",
                ),
            ),
        ),
        "strong-session-si",
    )


def hostile() -> Result:
    """Ten transactions in seven sessions, and names that would like to be markup."""
    sessions = [
        HOSTILE,
        HOSTILE_ATTRIBUTE,
        HOSTILE_CONTROL,
        "payments-service-production-eu-west-1/pool-7",
        "d",
        "e",
        "f",
    ]
    keys = [HOSTILE, HOSTILE_ATTRIBUTE, HOSTILE_CONTROL, LONG_KEY, "木構造/キー", "a b  c", "x", "y", "z", "`${q}`\\"]
    kinds: list[EdgeKind] = ["wr", "rw", "ww", "wr", "session", "rw", "wr", "realtime", "ww", "rw"]
    positions: dict[str, int] = {}
    transactions = []
    for n in range(10):
        session = sessions[n % 7]
        positions[session] = positions.get(session, -1) + 1
        transactions.append(
            txn(
                f"T{n + 1}",
                session,
                positions[session],
                read(keys[n - 1], HOSTILE_ATTRIBUTE if n == 2 else f"v{n}", f"SELECT '{HOSTILE}'"),
                wrote(keys[n], LONG_KEY if n == 3 else f"v{n + 1}", f"v{n}", HOSTILE_CONTROL),
                *(read(f"filler/{m}", "[" + ", ".join(map(str, range(m * 9))) + "]") for m in range(n)),
                name=HOSTILE if n == 4 else f"request {n}",
                status="in doubt" if n == 5 else "committed",
            )
        )
    steps = tuple(
        step(
            n,
            (n + 1) % 10,
            kinds[n],
            "" if kinds[n] in ("session", "realtime") else keys[n],
            f"T{(n + 1) % 10 + 1} did something to {keys[n]}",
        )
        for n in range(10)
    )
    return rejected(
        Counterexample(
            "G2-item-realtime",
            HOSTILE,
            f"Ten transactions on {HOSTILE} go round in a circle.",
            tuple(transactions),
            (Case((f"Suppose {HOSTILE_ATTRIBUTE}.",), steps, f"No serial order has {HOSTILE}."),),
            (f"Fact: {HOSTILE_ATTRIBUTE}.",),
        ),
        "strict-serializable",
        left_out=(LeftOut(HOSTILE, 3),),
    )


def accepted() -> Result:
    return Result(
        Accepted(Witness(np.arange(9564), events=False)),
        Settings("serializable"),
        9564,
        24,
        {"load": 0.21, "build": 0.03, "prune": 0.013, "solve": 0.0013, "explain": 0.0, "total": 0.2543},
        Choices(111_947, 109_668, 2_279),
        (LeftOut("aborted transactions that nobody read", 12), LeftOut("nemesis events", 40)),
    )


def accepted_with_events() -> Result:
    return Result(
        Accepted(Witness(np.arange(6), events=True)), Settings("adya-si", session_order=False), 3, 1, {"total": 0.0004}
    )


def unknown() -> Result:
    return Result(
        Unknown("The search ended after 60 s with 41 choices open; a longer --timeout may decide them."),
        Settings("strong-si"),
        100_171,
        24,
        {"load": 1.2, "total": 61.4},
        Choices(7_703_651, 7_684_255, 0),
        conflicts=81_224,
    )


REJECTED = {
    "write_skew": write_skew,
    "lost_update": lost_update,
    "long_fork": long_fork,
    "stale_read_in_real_time": stale_read_in_real_time,
    "broken_session": broken_session,
    "same_session": same_session,
    "aborted_read": aborted_read,
    "two_cases": two_cases,
    "snapshot_events": snapshot_events,
    "snapshot_cycle": snapshot_cycle,
    "hostile": hostile,
}
ALL = {**REJECTED, "accepted": accepted, "accepted_with_events": accepted_with_events, "unknown": unknown}


def everywhere(text: str) -> Result:
    """A result that has this text wherever a history or a source could put its own."""
    transactions = tuple(
        ShownTransaction(
            f"T{n + 1}",
            n,
            text,
            n,
            text,
            "committed",
            None,
            None,
            (read(text, text, text), wrote(text, text, text, text)),
        )
        for n in range(2)
    )
    steps = (Step(0, 1, "", "", "wr", text, text), Step(1, 0, "", "", "rw", text, text))
    return rejected(
        Counterexample(text, text + "!", text, transactions, (Case((text,), steps, text),), (text,)),
        text,
        left_out=(LeftOut(text, 1),),
    )
