"""sqlite3 with recording: connections and cursors that are the standard library's own, with hooks.

The C code of sqlite3 calls its own methods past whatever a subclass overrides, so each way in is overridden here:
`Connection.execute` makes our cursors, and rows are cut and handed to the row factory by us, since `sqlite3.Row`
looks at the real description. SQLite has no results that one could keep: the first rows of each are fetched ahead,
recorded, and given out when the application asks for them.

Every hook fails open: what goes wrong in our part is counted, and the statement goes on as the application wrote it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter, time_ns
from typing import Any, Literal

from mussurana.collector.catalog import Catalog
from mussurana.collector.catalog_sqlite import SCHEMA_VERSION_QUERY, sqlite_catalog
from mussurana.collector.coverage import PARTIAL, UNOBSERVED_WRITE
from mussurana.collector.database import plans_from
from mussurana.collector.recorder import ABORTED, COMMITTED, SERIALIZABLE, Recorder, Txn, recorder_for
from mussurana.collector.settings import Settings
from mussurana.collector.sql.control import BEGIN, COMMIT, RELEASE, ROLLBACK, SAVEPOINT
from mussurana.collector.sql.extract import extract_fence, extract_sqlite
from mussurana.collector.sql.plan import Layout, Plan
from mussurana.collector.sql.plans import Plans
from mussurana.collector.sql.splice import ByName, WrongParameters
from mussurana.collector.sql.tokens import QMARK, SQLITE
from mussurana.collector.transactions import Transactions
from mussurana.collector.which_database import sqlite_database

logger = logging.getLogger("mussurana")

ROWS_AHEAD_MAX = 1000
"""Rows that are fetched ahead and recorded; of a longer result the rest is not recorded."""

_PLAIN: Any = sqlite3.Cursor  # for what its C code has under names that we override

UNKNOWN = ("", "catalog could not be read", UNOBSERVED_WRITE)

_UPDATE_FENCE = """
UPDATE mussurana_fence SET epoch = epoch + 1, mussurana_wid = ? WHERE id = 1 AND mussurana_wid IS ? RETURNING epoch
"""


class Watch:
    """What is remembered of one connection."""

    def __init__(self, settings: Settings, connection: Any) -> None:
        self.settings = settings
        self.connection = connection
        self.recorder: Recorder = recorder_for(settings)  # until it is told which database this is
        self.is_told = False
        self.plans: Plans | None = None
        self.transactions: Transactions | None = None
        self.schema_version = -1
        self.database: tuple[Any, ...] = ()
        self.process = os.getpid()
        self.epoch = 0

    def run(self, text: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement past our own hooks."""
        cursor = sqlite3.Cursor(self.connection)
        try:
            return cursor.execute(text, parameters).fetchall()
        finally:
            cursor.close()

    def between(self) -> None:
        """Read the catalog if it has changed, then fence if it is time. Pre: no transaction is open."""
        ((version,),) = self.run(SCHEMA_VERSION_QUERY)
        if version != self.schema_version or self.plans is None:
            if not self.database:
                path = self.run("PRAGMA database_list")[0][2]
                self.database = (SQLITE, os.path.realpath(path) if path else id(self))
            catalog = sqlite_catalog(self.run)
            if not self.is_told:
                self._belong_to(catalog)
            self.plans = plans_from(self.database, catalog, SQLITE, self.recorder.coverage)
            self.schema_version = version
        if self.transactions is None and self.plans.catalog.tables:
            fenced = self.plans.catalog.fence is not None
            session = self.recorder.open_session(f"sqlite {id(self):x}", fenced=fenced)
            self.transactions = Transactions(self.recorder, session)
            self.transactions.default_isolation = SERIALIZABLE
        transactions = self.transactions
        if transactions is not None and transactions.session.fence_due(time_ns()):
            self._fence(transactions)

    def _belong_to(self, catalog: Catalog) -> None:
        """Record into what is recorded of this database. Which one it is has to be asked once: its file stays."""
        if self.transactions is None and catalog.tables and not self.recorder.is_closed:
            path = self.database[1]
            recorded = sqlite_database(catalog.database, path if isinstance(path, str) else "")
            self.recorder = recorder_for(self.settings, recorded)
            self.is_told = True

    def _fence(self, transactions: Transactions, closing: bool = False) -> None:
        """A transaction of its own that extends the chain of fences. It never waits for a lock: it fails instead.

        If the connection is about to be closed it only reads, and all that was done comes before the next fence.
        """
        session = transactions.session
        started = perf_counter()
        ((patience,),) = self.run("PRAGMA busy_timeout")
        isolation_level = self.connection.isolation_level
        txn = session.begin()
        txn.isolation = transactions.default_isolation
        write_id = self.recorder.write_id()
        try:
            self.run("PRAGMA busy_timeout = 0")
            self.connection.isolation_level = None
            ((epoch, seen),) = self.run("SELECT epoch, mussurana_wid FROM mussurana_fence WHERE id = 1")
            if closing or (epoch > self.epoch and not session.write_fence_needed):
                self.epoch = txn.epoch = epoch
                txn.observations.append((extract_fence, 0, seen or 0))
                session.end(txn, COMMITTED)
                session.fenced(wrote=False, seconds=perf_counter() - started)
                return
            # Two statements, so two transactions: the second only counts if nobody came in between.
            written = self.run(_UPDATE_FENCE, (write_id, seen))
            if written:
                self.epoch = txn.epoch = written[0][0]
                txn.observations.append((extract_fence, write_id, seen or 0))
                session.end(txn, COMMITTED)
                session.fenced(wrote=True, seconds=perf_counter() - started)
                return
            session.end(txn, ABORTED)
            session.fence_failed(perf_counter() - started)
        except sqlite3.Error:
            session.end(txn, ABORTED)
            session.fence_failed(perf_counter() - started)
        finally:
            self.connection.isolation_level = isolation_level
            self.run(f"PRAGMA busy_timeout = {patience}")

    def plan_for(self, text: str) -> Plan | None:
        if not self.connection.in_transaction:
            self.between()
        plans = self.plans
        if plans is None or self.transactions is None:
            return None
        plan = plans.find(text, QMARK)
        if plan.observes and self.connection.text_factory is not str:
            plan = self.as_written(plan)  # keys would have other names than elsewhere
        for key in plan.coverage:
            self.recorder.coverage.count(key)
        if plan.taints:
            plans.taint(plan.taints)
        return plan

    def as_written(self, plan: Plan) -> Plan:
        if plan.write is not None and self.plans is not None:
            self.plans.taint([plan.write.table])
        return Plan(plan.original, plan.original, control=plan.control, controls=plan.controls, strips=True)

    def disable(self, plan: Plan) -> None:
        """The database does not take what we made of a statement. Look at the catalog again: it may not be ours."""
        logger.warning("a statement is not recorded any more, since the database refused it with our changes")
        if self.plans is not None:
            self.plans.disable(plan)
        self.schema_version = -1

    def begin(self) -> None:
        """A statement is about to run; if no transaction is open, it is one of its own or starts one."""
        transactions = self.transactions
        if transactions is not None and transactions.txn is None:
            transactions.begin(SERIALIZABLE)

    def settle(self, plan: Plan | None, failed: bool) -> None:
        """A statement has run. Where it left no transaction open, the one that was has ended."""
        transactions = self.transactions
        if transactions is None or transactions.txn is None:
            if transactions is not None and self.connection.in_transaction:
                transactions.begin(SERIALIZABLE)
            return
        control = plan.control if plan is not None else None
        if not failed and control is not None and control.what not in (BEGIN, COMMIT, ROLLBACK):
            transactions.after(control, b"", self.connection.in_transaction)
        if plan is None or not plan.pure:
            transactions.only_reads = transactions.only_reads and control is not None and control.what == BEGIN
        if self.connection.in_transaction:
            return
        rolled_back = failed or (control is not None and control.what == ROLLBACK)
        transactions.end(ABORTED if rolled_back else COMMITTED)

    def closing(self) -> None:
        """The connection is about to be closed. If it is idle, and our own, all that was done is fenced."""
        transactions = self.transactions
        if (
            transactions is not None
            and transactions.txn is None
            and self.process == os.getpid()  # a child that closes what it got from its parent does not touch the file
            and not self.connection.in_transaction
            and self.plans is not None
            and self.plans.catalog.fence is not None
            and transactions.session.closing_fence_due()
        ):
            self._fence(transactions, closing=True)

    def closed(self) -> None:
        if self.transactions is not None:
            self.transactions.lost()
            self.transactions.session.close()
            self.transactions = None
            self.transactions = None

    def failed(self) -> None:
        self.recorder.metrics.hook_failures += 1
        logger.debug("a hook failed", exc_info=True)


