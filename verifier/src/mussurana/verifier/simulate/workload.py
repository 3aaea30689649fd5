"""Clients that run a random workload against a database in memory, and the history they record.

Each client is a coroutine that pauses wherever time may pass; a scheduler resumes one of them at random, and each
resumption is one step of a simulated clock. So the whole run follows from the seed, and every time is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from random import Random
from typing import Literal, TypeVar

from mussurana.verifier.history import INITIAL, UNKNOWN_TIME, History, HistoryBuilder, Kind, Status
from mussurana.verifier.simulate.databases import DATABASES, Contents, Refused, Wait

Answer = TypeVar("Answer")
Pauses = Generator[None, None, Answer]

Times = Literal["all", "outer", "none"]
"""Which times clients record; the outer ones are when they asked to begin and when they knew of the commit."""

SNAPSHOT_LEVELS = frozenset({"adya-si", "strong-session-si", "generalized-si", "strong-si"})
SERIAL_LEVELS = frozenset({"serializable", "strict-serializable"})


@dataclass(frozen=True)
class Workload:
    """What the clients do. Fractions and probabilities are between 0 and 1."""

    sessions: int = 4
    transactions: int = 40  # of all sessions together, including those that abort
    operations: tuple[int, int] = (1, 4)  # the fewest and the most in a transaction
    keys: int = 8
    read_fraction: float = 0.5
    read_modify_write: bool = False  # read each key before writing it, rather than write it blindly
    skew: float = 0.0  # Zipf exponent: 0 treats all keys alike, 1 and more makes the first ones hot
    lists: bool = False  # append to lists and read them whole, rather than registers
    abort_probability: float = 0.0  # of the client changing its mind
    in_doubt_probability: float = (
        0.0  # of the answer to a commit being lost; half of these commits take effect, maybe late
    )
    times: Times = "all"
    step_ns: int = 1_000_000_000  # ten times the default clock drift, so that real time binds
    latency_ns: int = 0  # the most that a request or an answer is under way; 0 makes recorded times exact points
    seed: int = 0


def levels_given(database: str, workload: Workload) -> frozenset[str]:
    """The levels that every history of this database satisfies.

    Locking takes no snapshot at the begin: a transaction may see what was committed after it began. That is
    serializable, but where the times of begins are recorded, it is not what generalized SI and stronger levels promise.
    """
    if database == "snapshot":
        return SNAPSHOT_LEVELS
    if database == "serial" or (database == "strict-2pl" and workload.times != "all"):
        return SERIAL_LEVELS | SNAPSHOT_LEVELS
    if database == "strict-2pl":
        return SERIAL_LEVELS | {"adya-si"}
    return frozenset()


def simulate(database: str, workload: Workload) -> History:
    """Run the workload to its end. `database` is one of `DATABASES`."""
    return _Run(database, workload).history()


@dataclass
class _Transaction:
    """What a client records of one of its transactions."""

    session: int
    status: Status = Status.ABORTED
    begin: tuple[int, int] = (UNKNOWN_TIME, UNKNOWN_TIME)
    commit: tuple[int, int] = (UNKNOWN_TIME, UNKNOWN_TIME)
    operations: list[tuple[Kind, int, Contents]] = field(default_factory=list)


class _Run:
    def __init__(self, database: str, workload: Workload) -> None:
        self._workload = workload
        self._name = f"{database} simulated from seed {workload.seed}"
        self._database = DATABASES[database](workload.lists)
        self._random = Random(workload.seed)
        self._key_weights = list(accumulate((rank + 1) ** -workload.skew for rank in range(workload.keys)))
        self._now_ns = 0
        self._answered_ns = [0] * workload.sessions  # when each client last got an answer
        self._last_value = 0
        self._transactions: list[_Transaction] = []
        self._running = [self._client(session) for session in range(workload.sessions)]

    def history(self) -> History:
        while self._running:
            one = self._random.randrange(len(self._running))
            self._now_ns += self._workload.step_ns
            try:
                next(self._running[one])
            except StopIteration:
                del self._running[one]
        return self._recorded()

    def _client(self, session: int) -> Pauses[None]:
        yield
        while len(self._transactions) < self._workload.transactions:
            txn = len(self._transactions)
            record = _Transaction(session)
            self._transactions.append(record)
            try:
                _, record.begin = yield from self._ask(session, partial(self._database.begin, txn))
                yield from self._operate(txn, record)
                yield from self._end(txn, record)
            except Refused:
                self._database.abort(txn)
                self._answered_ns[session] = self._now_ns
                record.commit = (self._now_ns, self._now_ns)

    def _operate(self, txn: int, record: _Transaction) -> Pauses[None]:
        wanted, lists = self._workload, self._workload.lists
        for _ in range(self._random.randint(*wanted.operations)):
            (key,) = self._random.choices(range(wanted.keys), cum_weights=self._key_weights)
            is_read = self._random.random() < wanted.read_fraction
            if is_read or wanted.read_modify_write:
                seen, _ = yield from self._ask(record.session, partial(self._database.read, txn, key))
                record.operations.append((Kind.READ_LIST if lists else Kind.READ, key, seen))
            if not is_read:
                self._last_value += 1
                value = self._last_value
                yield from self._ask(record.session, partial(self._database.write, txn, key, value))
                record.operations.append((Kind.APPEND if lists else Kind.WRITE, key, (value,)))

    def _end(self, txn: int, record: _Transaction) -> Pauses[None]:
        chance = self._random.random()
        if chance < self._workload.abort_probability:
            _, record.commit = yield from self._ask(record.session, partial(self._database.abort, txn))
        elif chance < self._workload.abort_probability + self._workload.in_doubt_probability:
            record.status = Status.IN_DOUBT
            _, (asked_ns, _) = yield from self._ask(record.session, lambda: None)
            record.commit = (asked_ns, UNKNOWN_TIME)
            self._running.append(self._commit_unheard(txn))
        else:
            _, record.commit = yield from self._ask(record.session, partial(self._database.commit, txn))
            record.status = Status.COMMITTED

    def _commit_unheard(self, txn: int) -> Pauses[None]:
        """Take effect or not, at a time that nobody is told; the client goes on meanwhile."""
        for _ in range(self._random.randrange(4)):
            yield
        try:
            if self._random.random() < 0.5:
                raise Refused
            self._database.commit(txn)
        except Refused:
            self._database.abort(txn)

    def _ask(self, session: int, request: Callable[[], Answer]) -> Pauses[tuple[Answer, tuple[int, int]]]:
        """Ask until there is an answer; also tells when the request left and when the answer came."""
        yield
        asked_ns = self._now_ns - self._delay_ns(self._now_ns - self._answered_ns[session])
        while True:
            try:
                answer = request()
                break
            except Wait:
                yield
        answered_ns = self._answered_ns[session] = self._now_ns + self._delay_ns(self._workload.latency_ns)
        while self._now_ns < answered_ns:
            yield
        return answer, (asked_ns, answered_ns)

    def _delay_ns(self, most_ns: int) -> int:
        return self._random.randint(0, min(self._workload.latency_ns, most_ns))

    def _recorded(self) -> History:
        build = HistoryBuilder(self._name)
        inner, outer = self._workload.times == "all", self._workload.times != "none"
        for record in self._transactions:
            build.transaction(
                f"s{record.session}",
                record.status,
                begin_ns=record.begin[0] if outer else UNKNOWN_TIME,
                begun_ns=record.begin[1] if inner else UNKNOWN_TIME,
                commit_ns=record.commit[0] if inner else UNKNOWN_TIME,
                committed_ns=record.commit[1] if outer else UNKNOWN_TIME,
            )
            for kind, key, contents in record.operations:
                name = f"k{key}"
                if kind == Kind.READ_LIST:
                    build.read_list(name, contents)
                elif kind == Kind.READ:
                    build.read(name, contents[-1] if contents else INITIAL)
                elif kind == Kind.APPEND:
                    build.append(name, contents[-1])
                else:
                    build.write(name, contents[-1])
        return build.finish()
