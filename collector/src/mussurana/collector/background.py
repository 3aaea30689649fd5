"""The background: takes what has ended from the recorder to the spool, and from there to the verifier."""

from __future__ import annotations


class Background:
    pass