def _may_be_ours(error: BaseException, plan: Plan) -> bool:
    """Whether the database may have refused a statement because of what we made of it: a name that it does not know."""
    changed = plan.control is None and plan.text != plan.original
    return changed and isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_ERROR


def _execute_as_written(
    cursor: Any, watch: Watch, plan: Plan, execute: Callable[..., Any], sql: str, parameters: Any
) -> None:
    _forget(cursor)
    try:
        watch.begin()
    except Exception:
        watch.failed()
    try:
        execute(sql, parameters)
    except BaseException:
        _settle(watch, plan, True)
        raise
    try:
        watch.as_written(plan)
        watch.disable(plan)
    except Exception:
        watch.failed()
    _settle(watch, plan, False)


class CursorMixin:
    """In front of sqlite3.Cursor or a subclass of it."""

    _mussurana_plan: Plan | None = None
    _mussurana_layout: Layout | None = None
    _mussurana_ahead: deque[Any] | None = None
    _mussurana_error: BaseException | None = None
    _mussurana_rowcount: int | None = None
    _mussurana_lastrowid: tuple[int | None] | None = None
    _mussurana_row_factory: Any = None
    _mussurana_names: sqlite3.Cursor | None = None
    _mussurana_more: Callable[[Any], None] | None = None

    def execute(self: Any, sql: str, parameters: Any = (), /) -> Any:
        watch = _watch_of(self)
        _forget(self)
        plan, text, given, write_id = _prepare(watch, sql, parameters)
        try:
            super().execute(text, given)  # type: ignore[misc]
        except BaseException as error:
            _settle(watch, plan, True)
            if watch is None or plan is None or not _may_be_ours(error, plan):
                raise
            # It did nothing. As it was written it fails as it would have, or what we made of it was wrong.
            _execute_as_written(self, watch, plan, super().execute, sql, parameters)  # type: ignore[misc]
            return self
        if watch is not None:
            if plan is not None:
                _take_ahead(self, watch, plan, write_id, parameters)
            _settle(watch, plan, False)
        return self

    def executemany(self: Any, sql: str, seq_of_parameters: Iterable[Any], /) -> Any:
        watch = _watch_of(self)
        plan: Plan | None = None
        if watch is not None:
            try:
                plan = watch.plan_for(sql)
            except Exception:
                watch.failed()
        if watch is None or plan is None or plan.write is None or not plan.quiet:
            if watch is not None and plan is not None and plan.write is not None:
                watch.as_written(plan)
            _forget(self)
            try:
                return super().executemany(sql, seq_of_parameters)  # type: ignore[misc]
            finally:
                _settle(watch, plan, False)
        lastrowid = self.lastrowid
        total = 0
        for parameters in seq_of_parameters:
            self.execute(sql, parameters)
            total += self.rowcount
        shown = self._mussurana_plan, self._mussurana_layout  # by which there are no rows to describe
        _forget(self)
        self._mussurana_plan, self._mussurana_layout = shown
        self._mussurana_rowcount = total
        self._mussurana_lastrowid = (lastrowid,)
        return self

    def executescript(self: Any, sql_script: str, /) -> Any:
        watch = _watch_of(self)
        _forget(self)
        plan: Plan | None = None
        if watch is not None and isinstance(sql_script, str):
            try:
                if watch.transactions is not None:
                    watch.transactions.committing()
                    if not self.connection.in_transaction:
                        watch.between()
                if watch.plans is not None:
                    plan = watch.plans.find(sql_script, QMARK)
                    watch.plans.taint(plan.taints if not plan.write else [plan.write.table])
            except Exception:
                watch.failed()
        try:
            super().executescript(sql_script)  # type: ignore[misc]
        except BaseException:
            _settle(watch, None, True)
            raise
        _settle(watch, None, False)
        return self

    def fetchone(self: Any) -> Any:
        return next(self, None)

    def fetchmany(self: Any, size: int | None = None) -> Any:
        if self._mussurana_plan is None and self._mussurana_row_factory is None:
            return super().fetchmany(self.arraysize if size is None else size)  # type: ignore[misc]
        rows: list[Any] = []
        wanted = self.arraysize if size is None else size
        while len(rows) < wanted or wanted == 0:
            row = next(self, _END)
            if row is _END:
                break
            rows.append(row)
        return rows

    def fetchall(self: Any) -> Any:
        return list(self)

    def __iter__(self: Any) -> Any:
        return self

    def __next__(self: Any) -> Any:
        ahead = self._mussurana_ahead
        if ahead:
            row = ahead.popleft()
        else:
            if self._mussurana_error is not None:
                error, self._mussurana_error = self._mussurana_error, None
                raise error
            row = super().__next__()  # type: ignore[misc]
            if self._mussurana_more is not None:
                self._mussurana_more(row)
        layout = self._mussurana_layout
        if layout is not None and layout.visible is not None:
            visible = layout.visible
            row = row[: len(visible)] if visible == tuple(range(len(visible))) else tuple(row[at] for at in visible)
        factory = self._mussurana_row_factory
        if factory is None:
            return row
        return factory(_named(self), row) if factory is sqlite3.Row else factory(self, row)

    @property
    def description(self: Any) -> Any:
        real = super().description  # type: ignore[misc]
        layout = self._mussurana_layout
        if real is None or layout is None or layout.visible is None:
            return real
        plan = self._mussurana_plan
        if plan is not None and plan.quiet:
            return None
        return tuple(real[at] for at in layout.visible)

    @property
    def rowcount(self: Any) -> Any:
        if self._mussurana_rowcount is not None and (self._mussurana_ahead is None or self._mussurana_ahead):
            return self._mussurana_rowcount
        return super().rowcount  # type: ignore[misc]

    @property
    def lastrowid(self: Any) -> Any:
        kept = self._mussurana_lastrowid
        return kept[0] if kept is not None else super().lastrowid  # type: ignore[misc]

    @property
    def row_factory(self: Any) -> Any:
        return self._mussurana_row_factory

    @row_factory.setter
    def row_factory(self: Any, factory: Any) -> None:
        self._mussurana_row_factory = factory

    def close(self: Any) -> None:
        """A closed cursor has no rows any more, but still tells about them."""
        told = self._mussurana_plan, self._mussurana_layout, self.rowcount, (self.lastrowid,)
        _forget(self)
        self._mussurana_plan, self._mussurana_layout, self._mussurana_rowcount, self._mussurana_lastrowid = told
        super().close()  # type: ignore[misc]


