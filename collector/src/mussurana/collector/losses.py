"""Transactions that ended but will not be sent, until a fragment declares them as a gap."""

from __future__ import annotations


class Losses:
    pass
