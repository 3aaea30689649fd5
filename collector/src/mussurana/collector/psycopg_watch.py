"""What is remembered of one psycopg connection, and what runs on it between its transactions.

The hooks in `psycopg_adapter` ask here what to send and report here what came back. All talk with the server is in
generators, as in psycopg itself, so that it is the same for sync and async.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable
from time import monotonic, perf_counter, time_ns
from typing import Any, NamedTuple

from psycopg import errors as e
from psycopg import generators, pq
from psycopg.sql import Composable

from mussurana.collector.catalog import WID, Catalog
from mussurana.collector.catalog_postgres import QUERY, QUERY_ALL, postgres_catalog, without_system
from mussurana.collector.coverage import UNOBSERVED_READ, UNOBSERVED_WRITE
from mussurana.collector.database import current_plans, plans_from, schema_changed, watch_schema
from mussurana.collector.extraction import Extract, Sink, catch_up
from mussurana.collector.losses import PLACE_NOT_KNOWN, single
from mussurana.collector.psycopg_cursors import SharedAdapters
from mussurana.collector.psycopg_errors import as_sent, may_be_ours, repair_error
from mussurana.collector.psycopg_results import layout_of
from mussurana.collector.recorder import (
    ABORTED,
    COMMITTED,
    IN_DOUBT,
    NOT_KNOWN,
    Recorder,
    Session,
    SessionInfo,
    Txn,
    recorder_for,
)
from mussurana.collector.settings import Settings
from mussurana.collector.sql.control import (
    BEGIN,
    COMMIT,
    ENCODING,
    LEVELS,
    PREPARE,
    ROLLBACK,
    SCHEMA,
    SEARCH_PATH,
    SET_DEFAULT,
    TEMPORARY,
    Control,
    level_in,
)
from mussurana.collector.sql.draft import XMIN, unobserved_write_keys
from mussurana.collector.sql.extract import extract_fence, extract_fetched, extract_lost, postgres_extractor, unanswered
from mussurana.collector.sql.plan import Layout, Plan
from mussurana.collector.sql.plans import Plans
from mussurana.collector.sql.tokens import FORMAT, NONE, POSTGRES, RAW, words_of
from mussurana.collector.transactions import Transactions
from mussurana.collector.which_database import postgres_database

logger = logging.getLogger("mussurana")

IDLE = pq.TransactionStatus.IDLE
INTRANS = pq.TransactionStatus.INTRANS
OK = pq.ConnStatus.OK
OFF = pq.PipelineStatus.OFF
TUPLES_OK = pq.ExecStatus.TUPLES_OK
FATAL_ERROR = pq.ExecStatus.FATAL_ERROR

CLOSING_SECONDS_MAX = 0.25
"""What a fence may add to the closing of a connection; it takes one round trip. If the network hangs nobody may notice,
and the next ones are not even tried for a while (`closing_fence_hangs`)."""

CLOSING_POLL_SECONDS = 0.02
"""How often it is looked at while nothing comes."""

FENCE_TRIES_MAX = 5
"""Fences of other sessions are the only ones that can be in the way, and each is over in a moment."""

RETRY_NS = 60_000_000_000
"""After the catalog could not be read, a minute passes until the next try."""

NEVER_NS = 1 << 63

XID_HORIZON = b"SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.text"
"""All transactions of the database with smaller ids have ended."""

_LEVEL = "pg_catalog.current_setting('transaction_isolation')"
DEFAULT_ISOLATION = f"SELECT {_LEVEL}".encode()
"""In a transaction of its own. What a role, a database, the server or the session has set, is all in it."""

_SERVER = "(SELECT system_identifier::pg_catalog.text FROM pg_catalog.pg_control_system())"
_NUMBER = (
    "(SELECT oid::pg_catalog.text FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) "
    "pg_catalog.current_database())"
)

PGen = Generator[Any, Any, Any]

UNKNOWN = ("", "catalog could not be read", UNOBSERVED_WRITE)
FOREIGN = ("", "cursor that the connection did not make", UNOBSERVED_WRITE)


class Fetches(NamedTuple):
    """Where what is fetched through a cursor is recorded: at the place of its DECLARE."""

    txn: Txn
    observations: list[tuple[Any, ...]]


class Watch:
    """What its generators meet at the server is not raised; what else goes wrong the hooks have to catch."""

    def __init__(self, settings: Settings, pgconn: Any) -> None:
        self.settings = settings
        self.recorder: Recorder = recorder_for(settings)
        self.pgconn = pgconn
        self.process = os.getpid()
        self.plans: Plans | None = None
        self.transactions: Transactions | None = None  # None: nothing here is recorded
        self.adapters: SharedAdapters | None = None  # for the next cursor, if they are still the connection's
        self.lane: dict[str, Plan] = {}  # plans that can be used without further questions
        self.encoding = "utf-8"
        self.extract = postgres_extractor("utf-8", self.recorder)
        self.search_path: bytes | None = b""  # None: not known; empty: as the connection was made
        self.has_looked = False  # whether which database this is was asked on this connection, and not on another one
        self.own_catalog = 0  # not 0: it is not shared with other connections
        self.names_changed = False  # unqualified names may mean other tables than the catalog says
        self.schema_changed = False  # in the transaction that is open
        self.epoch = 0
        self.renew_ns = 0
        self.expected = False  # the query that starts next comes from one of our cursors
        self.commit_sent = False
        self.implicit = False  # the transaction is a statement's own, or that of a pipeline
        self.implicit_failed = False
        self.syncs_sent = self.syncs_answered = 0  # of a pipeline; each ends the transaction if that is implicit
        self.syncs_before = 0  # those sent before the transaction began, which say nothing about it
        self.begin_sent = False  # and not answered yet, in a pipeline
        self.out_of_step = False  # psycopg takes answers for those to other statements
        self.is_outdated = False  # a prepared statement was refused since what it returns is not what it was
        self.streamed = False  # rows came one by one, and a pipeline would go on so
        watch_schema(self)
        self.suspect: tuple[Plan, Any, Any] | None = None  # refused in a transaction; what was sent, and the original

    # Between transactions

    def due(self) -> bool:
        """Whether something has to run before the next transaction."""
        try:
            now_ns = time_ns()
            if now_ns >= self.renew_ns or self.plans is None or self.out_of_step:
                return now_ns >= self.renew_ns
            if self.suspect is not None:
                return True
            transactions = self.transactions
            return transactions is not None and transactions.session.fence_due(now_ns) and not transactions.prepared
        except Exception:
            self.failed()
            return False

    def between(self) -> PGen:
        """Read the catalog if it is time, then fence if it is time. Pre: the connection is idle and in no pipeline."""
        try:
            if self.suspect is not None:
                yield from self._blame()
            if time_ns() >= self.renew_ns:
                yield from self._renew()
            transactions = self.transactions
            if transactions is not None and transactions.session.fence_due(time_ns()):
                yield from self._fence(transactions)
                if self.transactions is None:  # another database has come into the place of the one that was known
                    yield from self._renew()
                    transactions = self.transactions
                    if transactions is not None:
                        yield from self._fence(transactions)
            if transactions is not None and transactions.default_isolation == NOT_KNOWN:
                result = yield from self._query(DEFAULT_ISOLATION)
                if result.status == TUPLES_OK:
                    self._learn_default(transactions, result.get_value(0, 0))
        except e.Error as error:  # the connection is gone; the application will notice by itself
            logger.debug("between transactions: %s", error)
        except Exception:
            self.failed()

    def _blame(self) -> PGen:
        """Find out whether a statement was refused because of what we made of it, without running it."""
        assert self.suspect is not None
        (plan, *queries), self.suspect = self.suspect, None
        taken = []
        for query in queries:
            text = b"EXPLAIN " + query.query
            if query.types:
                self.pgconn.send_query_params(text, query.params, query.types, query.formats)
            else:  # there are no parameters, or the cursor has put them into the text
                self.pgconn.send_query_params(text, None)
            results = yield from generators.execute(self.pgconn)
            taken.append(results[-1].status == TUPLES_OK)
        if taken == [False, True]:
            self.disable(plan)

    def look_anew(self) -> None:
        """Have the catalog read before the next transaction."""
        schema_changed(self._database())
        self.renew_ns = 0

    def disable(self, plan: Plan) -> None:
        """The database does not take what we made of a statement. Look at the catalog again: it may not be ours."""
        logger.warning("a statement is not recorded any more, since the database refused it with our changes")
        if self.plans is not None:
            self.plans.disable(plan)
        schema_changed(self._database())
        self.renew_ns = 0

    def end_streaming(self) -> PGen:
        """Lead libpq out of single-row mode by an empty query.

        In a pipeline it would stay in it for the first statement that returns rows. An UPDATE does so because of us.
        """
        try:
            self.pgconn.send_query(b"")
            yield from generators.execute(self.pgconn)
        except e.Error as error:
            logger.debug("before a pipeline: %s", error)

    def _query(self, text: bytes) -> PGen:
        """Run a statement as a transaction of its own; returns its result, whether or not it is an error.

        In one message, where a statement with parameters takes five.
        """
        self.pgconn.send_query(text)
        results = yield from generators.execute(self.pgconn)
        return results[-1]

    def _renew(self) -> PGen:
        self.renew_ns = time_ns() + RETRY_NS
        self.encoding = self.pgconn._encoding
        self.extract = postgres_extractor(self.encoding, self.recorder)
        if self.search_path is None:
            result = yield from self._query(b"SELECT pg_catalog.current_setting('search_path')")
            self.search_path = result.get_value(0, 0) if result.status == TUPLES_OK else b"?"
        plans = current_plans(self._database())
        if plans is None:
            by_xmin = self.settings.versions == XMIN
            query = QUERY_ALL if by_xmin else QUERY
            result = yield from self._query(query.encode())
            if result.status == FATAL_ERROR and result.error_field(pq.DiagnosticField.SQLSTATE) == b"42501":
                result = yield from self._query(without_system(query).encode())
            if result.status != TUPLES_OK:
                severity = result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
                if self.pgconn.status != OK or severity != b"ERROR":  # it is about the connection, not the catalog
                    self.renew_ns = 0
                    return
                logger.warning("the catalog could not be read: %s", result.error_message.decode("utf-8", "replace"))
                self.recorder.metrics.hook_failures += 1
                self.plans = None
                self.lane = {}
                return
            catalog: Catalog = postgres_catalog(result.get_value(0, 0).decode(self.encoding), by_xmin, by_xmin)
            self.has_looked = True
            self._belong_to(catalog)  # what was written unseen, plans_from tells of this database
            plans = plans_from(self._database(), catalog, POSTGRES, self.recorder.coverage, XMIN if by_xmin else WID)
        else:
            self._belong_to(plans.catalog)
        if self.transactions is None and plans.version_column == XMIN and not self.recorder.xid_horizon:
            result = yield from self._query(XID_HORIZON)
            self.recorder.xid_horizon = int(result.get_value(0, 0)) & 0xFFFF_FFFF
        self.recorder.names.begins(plans.catalog.began_anew)
        self.plans = plans
        self.names_changed = self.schema_changed = False
        self.lane = plans.caches[FORMAT]
        if self.transactions is None and plans.catalog.tables:
            fenced = plans.catalog.fence_in_force is not None
            session = self.recorder.open_session(f"conn {self.pgconn.backend_pid}", fenced=fenced)
            self.transactions = Transactions(self.recorder, session)

    def _belong_to(self, catalog: Catalog) -> None:
        """Record into what is recorded of the database whose catalog this is. Pre: no transaction is open."""
        if not catalog.tables or self.recorder.is_closed:
            return
        host, port, name = (_text(part) for part in (self.pgconn.host, self.pgconn.port, self.pgconn.db))
        database = postgres_database(catalog.database, host, port, name)
        recorder = recorder_for(self.settings, database)
        if recorder is self.recorder:
            return
        if self.transactions is not None:  # another database came into the place of the one that was there
            self.transactions.session.close()
            self.transactions = None
        self.recorder, self.epoch = recorder, 0
        self.extract = postgres_extractor(self.encoding, recorder)

    def _database(self) -> tuple[Any, ...]:
        pgconn = self.pgconn
        known = pgconn.host, pgconn.port, pgconn.db, pgconn.user, pgconn.options
        return (*known, self.settings.versions, self.search_path, self.own_catalog)

    def _fence(self, transactions: Transactions) -> PGen:
        """A transaction of its own that extends the chain of fences, unless another session has since."""
        session = transactions.session
        name = self._fence_name()
        if not name:
            session.fence_failed()
            return
        started = perf_counter()
        for _ in range(FENCE_TRIES_MAX):
            if not session.write_fence_needed:
                txn = session.begin()
                result = yield from self._query(_read_fence(name))
                if result.status == TUPLES_OK and result.ntuples and int(result.get_value(0, 0)) > self.epoch:
                    self.epoch = txn.epoch = int(result.get_value(0, 0))
                    txn.observations.append((extract_fence, 0, int(result.get_value(0, 1) or 0)))
                    self._learn_default(transactions, result.get_value(0, 2))
                    txn.isolation = transactions.default_isolation
                    self._end_fence(session, txn, COMMITTED)
                    session.fenced(wrote=False, seconds=perf_counter() - started)
                    return
                self._end_fence(session, txn, ABORTED)  # what it saw is not worth recording
            txn = session.begin()
            write_id = self.recorder.write_id()
            try:
                result = yield from self._query(_write_fence(name, write_id, self._look()))
            except BaseException:
                txn.observations.append((extract_lost, write_id))
                session.end(txn, IN_DOUBT)
                session.fence_failed(perf_counter() - started)
                raise
            if result.status == TUPLES_OK and result.ntuples:
                if not self._is_known(result):
                    txn.observations.append((extract_lost, write_id))
                    session.end(txn, IN_DOUBT)
                    self._begin_anew()
                    return
                self.epoch = txn.epoch = int(result.get_value(0, 0))
                txn.observations.append((extract_fence, write_id, int(result.get_value(0, 1) or 0)))
                self._learn_default(transactions, result.get_value(0, 2))
                txn.isolation = transactions.default_isolation
                self._end_fence(session, txn, COMMITTED)
                session.fenced(wrote=True, seconds=perf_counter() - started)
                return
            self._end_fence(session, txn, ABORTED)
            if result.error_field(pq.DiagnosticField.SQLSTATE) not in (b"40001", b"40P01"):
                break
        session.fence_failed(perf_counter() - started)

    def _look(self) -> str:
        """Asks with a fence which database this is, if its catalog was read on another connection; else empty.

        A database may be restored, or another server come into its place, within the minute that a catalog is kept.
        """
        if self.has_looked or self.plans is None:
            return ""
        return f", {_SERVER if self.plans.catalog.server_tells else 'NULL'}, {_NUMBER}"

    def _is_known(self, result: Any) -> bool:
        """Whether a fence was answered by the database whose catalog is known."""
        if self.has_looked or self.plans is None or result.nfields < 5:
            return True
        self.has_looked = True
        server, number = _text(result.get_value(0, 3)), _text(result.get_value(0, 4))
        known_server, known_number = self.plans.catalog.database
        return (server or known_server, number) == (known_server, known_number)

    def _begin_anew(self) -> None:
        """What is known is of another database: forget it, and what is recorded of that one gets nothing of this."""
        schema_changed(self._database())
        if self.transactions is not None:
            self.transactions.session.close()
            self.transactions = None
        self.plans = None
        self.lane = {}

    def _learn_default(self, transactions: Transactions, level: bytes | None) -> None:
        """A transaction that asked for no isolation level ran at this one."""
        transactions.default_isolation = LEVELS.get((level or b"").decode().upper(), NOT_KNOWN)

    def _end_fence(self, session: Session, txn: Txn, status: int) -> None:
        catch_up(txn, self.recorder.names)  # or else all that follows would have to wait in the queue behind it
        session.end(txn, status)

    def _fence_name(self) -> str:
        table = self.plans.catalog.fence_in_force if self.plans is not None else None
        return f'"{table.schema}"."{table.name}"' if table is not None else ""

    def closing_fence_due(self) -> bool:
        """Whether to read the fence before the connection is closed: it is idle, good, and our own."""
        transactions = self.transactions
        return (
            transactions is not None
            and transactions.txn is None
            and self.pgconn.status == OK
            and self.pgconn.transaction_status == IDLE
            and self.pgconn.pipeline_status == OFF
            and self.process == os.getpid()  # a child that closes what it got from its parent is silent
            and transactions.session.closing_fence_due()
            and bool(self._fence_name())
        )

    def closing_fence(self) -> PGen:
        """Read the fence, so that all that was done here comes before the next write fence of anybody.

        Pre: `closing_fence_due`, and the connection is not used again: whether its answer is awaited is not certain.
        """
        assert self.transactions is not None
        session = self.transactions.session
        self.pgconn.notify_handler = self.pgconn.notice_handler = None  # nobody expects to hear anything any more
        started = perf_counter()
        txn = session.begin()
        txn.isolation = self.transactions.default_isolation
        try:
            result = yield from _within(CLOSING_SECONDS_MAX, self._last_look())
            if result.status == TUPLES_OK and result.ntuples:
                txn.epoch = int(result.get_value(0, 0))
                txn.observations.append((extract_fence, 0, int(result.get_value(0, 1) or 0)))
                session.end(txn, COMMITTED)
                session.fenced(wrote=False, seconds=perf_counter() - started)
                return
        except TimeoutError:
            session.closing_fence_hangs()
        except e.Error as error:
            logger.debug("before a connection was closed: %s", error)
        finally:
            session.end(txn, ABORTED)  # unless it has ended
        session.fence_failed(perf_counter() - started)

    def _last_look(self) -> PGen:
        """Read the fence; but first the catalog, if something was written whose name is not in it.

        That may have become the name of a table that is recorded, and nobody else would tell.
        """
        if self.plans is not None and self.plans.passed_strange():
            schema_changed(self._database())
            yield from self._renew()
        result = yield from self._query(_read_fence(self._fence_name()))
        return result

    # Statements

    def plan_for(self, query: Any, params: Any, raw: bool, context: Any) -> Plan | None:
        """The plan of what a cursor is asked to execute; None if nothing is to be done about it."""
        plans = self.plans
        if plans is None:
            if self.renew_ns:
                self.recorder.coverage.count(UNKNOWN)
            return None
        if type(query) is not str:
            query = self._text(query, context)
        style = RAW if raw else FORMAT if params is not None else NONE
        plan = plans.caches[style].get(query)
        if plan is None:
            plan = plans.find(query, style)
        else:
            plan.used = True
        if self.transactions is None:
            # A table may be adopted before the catalog is read again; a star shows our columns at once.
            return plan if plan.control is not None or plan.controls or plan.strips else None
        if (self.schema_changed or (self.names_changed and plan.unqualified)) and not plan.controls:
            plan = self._as_written(plan)
        if not plan.observes:  # else the extractor does it
            for key in plan.coverage:
                self.recorder.coverage.count(key)
        if plan.taints:
            plans.taint(plan.taints)
        if plan.passes:
            plans.passed.update(plan.passes)
            if plans.is_strange(plan):
                schema_changed(self._database())
                self.renew_ns = 0
        return plan

    def look_first(self, query: Any, raw: bool, params: Any) -> None:
        """A statement is about to begin a transaction: read the catalog first, if it writes to what is not there."""
        try:
            if self.plans is not None and type(query) is str:
                plan = self.plans.find(query, RAW if raw else FORMAT if params is not None else NONE)
                if plan.passes and self.plans.is_strange(plan):
                    schema_changed(self._database())
                    self.renew_ns = 0
        except Exception:
            self.failed()

    def _text(self, query: Any, context: Any) -> str:
        if isinstance(query, bytes):
            return query.decode(self.encoding)
        if isinstance(query, Composable):
            return query.as_string(context)
        if isinstance(query, str):
            return str(query)
        return " ".join(query.strings)  # a template; psycopg takes it apart, and we only look at its words

    def _as_written(self, plan: Plan) -> Plan:
        """While names may mean something else, statements go as they are; what they write to is tainted."""
        assert self.plans is not None
        self.untagged(plan)
        if plan.control is None and plan.text == plan.original:
            return plan if not plan.observes else Plan(plan.original, plan.original, strips=True)
        return Plan(plan.original, plan.original, control=plan.control, strips=True, row_types=plan.row_types)

    def untagged(self, plan: Plan) -> None:
        """A statement that should have been recorded will not be. What it writes to is tainted, here and elsewhere."""
        if plan.write is None or self.plans is None:
            return
        try:
            for key in unobserved_write_keys([plan.write.table], "not recorded"):
                self.recorder.coverage.count(key)
            self.plans.taint([plan.write.table])
        except Exception:
            self.recorder.coverage.count(UNKNOWN)

    def unknown(self, query: Any) -> None:
        """A statement goes as it is and nothing is known of it: what it names may be written."""
        try:
            text = query if isinstance(query, str) else repr(query)
            words = words_of(text)
            plans = self.plans
            if plans is None:
                return
            tables = [table for table in plans.catalog.tables.values() if table.name in words]
            if not plans.tainted.issuperset((table.schema, table.name) for table in tables):
                plans.taint(tables)
            for key in unobserved_write_keys(tables, "not understood"):
                self.recorder.coverage.count(key)
        except Exception:
            self.recorder.coverage.count(UNKNOWN)

    def record(self, plan: Plan, result: Any, write_id: int, params: Any, is_whole: bool = True) -> None:
        """A statement was answered. If it is not whole, keys that are not in it may be in the rest of the answer."""
        transactions = self.transactions
        if transactions is None or (txn := transactions.txn) is None:
            return
        if not plan.observes:
            return
        if not plan.live or self.out_of_step:
            transactions.lose(plan, write_id)
            return
        txn.saw(self.observation(plan, result, write_id, params, is_whole))
        txn.rows += result.ntuples

    def declared(self, plan: Plan) -> Fetches | None:
        """A cursor was declared; returns where to record what it fetches. None if that shall not be recorded."""
        transactions = self.transactions
        if self.implicit:  # WITH HOLD, in autocommit: it is over
            self.end_implicit(True)
        if transactions is None or transactions.txn is None or not plan.reads or plan.locks:
            if plan.reads:
                self._count_unrecorded(plan, "cursor that locks" if plan.locks else "cursor beyond its transaction")
            return None
        observations: list[tuple[Any, ...]] = []
        transactions.txn.saw((extract_fetched, observations))
        return Fetches(transactions.txn, observations)

    def fetched(self, fetches: Fetches, plan: Plan, result: Any) -> None:
        """Rows were fetched through a cursor. They are as they were at its DECLARE, so that is where they belong."""
        transactions = self.transactions
        if transactions is None or transactions.txn is not fetches.txn:
            self._count_unrecorded(plan, "cursor beyond its transaction")
        elif plan.live and result.status == TUPLES_OK:
            fetches.observations.append(self.observation(plan, result, 0, None, is_whole=False))
            fetches.txn.rows += result.ntuples

    def _count_unrecorded(self, plan: Plan, shape: str) -> None:
        for read in plan.reads:
            self.recorder.coverage.count((read.table.name, shape, UNOBSERVED_READ))

    def observation(
        self, plan: Plan, result: Any, write_id: int, params: Any, is_whole: bool = True
    ) -> tuple[Any, ...]:
        absence = plan.absence
        keys: Any = ()
        if is_whole and absence is not None and result.ntuples < plan.rows_expected:
            try:
                keys = absence.keys(params)
            except Exception:  # parameters that are not what the condition suggests say nothing about absence
                keys = ()
        layout = layout_of(plan, result)
        extract = self.extract if keys else self.extract_for(layout)
        return (extract, plan, layout, result, write_id, keys)

    def extract_for(self, layout: Layout | None) -> Extract:
        """What reads results of this shape, without Python once it is known how. Pre: no key was looked for in vain."""
        if self.encoding != "utf-8":
            return self.extract
        return self.recorder.names.readers.get(layout, self.extract)

    def failed_after(self, plan: Plan | None, write_id: int) -> None:
        """A hook failed when a statement had run: what it wrote is somewhere, and nobody will hear of it."""
        self.failed()
        lost = unanswered(plan, write_id)
        if lost is not None:
            try:
                self.transactions.txn.observations.append(lost)  # type: ignore[union-attr]
            except Exception:
                if plan is not None:
                    self.untagged(plan)

    def begin_implicit(self) -> None:
        """A statement, or a pipeline, that is a transaction of its own."""
        transactions = self.transactions
        if self.implicit and self.syncs_sent > self.syncs_before:
            self.abandon()  # the answer to the sync that ends it is still to come
        if transactions is not None and transactions.txn is None:
            transactions.begin()
            self.implicit = True
            self.implicit_failed = False
            self.syncs_before = self.syncs_sent

    def end_implicit(self, committed: bool) -> None:
        self.implicit = False
        transactions = self.transactions
        if transactions is not None and transactions.txn is not None:
            transactions.end(COMMITTED if committed else ABORTED)

    def _goes_on(self, error: BaseException) -> bool:
        """Whether the connection outlives an error. A server that says FATAL is about to close it."""
        fatal = isinstance(error, e.Error) and error.sqlstate and error.diag.severity_nonlocalized != "ERROR"
        return self.pgconn.status == OK and not fatal

    def _refused(self, error: BaseException) -> bool:
        """Whether the server itself said no, and goes on."""
        return self._goes_on(error) and isinstance(error, e.Error) and error.sqlstate is not None

    def statement_failed(self, error: BaseException, cursor: Any, plan: Plan | None, write_id: int) -> None:
        """A statement raised, for whatever reason."""
        transactions = self.transactions
        if transactions is None and self.implicit:
            self.implicit = False  # another thread closed the connection, which ended the transaction
            self.lose_outside([(plan, write_id)])
        if transactions is None or transactions.txn is None:
            return
        good, refused = self._goes_on(error), self._refused(error)
        control = plan.control if plan is not None else None
        if control is not None and control.what == COMMIT:
            self.commit_sent = False
            transactions.commit_failed(refused)
        elif control is not None and control.what == BEGIN and good and self.pgconn.transaction_status == IDLE:
            transactions.end(ABORTED)
        elif self.implicit:
            self.implicit = False
            if self._may_have_run(error, cursor, write_id):
                transactions.lose(plan, write_id)
            transactions.end(ABORTED if refused else IN_DOUBT)
        elif not good:
            transactions.lost()
        elif unanswered(plan, write_id) is not None and self._may_have_run(error, cursor, write_id):
            transactions.lose(plan, write_id)  # a row factory raised, say: what was written is there
        elif plan is not None and plan.controls and self.pgconn.transaction_status == IDLE:
            # Some of several statements in one text ran; whether a COMMIT was among them is not known.
            transactions.end(IN_DOUBT if any(each and each.what == COMMIT for each in plan.controls) else ABORTED)

    def _may_have_run(self, error: BaseException, cursor: Any, write_id: int) -> bool:
        """Whether a statement that raised may have done something nevertheless.

        A write id that is declared lost without need costs nothing. Where there is none a table does, so parameters
        that psycopg could not send have to be told from rows that it could not show.
        """
        if self._refused(error):
            return False
        return bool(
            write_id
            or not self._goes_on(error)
            or not isinstance(error, Exception)  # an interrupt, which may come at any time
            or cursor.pgresult is not None
            or cursor._results
        )

    def lose_outside(self, statements: Iterable[tuple[Plan | None, int]], sessions: Iterable[SessionInfo] = ()) -> None:
        """Statements, with their write ids, may have run, and no transaction that is open can tell of them."""
        sink = Sink(self.recorder.names)
        for plan, write_id in statements:
            lost = unanswered(plan, write_id)
            if lost is not None:
                lost[0](lost, sink)
        if sink.lost:
            self.recorder.losses.add(PLACE_NOT_KNOWN, single(sink.lost), sessions, 0)
        for key in sink.missed:
            self.recorder.coverage.count(key)

    def statement_failed_safely(self, error: BaseException, cursor: Any, plan: Plan | None, write_id: int) -> None:
        try:
            self.statement_failed(error, cursor, plan, write_id)
        except Exception:
            self.failed_control()

    def repair(
        self, error: BaseException, cursor: Any, plan: Plan | None, query: Any, params: Any, write_id: int
    ) -> None:
        """Let an error say what it would have said of the statement as the application wrote it."""
        try:
            plan = plan or cursor._mussurana_plan
            if plan is not None and self.plans is not None:
                if may_be_ours(error, plan):  # then see to it after the transaction
                    given = params if plan.injection is None else plan.injection(params, write_id)
                    self.suspect = plan, as_sent(cursor, plan.text, given), as_sent(cursor, query, params)
                elif plan.names_columns:  # they may not be what they were
                    schema_changed(self._database())
                    self.renew_ns = 0
                tagged = self.plans.catalog if self.plans.version_column == WID else None
                repair_error(error, cursor, plan, query, params, write_id, tagged)
        except Exception:
            self.failed()

    def statement_raised(
        self, error: BaseException, cursor: Any, plan: Plan | None, query: Any, params: Any, write_id: int
    ) -> None:
        """A statement raised, and the application is about to see it."""
        self.statement_failed_safely(error, cursor, plan, write_id)
        self.repair(error, cursor, plan, query, params, write_id)

    # Control of transactions

    def control_of(self, command: bytes) -> Control | None:
        """What a command that psycopg itself sends does."""
        known = _commands.get(command)
        if known is not None:
            return known
        if command.startswith(b"BEGIN"):  # with a level; also while there are no plans, which are made between BEGINs
            begin = _commands[command] = Control(BEGIN, isolation=level_in(command.decode()))
            return begin
        if self.plans is None:
            return None
        return self.plans.find(command.decode("utf-8", "replace"), NONE).control

    def before(self, control: Control) -> None:
        if control.what == COMMIT:
            self.commit_sent = True
        transactions = self.transactions
        if transactions is None:
            return
        if self.implicit and self.syncs_sent > self.syncs_before:
            self.abandon()  # as in `begin_implicit`
        goes_on = control.what == BEGIN and self.implicit
        if goes_on:
            self.implicit = False  # what ran in a pipeline so far belongs to it
            self.begin_sent = True
        else:
            in_transaction = self.pgconn.transaction_status != IDLE
            if control.what == BEGIN and not in_transaction:
                self.syncs_before = self.syncs_sent
                self.begin_sent = True
            transactions.before(control, in_transaction)
        if control.what not in (BEGIN, COMMIT, ROLLBACK) or self.pgconn.pipeline_status != OFF:
            transactions.only_reads = False  # in a pipeline it may have begun before, with what is not recorded

    def after(self, control: Control, tag: bytes) -> None:
        what = control.what
        if what == COMMIT:
            self.commit_sent = False
        elif what == BEGIN:
            self.begin_sent = False
        if what in _CHANGES_NAMES:
            self._names_may_have_changed(control)
        elif what == SET_DEFAULT:
            self.renew_ns = 0  # the server is asked if it is not known
        transactions = self.transactions
        if transactions is not None:
            in_transaction = self.pgconn.transaction_status != IDLE
            if what == SEARCH_PATH:  # RESET ALL and DISCARD ALL reset the level, too
                transactions.set_default(NOT_KNOWN, in_transaction)
            transactions.after(control, tag, in_transaction)

    def begin(self, command: bytes) -> Txn | None:
        """A command that begins a transaction is about to be sent, and the connection is idle."""
        control = self.control_of(command)
        transactions = self.transactions
        if control is None or control.what != BEGIN or transactions is None:
            return None
        return transactions.begin(control.isolation)

    def begin_failed(self) -> None:
        """It was, and the server is still idle."""
        try:
            if self.transactions is not None:
                self.transactions.end(ABORTED)
        except Exception:
            self.failed_control()

    def may_commit_instead(self) -> bool:
        """Whether the open transaction did nothing that a ROLLBACK would undo, so that its reads can be confirmed."""
        transactions = self.transactions
        return (
            transactions is not None
            and transactions.txn is not None
            and transactions.only_reads
            and bool(transactions.txn.observations)
            and self.pgconn.transaction_status == INTRANS
        )

    def command_failed(self, error: BaseException, control: Control) -> None:
        """A command of psycopg's own raised."""
        transactions = self.transactions
        if transactions is None:
            return
        good = self._goes_on(error)
        if control.what == COMMIT:
            self.commit_sent = False
            transactions.commit_failed(self._refused(error))
        elif not good:
            transactions.lost()
        elif control.what in (BEGIN, ROLLBACK) and self.pgconn.transaction_status == IDLE:
            transactions.end(ABORTED)

    def synced(self) -> None:
        """A pipeline came to a point where what was implicit in it before has ended."""
        self.syncs_answered += 1
        if self.out_of_step:
            self.abandon()
        elif self.syncs_answered <= self.syncs_before:
            return  # what is open began after it
        elif self.implicit and self.pgconn.transaction_status != INTRANS:
            self.end_implicit(not self.implicit_failed)

    def refused_in_pipeline(self, what: str, result: Any) -> None:
        """A statement was refused, or one before it, and with it all up to the next sync. It would have done `what`."""
        if self.syncs_answered < self.syncs_before:
            return  # what is open began after that sync
        has_run = result.status == FATAL_ERROR
        self.implicit_failed |= has_run
        if what == BEGIN and self.begin_sent:  # what it was to begin, or to go on with, is rolled back at the sync
            self.begin_sent = False
            self.implicit = self.implicit_failed = True
        elif what in (COMMIT, PREPARE) and has_run and self.transactions is not None and not self.out_of_step:
            self.implicit = self.commit_sent = False
            is_error = result.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) == b"ERROR"  # else the server ends
            self.transactions.commit_failed(refused=is_error)

    def pipeline_failed(self, error: BaseException) -> None:
        """A pipeline could not prepare a statement, or could not commit where it synced.

        In the second case psycopg never gets to see the answer to the sync itself, so what was implicit ends here.
        """
        try:
            is_own = self.syncs_answered >= self.syncs_before
            self.implicit_failed |= is_own
            if self.implicit and is_own and self._refused(error):
                self.end_implicit(False)
        except Exception:
            self.failed_control()

    def lose_step(self) -> None:
        """From now on answers may be to other statements than psycopg takes them for: what they say is not used."""
        try:
            self.out_of_step = True
            self.lane = {}
            self.renew_ns = NEVER_NS  # nothing of ours may run either
            self.abandon()
        except Exception:
            self.failed()

    def in_step_again(self) -> None:
        """A pipeline is over, and all answers have come."""
        self.syncs_sent = self.syncs_answered = self.syncs_before = 0
        try:
            if self.out_of_step:
                self.abandon()
                self.out_of_step = False
                self.renew_ns = 0
        except Exception:
            self.failed()

    def abandon(self) -> None:
        """What became of the open transaction is not known, nor of what it wrote."""
        self.implicit = self.commit_sent = False
        if self.transactions is not None:
            self.transactions.abandon()

    def foreign_cursor(self) -> None:
        """A cursor that we did not make runs something that we do not see."""
        if self.plans is not None and self.transactions is not None:
            self.recorder.coverage.count(FOREIGN)
            self.transactions.only_reads = False
            if not self.plans.everything_tainted:
                logger.warning("a cursor was made past its connection; nothing of this database is recorded any more")
                self.plans.taint_everything()

    def closed(self) -> None:
        """The connection was closed, or is found to be lost."""
        transactions = self.transactions
        if transactions is None:
            return
        if self.commit_sent or self.implicit:
            transactions.end(IN_DOUBT)
        else:
            transactions.lost()
        transactions.session.close()
        self.transactions = None

    def _names_may_have_changed(self, control: Control) -> None:
        if control.what == SEARCH_PATH:
            self.search_path = None
            self.names_changed = True
        elif control.what == ENCODING:
            self.encoding = self.pgconn._encoding
            self.extract = postgres_extractor(self.encoding, self.recorder)
            return
        elif control.what == TEMPORARY:
            if self.plans is None or self.plans.catalog.table(control.name) is None:
                return
            self.own_catalog = self.pgconn.backend_pid  # in which the temporary table is found first
            self.names_changed = True
        else:
            self.schema_changed = True
            schema_changed(self._database())
        self.lane = {}
        self.renew_ns = 0

    def failed_control(self) -> None:
        """A hook failed that should have noted the beginning or the end of something."""
        self.failed()
        self.abandon()

    def failed(self) -> None:
        """One of our hooks raised."""
        self.recorder.metrics.hook_failures += 1
        logger.debug("a hook failed", exc_info=True)