_END = object()


def _watch_of(cursor: Any) -> Watch | None:
    watch: Watch | None = cursor.connection._mussurana
    return watch


def _prepare(watch: Watch | None, sql: Any, parameters: Any) -> tuple[Plan | None, Any, Any, int]:
    plan: Plan | None = None
    if watch is None or type(sql) is not str:
        return None, sql, parameters, 0
    try:
        plan = watch.plan_for(sql)
        if plan is None:
            return None, sql, parameters, 0
        control = plan.control.what if plan.control is not None else ""
        if plan.observes or control in (BEGIN, SAVEPOINT):
            watch.begin()
        if control in (COMMIT, RELEASE) and watch.transactions is not None:
            watch.transactions.committing()
        write_id = watch.recorder.write_id() if plan.takes_id else 0
        given = parameters if plan.injection is None else plan.injection(parameters, write_id)
        return plan, plan.text, given, write_id
    except WrongParameters:
        # sqlite3 will refuse these, unless it takes a sequence for names, as it did until Python 3.12.
        if plan is not None and isinstance(plan.injection, ByName):
            return watch.as_written(plan), sql, parameters, 0
        return None, sql, parameters, 0
    except Exception:
        watch.failed()
        return (watch.as_written(plan) if plan is not None else None), sql, parameters, 0


