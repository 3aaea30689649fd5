"""What the demo shows in the terminal: a line per event, and below them, on a terminal, how things stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mussurana.verifier.demo.tally import Tally


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._live: Live | None = None

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style))

    @contextmanager
    def act(self, title: str, story: str) -> Iterator[None]:
        self.console.print()
        self.console.rule(Text(title, style="bold"), align="left")
        self.say(story)
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=4, transient=True) as self._live:
            yield
        self._live = None

    def show(self, tally: Tally, left: str) -> None:
        if self._live is None:
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("level", "rounds accepted", "rejected", "transactions", "violations", "lag"):
            table.add_column(name, justify="left" if name == "level" else "right")
        for level, count in tally.levels.items():
            rejected = Text(f"{count.rejected:,}", style="bold red" if count.rejected else "")
            violations = Text(f"{count.violations:,}", style="bold red" if count.violations else "")
            lag = f"{count.lag_seconds:.2f} s" if count.lag_seconds else ""
            table.add_row(level, f"{count.accepted:,}", rejected, f"{count.txns:,}", violations, lag)
        hint = Text("; ".join(filter(None, (left, "Ctrl-C ends the demo"))), style="dim")
        self._live.update(Group(Text(), table, hint))