_CHANGES_NAMES = frozenset({SEARCH_PATH, ENCODING, TEMPORARY, SCHEMA})

_commands: dict[bytes, Control] = {
    b"BEGIN": Control(BEGIN),
    b"COMMIT": Control(COMMIT),
    b"ROLLBACK": Control(ROLLBACK),
}


def _text(part: bytes | None) -> str:
    return (part or b"").decode("utf-8", "replace")


def _within(seconds: float, steps: PGen) -> PGen:
    """The same steps, for so long. Pre: whoever waits for them comes back now and then, though nothing has happened."""
    deadline = monotonic() + seconds
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise TimeoutError
            wanted = steps.send(ready)
    except StopIteration as stop:
        return stop.value


def _read_fence(name: str) -> bytes:
    return f"SELECT epoch, mussurana_wid, {_LEVEL} FROM {name} WHERE id = 1".encode()


def _write_fence(name: str, write_id: int, also: str = "") -> bytes:
    # The subquery locks the row and so sees its last version, also on servers whose RETURNING knows no old row.
    return (
        f"UPDATE {name} AS f SET epoch = f.epoch + 1, mussurana_wid = {write_id} "
        f"FROM (SELECT id, mussurana_wid FROM {name} WHERE id = 1 FOR UPDATE) AS o WHERE f.id = o.id "
        f"RETURNING f.epoch, o.mussurana_wid, {_LEVEL}{also}"
    ).encode()