def _take_ahead(cursor: Any, watch: Watch, plan: Plan, write_id: int, parameters: Any) -> None:
    """Fetch the first rows and record them; the application will get them from here."""
    try:
        real = _PLAIN.description.__get__(cursor)
        if real is None or not (plan.observes or plan.strips):
            return
        cursor._mussurana_plan = plan
        cursor._mussurana_layout = layout = plan.layout_for([column[0] for column in real])
        if not plan.observes:
            return
        first_rowcount = _PLAIN.rowcount.__get__(cursor)
        ahead: deque[Any] = deque()
        limit = ROWS_AHEAD_MAX if plan.write is None else -1
        complete = False
        following = _PLAIN.__next__
        try:
            while len(ahead) != limit:
                ahead.append(following(cursor))
        except StopIteration:
            complete = True
        except sqlite3.Error as error:
            cursor._mussurana_error = error
        rows = list(ahead)
        keys: Any = ()
        if complete and plan.absence is not None and len(rows) < plan.absence.expected:
            try:
                keys = plan.absence.keys(parameters)
            except Exception:
                keys = ()
        transactions = watch.transactions
        if plan.live and transactions is not None and transactions.txn is not None:
            transactions.txn.saw((extract_sqlite, plan, layout, rows, write_id, keys))
            transactions.txn.rows += len(rows)
            if not complete:
                cursor._mussurana_more = _recorder_of_more(watch, transactions.txn, rows)
        if not complete and cursor._mussurana_error is None:
            for table, shape, _ in plan.coverage:
                watch.recorder.coverage.count((table, f"{shape} of many rows", PARTIAL))
        if plan.quiet:
            ahead.clear()
        else:
            cursor._mussurana_rowcount = first_rowcount
        cursor._mussurana_ahead = ahead
    except Exception:
        watch.failed()


