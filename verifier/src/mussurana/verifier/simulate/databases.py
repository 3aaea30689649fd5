"""Databases in memory, each with one way of keeping transactions apart.

They know nothing of clients, clocks or chance: a call is one atomic step, and whoever calls decides what happens
between two steps. A transaction's writes stay with it until it commits, so that an abort has nothing to undo.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

Contents = tuple[int, ...]
"""What a key holds: the last version of a register, or all versions appended to a list. Empty is the initial one."""

WHOLE_DATABASE = -1
"""A key that nobody reads or writes; who locks it has the database alone."""


class Wait(Exception):
    """Somebody else holds the lock; ask again later."""


class Refused(Exception):
    """The database gives this transaction up; the client may only abort."""


class Database(Protocol):
    """What a client can ask for. Any call but `abort` may be refused; all but `commit` and `abort` may have to wait."""

    def begin(self, txn: int) -> None: ...

    def read(self, txn: int, key: int) -> Contents: ...

    def write(self, txn: int, key: int, value: int) -> None: ...

    def commit(self, txn: int) -> None: ...

    def abort(self, txn: int) -> None: ...


class Locking:
    """Locks, held until the transaction ends.

    With locks for reads this is strict two-phase locking. Without, each read sees what is committed at that moment:
    read committed. With one lock for everything, transactions run one at a time.
    """

    def __init__(self, lists: bool, *, reads: bool = True, everything: bool = False) -> None:
        self._lists = lists
        self._lock_reads = reads
        self._lock_everything = everything
        self._committed: dict[int, Contents] = {}
        self._written: dict[int, dict[int, Contents]] = {}
        self._holders: defaultdict[int, dict[int, bool]] = defaultdict(dict)  # key -> holder -> whether exclusive
        self._waits_for: dict[int, set[int]] = {}

    def begin(self, txn: int) -> None:
        if self._lock_everything:
            self._lock(txn, WHOLE_DATABASE, exclusive=True)
        self._written[txn] = {}

    def read(self, txn: int, key: int) -> Contents:
        if self._lock_reads:
            self._lock(txn, key, exclusive=False)
        return self._written[txn].get(key, self._committed.get(key, ()))

    def write(self, txn: int, key: int, value: int) -> None:
        self._lock(txn, key, exclusive=True)
        before = self._written[txn].get(key, self._committed.get(key, ()))
        self._written[txn][key] = (*before, value) if self._lists else (value,)

    def commit(self, txn: int) -> None:
        self._committed |= self._written[txn]
        self.abort(txn)

    def abort(self, txn: int) -> None:
        del self._written[txn]
        self._waits_for.pop(txn, None)
        for holders in self._holders.values():
            holders.pop(txn, None)

    def _lock(self, txn: int, key: int, *, exclusive: bool) -> None:
        holders = self._holders[key]
        others = {other for other, has_exclusive in holders.items() if other != txn and (exclusive or has_exclusive)}
        if others:
            self._waits_for[txn] = others
            raise Refused if self._is_deadlocked(txn) else Wait
        self._waits_for.pop(txn, None)
        holders[txn] = exclusive or holders.get(txn, False)

    def _is_deadlocked(self, txn: int) -> bool:
        """Whether a transaction waits for itself.

        What others wait for may be out of date, but each of them renews it when it asks again.
        """
        seen: set[int] = set()
        ahead = [txn]
        while ahead:
            for other in self._waits_for.get(ahead.pop(), ()):
                if other == txn:
                    return True
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)
        return False


class Snapshot:
    """Snapshot isolation: reads see what was committed at the begin; of overlapping writers the first one wins."""

    def __init__(self, lists: bool) -> None:
        self._lists = lists
        self._commits = 0
        self._versions: defaultdict[int, list[tuple[int, Contents]]] = defaultdict(lambda: [(0, ())])  # by commit
        self._seen_commits: dict[int, int] = {}  # how many commits each running transaction sees
        self._written: dict[int, dict[int, Contents]] = {}

    def begin(self, txn: int) -> None:
        self._seen_commits[txn] = self._commits
        self._written[txn] = {}

    def read(self, txn: int, key: int) -> Contents:
        if key in self._written[txn]:
            return self._written[txn][key]
        versions = self._versions[key]
        return versions[bisect(versions, self._seen_commits[txn], key=lambda version: version[0]) - 1][1]

    def write(self, txn: int, key: int, value: int) -> None:
        self._written[txn][key] = (*self.read(txn, key), value) if self._lists else (value,)

    def commit(self, txn: int) -> None:
        if any(self._versions[key][-1][0] > self._seen_commits[txn] for key in self._written[txn]):
            raise Refused
        self._commits += 1
        for key, contents in self._written[txn].items():
            self._versions[key].append((self._commits, contents))
        self.abort(txn)

    def abort(self, txn: int) -> None:
        del self._seen_commits[txn], self._written[txn]


DATABASES: dict[str, Callable[[bool], Database]] = {
    "serial": lambda lists: Locking(lists, everything=True),
    "strict-2pl": Locking,
    "snapshot": Snapshot,
    "read-committed": lambda lists: Locking(lists, reads=False),
}
"""Each makes an empty database, of lists or of registers."""
