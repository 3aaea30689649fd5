"""The way of most statements: known, with parameters, prepared; in a transaction, or one of their own in autocommit.

psycopg asks itself the same questions about a statement each time that it is executed, in a dozen calls. Here their
answers are kept with the plan, and what the calls do is done in one place; that saves about as much as recording
costs. Since it repeats what psycopg does, it is only used with a psycopg that does just that (`is_open`) and for
cursors that have changed nothing of it (`fits`); all others take the longer way, through psycopg's own methods.

BEGIN is sent together with the first statement of its transaction, which saves the way to the server and back.

While the server is at work on a COMMIT, the answers of the transaction are read: that takes time which nobody would
use otherwise.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import lru_cache
from operator import itemgetter
from typing import Any, NoReturn

from psycopg import AsyncCursor, Cursor, pq
from psycopg import errors as e
from psycopg._column import Column
from psycopg._connection_base import BaseConnection
from psycopg._cursor_base import BaseCursor
from psycopg._preparing import PrepareManager
from psycopg._queries import PostgresQuery, _query2pg_nocache
from psycopg._typeinfo import TypesRegistry
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.generators import execute, fetch_many

from mussurana.collector.columns import bind_driver, narrow
from mussurana.collector.extraction import catch_up
from mussurana.collector.psycopg_watch import PGen, Watch
from mussurana.collector.recorder import Txn
from mussurana.collector.sql.plan import Plan

IDLE = pq.TransactionStatus.IDLE
OK = pq.ConnStatus.OK
TUPLES_OK = pq.ExecStatus.TUPLES_OK
COMMAND_OK = pq.ExecStatus.COMMAND_OK
FATAL_ERROR = pq.ExecStatus.FATAL_ERROR

CATCH_UP_ROWS_MAX = 1000
"""Of a transaction. Beyond, reading takes longer than the server does, and is left to the background."""

_NARROWS = bind_driver()
"""Whether our columns can be taken out of a result; else they are in it, and the application is shown another."""

_REPEATED: dict[type, tuple[str, ...]] = {
    BaseCursor: (
        "__init__",
        "adapters",
        "description",
        "_execute_gen",
        "_start_query",
        "_reset",
        "_convert_query",
        "_maybe_prepare_gen",
        "_get_prepared",
        "_send_query_prepared",
        "_check_results",
        "_set_results",
        "_select_current_result",
    ),
    Cursor: ("__init__",),
    AsyncCursor: ("__init__",),
    Column: ("__init__",),
    AdaptersMap: ("__init__", "register_dumper", "register_loader"),
    TypesRegistry: ("__init__", "_ensure_own_state"),
    BaseConnection: ("_start_query", "_exec_command"),
    PostgresQuery: ("convert", "dump", "validate_and_reorder_params", "_ensure_bytes"),
    PrepareManager: ("key", "get", "maybe_add_to_cache", "maintain_gen"),
}
_DIGESTS = frozenset({"ed1ea61ff1d05e87"})  # of psycopg 3.3.8


def digest() -> str:
    """Of the text of all that is repeated here."""
    found = hashlib.sha256()
    for owner, names in _REPEATED.items():
        for name in names:
            method = inspect.getattr_static(owner, name)
            found.update(inspect.getsource(getattr(method, "fget", method)).encode())
    return found.hexdigest()[:16]


@lru_cache(maxsize=1)
def is_open() -> bool:
    """Whether the installed psycopg does what is repeated here."""
    try:
        return digest() in _DIGESTS
    except Exception:  # no sources
        return False


def fits(cursor_class: Any) -> bool:
    """Whether cursors of a class do it, too."""
    names = _REPEATED[BaseCursor][1:]  # how it is made is another question
    unchanged = all(getattr(cursor_class, name, None) is getattr(BaseCursor, name) for name in names)
    return unchanged and cursor_class._query_cls is PostgresQuery and is_open()


class Converted:
    """What psycopg makes of the text of a plan, in one encoding."""

    __slots__ = ("count", "encoding", "formats", "names", "order", "text")

    def __init__(self, text: str, encoding: str) -> None:
        self.encoding = encoding
        self.text, self.formats, self.order, parts = _query2pg_nocache(text.encode(encoding), encoding)
        self.count = len(parts) - 1
        self.names = itemgetter(*self.order) if self.order and len(self.order) > 1 else None

    def values(self, params: Any) -> Any:
        """The parameters in the order in which they are sent; None if they have to be looked at more closely."""
        kind = params.__class__
        if kind is dict:
            if self.names is not None:
                return self.names(params)
            if self.order:
                return (params[self.order[0]],)
        elif (kind is tuple or kind is list) and self.order is None and len(params) == self.count:
            return params
        return None


def execute_known(
    cursor: Any,
    watch: Watch,
    plan: Plan,
    txn: Txn,
    query: str,
    params: Any,
    begin: bytes | None,
) -> PGen:
    """Execute a plan and record what came of it. `begin` begins the transaction; if it is None, one is open.

    In autocommit the statement is all of its transaction, and ends it. One that was refused because of us did nothing,
    and is tried again as it was written.

    Pre: there is no pipeline, and nothing special is asked.
    """
    try:
        write_id = watch.recorder.write_id() if plan.takes_id else 0
        given = params if plan.injection is None else plan.injection(params, write_id)
        plan.used = True
        cursor._mussurana_plan = plan
        cursor._mussurana_plans = None
        if not plan.pure and watch.transactions is not None:
            watch.transactions.only_reads = False
    except Exception:  # something is wrong with its parameters
        yield from cursor._mussurana_longer(query, params)
        return
    seen: Any = None
    refused = False
    try:
        name = _send(cursor, watch, plan, given, begin) if cursor._mussurana_fits else None
        if name is None:
            if begin is not None:
                yield from execute_command(cursor._conn, watch, begin, None)
            watch.expected = True
            yield from cursor._mussurana_alone(plan.text, given, None, None)
        else:
            if begin is None:
                results = yield from execute(cursor._pgconn)
            else:
                results = yield from _answers_after_begin(cursor._pgconn, begin)
            layout = plan.layout
            if layout is not None and layout.narrow_to >= 0 and _NARROWS and len(results) == 1:
                try:
                    seen = narrow(results[0], layout.column_count, layout.narrow_to, plan.quiet, name)
                except Exception:
                    watch.failed()
            cursor._mussurana_answer = seen
            if seen is not None:
                cursor._mussurana_plan = None  # nothing of ours is left in what the application gets
                cursor._results = results
                cursor.pgresult = result = results[0]
                cursor._tx.set_pgresult(result)
                cursor._rowcount = seen.ntuples
                cursor._statusmessage = result.command_status
                cursor._make_row = cursor._row_factory(cursor)
            elif len(results) != 1 or (result := results[0]).status != TUPLES_OK:
                cursor._check_results(results)
                cursor._set_results(results)
            else:
                cursor._results = results
                cursor.pgresult = result
                cursor._tx.set_pgresult(None if plan.quiet else result)  # nobody can fetch what is only ours
                cursor._rowcount = result.ntuples
                cursor._statusmessage = result.command_status
                cursor._make_row = cursor._make_row_maker()
            cursor._last_query = plan.text
            if cursor._conn._prepared._to_flush:
                yield from cursor._conn._prepared.maintain_gen(cursor._conn)
    except BaseException as error:
        if begin is not None and cursor._pgconn.transaction_status == IDLE:
            watch.begin_failed()
            raise
        by_itself = watch.implicit
        watch.statement_failed_safely(error, cursor, plan, write_id)
        if not by_itself or not cursor._mussurana_can_try_again(error, plan):
            watch.repair(error, cursor, plan, query, params, write_id)
            raise
        refused = True
    if refused:
        yield from cursor._mussurana_as_written(plan, query, params)
        return
    try:
        if seen is None:
            seen, layout = cursor._results[0], cursor._mussurana_layout
        row_count = seen.ntuples
        if not plan.live or row_count < plan.rows_expected:
            watch.record(plan, seen, write_id, params)
        else:
            txn.saw((watch.extract_for(layout), plan, layout, seen, write_id, ()))
            txn.rows += row_count
        if watch.implicit:
            read_answers(watch, txn)
            watch.end_implicit(True)
    except Exception:
        watch.failed_after(plan, write_id)
        if watch.implicit:
            watch.failed_control()


def execute_command(connection: Any, watch: Watch, command: bytes, txn: Txn | None) -> PGen:
    """Have a command executed that is psycopg's own: BEGIN, COMMIT and the like.

    A COMMIT takes the server longest of all. Meanwhile there is time for all that the transaction, `txn`, has seen:
    at once, since each piece alone would have to find its way into the processor's caches again.
    """
    connection._check_connection_ok()
    pgconn = connection.pgconn
    pgconn.send_query(command)
    if txn is not None:
        read_answers(watch, txn)
    results = yield from execute(pgconn)
    if len(results) != 1:
        raise e.InternalError(f"received {len(results)} results from command {command.decode()!r}")
    result = results[0]
    if result.status != COMMAND_OK and result.status != TUPLES_OK:
        _raise_for(result, command, pgconn)
    return result


def read_answers(watch: Watch, txn: Txn) -> None:
    """Read what a transaction has seen, if it has not been done and does not take too long. Pre: all answers came."""
    try:
        transactions = watch.transactions
        if transactions is None or not transactions.sure:  # in the end all of its writes may have to be lost
            return
        if txn.caught_up is None and txn.rows <= CATCH_UP_ROWS_MAX and bind_driver():
            catch_up(txn, watch.recorder.names)
    except Exception:
        watch.failed()


def _raise_for(result: Any, command: bytes, pgconn: Any) -> NoReturn:
    if result.status == FATAL_ERROR:
        raise e.error_from_result(result, encoding=pgconn._encoding)
    status = pq.ExecStatus(result.status).name
    raise e.InterfaceError(f"unexpected result {status} from command {command.decode()!r}")


def _answers_after_begin(pgconn: Any, begin: bytes) -> PGen:
    """The results of the statement that was sent together with `begin`."""
    answers: list[list[Any]] = []
    try:
        answers.append((yield from execute(pgconn)))
        answers.append((yield from fetch_many(pgconn)))
        yield from fetch_many(pgconn)  # the end of the pipeline
    except e.OperationalError:
        # A server that ends the connection says so in place of an answer, and nothing follows.
        if pgconn.status == OK:
            raise
        while pgconn.get_result() is not None:
            pass
        pgconn.exit_pipeline_mode()
        if not any(result.status == FATAL_ERROR for results in answers for result in results):
            raise
    else:
        pgconn.exit_pipeline_mode()
    if answers[0][0].status != COMMAND_OK:
        _raise_for(answers[0][0], begin, pgconn)
    return answers[1]


def _send(cursor: Any, watch: Watch, plan: Plan, given: Any, begin: bytes | None) -> Any:
    """Send a statement, if it is prepared; returns its name, or None if psycopg has to."""
    prepared: PrepareManager = cursor._conn._prepared
    names = prepared._names
    if not names or prepared.prepare_threshold is None:
        return None
    try:
        converted = plan.converted
        if converted is None or converted.encoding != watch.encoding:
            converted = plan.converted = Converted(plan.text, watch.encoding)
        values = converted.values(given)
        if values is None:
            return None
        shared = cursor._mussurana_shared
        if cursor._last_query is plan.text:
            tx = cursor._tx
        elif shared is not None:
            tx = shared.transformer(cursor._conn)
        else:
            tx = Transformer(cursor)
        params = tx.dump_sequence(values, converted.formats)
        key = (converted.text, tx.types or ())
        name = names.get(key)
        if name is None:
            return None
        if begin is not None:
            cursor._pgconn.enter_pipeline_mode()
    except Exception:  # psycopg will say what is wrong
        return None
    if shared is None or cursor._tx is not None:  # else it is new
        cursor._reset()
        cursor._last_query = None
    cursor._tx = tx
    pgconn = cursor._pgconn
    if begin is None:
        pgconn.send_query_prepared(name, params, param_formats=tx.formats, result_format=cursor.format)
    else:
        pgconn.send_query_params(begin, None)
        pgconn.send_query_prepared(name, params, param_formats=tx.formats, result_format=cursor.format)
        pgconn.pipeline_sync()
    names.move_to_end(key)
    return name