def _recorder_of_more(watch: Watch, txn: Txn, rows: list[Any]) -> Callable[[Any], None]:
    """What takes the rows that the application fetches later, as long as the transaction is open."""

    def take(row: Any) -> None:
        if watch.transactions is not None and watch.transactions.txn is txn:
            rows.append(row)
            txn.rows += 1

    return take


def _settle(watch: Watch | None, plan: Plan | None, failed: bool) -> None:
    if watch is not None:
        try:
            watch.settle(plan, failed)
        except Exception:
            watch.failed()


def _forget(cursor: Any) -> None:
    """What was kept of the last statement."""
    cursor._mussurana_plan = cursor._mussurana_layout = cursor._mussurana_ahead = None
    cursor._mussurana_error = cursor._mussurana_rowcount = cursor._mussurana_lastrowid = cursor._mussurana_names = None
    cursor._mussurana_more = None


def _named(cursor: Any) -> Any:
    """A cursor of sqlite3's own whose description has the visible columns only, as sqlite3.Row wants one."""
    layout = cursor._mussurana_layout
    if layout is None or layout.visible is None:
        return cursor
    if cursor._mussurana_names is None:
        names = ", ".join('NULL AS "' + column[0].replace('"', '""') + '"' for column in cursor.description)
        cursor._mussurana_names = sqlite3.Cursor(cursor.connection).execute(f"SELECT {names} LIMIT 0")
    return cursor._mussurana_names


