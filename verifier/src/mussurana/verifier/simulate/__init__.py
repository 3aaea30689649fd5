"""Histories whose level is known by construction, made without a database.

`simulate` runs a random workload against a database held in memory, `inject` adds an anomaly to a history,
`blindw` and `hot_keys` make large histories quickly. The same seed makes the same history.
"""

from mussurana.verifier.simulate.bulk import blindw, hot_keys
from mussurana.verifier.simulate.databases import DATABASES
from mussurana.verifier.simulate.faults import FORBIDDEN, Injected, inject
from mussurana.verifier.simulate.workload import Times, Workload, levels_given, simulate

__all__ = [
    "DATABASES",
    "FORBIDDEN",
    "Injected",
    "Times",
    "Workload",
    "blindw",
    "hot_keys",
    "inject",
    "levels_given",
    "simulate",
]
