"""psycopg 3 with recording: connections and cursors that are psycopg's own, with hooks.

Each class here is made of psycopg's (or the application's own subclass of it) and a mixin, so that isinstance, row
factories, cursor factories and pools go on working. The mixins hook methods that are private to psycopg;
`unfit_driver` compares them with what this module was written for, and if they differ connections are left alone,
with a warning.

Every hook fails open: what goes wrong in our part is counted, and the statement goes on as the application wrote it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any

import psycopg
from psycopg import errors as e
from psycopg import generators, pq, waiting
from psycopg._connection_base import BaseConnection
from psycopg._cursor_base import BaseCursor
from psycopg._pipeline_base import BasePipeline
from psycopg._queries import PostgresRawQuery
from psycopg._server_cursor_base import ServerCursorMixin
from psycopg.sql import Composable

from mussurana.collector.psycopg_cursors import SharedAdapters, SharingCursor, can_share, make_sharing
from mussurana.collector.psycopg_errors import as_sent, may_be_ours
from mussurana.collector.psycopg_lane import execute_command, execute_known, fits, is_open, read_answers
from mussurana.collector.psycopg_pipelines import CommandWatcher, PipelineMixin, Sent, give_up_place, keep_place, queue
from mussurana.collector.psycopg_results import VisibleResult, layout_of, show_rows
from mussurana.collector.psycopg_types import hide_fields, show_fields
from mussurana.collector.psycopg_watch import CLOSING_POLL_SECONDS, Fetches, PGen, Watch
from mussurana.collector.recorder import Txn
from mussurana.collector.settings import Settings, split_url
from mussurana.collector.sql.control import BEGIN, COMMIT, ROLLBACK, Control
from mussurana.collector.sql.plan import Layout, Plan, cutter
from mussurana.collector.sql.splice import WrongParameters

logger = logging.getLogger("mussurana")

IDLE = pq.TransactionStatus.IDLE
INTRANS = pq.TransactionStatus.INTRANS
OK = pq.ConnStatus.OK
TEXT = pq.Format.TEXT
BINARY = pq.Format.BINARY

TYPE_LOOKUP_FRAMES_MAX = 10
"""How far up TypeInfo.fetch can be: a cursor's execute, its generators, and what waits for them lie between."""

_HOOKED: dict[tuple[type, str], tuple[str, ...]] = {
    (BaseCursor, "_execute_gen"): ("self", "query", "params", "prepare", "binary"),
    (BaseCursor, "_executemany_gen_pipeline"): ("self", "query", "params_seq", "returning"),
    (BaseCursor, "_executemany_gen_no_pipeline"): ("self", "query", "params_seq", "returning"),
    (BaseCursor, "_maybe_prepare_gen"): ("self", "pgq", "prepare", "binary"),
    (BaseCursor, "_stream_send_gen"): ("self", "query", "params", "binary", "size"),
    (BaseCursor, "_stream_fetchone_gen"): ("self", "first"),
    (BaseCursor, "_start_copy_gen"): ("self", "statement", "params"),
    (BaseCursor, "_select_current_result"): ("self", "i", "format"),
    (BaseCursor, "_make_row_maker"): ("self",),
    (BaseCursor, "_close"): ("self",),
    (ServerCursorMixin, "_declare_gen"): ("self", "query", "params", "binary"),
    (ServerCursorMixin, "_fetch_gen"): ("self", "num"),
    (BaseConnection, "_exec_command"): ("self", "command", "result_format"),
    (BaseConnection, "_start_query"): ("self",),
    (BasePipeline, "_process_results"): ("self", "queued", "results"),
    (BasePipeline, "_communicate_gen"): ("self",),
    (BasePipeline, "_fetch_gen"): ("self", "flush"),
    (BasePipeline, "_enqueue_sync"): ("self",),
    (BasePipeline, "_exit"): ("self", "exc"),
    (psycopg.Connection, "_pipeline_nolock"): ("self",),
}


@lru_cache(maxsize=1)
def unfit_driver() -> str:
    """Why the installed psycopg cannot be hooked; empty if it can."""
    for (owner, name), expected in _HOOKED.items():
        method = getattr(owner, name, None)
        if method is None:
            return f"psycopg {psycopg.__version__} has no {owner.__name__}.{name}"
        found = tuple(inspect.signature(method).parameters)
        if found != expected:
            return f"psycopg {psycopg.__version__}: {owner.__name__}.{name} takes {', '.join(found)}"
    return ""


