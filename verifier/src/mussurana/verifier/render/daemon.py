"""What a daemon answers, as text and as JSON: status, verdicts, and a violation in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.json_format import MessageToDict

from mussurana.verifier.render.json import counterexample_from_json
from mussurana.verifier.render.text import WIDTH, counterexample_lines
from mussurana.verifier.render.words import anomaly_title, cells, count, duration, elide, pad, visible, wrap
from mussurana.wire.query_pb2 import ExplainReply, Round, StatusReply, Unchecked, VerdictsReply, Violation

_NAME_CELLS_MAX = 40
_CLAIMS_SHOWN_MAX = 5
"""Of a round; the further ones are counted. JSON has them all."""

_BOLD_RED, _RESET = "\x1b[1;31m", "\x1b[0m"


def status_json(reply: StatusReply) -> dict[str, Any]:
    """The message of query.proto under the names of its fields; ids of collectors in hexadecimal."""
    plain = _plain(reply)
    for shown, collector in zip(plain["collector"], reply.collector, strict=True):
        shown["id"] = collector.id.hex()
    return plain


def verdicts_json(reply: VerdictsReply) -> dict[str, Any]:
    return _plain(reply)


def explanation_json(reply: ExplainReply) -> dict[str, Any]:
    return {**_plain(reply.violation), "counterexample": json.loads(reply.counterexample)}


def status_text(reply: StatusReply) -> str:
    lines = [
        f"{reply.state}, lag {duration(reply.lag_seconds)}; up {_age(reply.uptime_seconds)}, version {reply.version}"
    ]
    if reply.database:
        lines.append(f"  database {visible(reply.database)}")
    lines += [f"  TROUBLE: {line}" for trouble in reply.trouble for line in wrap(trouble, WIDTH - 11)]
    lines += _table(
        ["level", "last round", "verdict", "epoch", "epoch age", "retained", "table keys", "lag p99"],
        (
            [
                level.level,
                str(level.last_round.number),
                level.last_round.verdict or "-",
                str(level.epoch),
                _since(level.epoch_reached_ns, reply.now_ns),
                f"{level.retained:,}",
                f"{level.table_keys:,}",
                duration(level.last_round.lag_p99_seconds),
            ]
            for level in reply.level
        ),
    )
    lines += [
        f"  waiting {reply.waiting:,}, in doubt {reply.in_doubt:,}, lost {reply.lost_txns:,}, "
        f"with a read that could not be checked {reply.unknown_txns:,}",
        f"  sessions: {reply.sessions_open:,} open, {reply.sessions_idle:,} idle or closed",
        f"  log {_size(reply.log_bytes)}, {_size(reply.log_behind_bytes)} of it not verified; {_checkpoint(reply)}",
        f"  {count(reply.violations, 'violation')} stored, {reply.alarms_waiting:,} of them waiting to be told "
        f"(for {reply.alarm_wait_seconds:g} s at most), {reply.alarms_withdrawn:,} withdrawn",
    ]
    lines += [
        f"  reads not checked, {visible(reason)}: {reads:,}"
        for reason, reads in sorted(reply.unchecked_reads.items())
        if reads
    ]
    lines += _table(
        ["collector", "database", "connected", "durable", "last seen"],
        (
            [
                elide(collector.name or collector.id.hex(), _NAME_CELLS_MAX),
                elide(collector.database, _NAME_CELLS_MAX),
                "yes" if collector.connected else "no",
                f"{collector.durable_sequence:,}",
                _since(collector.last_seen_ns, reply.now_ns),
            ]
            for collector in reply.collector
        ),
    )
    return "\n".join(lines) + "\n"


def _checkpoint(reply: StatusReply) -> str:
    if not reply.checkpoint_ns:
        return "no checkpoint yet"
    return f"checkpoint {_size(reply.checkpoint_bytes)}, {_since(reply.checkpoint_ns, reply.now_ns)} old"


def verdicts_text(reply: VerdictsReply) -> str:
    lines = _table(
        ["finished (UTC)", "level", "round", "verdict", "transactions", "epoch", "retained", "took", "lag p99"],
        (_round_columns(each) for each in reversed(reply.round)),
        indent=0,
    )
    lines += [f"  round {each.number}: {line}" for each in reversed(reply.round) for line in _reasons(each)]
    for found in reversed(reply.violation):
        title = f"{found.anomaly} ({found.adya})" if found.adya else found.anomaly
        place = f"round {found.round}, epoch {found.epoch}, {_time(found.found_ns)}"
        lines.append(f"{_word(found)}  {found.level}  {place}: {visible(title)}")
        lines += [f"  {line}" for line in wrap(found.summary, WIDTH - 2)]
        lines += [f"  {line}" for line in _about(found)]
        lines.append(f"  mussurana explain {found.id}")
    if not reply.violation:
        lines.append("no violations")
    return "\n".join(lines) + "\n"


def explanation_text(reply: ExplainReply, color: bool = False, width: int = WIDTH) -> str:
    found = reply.violation
    counterexample = counterexample_from_json(json.loads(reply.counterexample))
    size = count(len(counterexample.transactions), "transaction")
    place = f"round {found.round}, epoch {found.epoch}"
    word = _word(found)
    title = wrap(f"{found.level}  {place}: {anomaly_title(counterexample)}, {size}", width - len(word) - 2)
    if color and word == "REJECTED":
        word = f"{_BOLD_RED}{word}{_RESET}"
    lines = [f"{word}  {title[0]}", *title[1:], *_about(found), *counterexample_lines(counterexample, color, width)]
    return "\n".join([*lines, f"  Found {_time(found.found_ns)} UTC, id {found.id}."]) + "\n"


def _word(found: Violation) -> str:
    return {"waiting": "WAITING", "withdrawn": "WITHDRAWN"}.get(found.state, "REJECTED")


def _about(found: Violation) -> list[str]:
    """Why it is not an alarm, or not yet."""
    if found.state == "waiting":
        return ["It waits for collectors that may still take it back."]
    return wrap(f"Taken back: {found.withdrawn}.", WIDTH - 2) if found.state == "withdrawn" else []


def _round_columns(each: Round) -> list[str]:
    return [
        _time(each.finished_ns),
        each.level,
        str(each.number),
        each.verdict,
        f"{each.txn_count:,}",
        str(each.epoch),
        f"{each.retained:,}",
        duration(each.seconds),
        duration(each.lag_p99_seconds),
    ]


def _claim(claim: Unchecked) -> str:
    """`unchecked 12: web-3/4711 @7 wrote to seats unseen`."""
    who = elide(visible(claim.collector), _NAME_CELLS_MAX)
    what = f"wrote to {visible(claim.table) or 'some table'} unseen"
    if claim.reason == "contested":
        what = "uses write ids of another collector"
    elif claim.reason == "colliding":
        what = f"has another name for rows of {visible(claim.table) or 'some table'}"
    return f"unchecked {claim.reads:,}: {who} {what}"


def _reasons(each: Round) -> list[str]:
    lines = wrap(each.reason, WIDTH - 20) if each.reason else []
    lines += [_claim(claim) for claim in each.unchecked[:_CLAIMS_SHOWN_MAX]]
    if len(each.unchecked) > _CLAIMS_SHOWN_MAX:
        more = each.unchecked[_CLAIMS_SHOWN_MAX:]
        lines.append(f"unchecked {sum(claim.reads for claim in more):,}: {len(more):,} further claims")
    if each.further_violations:
        lines.append(f"{count(each.further_violations, 'transaction')} set aside without a counterexample")
    return lines


def _table(titles: Sequence[str], rows: Iterable[list[str]], indent: int = 2) -> list[str]:
    body = list(rows)
    if not body:
        return []
    widths = [max(map(cells, column)) for column in zip(titles, *body, strict=True)]
    return [
        (" " * indent + "  ".join(pad(cell, width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in [list(titles), *body]
    ]


def _plain(message: Any) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    whole: dict[str, Any] = _numbers(message, plain)
    return whole


def _numbers(message: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """64-bit integers as numbers: the library writes them as text, for JavaScript."""
    for field in message.DESCRIPTOR.fields:
        if field.name not in plain:
            continue
        value = plain[field.name]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            plain[field.name] = {key: int(number) for key, number in value.items()}
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            if isinstance(value, list):
                plain[field.name] = [_numbers(each, shown) for each, shown in zip(inner, value, strict=True)]
            else:
                plain[field.name] = _numbers(inner, value)
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            plain[field.name] = int(value)
    return plain


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _since(time_ns: int, now_ns: int) -> str:
    return _age(max(0, now_ns - time_ns) / 1e9) if time_ns else "never"


def _age(seconds: float) -> str:
    """`12 s`, `4 min`, `7 h`, `3 days`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def _size(size_bytes: int) -> str:
    for unit, divisor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= divisor:
            return f"{size_bytes / divisor:.1f} {unit}"
    return f"{size_bytes} bytes"
