"""docs/metrics.md, from what a daemon exports: python -m deploy.metrics_reference

A daemon is put together in a directory of its own, asked for its metrics before it has done anything, and thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

from prometheus_client import Metric

from mussurana.verifier.daemon.configured import load
from mussurana.verifier.daemon.machine import Machine
from mussurana.verifier.daemon.metrics import ANOMALIES
from mussurana.verifier.daemon.service import Service

LEVEL = "serializable"  # one will do: with more there are more series, and no other names

HEAD = """\
# Metrics of the daemon

Made by `make docs` from what a daemon exports; a test compares the two.

Served at `/metrics` on `http.listen`, in Prometheus' text format and units. Every series is there from the start, with
a zero. Labels have known values only, so that the number of series is bounded: about {series} per daemon with one
level, and about {level_series} more for each further one. `level` is one of `verify.levels`; `anomaly` is one of
{anomalies}, or `other`.

Counters begin at zero when the daemon starts. `mussurana_violation_timestamp_seconds`, sizes and what is retained come
from the data directory and survive a restart. [Operating](operating.md) says which of them to look at, and
[runbooks](runbooks/index.md) what to do about the alerts.
"""

TAIL = """
Beside these there are the usual `process_*` and `python_*` metrics. Two of them matter: the alerts on counters need
`process_start_time_seconds`, and `process_resident_memory_bytes` should be flat.
"""


def exported() -> list[Metric]:
    """All families, by name."""

    async def collect(data: str) -> list[Metric]:
        flags = {"data": data, "ingest_listen": "127.0.0.1:0", "http_listen": "", "verify_levels": LEVEL}
        service = Service(load(None, {}, flags), _no_machine, lambda fragment: None)
        found = list(service.metrics.registry.collect())
        for part in (service.log, service.journal, service.violations):
            part.close()
        return sorted(found, key=lambda metric: metric.name)

    with TemporaryDirectory() as directory:
        return asyncio.run(collect(str(Path(directory) / "data")))


def _no_machine(state: bytes | None) -> Machine:
    raise AssertionError("nothing is verified here")


def reference() -> str:
    ours = [metric for metric in exported() if metric.name.startswith("mussurana_")]
    samples = [sample for metric in ours for sample in metric.samples]
    series = round(len(samples), -1)
    level_series = round(sum("level" in sample.labels for sample in samples), -1)
    anomalies = fill(", ".join(ANOMALIES), 119)
    lines = [HEAD.format(series=series, level_series=level_series, anomalies=anomalies)]
    lines += ["| metric | type | labels | |", "|---|---|---|---|"]
    lines += [f"| `{_name(metric)}` | {metric.type} | {_labels(metric)} | {metric.documentation} |" for metric in ours]
    return "\n".join(lines) + "\n" + TAIL


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> str:
    return "; ".join(_values(metric))


def _values(metric: Metric) -> Iterator[str]:
    names = [name for name in metric.samples[0].labels if name != "le"]
    for name in names:
        values = list(dict.fromkeys(sample.labels[name] for sample in metric.samples))
        is_listed = name not in ("level", "anomaly", "version")
        yield f"`{name}`: {', '.join(values)}" if is_listed else f"`{name}`"


if __name__ == "__main__":
    print(reference(), end="")
