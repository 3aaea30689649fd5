"""`mussurana replay`: stream a recorded history into a running daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mussurana.verifier.commands.base import Commands


def add(commands: Commands) -> None:
    commands.add_parser("replay")
