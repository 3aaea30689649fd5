"""The query service: what `mussurana status`, `verdicts` and `explain` ask a running daemon."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.metadata import version
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

from mussurana.verifier.daemon import journal
from mussurana.verifier.daemon.board import CollectorInfo, public_id
from mussurana.verifier.daemon.violations import SUMMARY, Summary
from mussurana.wire import query_pb2 as wire

if TYPE_CHECKING:
    from mussurana.verifier.daemon.service import Service

SERVICE = "mussurana.v1.Query"
COLLECTORS_MAX = 1000
"""In one answer; those that are connected and were seen last come first."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Query:
    def __init__(self, service: Service) -> None:
        self._service = service

    def handler(self) -> grpc.GenericRpcHandler:
        def method(answer: Callable[[Any, Context], Awaitable[Any]], request: Any, reply: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer, request.FromString, reply.SerializeToString)

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Status": method(self.status, wire.StatusRequest, wire.StatusReply),
                "Verdicts": method(self.verdicts, wire.VerdictsRequest, wire.VerdictsReply),
                "Explain": method(self.explain, wire.ExplainRequest, wire.ExplainReply),
            },
        )

    async def status(self, _request: wire.StatusRequest, _context: Context) -> wire.StatusReply:
        return self.status_now()

    def status_now(self, collectors_max: int = COLLECTORS_MAX) -> wire.StatusReply:
        """From any thread."""
        service = self._service
        progress, stored = service.board.progress, service.violations.summaries()
        reply = wire.StatusReply(
            version=version("mussurana-verifier"),
            uptime_seconds=monotonic() - service.started,
            state=progress.state,
            trouble=service.troubles(),
            lag_seconds=service.verification.lag_seconds(),
            log_behind_bytes=service.verification.behind_bytes(),
            log_bytes=service.log.size_bytes(),
            checkpoint_bytes=service.checkpoints.size_bytes,
            checkpoint_ns=service.checkpoints.written_ns,
            violations=len(stored),
            alarms_withdrawn=sum(each.state == "withdrawn" for each in stored),
            alarm_wait_seconds=service.config.rounds.alarm_wait_seconds_max,
            level=[self._level(level) for level in service.config.verify.levels],
            collector=[_collector(info) for info in self._collectors()[:collectors_max]],
            now_ns=service.clock.now_ns(),
            database=service.audited.title,
        )
        if gauges := progress.gauges:
            reply.waiting, reply.unknown_txns = gauges.waiting, gauges.unknown_txns
            reply.alarms_waiting = gauges.alarms_waiting
            reply.lost_txns, reply.in_doubt = gauges.lost_txns, gauges.in_doubt
            reply.sessions_open, reply.sessions_idle = gauges.sessions_open, gauges.sessions_idle
            reply.unchecked_reads.update(gauges.unchecked_reads)
        return reply

    async def verdicts(self, request: wire.VerdictsRequest, _context: Context) -> wire.VerdictsReply:
        rounds = [
            each
            for each in map(self._service.violations.shown, reversed(self._service.board.rounds()))
            if request.level in ("", each.level)
            and request.verdict in ("", each.verdict)
            and each.finished_ns >= request.since_ns
        ]
        violations = [
            each
            for each in reversed(self._service.violations.summaries())
            if request.level in ("", each.level) and each.found_ns >= request.since_ns
        ]
        limit = request.limit or None
        return wire.VerdictsReply(
            round=map(round_message, rounds[:limit]), violation=map(_violation, violations[:limit])
        )

    async def explain(self, request: wire.ExplainRequest, context: Context) -> wire.ExplainReply:
        known = [each.id for each in self._service.violations.summaries()]
        matching = [id for id in known if id == request.id] or [id for id in known if id.startswith(request.id)]
        found = self._service.violations.get(matching[0]) if len(matching) == 1 else None
        if found is None:
            many = f"{len(matching)} violations have ids that start with {request.id!r}"
            message = many if len(matching) > 1 else f"there is no violation {request.id!r}"
            await context.abort(grpc.StatusCode.NOT_FOUND, message)
        assert found is not None
        summary = next(each for each in self._service.violations.summaries() if each.id == found["id"])
        return wire.ExplainReply(violation=_violation(summary), counterexample=json.dumps(found["counterexample"]))

    def _collectors(self) -> list[CollectorInfo]:
        everybody = self._service.ingest.collectors()
        names = self._service.board.collector_names
        everybody = [replace(info, name=info.name or names.get(info.id, "")) for info in everybody]
        return sorted(everybody, key=lambda info: (not info.connected, -info.last_seen_ns))[:COLLECTORS_MAX]

    def _level(self, level: str) -> wire.LevelStatus:
        gauges = self._service.board.progress.gauges
        status = wire.LevelStatus(level=level)
        if gauges:
            status.epoch = gauges.epoch.get(level, 0)
            status.epoch_reached_ns = gauges.epoch_reached_ns.get(level, 0)
            status.retained = gauges.retained.get(level, 0)
            status.table_keys = gauges.table_keys.get(level, 0)
        if last := self._service.board.last_round(level):
            status.last_round.CopyFrom(round_message(self._service.violations.shown(last)))
        return status


def round_message(each: journal.Round) -> wire.Round:
    return wire.Round(
        number=each.number,
        level=each.level,
        verdict=each.verdict,
        reason=each.reason,
        violation=each.violations,
        further_violations=each.further_violations,
        epoch=each.epoch,
        txn_count=each.txn_count,
        retained=each.retained,
        forgotten=each.forgotten,
        finished_ns=each.finished_ns,
        seconds=each.seconds.get("total", 0.0),
        lag_median_seconds=each.lag_seconds[0] if each.lag_seconds else 0.0,
        lag_p99_seconds=each.lag_seconds[1] if each.lag_seconds else 0.0,
        read_count=each.read_count,
        unchecked=[wire.Unchecked(**vars(unchecked)) for unchecked in each.unchecked],
    )


def _violation(each: Summary) -> wire.Violation:
    return wire.Violation(**{name: getattr(each, name) for name in SUMMARY}, state=each.state, withdrawn=each.withdrawn)


def _collector(info: CollectorInfo) -> wire.CollectorStatus:
    return wire.CollectorStatus(**{**vars(info), "id": bytes.fromhex(public_id(info.id))})
