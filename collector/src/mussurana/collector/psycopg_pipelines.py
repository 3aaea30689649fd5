"""Statements whose answers come later: pipelines, and `executemany`, which is one.

psycopg keeps a queue of what it has sent, and gives each answer to the cursor that waits for it. What we know of a
statement stands in the same place of the same queue (`Queued`). A cursor may send several statements before the first
answer comes, so it cannot tell which of them an answer belongs to.

Whether a transaction of its own has failed is read from the answers. An exception says less: a row factory may have
raised it, or parameters that were never sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg import errors as e
from psycopg import pq

from mussurana.collector.psycopg_watch import PGen, Watch
from mussurana.collector.recorder import Txn
from mussurana.collector.sql.control import COMMIT, PREPARE, ROLLBACK, ROLLBACK_TO, SAVEPOINT, Control
from mussurana.collector.sql.extract import unanswered
from mussurana.collector.sql.plan import Plan

OFF = pq.PipelineStatus.OFF
TUPLES_OK = pq.ExecStatus.TUPLES_OK
COMMAND_OK = pq.ExecStatus.COMMAND_OK
FATAL_ERROR = pq.ExecStatus.FATAL_ERROR
PIPELINE_ABORTED = pq.ExecStatus.PIPELINE_ABORTED
PIPELINE_SYNC = pq.ExecStatus.PIPELINE_SYNC


class Sent(NamedTuple):
    """What has to be known of a statement when its answer comes."""

    plan: Plan | None  # None: nothing is known of it
    write_id: int
    params: Any
    txn: Txn | None  # that it is to be recorded in,
    place: int  # among the observations of it


class Queued(tuple[Any, ...]):
    """A place in psycopg's queue, as psycopg made it, with what we know of the statement."""

    sent: Sent


def queue(cursor: Any, steps: PGen) -> PGen:
    """Put what we know of a statement beside what psycopg puts into its queue in `steps`."""
    yield from steps
    sent: Sent | None = cursor._mussurana_sending
    cursor._mussurana_sending = None
    waiting = cursor._conn._pipeline.result_queue
    if sent is not None and waiting and waiting[-1] is not None and waiting[-1][0] is cursor:
        queued = Queued(waiting[-1])
        queued.sent = sent
        waiting[-1] = queued


def keep_place(watch: Watch, plan: Plan, write_id: int, params: Any) -> Sent:
    """Keep a place for an answer that comes later, so that operations stay in order.

    Until then the place says that the answer is lost, which it is if it never comes.
    """
    txn = watch.transactions.txn if watch.transactions is not None else None
    if txn is None or not plan.observes:
        return Sent(plan, write_id, params, None, -1)
    txn.observations.append(unanswered(plan, write_id) or (_nothing,))
    return Sent(plan, write_id, params, txn, len(txn.observations) - 1)


def _nothing(observation: Any, sink: Any) -> None:
    """The observation of a read whose answer never came."""


def give_up_place(watch: Watch, cursor: Any) -> None:
    """A statement never ran, because it did not get into the queue: its parameters were wrong, say."""
    sent: Sent | None = cursor._mussurana_sending
    cursor._mussurana_sending = None
    txn = watch.transactions.txn if watch.transactions is not None else None
    if sent is not None and txn is not None and txn is sent.txn:
        txn.observations[sent.place] = (_nothing,)


class _Sync:
    """Stands in psycopg's queue for a sync, so that it is not taken for a command that psycopg sent by itself."""


_SYNC = _Sync()


class PipelineMixin:
    """In front of psycopg's Pipeline: in autocommit, everything up to a sync is one transaction.

    psycopg itself can lose its way: where a COMMIT at a sync fails the sync is answered as well, which psycopg does not
    expect, and each answer after it goes to the wrong statement. So does one after an interrupt. From then on nothing
    is taken from an answer (`Watch.out_of_step`).
    """

    _mussurana_error: e.Error | None = None  # that an answer brought; others are about the sending

    def _enqueue_sync(self: Any) -> None:
        super()._enqueue_sync()  # type: ignore[misc]
        self.result_queue[-1] = _SYNC
        watch: Watch | None = self._conn._mussurana
        if watch is not None:
            watch.syncs_sent += 1

    def _communicate_gen(self: Any) -> PGen:
        return self._mussurana_follow(super()._communicate_gen())  # type: ignore[misc, no-any-return]

    def _fetch_gen(self: Any, *, flush: bool) -> PGen:
        return self._mussurana_follow(super()._fetch_gen(flush=flush))  # type: ignore[misc, no-any-return]

    def _mussurana_follow(self: Any, steps: PGen) -> PGen:
        """Go on as psycopg does, and notice where its queue and the answers part."""
        self._mussurana_error = None
        try:
            yield from steps
        except BaseException as error:
            watch: Watch | None = self._conn._mussurana
            if watch is not None and error is not self._mussurana_error:
                watch.lose_step()
            raise

    def _exit(self: Any, exc: BaseException | None) -> None:
        try:
            super()._exit(exc)  # type: ignore[misc]
        finally:
            watch: Watch | None = self._conn._mussurana
            if watch is not None and self.pgconn.pipeline_status == OFF:
                watch.in_step_again()

    def _process_results(self: Any, queued: Any, results: list[Any]) -> None:
        watch: Watch | None = self._conn._mussurana
        is_sync = queued is _SYNC
        if is_sync:
            queued = None
        if watch is not None and (results[0].status == PIPELINE_SYNC) != is_sync:
            watch.lose_step()  # before anybody looks at it
        try:
            if queued is None:
                self._mussurana_process_unasked(watch, is_sync, results)
            else:
                self._mussurana_process_asked(watch, queued, results)
        except e.Error as error:
            self._mussurana_error = self._mussurana_error or error
            raise

    def _mussurana_process_asked(self: Any, watch: Watch | None, queued: Any, results: list[Any]) -> None:
        """The answer to a statement of a cursor, or to a command of the connection."""
        sent: Sent | None = getattr(queued, "sent", None)
        plans = None if isinstance(queued[0], CommandWatcher) else _note_plans(queued[0], sent, len(results))
        if watch is not None and any(each.status in (FATAL_ERROR, PIPELINE_ABORTED) for each in results):
            watch.refused_in_pipeline(_control(queued[0], sent), results[-1])
        try:
            super()._process_results(queued, results)  # type: ignore[misc]
        except BaseException as error:
            if plans is not None and len(plans) > len(queued[0]._results):
                del plans[len(queued[0]._results) :]
            if watch is not None and sent is not None and sent.plan is not None:
                watch.repair(error, queued[0], sent.plan, sent.plan.original, sent.params, sent.write_id)
                if results[0].status in (TUPLES_OK, COMMAND_OK):  # it has run: a row factory raised, say
                    _answered(self, watch, sent, results)
            raise
        if watch is not None and sent is not None:
            _answered(self, watch, sent, results)

    def _mussurana_process_unasked(self: Any, watch: Watch | None, is_sync: bool, results: list[Any]) -> None:
        """The answer to a sync, or to a PREPARE that psycopg sent before a statement."""
        try:
            super()._process_results(None, results)  # type: ignore[misc]
        except BaseException as error:
            if watch is not None:
                watch.pipeline_failed(error)
                sent: Sent | None = getattr(self.result_queue[0], "sent", None) if self.result_queue else None
                if sent is not None and sent.plan is not None and not is_sync:
                    cursor = self.result_queue[0][0]
                    watch.repair(error, cursor, sent.plan, sent.plan.original, sent.params, sent.write_id)
            raise
        if watch is not None and is_sync:
            try:
                watch.synced()
            except Exception:
                watch.failed_control()