class CursorMixin(SharingCursor):
    """In front of psycopg's Cursor, AsyncCursor, and their kin."""

    _mussurana_plan: Plan | None = None
    _mussurana_layout: Layout | None = None
    _mussurana_tx: Any = None  # a transformer that cuts rows; see psycopg_results
    _mussurana_sending: Sent | None = None  # what psycopg is about to put into its queue
    _mussurana_plans: list[Plan | None] | None = None  # of each of its results, if they came in a pipeline

    def _execute_gen(
        self: Any, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> PGen:
        connection = self._conn
        watch: Watch | None = connection._mussurana
        if watch is None or self._closed:
            return super()._execute_gen(query, params, prepare=prepare, binary=binary)  # type: ignore[misc, no-any-return]
        if params is not None and prepare is None and binary is None and query.__class__ is str:
            plan: Plan | None = watch.lane.get(query)
            if plan is not None and plan.quick and connection._pipeline is None and not self._mussurana_raw:
                status = self._pgconn.transaction_status
                if status == INTRANS:
                    if watch.transactions is not None and (txn := watch.transactions.txn) is not None:
                        return execute_known(self, watch, plan, txn, query, params, None)
                elif status == IDLE:
                    execute = _execute_by_itself if connection._autocommit else _begin_and_execute
                    return execute(self, watch, plan, query, params)
        return _execute(self, watch, query, params, prepare, binary)

    def _mussurana_alone(self: Any, query: Any, params: Any, prepare: bool | None, binary: bool | None) -> PGen:
        """Execute as psycopg does without us."""
        return super()._execute_gen(query, params, prepare=prepare, binary=binary)  # type: ignore[misc, no-any-return]

    def _mussurana_longer(self: Any, query: Any, params: Any) -> PGen:
        """Execute in the way of statements that are not known."""
        return _execute(self, self._conn._mussurana, query, params, None, None)

    def _mussurana_can_try_again(self: Any, error: BaseException, plan: Plan) -> bool:
        return _can_try_again(self, self._conn._mussurana, error, plan)

    def _mussurana_as_written(self: Any, plan: Plan, query: Any, params: Any) -> PGen:
        return _execute_again(self, self._conn._mussurana, plan, query, params, None, None)

    def _maybe_prepare_gen(self: Any, pgq: Any, *, prepare: bool | None = None, binary: bool | None = None) -> PGen:
        steps = super()._maybe_prepare_gen(pgq, prepare=prepare, binary=binary)  # type: ignore[misc]
        return steps if self._conn._pipeline is None else queue(self, steps)

    def _close(self: Any) -> None:
        self._mussurana_answer = None  # so that its rows go as well
        super()._close()  # type: ignore[misc]

    def _executemany_gen_pipeline(self: Any, query: Any, params_seq: Iterable[Any], returning: bool) -> PGen:
        watch: Watch | None = self._conn._mussurana
        execute = super()._executemany_gen_pipeline  # type: ignore[misc]
        yield from _execute_many(self, watch, execute, query, params_seq, returning)

    def _executemany_gen_no_pipeline(self: Any, query: Any, params_seq: Iterable[Any], returning: bool) -> PGen:
        """With a libpq that knows no pipelines, which is older than any that psycopg comes with: as it is written."""
        watch: Watch | None = self._conn._mussurana
        if watch is not None and not self._closed:
            yield from _begin(self._conn, watch)
            _go_as_written(self, watch, query)
        yield from super()._executemany_gen_no_pipeline(query, params_seq, returning)  # type: ignore[misc]

    def _stream_send_gen(self: Any, query: Any, params: Any = None, *, binary: bool | None = None, size: int) -> PGen:
        watch: Watch | None = self._conn._mussurana
        if watch is None or self._closed:
            yield from super()._stream_send_gen(query, params, binary=binary, size=size)  # type: ignore[misc]
            return
        yield from _begin(self._conn, watch)
        plan, text, given, write_id = _prepare(self, watch, query, params)
        watch.expected = True
        try:
            yield from super()._stream_send_gen(text, given, binary=binary, size=size)  # type: ignore[misc]
        except BaseException as error:
            watch.statement_raised(error, self, plan, query, params, write_id)
            raise
        watch.streamed = True
        self._mussurana_stream = (plan, write_id, query, params)

    def _stream_fetchone_gen(self: Any, first: bool) -> PGen:
        watch: Watch | None = self._conn._mussurana
        plan, write_id, query, params = getattr(self, "_mussurana_stream", _NO_STREAM)
        try:
            result = yield from super()._stream_fetchone_gen(first)  # type: ignore[misc]
        except BaseException as error:
            if watch is not None:
                watch.statement_raised(error, self, plan, query, params, write_id)
            raise
        if watch is None or (plan := plan or self._mussurana_plan) is None:
            return result
        if plan.quiet:
            yield from _end_stream(self, watch, plan, result, write_id)
        if result is not None and plan.strips and not first:
            _show_safely(self, plan, result)
        try:
            if result is not None:
                watch.record(plan, result, write_id, None, is_whole=False)
            else:
                self._mussurana_stream = _NO_STREAM
                if watch.implicit:
                    watch.end_implicit(True)
        except Exception:
            watch.failed_control()
        return result

    def _start_copy_gen(self: Any, statement: Any, params: Any = None) -> PGen:
        watch: Watch | None = self._conn._mussurana
        plan, original = None, statement
        if watch is not None and not self._closed:
            yield from _begin(self._conn, watch)
            plan, text, params, _ = _prepare(self, watch, statement, params)
            self._mussurana_plan = None
            if plan is not None and plan.text != plan.original:
                statement = text
            watch.expected = True
        try:
            yield from super()._start_copy_gen(statement, params)  # type: ignore[misc]
        except BaseException as error:
            if watch is not None and plan is not None:
                watch.statement_raised(error, self, plan, original, params, 0)
            raise

    def _make_row_maker(self: Any) -> Any:
        plans = self._mussurana_plans
        plan: Plan | None = self._mussurana_plan if plans is None else plans[self._iresult]
        if plan is None or not plan.strips:
            return self._row_factory(self)
        cut = _show_safely(self, plan, self.pgresult)
        make_row = self._row_factory(self)
        if cut is None:
            return make_row
        return cut if make_row is tuple else _composed(make_row, cut)

    @property
    def row_factory(self: Any) -> Any:
        return self._row_factory

    @row_factory.setter
    def row_factory(self: Any, row_factory: Any) -> None:
        self._row_factory = row_factory
        if self.pgresult:
            shown = self.pgresult
            make_row = row_factory(self)
            if isinstance(shown, VisibleResult):
                make_row = _composed(make_row, cutter(shown.columns))
            self._make_row = make_row


class ServerCursorHooks(CursorMixin):
    """In front of psycopg's server-side cursors, which get their rows by FETCH."""

    _mussurana_fetches: Fetches | None = None  # None: what it fetches is not recorded

    def _declare_gen(self: Any, query: Any, params: Any = None, binary: bool | None = None) -> PGen:
        watch: Watch | None = self._conn._mussurana
        if watch is None or self._closed:
            yield from super()._declare_gen(query, params, binary)  # type: ignore[misc]
            return
        yield from _begin(self._conn, watch)
        plan, text, given, write_id = _prepare(self, watch, query, params)
        watch.expected = True
        try:
            yield from super()._declare_gen(text, given, binary)  # type: ignore[misc]
        except BaseException as error:
            watch.statement_raised(error, self, plan, query, params, write_id)
            raise
        self._mussurana_fetches = None
        try:
            if plan is not None:
                self._mussurana_fetches = watch.declared(plan)
        except Exception:
            watch.failed_control()

    def _fetch_gen(self: Any, num: int | None) -> PGen:
        rows = yield from super()._fetch_gen(num)  # type: ignore[misc]
        watch: Watch | None = self._conn._mussurana
        plan = self._mussurana_plan
        if watch is not None and plan is not None and self.pgresult is not None:
            result = self.pgresult
            if plan.strips:
                _show_safely(self, plan, result)
            try:
                if self._mussurana_fetches is not None:
                    watch.fetched(self._mussurana_fetches, plan, result)
            except Exception:
                watch.failed()
        return rows


_NO_STREAM = (None, 0, "", None)


def _end_stream(cursor: Any, watch: Watch, plan: Plan, result: Any, write_id: int) -> PGen:
    """A statement that returns rows only because of us was asked for rows: it has run, and psycopg complains."""
    results = [result] if result is not None else []
    while result is not None:
        result = yield from generators.fetch(cursor._pgconn)
        if result is not None and result.ntuples:
            results.append(result)
    try:
        for each in results:
            watch.record(plan, each, write_id, None, is_whole=False)
        if watch.implicit:
            watch.end_implicit(True)
    except Exception:
        watch.failed_control()
    cursor._mussurana_stream = _NO_STREAM
    cursor._reset()
    raise e.ProgrammingError("the operation in stream() didn't produce a result")


def _begin_and_execute(cursor: Any, watch: Watch, plan: Plan, query: str, params: Any) -> PGen:
    """The first statement of a transaction goes the way of the others, and takes BEGIN along."""
    connection = cursor._conn
    if not watch.due() and not watch.streamed and is_open():
        txn: Txn | None = None
        try:
            begin = connection._get_tx_start_command()
            txn = watch.begin(begin)
        except Exception:
            watch.failed_control()
        if txn is not None:
            yield from execute_known(cursor, watch, plan, txn, query, params, begin)
            return
    yield from _begin(connection, watch)
    watch.streamed = False
    yield from cursor._execute_gen(query, params)


def _execute_by_itself(cursor: Any, watch: Watch, plan: Plan, query: str, params: Any) -> PGen:
    """In autocommit a statement is a transaction of its own."""
    txn: Txn | None = None
    if not watch.due():
        try:
            watch.begin_implicit()
            txn = watch.transactions.txn if watch.transactions is not None else None
        except Exception:
            watch.failed_control()
    if txn is not None:
        yield from execute_known(cursor, watch, plan, txn, query, params, None)
    else:
        yield from _execute(cursor, watch, query, params, None, None)


def _execute(
    cursor: Any,
    watch: Watch,
    query: Any,
    params: Any,
    prepare: bool | None,
    binary: bool | None,
    is_again: bool = False,
) -> PGen:
    """The way of every other statement: the first one of a transaction, one that was never seen, BEGIN, COPY, ..."""
    if cursor._conn._pipeline is None and watch.pgconn.transaction_status == IDLE:
        watch.look_first(query, cursor._mussurana_raw, params)
    yield from _begin(cursor._conn, watch)
    plan, text, given, write_id = _prepare(cursor, watch, query, params)
    watch.expected = True
    try:
        yield from cursor._mussurana_alone(text, given, prepare, binary)
    except BaseException as error:
        if cursor._conn._pipeline is not None:
            _failed_in_pipeline(cursor, watch, error, plan)
            raise
        watch.statement_failed_safely(error, cursor, plan, write_id)
        if plan is None or not _can_try_again(cursor, watch, error, plan):
            watch.repair(error, cursor, plan, query, params, write_id)
            raise
    else:
        if plan is not None and cursor._conn._pipeline is None:
            _answered(cursor, watch, plan, write_id, params)
        return
    steps = _execute_as_written if is_again else _execute_again
    yield from steps(cursor, watch, plan, query, params, prepare, binary)


def _execute_again(
    cursor: Any, watch: Watch, plan: Plan, query: Any, params: Any, prepare: bool | None, binary: bool | None
) -> PGen:
    """Try again what was refused: with our part, if that returned something else when the server prepared it."""
    if watch.is_outdated:
        watch.is_outdated = False
        watch.look_anew()
        yield from _execute(cursor, watch, query, params, False, binary, is_again=True)
    else:
        yield from _execute_as_written(cursor, watch, plan, query, params, prepare, binary)


def _failed_in_pipeline(cursor: Any, watch: Watch, error: BaseException, plan: Plan | None) -> None:
    """Something raised, nobody knows about which statement: the answers tell that, unless no more will come."""
    try:
        give_up_place(watch, cursor)
    except Exception:
        watch.failed()
    if watch.pgconn.status != OK:
        watch.statement_failed_safely(error, cursor, plan, 0)


def _execute_as_written(
    cursor: Any, watch: Watch, plan: Plan, query: Any, params: Any, prepare: bool | None, binary: bool | None
) -> PGen:
    """Try again what was refused. It did nothing, and nothing is lost with it.

    As it was written it fails as it would have, or our part was wrong.
    """
    watch.expected = True
    yield from cursor._mussurana_alone(query, params, prepare, binary)
    try:
        watch.untagged(plan)
        watch.disable(plan)
    except Exception:
        watch.failed()


def _can_try_again(cursor: Any, watch: Watch, error: BaseException, plan: Plan) -> bool:
    """Whether a statement may have been refused because of us, and was alone: in a transaction all would be lost."""
    try:
        alone = cursor._conn._pipeline is None and watch.pgconn.transaction_status == IDLE
        if alone and may_be_ours(error, plan):
            watch.is_outdated = isinstance(error, e.FeatureNotSupported)
            cursor._mussurana_plan = _only_strip(plan)
            return True
    except Exception:
        watch.failed()
    return False


def _begin(connection: Any, watch: Watch) -> PGen:
    """What psycopg does at the start of a query anyway, early, because write ids belong to a transaction."""
    if connection.pgconn.transaction_status != IDLE:
        return
    if not connection._autocommit:
        if connection._pipeline is None and is_open():
            yield from connection._exec_command(connection._get_tx_start_command())
        else:
            watch.expected = True
            yield from connection._start_query()
    elif connection._pipeline is None and watch.due():
        yield from watch.between()


def _prepare(cursor: Any, watch: Watch, query: Any, params: Any) -> tuple[Plan | None, Any, Any, int]:
    """The plan of a statement, and what to send instead of it."""
    plan: Plan | None = None
    pipeline = cursor._conn._pipeline
    _forget_last(cursor, pipeline)
    # Before anything can go wrong: what is not known to be a read must not be committed in place of a ROLLBACK.
    transactions = watch.transactions
    only_reads = transactions is not None and transactions.only_reads
    if transactions is not None:
        transactions.only_reads = False
    try:
        plan = watch.plan_for(query, params, cursor._mussurana_raw, cursor)
        if plan is None:
            if watch.plans is None:
                cursor._mussurana_plan = _STRIP
            return None, query, params, 0
        if transactions is not None and (plan.pure or (plan.control is not None and plan.control.what == BEGIN)):
            transactions.only_reads = only_reads
        cursor._mussurana_plan = plan
        connection = cursor._conn
        if plan.control is not None:
            watch.before(plan.control)
        elif plan.controls:
            _before_several(watch, plan)
        write_id = 0
        if plan.observes:
            # In a pipeline, what follows a COMMIT has no BEGIN: psycopg does not know yet that it is over.
            if pipeline is not None or (connection._autocommit and watch.pgconn.transaction_status == IDLE):
                watch.begin_implicit()
            if pipeline is not None and watch.transactions is not None:
                watch.transactions.only_reads = False
            if plan.write is not None:
                if watch.transactions is None or watch.transactions.txn is None:
                    raise LookupError("no transaction to write in")
                write_id = watch.recorder.write_id() if plan.takes_id else 0
        text = query if plan.text is plan.original else plan.text
        given = params if plan.injection is None else plan.injection(params, write_id)
        if pipeline is not None:
            cursor._mussurana_sending = keep_place(watch, plan, write_id, params)
        return plan, text, given, write_id
    except Exception as error:
        # Parameters that psycopg will refuse are no failure of ours, and nothing will be written.
        if not isinstance(error, WrongParameters):
            watch.failed()
            if plan is None or plan.control is not None or plan.controls:
                watch.failed_control()
            if plan is not None:
                watch.untagged(plan)
            else:
                watch.unknown(query)
            if watch.implicit:
                watch.failed_control()
        elif watch.implicit and pipeline is None:
            _end_implicit(watch)
        cursor._mussurana_plan = _STRIP if plan is None else _only_strip(plan)
        return None, query, params, 0
    finally:
        if pipeline is not None and cursor._mussurana_sending is None:
            cursor._mussurana_sending = Sent(cursor._mussurana_plan, 0, params, None, -1)


def _forget_last(cursor: Any, pipeline: Any) -> None:
    """Forget the last statement of a cursor. What its answer needs, if it is still to come, stands in the queue."""
    cursor._mussurana_plan = cursor._mussurana_answer = cursor._mussurana_sending = cursor._mussurana_plans = None
    if pipeline is not None and not isinstance(pipeline, PipelineMixin):
        pipeline.__class__ = recorded(type(pipeline))


def _end_implicit(watch: Watch) -> None:
    """A statement that was to be a transaction of its own will not be sent as such."""
    try:
        watch.end_implicit(False)
    except Exception:
        watch.failed_control()


_STRIP = Plan("", "", strips=True, varies=True)
"""For a statement of which nothing is known."""


def _only_strip(plan: Plan) -> Plan:
    """A plan for a statement that goes as it is."""
    return Plan(plan.original, plan.original, control=plan.control, strips=True, row_types=plan.row_types)


def _execute_many(
    cursor: Any,
    watch: Watch | None,
    execute: Callable[..., PGen],
    query: Any,
    params_seq: Iterable[Any],
    returning: bool,
) -> PGen:
    if watch is None or cursor._closed:
        yield from execute(query, params_seq, returning)
        return
    yield from _begin(cursor._conn, watch)
    plan: Plan | None = None
    _forget_last(cursor, cursor._conn._pipeline)
    if watch.transactions is not None:
        watch.transactions.only_reads = False
    try:
        plan = watch.plan_for(query, (), cursor._mussurana_raw, cursor)
        if plan is None and watch.plans is None:
            plan = _STRIP
        if plan is not None and plan.observes:
            watch.begin_implicit()
            if watch.transactions is None or watch.transactions.txn is None:
                raise LookupError("no transaction to write in")
    except Exception:
        watch.failed()
        if plan is not None:
            watch.untagged(plan)
        else:
            watch.unknown(query)
        plan = _STRIP
    text = query if plan is None or plan is _STRIP else plan.text
    watch.expected = True
    try:
        yield from execute(text, _inject_each(cursor, watch, plan, query, params_seq), returning)
    except BaseException as error:
        _failed_in_pipeline(cursor, watch, error, plan)
        raise


def _go_as_written(cursor: Any, watch: Watch, query: Any) -> None:
    watch.expected = True
    _forget_last(cursor, None)
    if watch.transactions is not None:
        watch.transactions.only_reads = False
    try:
        plan = watch.plan_for(query, (), cursor._mussurana_raw, cursor)
        if plan is not None:
            watch.untagged(plan)
            cursor._mussurana_plan = _only_strip(plan)
    except Exception:
        watch.failed()


def _inject_each(cursor: Any, watch: Watch, plan: Plan | None, query: Any, params_seq: Iterable[Any]) -> Iterator[Any]:
    """The parameters of an executemany, each with a write id of its own."""
    for params in params_seq:
        given, write_id = params, 0
        cursor._mussurana_sending = Sent(plan, 0, params, None, -1)
        try:
            if plan is not None:
                write_id = watch.recorder.write_id() if plan.takes_id else 0
                if plan.injection is not None:  # first, since the text has a place for it, whatever else fails
                    given = plan.injection(params, write_id)
                if plan.observes:
                    watch.begin_implicit()  # if a COMMIT before it was answered meanwhile
                if plan.control is not None:
                    watch.before(plan.control)
                cursor._mussurana_sending = keep_place(watch, plan, write_id, params)
        except WrongParameters:
            # It is too late to send the other text. psycopg refuses these parameters here, as it would have without us.
            as_sent(cursor, query, params)
        except Exception:
            watch.failed_after(plan, write_id)
        yield given


def _answered(cursor: Any, watch: Watch, plan: Plan, write_id: int, params: Any) -> None:
    """A statement, not in a pipeline, has its results."""
    try:
        results = cursor._results
        if plan.controls:
            _several_answered(watch, plan, results)
        else:
            watch.record(plan, results[0], write_id, params)
            if plan.control is not None:
                watch.after(plan.control, results[0].command_status or b"")
        if watch.implicit:
            watch.end_implicit(True)
    except Exception:
        watch.failed_after(plan, write_id)
        if plan.control is not None or plan.controls or watch.implicit:
            watch.failed_control()


def _before_several(watch: Watch, plan: Plan) -> None:
    """Several statements in one text: a BEGIN among them starts a transaction, if none is open."""
    for control in plan.controls:
        if control is not None and control.what == BEGIN:
            watch.before(control)
            break
    if watch.transactions is not None:
        watch.transactions.only_reads = False


def _several_answered(watch: Watch, plan: Plan, results: list[Any]) -> None:
    transactions = watch.transactions
    for control, result in zip(plan.controls, results, strict=False):
        if control is None:
            continue
        if control.what == BEGIN and transactions is not None and transactions.txn is None:
            transactions.begin(control.isolation)
            transactions.only_reads = False
        watch.after(control, result.command_status or b"")


def _show_safely(cursor: Any, plan: Plan, result: Any) -> Any:
    """Let the application see a result without our columns; returns what cuts its rows, None if there is nothing to."""
    if cursor._conn._mussurana.out_of_step:
        return _show_by_name(cursor, result)
    try:
        layout = plan.layout
        if layout is None or layout.hidden or layout.column_count != result.nfields:
            layout = layout_of(plan, result)
            if layout.rows:
                # Describing a portal, a server does not say in which format its rows will be.
                show_rows(cursor, layout, result, plan.quiet, getattr(cursor, "_format", None))
                cursor._mussurana_layout = layout
                return layout.cut
        cursor._mussurana_layout = layout
        if layout.visible is not None:
            cursor.pgresult = VisibleResult(result, layout.visible, plan.quiet)
        return layout.cut
    except Exception:
        cursor._conn._mussurana.failed()
        cursor._mussurana_layout = None
        return _show_by_name(cursor, result)


def _show_by_name(cursor: Any, result: Any) -> Any:
    """The same without a plan: whatever happened to it, our columns must not be seen."""
    names = [result.fname(index) or b"" for index in range(result.nfields)]
    visible = tuple(index for index, name in enumerate(names) if not name.startswith(b"mussurana_"))
    if len(visible) == len(names):
        return None
    cursor.pgresult = VisibleResult(result, visible, quiet=not visible)
    return cutter(visible)


def _composed(make_row: Callable[[Any], Any], cut: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda row: make_row(cut(row))


def _looks_up_a_type() -> bool:
    """Whether psycopg's own TypeInfo.fetch is at work, which makes its cursors past the connection and only reads."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(TYPE_LOOKUP_FRAMES_MAX):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == "psycopg._typeinfo":
            return True
        frame = frame.f_back
    return False


class ConnectionMixin(BaseConnection[Any]):
    """In front of psycopg's Connection and AsyncConnection.

    Of their base, so that Python finds both laid out alike and lets a connection that is open change its class.
    """

    _mussurana: Watch | None = None

    def _start_query(self: Any) -> PGen:
        watch: Watch | None = self._mussurana
        if watch is not None:
            if watch.expected:
                watch.expected = False
            else:
                try:
                    if not _looks_up_a_type():
                        watch.foreign_cursor()
                except Exception:
                    watch.failed()
        return super()._start_query()

    def _exec_command(self: Any, command: Any, result_format: pq.Format = TEXT) -> PGen:
        watch: Watch | None = self._mussurana
        control: Control | None = None
        if watch is not None:
            try:
                if isinstance(command, str):
                    command = command.encode(self.pgconn._encoding)
                elif not isinstance(command, bytes) and isinstance(command, Composable):
                    command = command.as_bytes(self)
                control = watch.control_of(command)
            except Exception:
                watch.failed_control()
        if watch is None or control is None:
            return (yield from super()._exec_command(command, result_format))
        alone = self._pipeline is None
        if control.what == BEGIN and alone and watch.due():
            yield from watch.between()
        instead = False
        txn: Txn | None = None
        try:
            instead = control.what == ROLLBACK and alone and watch.may_commit_instead()
            if instead:
                control, command = _COMMIT, b"COMMIT"
            if control.what == COMMIT and watch.transactions is not None:
                txn = watch.transactions.txn
                if txn is not None and watch.recorder.journal is not None and alone and is_open():
                    read_answers(watch, txn)  # since the journal has to have it before the server gets the COMMIT
            watch.before(control)
        except Exception:
            watch.failed_control()
        try:
            if alone and result_format == TEXT and is_open():
                result = yield from execute_command(self, watch, command, txn)
            else:
                result = yield from super()._exec_command(command, result_format)
        except BaseException as error:
            try:
                watch.command_failed(error, control)
            except Exception:
                watch.failed_control()
            if instead and isinstance(error, e.Error) and self.pgconn.status == OK:
                return None  # it is rolled back, as the application wanted
            raise
        try:
            if result is not None:
                watch.after(control, result.command_status or b"")
            elif self._pipeline is not None and self._pipeline.result_queue[-1] is None:
                self._pipeline.result_queue[-1] = (CommandWatcher(self, control), None)
        except Exception:
            watch.failed_control()
        return result

    def cursor(
        self: Any,
        name: str = "",
        *,
        binary: bool = False,
        row_factory: Any = None,
        scrollable: bool | None = None,
        withhold: bool = False,
    ) -> Any:
        self._check_connection_ok()
        row_factory = row_factory or self.row_factory
        if name:
            cursor = recorded(self.server_cursor_factory)(
                self, name=name, row_factory=row_factory, scrollable=scrollable, withhold=withhold
            )
        else:
            cursor = self._mussurana_cursor(recorded(self.cursor_factory), row_factory)
        if binary:
            cursor.format = BINARY
        return cursor

    def _mussurana_cursor(self: Any, cursor_class: Any, row_factory: Any) -> Any:
        watch: Watch | None = self._mussurana
        if watch is not None and getattr(cursor_class, "_mussurana_shares", False):
            try:
                shared = watch.adapters
                if shared is None or not shared.is_like(self.adapters):
                    shared = watch.adapters = SharedAdapters(self)
                return make_sharing(cursor_class, self, row_factory, shared)
            except Exception:
                watch.failed()
        return cursor_class(self, row_factory=row_factory)

    def _mussurana_may_fence(self: Any) -> bool:
        """Whether the connection is really about to be closed, and a fence is due before."""
        watch: Watch | None = self._mussurana
        if watch is None or self.closed or self._pipeline is not None:
            return False
        try:
            pool = getattr(self, "_pool", None)
            goes_back = pool is not None and getattr(pool, "close_returns", False)
            return not goes_back and watch.closing_fence_due()
        except Exception:
            watch.failed()
            return False

    def _mussurana_closed(self: Any) -> None:
        watch: Watch | None = self._mussurana
        if watch is not None and self.pgconn.status != OK:
            try:
                watch.closed()
            except Exception:
                watch.failed()


_COMMIT = Control(COMMIT)


class SyncConnectionMixin(ConnectionMixin):
    @classmethod
    def connect(cls: Any, conninfo: str = "", *, mussurana: Settings | None = None, **options: Any) -> Any:
        conninfo, query = split_url(conninfo)
        connection = super().connect(conninfo, **options)  # type: ignore[misc]
        watch_connection(connection, mussurana or Settings.load(query))
        return connection

    def close(self: Any) -> None:
        try:
            if self._mussurana_may_fence() and self.lock.acquire(blocking=False):  # else another thread is at work
                try:
                    self._mussurana_fence()
                finally:
                    self.lock.release()
        finally:
            super().close()  # type: ignore[misc]
            self._mussurana_closed()

    def _mussurana_fence(self: Any) -> None:
        watch: Watch = self._mussurana
        try:
            waiting.wait(watch.closing_fence(), self.pgconn.socket, interval=CLOSING_POLL_SECONDS)
        except Exception:
            watch.failed()

    @contextmanager
    def pipeline(self: Any) -> Iterator[Any]:
        if self._mussurana is not None and self._pipeline is None:
            with self.lock:
                self.wait(_before_pipeline(self))
        with super().pipeline() as pipeline:  # type: ignore[misc]
            yield pipeline

    @contextmanager
    def _pipeline_nolock(self: Any) -> Iterator[Any]:
        if self._mussurana is not None:
            self.wait(_before_pipeline(self))
        with super()._pipeline_nolock() as pipeline:  # type: ignore[misc]
            yield pipeline


class AsyncConnectionMixin(ConnectionMixin):
    @classmethod
    async def connect(cls: Any, conninfo: str = "", *, mussurana: Settings | None = None, **options: Any) -> Any:
        conninfo, query = split_url(conninfo)
        connection = await super().connect(conninfo, **options)  # type: ignore[misc]
        watch_connection(connection, mussurana or Settings.load(query))
        return connection

    async def close(self: Any) -> None:
        cancelled: asyncio.CancelledError | None = None
        try:
            if self._mussurana_may_fence() and not self.lock.locked():
                cancelled = await self._mussurana_fence()
        finally:
            await super().close()  # type: ignore[misc]
            self._mussurana_closed()
        if cancelled is not None:
            _cancel_later(cancelled)

    async def _mussurana_fence(self: Any) -> asyncio.CancelledError | None:
        """Fence; returns what cancelled it, since without us nothing would be awaited here."""
        watch: Watch = self._mussurana
        try:
            async with self.lock:
                await waiting.wait_async(watch.closing_fence(), self.pgconn.socket, interval=CLOSING_POLL_SECONDS)
        except asyncio.CancelledError as error:
            return error
        except Exception:
            watch.failed()
        return None

    @asynccontextmanager
    async def pipeline(self: Any) -> AsyncIterator[Any]:
        if self._mussurana is not None and self._pipeline is None:
            async with self.lock:
                await self.wait(_before_pipeline(self))
        async with super().pipeline() as pipeline:  # type: ignore[misc]
            yield pipeline

    @asynccontextmanager
    async def _pipeline_nolock(self: Any) -> AsyncIterator[Any]:
        if self._mussurana is not None:
            await self.wait(_before_pipeline(self))
        async with super()._pipeline_nolock() as pipeline:  # type: ignore[misc]
            yield pipeline


def _cancel_later(error: asyncio.CancelledError) -> None:
    """Let the task be cancelled where it waits for something next, as it would have been."""
    task = asyncio.current_task()
    if task is None:
        raise error
    task.cancel(*error.args)
    task.uncancel()  # it was counted already


def _before_pipeline(connection: Any) -> PGen:
    """In a pipeline nothing can be asked and waited for, so what is due runs before."""
    watch: Watch = connection._mussurana
    if connection.pgconn.status != OK:
        return
    if connection.pgconn.transaction_status == IDLE and watch.due():
        yield from watch.between()
    elif watch.streamed:
        yield from watch.end_streaming()
    watch.streamed = False


_recorded: dict[type, type] = {}
_plain: dict[type, type] = {}


def recorded(base: Any) -> Any:
    """The class with our hooks in front of one of psycopg's, or of a subclass of it. What is neither stays as it is."""
    found = _recorded.get(base)
    if found is not None:
        return found
    if not isinstance(base, type) or issubclass(base, CursorMixin | ConnectionMixin | PipelineMixin):
        return base
    details: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    if issubclass(base, BaseCursor):
        mixin: type = ServerCursorHooks if issubclass(base, ServerCursorMixin) else CursorMixin
        details["_mussurana_raw"] = issubclass(base._query_cls, PostgresRawQuery)
        details["_mussurana_fits"] = mixin is CursorMixin and fits(base)
        details["_mussurana_shares"] = details["_mussurana_fits"] and can_share(base)
    elif issubclass(base, psycopg.AsyncConnection):
        mixin = AsyncConnectionMixin
    elif issubclass(base, psycopg.Connection):
        mixin = SyncConnectionMixin
    elif issubclass(base, BasePipeline):
        mixin = PipelineMixin
    else:
        return base
    made: Any = type(base.__name__, (mixin, base), details)
    made.__parameters__ = getattr(base, "__parameters__", ())  # so that Cursor[Row] goes on working
    _recorded[base] = made
    _plain[made] = base
    return made


def watch_connection(connection: Any, settings: Settings | None = None) -> bool:
    """Start to record a connection, unless it is already; returns whether it is recorded now."""
    if unfit_driver():
        warnings.warn(f"mussurana does not record: {unfit_driver()}", RuntimeWarning, stacklevel=3)
        return False
    settings = Settings.load() if settings is None else settings
    if not settings.enabled or not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return False
    if connection.__dict__.get("_mussurana") is None:
        if not isinstance(connection, ConnectionMixin):
            connection.__class__ = recorded(type(connection))
        try:
            connection.__dict__["_mussurana"] = Watch(settings, connection.pgconn)
        except Exception:
            logger.exception("mussurana does not record this connection")
            return False
        _watched.add(connection)
        hide_fields()
    return True


def show_recorded_factories(connection: Any) -> None:
    """Where psycopg's own names stand for our cursors, a connection's factories are the same as theirs."""
    for name in ("cursor_factory", "server_cursor_factory"):
        factory = getattr(connection, name)
        if factory.__module__ == "psycopg":
            setattr(connection, name, recorded(factory))


def stop_watching() -> None:
    """Let all connections go on as if we had never been."""
    show_fields()
    for connection in list(_watched):
        watch = connection.__dict__.pop("_mussurana", None)
        _watched.discard(connection)
        base = _plain.get(type(connection))
        if base is not None:
            connection.__class__ = base
        for name in ("cursor_factory", "server_cursor_factory"):
            factory = getattr(connection, name)
            setattr(connection, name, _plain.get(factory, factory))
        if watch is not None and watch.transactions is not None:
            watch.transactions.session.close()


_watched: weakref.WeakSet[Any] = weakref.WeakSet()


Connection: Any = recorded(psycopg.Connection)
AsyncConnection: Any = recorded(psycopg.AsyncConnection)
