"""The words, numbers and clock times that every output shares.

Names of keys, sessions, versions and statements come from whoever wrote to the database, so nothing here trusts them:
`visible` turns what would steer a terminal or be invalid in XML into something that can be seen. Escaping for a
particular output (HTML, DOT, ...) is left to the module that writes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from mussurana.verifier.history import WALL_CLOCK_NS_MIN
from mussurana.verifier.verdict import (
    Accepted,
    Counterexample,
    EdgeKind,
    Rejected,
    Result,
    ShownOperation,
    ShownTransaction,
    Verdict,
)

ELLIPSIS = "…"

KIND_WORDS: dict[EdgeKind, str] = {
    "wr": "wr",
    "ww": "ww",
    "rw": "rw",
    "session": "session",
    "realtime": "real time",
    "epoch": "epoch",
}

KIND_MEANING: dict[EdgeKind, str] = {
    "wr": "the second read what the first wrote",
    "ww": "the second replaced what the first wrote",
    "rw": "the first read a version that the second replaced",
    "session": "the same session ran the first before the second",
    "realtime": "the first had ended before the second began",
    "epoch": "all sessions had passed a fence between the two",
}

_VERBS = {"read": "read", "write": "wrote", "append": "added"}

_WALL_CLOCK_NS_MAX = 253_402_300_799 * 10**9  # the last second that `datetime` knows

# Categories that steer terminals and bidirectional text or have no place in XML: control, format, surrogate,
# private use, unassigned, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    r"""The text with every character that cannot be seen written as an escape, such as `\n` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(character) if unicodedata.category(character) in _UNSEEN else character for character in text
    )


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """How many columns of a fixed-width font the text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _prefix(text: str, cells_max: int) -> str:
    """The longest beginning of the text that fits."""
    used = 0
    for position, character in enumerate(text):
        used += _cells_of(character)
        if used > cells_max:
            return text[:position]
    return text


def elide(text: str, cells_max: int) -> str:
    """The text, visible and with its middle left out where it is too long: both ends of a key tell keys apart."""
    text = visible(text)
    if cells(text) <= cells_max:
        return text
    tail_cells = (cells_max - 1) // 2
    head = _prefix(text, cells_max - 1 - tail_cells)
    tail = _prefix(text[::-1], tail_cells)[::-1]
    return head + ELLIPSIS + tail


def elide_statement(statement: str, cells_max: int) -> str:
    """A statement in one line that begins as it does: first its list of columns is left out, then its end."""
    text = visible(" ".join(statement.split()))
    if cells(text) > cells_max:
        text = re.sub(r"^(SELECT )[^()]+?( FROM )", rf"\1{ELLIPSIS}\2", text, flags=re.IGNORECASE)
    return text if cells(text) <= cells_max else _prefix(text, cells_max - 1) + ELLIPSIS


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces and, only where a word is longer than a line, inside words."""
    lines: list[str] = []
    line = ""
    for word in visible(text).split(" "):
        joined = f"{line} {word}" if line else word
        if cells(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while cells(word) > width:
            head = _prefix(word, width) or word[0]
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [*lines, line] if line or not lines else lines


def pad(text: str, width: int) -> str:
    """The text with spaces after it up to `width` columns."""
    return text + " " * (width - cells(text))


def count(number: int, noun: str) -> str:
    """`1 transaction`, `9,564 transactions`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Three digits that mean something: `0.40 ms`, `13.2 ms`, `1.25 s`, `92 s`."""
    if seconds == 0:
        return "0 ms"
    if seconds < 0.001:
        return f"{seconds * 1000:.2f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def verdict_word(verdict: Verdict) -> str:
    if isinstance(verdict, Accepted):
        return "accepted"
    return "rejected" if isinstance(verdict, Rejected) else "unknown"


def anomaly_title(counterexample: Counterexample) -> str:
    """`write skew (G2-item)`."""
    anomaly, adya = visible(counterexample.anomaly), visible(counterexample.adya)
    return f"{anomaly} ({adya})" if adya and adya != anomaly else anomaly


def size_phrase(result: Result) -> str:
    """`9,564 transactions in 24 sessions`."""
    return f"{count(result.transactions, 'transaction')} in {count(result.sessions, 'session')}"


def choices_phrase(result: Result) -> str:
    """How the pairs of writes were ordered; empty where there were none to order."""
    choices = result.choices
    if not choices.generated:
        return ""
    return f"{count(choices.generated, 'choice')}: {choices.pruned:,} pruned, {choices.solved:,} solved"


def left_out_phrase(result: Result) -> str:
    """What took no part in the check, `3 × aborted transactions; 1 × nemesis events`; empty where everything did."""
    return "; ".join(f"{left_out.count:,} × {visible(left_out.what)}" for left_out in result.left_out)


def verb(operation: ShownOperation) -> str:
    return _VERBS[operation.kind]


def transaction_place(transaction: ShownTransaction) -> str:
    """Which transaction of its session it is, from 0 as in the JSON."""
    return f"txn {transaction.position}"


def sentences(counterexample: Counterexample) -> Iterable[str]:
    """Everything the counterexample says, for finding out what it is about."""
    yield from counterexample.facts
    for case in counterexample.cases:
        yield from case.assumptions
        for step in case.steps:
            yield step.reason


def keys_that_matter(counterexample: Counterexample) -> frozenset[str]:
    """Keys of steps, and keys that a sentence names: their operations stay when a long list is cut."""
    keys = {step.key for case in counterexample.cases for step in case.steps if step.key}
    said = "\n".join(sentences(counterexample))
    for transaction in counterexample.transactions:
        for operation in transaction.operations:
            if operation.key not in keys and re.search(rf"(?<!\w){re.escape(operation.key)}(?!\w)", said):
                keys.add(operation.key)
    return frozenset(keys)


def shorten_operations(
    operations: Sequence[ShownOperation], keys: frozenset[str], limit: int
) -> list[ShownOperation | int]:
    """At most `limit` operations, those on `keys` first and then from both ends; numbers say how many are left out."""
    if len(operations) <= limit:
        return list(operations)
    from_ends = sorted(range(len(operations)), key=lambda position: min(position, len(operations) - 1 - position))
    wanted = sorted(from_ends, key=lambda position: operations[position].key not in keys)[:limit]
    shown: list[ShownOperation | int] = []
    previous = -1
    for position in [*sorted(wanted), len(operations)]:
        if position - previous > 1:
            shown.append(position - previous - 1)
        if position < len(operations):
            shown.append(operations[position])
        previous = position
    return shown


class Clock:
    """How the times of one counterexample are written: UTC where they are dates, else seconds since some start.

    Milliseconds, unless that would show two different times alike; then microseconds, then nanoseconds.
    """

    def __init__(self, transactions: Iterable[ShownTransaction]) -> None:
        times = {t for txn in transactions for t in (txn.begin_ns, txn.committed_ns) if t is not None}
        self.known = bool(times)
        self.is_wall_clock = bool(times) and min(times) >= WALL_CLOCK_NS_MIN and max(times) <= _WALL_CLOCK_NS_MAX
        self._digits = next(d for d in (3, 6, 9) if d == 9 or len({t // 10 ** (9 - d) for t in times}) == len(times))
        days = {t // (86_400 * 10**9) for t in times} if self.is_wall_clock else set()
        self._one_day = len(days) == 1
        self.date = self._date(min(times)) if self._one_day else ""

    def _date(self, time_ns: int) -> str:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_ns // 10**9)).strftime("%Y-%m-%d")

    def time(self, time_ns: int | None) -> str:
        if time_ns is None:
            return "?"
        sign = "-" if time_ns < 0 else ""
        seconds, rest_ns = divmod(abs(time_ns), 10**9)
        fraction = f"{rest_ns:09d}"[: self._digits]
        if not self.is_wall_clock:
            return f"{sign}{seconds}.{fraction} s"
        day = "" if self._one_day else self._date(time_ns) + " "
        minutes, second = divmod(seconds % 86_400, 60)
        return f"{day}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}.{fraction}"

    def span(self, transaction: ShownTransaction) -> str:
        """`10:04:11.203 .. 10:04:11.219`; empty where neither end is known."""
        if transaction.begin_ns is None and transaction.committed_ns is None:
            return ""
        return f"{self.time(transaction.begin_ns)} .. {self.time(transaction.committed_ns)}"

    @property
    def note(self) -> str:
        """What the times are, in a sentence; empty where none is known."""
        if not self.known:
            return ""
        if not self.is_wall_clock:
            return "Times are seconds on the clock of the recording."
        return f"Times are UTC, {self.date}." if self.date else "Times are UTC."
