"""How fast is fast enough, and whether it was reached; and what the fastest published checker needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Row = tuple[str, str]  # short name of a scenario, level
Figures = Mapping[str, float]

UNITS = {"seconds": "s", "import_seconds": "s", "memory_mib": "MiB"}
WORDS = {"seconds": "time", "import_seconds": "import", "memory_mib": "memory"}


@dataclass(frozen=True)
class Bar:
    row: Row
    figure: str  # one of UNITS
    limit: float
    base: Row | None = None  # the limit is a multiple of the same figure here


@dataclass(frozen=True)
class Peer:
    """What another checker took. Given figures for a machine like ours; it is not run beside us."""

    name: str
    row: Row
    seconds: float
    memory_mib: float | None


@dataclass(frozen=True)
class Judgement:
    bar: Bar
    value: float | None  # None: not measured, or measured without the verdict that was due
    met: bool

    @property
    def short(self) -> str:
        """For the row of a table: the limit, and whether it holds."""
        return f"{self._limit} {'ok' if self.met else 'MISSED'}"

    @property
    def sentence(self) -> str:
        name, level = self.bar.row
        value = "no valid figure" if self.value is None else f"{self.value:.3g} {self._unit}"
        base = f" the {WORDS[self.bar.figure]} of {self.bar.base[0]} at {self.bar.base[1]}" if self.bar.base else ""
        return f"{name}, {level}: {WORDS[self.bar.figure]} {value}, at most {self.bar.limit:g} {self._unit}{base}"

    @property
    def _unit(self) -> str:
        return "times" if self.bar.base else UNITS[self.bar.figure]

    @property
    def _limit(self) -> str:
        if self.bar.base:
            name, level = self.bar.base
            return f"{self.bar.limit:g} x {name if name != self.bar.row[0] else level}"
        word = "" if self.bar.figure == "seconds" else f"{WORDS[self.bar.figure]} "
        return f"{word}{self.bar.limit:g} {self._unit}"


_SERIALIZABLE, _SNAPSHOT = "serializable", "strong-session-si"

BARS = (
    Bar(("blindw-rw-10k", _SERIALIZABLE), "seconds", 0.15),
    Bar(("tpcc-10k", _SERIALIZABLE), "seconds", 0.4),
    Bar(("blindw-rw-100k", _SERIALIZABLE), "seconds", 2.5),
    Bar(("blindw-rw-100k", _SERIALIZABLE), "memory_mib", 1024),
    Bar(("blindw-rw-100k", _SNAPSHOT), "seconds", 2.5, base=("blindw-rw-100k", _SERIALIZABLE)),
    Bar(("hot-keys-100k", _SERIALIZABLE), "seconds", 10),
    Bar(("hot-keys-100k", _SERIALIZABLE), "seconds", 2.5, base=("hot-keys-50k", _SERIALIZABLE)),
    Bar(("sessions-1000-reads-50", _SERIALIZABLE), "seconds", 3),
    Bar(("sessions-1000-reads-90", _SERIALIZABLE), "seconds", 3),
    Bar(("command-10k", _SERIALIZABLE), "seconds", 2.0),
    Bar(("command-10k", _SERIALIZABLE), "import_seconds", 0.7),
    Bar(("first-use-small", _SERIALIZABLE), "seconds", 60),
    Bar(("first-use-10k", _SERIALIZABLE), "seconds", 60),
)

PEERS = (
    Peer("VeriStrong", ("blindw-rw-10k", _SERIALIZABLE), 7.0, 633),
    Peer("VeriStrong", ("blindw-rw-10k", _SNAPSHOT), 11.0, None),
)


def judge(rows: Mapping[Row, Figures | None], row: Row | None = None) -> list[Judgement]:
    """The bars of all rows, or of one, as far as they were measured. A row without figures had no valid result."""
    return [
        _judge(bar, rows)
        for bar in BARS
        if bar.row in rows and (bar.base is None or bar.base in rows) and row in (None, bar.row)
    ]


def _judge(bar: Bar, rows: Mapping[Row, Figures | None]) -> Judgement:
    figures = rows[bar.row]
    base = rows[bar.base] if bar.base else {}
    if figures is None or base is None:
        return Judgement(bar, None, met=False)
    value = figures[bar.figure] / (base[bar.figure] if bar.base else 1)
    return Judgement(bar, value, value <= bar.limit)
