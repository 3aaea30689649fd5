"""Random histories of every shape, and a form in which two of them can be compared."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from mussurana.verifier.history import (
    INITIAL,
    NO_ROW,
    NO_VALUE,
    UNKNOWN_TIME,
    History,
    HistoryBuilder,
    Kind,
    Status,
)


@dataclass(frozen=True)
class Shape:
    """What a random history may contain."""

    session_name: str = "s{}"
    key_name: str = "k{}"
    statuses: tuple[Status, ...] = tuple(Status)
    in_doubt_last: bool = False  # a transaction in doubt ends its session
    lists: bool = True
    registers: bool = True
    times: str = "some"  # none, some, outer (begin and commit of all), ms (all, in milliseconds)
    previous: bool = True
    value_names: bool = True
    empty: bool = True
    initial_in_uncommitted: bool = True


def random_history(rng: random.Random, shape: Shape) -> History:
    build = HistoryBuilder()
    sessions = [shape.session_name.format(i) for i in range(rng.randint(1, 4))]
    keys = [shape.key_name.format(i) for i in range(1, rng.randint(2, 6))]
    list_keys = {key for key in keys if shape.lists and (not shape.registers or rng.random() < 0.5)}
    written: dict[str, list[int]] = {key: [] for key in keys}
    ended: set[str] = set()
    next_value = 1
    clock = rng.randrange(10**15, 10**18)
    for number in range(rng.randint(1, 14)):
        free = [session for session in sessions if session not in ended]
        if not free:
            break
        session = rng.choice(free)
        status = rng.choice(shape.statuses)
        if shape.in_doubt_last and status == Status.IN_DOUBT:
            ended.add(session)
        times = {}
        for name in ("begin_ns", "begun_ns", "commit_ns", "committed_ns"):
            clock += rng.randrange(1000)
            inner = name in ("begun_ns", "commit_ns")
            wanted = {
                "none": False,
                "some": rng.random() < 0.6 and (name != "committed_ns" or status == Status.COMMITTED),
                "outer": not inner and (name != "committed_ns" or status == Status.COMMITTED),
                "ms": True,
            }[shape.times]
            if wanted:
                upper = name in ("begun_ns", "committed_ns")
                times[name] = clock // 10**6 * 10**6 + (999_999 if upper else 0) if shape.times == "ms" else clock
        build.transaction(session, status, name=str(1000 + number), **times)
        for _ in range(rng.randint(0 if shape.empty else 1, 4)):
            key = rng.choice(keys)
            if rng.random() < 0.5:
                value, next_value = next_value, next_value + 1
                if key in list_keys:
                    build.append(key, value)
                else:
                    known = shape.previous and written[key] and rng.random() < 0.3
                    inserted = shape.previous and rng.random() < 0.2
                    previous = NO_ROW if inserted else rng.choice(written[key]) if known else NO_VALUE
                    build.write(key, value, previous)
                written[key].append(value)
            elif key in list_keys:
                build.read_list(key, written[key][: rng.randint(0, len(written[key]))])
            else:
                hide_initial = status != Status.COMMITTED and not shape.initial_in_uncommitted
                candidates = [*written[key], 900_000 + rng.randrange(3), *([] if hide_initial else [INITIAL])]
                build.read(key, rng.choice(candidates))
    if shape.value_names and next_value > 1:
        build.value_names = {
            value: f"v{value}" for value in rng.sample(range(1, next_value), rng.randint(1, next_value - 1))
        }
    return build.finish()


def canonical(history: History, *, times: bool = True, previous: bool = True) -> dict[str, list[Any]]:
    """Session by session, in names instead of numbers; sessions without transactions say nothing."""
    sessions: dict[str, list[Any]] = {}
    for t in range(history.txn_count):
        columns = (history.begin_ns, history.begun_ns, history.commit_ns, history.committed_ns)
        stamps = tuple(int(column[t]) if times else UNKNOWN_TIME for column in columns)
        operations = [
            (
                Kind(history.kind[o]),
                history.key_names[int(history.key[o])],
                history.value_name(int(history.value[o])),
                int(history.previous[o]) if previous else None,
                [history.value_name(value) for value in history.list_seen(o)],
            )
            for o in history.operations(t)
        ]
        session = history.session_names[int(history.session[t])]
        sessions.setdefault(session, []).append((Status(history.status[t]), stamps, operations))
    return sessions