class ConnectionMixin:
    """In front of sqlite3.Connection or a subclass of it."""

    _mussurana: Watch | None = None

    def cursor(self: Any, factory: Any = None) -> Any:
        made = super().cursor(recorded(factory or sqlite3.Cursor))  # type: ignore[misc]
        if isinstance(made, CursorMixin):
            made._mussurana_row_factory = _PLAIN.row_factory.__get__(made)
            _PLAIN.row_factory.__set__(made, None)
        return made

    def execute(self: Any, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self: Any, sql: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self: Any, sql_script: str, /) -> Any:
        return self.cursor().executescript(sql_script)

    def commit(self: Any) -> None:
        watch: Watch | None = self._mussurana
        if watch is not None and watch.transactions is not None:
            watch.transactions.committing()
        try:
            super().commit()  # type: ignore[misc]
        except BaseException:
            if not self.in_transaction:  # else it is still open, and may be tried again
                _settle(watch, None, True)
            raise
        if watch is not None and watch.transactions is not None:
            watch.transactions.end(COMMITTED)

    def rollback(self: Any) -> None:
        watch: Watch | None = self._mussurana
        transactions = watch.transactions if watch is not None else None
        if transactions is not None and transactions.txn is not None and transactions.only_reads:
            try:
                self.commit()  # it changed nothing; so its reads count
                return
            except sqlite3.Error:
                pass
        super().rollback()  # type: ignore[misc]
        if transactions is not None:
            transactions.end(ABORTED)

    def close(self: Any) -> None:
        if self._mussurana is not None:
            try:
                self._mussurana.closing()
            except sqlite3.Error as error:  # it belongs to another thread, and will not be closed either
                logger.debug("before a connection was closed: %s", error)
            except Exception:
                self._mussurana.failed()
        super().close()  # type: ignore[misc]
        if self._mussurana is not None:
            try:
                self._mussurana.closed()
            except Exception:
                self._mussurana.failed()

    def __exit__(self: Any, kind: Any, error: Any, traceback: Any) -> Literal[False]:
        if kind is None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise
        else:
            self.rollback()
        return False


_recorded: dict[type, type] = {}


def recorded(base: Any) -> Any:
    """The class with our hooks in front of one of sqlite3's, or of a subclass of it."""
    found = _recorded.get(base)
    if found is not None:
        return found
    if not isinstance(base, type) or issubclass(base, CursorMixin | ConnectionMixin):
        return base
    mixin = CursorMixin if issubclass(base, sqlite3.Cursor) else ConnectionMixin
    details = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    made = _recorded[base] = type(base.__name__, (mixin, base), details)
    return made


def connection_factory(settings: Settings | None = None, base: Any = None) -> Callable[..., Any]:
    """For the argument `factory` of sqlite3.connect: makes connections that are recorded."""
    base = base or sqlite3.Connection

    def make(*arguments: Any, **options: Any) -> Any:
        connection = recorded(base)(*arguments, **options)
        watch_connection(connection, settings)
        return connection

    return make


def watch_connection(connection: Any, settings: Settings | None = None) -> bool:
    """Start to record a connection, unless it is already; returns whether it is recorded now."""
    settings = Settings.load() if settings is None else settings
    if not settings.enabled or not isinstance(connection, ConnectionMixin):
        return False  # the class of a connection that C code made cannot be changed
    if sqlite3.sqlite_version_info < (3, 35):
        logger.warning("mussurana does not record: SQLite %s has no RETURNING", sqlite3.sqlite_version)
        return False
    if connection._mussurana is None:
        try:
            connection._mussurana = Watch(settings, connection)
        except Exception:
            logger.exception("mussurana does not record this connection")
            return False
        _watched.add(connection)
    return True


def stop_watching() -> None:
    """Let all connections go on without being recorded."""
    for connection in list(_watched):
        watch, connection._mussurana = connection._mussurana, None
        _watched.discard(connection)
        if watch is not None and watch.transactions is not None:
            watch.transactions.session.close()


_watched: weakref.WeakSet[Any] = weakref.WeakSet()


def connect(database: Any, *arguments: Any, mussurana: Settings | None = None, **options: Any) -> Any:
    """As sqlite3.connect, with recording."""
    options["factory"] = connection_factory(mussurana, options.get("factory"))
    return sqlite3.connect(database, *arguments, **options)