def _control(cursor: Any, sent: Sent | None) -> str:
    """How a statement of the application, or a command of psycopg, steers the transaction; empty if it does not."""
    control = (
        cursor.control if isinstance(cursor, CommandWatcher) else sent.plan.control if sent and sent.plan else None
    )
    return control.what if control is not None else ""


def _note_plans(cursor: Any, sent: Sent | None, count: int) -> list[Plan | None] | None:
    """Note which plans a cursor's results are of. psycopg adds them to others only in `executemany(returning=True)`."""
    returning = cursor._execmany_returning
    if returning is False:
        return None
    plans: list[Plan | None] = cursor._mussurana_plans if returning and cursor._mussurana_plans is not None else []
    del plans[len(cursor._results) if returning else 0 :]
    plans += [sent.plan if sent is not None else None] * count
    cursor._mussurana_plans = plans
    return plans


def _answered(pipeline: Any, watch: Watch, sent: Sent, results: list[Any]) -> None:
    plan = sent.plan
    if plan is None:
        return
    try:
        if watch.out_of_step and plan.control is not None:
            watch.abandon()
        if watch.out_of_step:
            return
        result = results[0]
        transactions = watch.transactions
        txn = transactions.txn if transactions is not None else None
        # A COMMIT or ROLLBACK before it may have begun another transaction.
        if txn is not None and txn is sent.txn and plan.live:
            txn.observations[sent.place] = watch.observation(plan, result, sent.write_id, sent.params)
            txn.rows += result.ntuples
        control = plan.control
        if control is not None and control.what in (SAVEPOINT, ROLLBACK_TO) and transactions is not None:
            transactions.sure = False  # what was sent after it has its place already
        elif control is not None:
            if control.what in (COMMIT, ROLLBACK, PREPARE):
                _lose_what_follows(pipeline, watch)
                if watch.implicit:  # what it does without a BEGIN is not the same in all versions of the server
                    watch.abandon()
            watch.after(control, result.command_status or b"")
    except Exception:
        watch.failed_control()  # what has no answer says so in its place


def _lose_what_follows(pipeline: Any, watch: Watch) -> None:
    """What was sent after a ROLLBACK, before its answer came, has its place in what is rolled back, and yet it runs.

    The same goes for a COMMIT, which is a ROLLBACK if something has failed before.
    """
    waiting = (getattr(queued, "sent", None) for queued in pipeline.result_queue)
    if watch.transactions is not None:
        statements = [(sent.plan, sent.write_id) for sent in waiting if sent is not None]
        watch.lose_outside(statements, [watch.transactions.session.info])


class CommandWatcher:
    """Stands in a pipeline's queue for a command of psycopg's own, to see its answer."""

    def __init__(self, connection: Any, control: Control) -> None:
        self._conn = connection
        self.control = control

    def _check_results(self, results: list[Any]) -> None:
        (result,) = results
        if result.status == FATAL_ERROR:
            error = e.error_from_result(result, encoding=self._conn.pgconn._encoding)
            watch: Watch = self._conn._mussurana
            try:
                if watch.out_of_step:
                    watch.abandon()
                elif self.control.what == COMMIT:
                    watch.command_failed(error, self.control)
            except Exception:
                watch.failed_control()
            raise error
        if result.status == PIPELINE_ABORTED:
            raise e.PipelineAborted("pipeline aborted")

    def _set_results(self, results: list[Any]) -> None:
        watch: Watch = self._conn._mussurana
        try:
            if watch.out_of_step:
                watch.abandon()
            else:
                if self.control.what in (COMMIT, ROLLBACK):
                    _lose_what_follows(self._conn._pipeline, watch)
                watch.after(self.control, results[0].command_status or b"")
        except Exception:
            watch.failed()
