"""A tube: put, take, ack and the other verbs, as programs call them.

Commits are to the tube's table unless said otherwise. Any verb may add one to `_tubeq_sessions`:
the first of a queue object leases its number slot, about one in ten minutes renews it.

In types with sub-queues a take commits once more, to `_tubeq_taken_utubes`, before it takes, and
whatever gives back the last task of a sub-queue once after it; these conflict with takes and ends of
sub-queues in the same bucket (one of 16), and are retried. A take that meets the utube lock of one
that was stopped commits once more to the tube, and begins anew when that one comes first.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from tubeq_spark.batch import Batch
from tubeq_spark.observe import notebook
from tubeq_spark.rules import arguments, validation
from tubeq_spark.rules.arguments import PutRequest, TakeRequest
from tubeq_spark.rules.put_table import as_table
from tubeq_spark.runtime.context import perform
from tubeq_spark.runtime.group_commit import GroupCommit
from tubeq_spark.runtime.taken import LeasedBatch, TakenRows
from tubeq_spark.storage.put_identity import PutIdentity
from tubeq_spark.task import PutResult, Task, TaskState
from tubeq_spark.verbs import empty, exchange, expire, put, put_arrow, read, settle
from tubeq_spark.verbs import take as taking
from tubeq_spark.verbs.settle_batch import HeldBatch, ack_whole

if TYPE_CHECKING:
    import datetime as dt
    import threading
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tubeq_spark.rules.options import TubeOptions
    from tubeq_spark.rules.put_table import ArrowRows
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.events import Callback
    from tubeq_spark.streams.sink import ForeachBatch
    from tubeq_spark.workers.handlers import Handler
    from tubeq_spark.workers.loop import WorkReport

__all__ = ["Tube", "first_tasks"]

T = TypeVar("T")


class Tube:
    """One tube of a queue; made by `Queue.create_tube` and `Queue.tube`. Thread-safe.

    What waits while a commit of this tube runs in the same queue object shares the next commit:
    puts with puts, takes with takes, acks with acks. Everything else queues up for its turn.
    """

    def __init__(
        self, ctx: TubeContext, drop: Callable[[], None], reopen: Callable[[], Tube]
    ) -> None:
        """Wrap a context.

        Args:
            ctx: The tube, as its queue object uses it.
            drop: The queue's part of dropping this tube.
            reopen: Opens the tube where it was sent to; can be sent itself.
        """
        self._ctx = ctx
        self._drop = drop
        self._reopen = reopen
        self._puts = GroupCommit[PutRequest, list[Task]](
            lambda requests: put.put_group(ctx, requests)
        )
        self._takes = GroupCommit[TakeRequest, TakenRows | None](
            lambda requests: taking.take_group(ctx, requests)
        )
        self._batch_takes = GroupCommit[TakeRequest, LeasedBatch | None](
            lambda requests: taking.take_batches(ctx, requests)
        )
        self._batch_acks = GroupCommit[HeldBatch, int](lambda batches: ack_whole(ctx, batches))
        self._acks = GroupCommit[list[int], list[Task]](
            lambda requests: settle.ack_group(ctx, requests)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type!r})"

    def _repr_html_(self) -> str:
        """What a notebook shows: tasks by state, ages, files, options; no payloads. Commits: none."""
        return notebook.shown(
            repr(self), lambda: self._verb(lambda: notebook.tube_fields(self._ctx))
        )

    def __reduce__(self) -> tuple[Callable[[], Tube], tuple[()]]:
        """What is sent of it: where it is. Spark Connect runs functions of streams elsewhere."""
        return self._reopen, ()

    @property
    def name(self) -> str:
        """Its name, which is the name of its table too."""
        return self._ctx.record.name

    @property
    def type(self) -> str:
        """The name of its driver."""
        return self._ctx.record.type

    @property
    def table(self) -> str:
        """The SQL name of its Delta table, for queries of your own; only the verbs write to it."""
        return self._ctx.table.name

    @property
    def options(self) -> TubeOptions:
        """The options it was created with, defaults filled in; a mapping with attributes."""
        return self._ctx.record.options

    # -- putting ------------------------------------------------------------------------------

    def put(
        self,
        data: Any,
        *,
        pri: int | None = None,
        ttl: float | None = None,
        ttr: float | None = None,
        delay: float | None = None,
        utube: str | int | None = None,
        timeout: float = 0,
    ) -> Task | None:
        """Add a task.

        As in Tarantool, except that an option which the tube's type lacks is refused.

        Args:
            data: Any JSON value, with lists and dicts at most 200 deep; with a `schema`, a dict or
                Row of it, whose values are stored as Spark's INSERT stores them, or refused.
            pri: 0 (the highest) ... 2147483647.
            ttl: Life in seconds from now, >= 0; a hundred years or more is unlimited.
            ttr: Seconds that a taker may hold it, > 0; the ttl by default.
            delay: Seconds before it can be taken, >= 0; added to its life.
            utube: Its sub-queue.
            timeout: Seconds to wait for room in a limfifottl tube; 0 elsewhere.

        Returns:
            The task, ready or delayed; `None` when the tube stayed full for `timeout`.

        Raises:
            InvalidOptionError: Bad data or option; nothing was written.
            CommitUnknownError: The answer was lost; it may be there.

        Commits: 1, an insert-only MERGE into a segment of its own. Conflicts with nothing; in a tube
        with a capacity with other puts, never with takes and acks. Natively one in some dozens makes
        one more, which compacts small segments, conflicts with takes of these, and yields to them.
        """
        options = {"pri": pri, "ttl": ttl, "ttr": ttr, "delay": delay, "utube": utube}
        tasks = self.put_many([data], timeout=timeout, **options)
        return tasks[0] if tasks else None

    def put_many(self, items: Iterable[Any], **options: Any) -> list[Task]:
        """Add tasks, all in one commit or none.

        Args:
            items: Data, or `PutItem`s with options of their own.
            **options: As for `put`; defaults of the items.

        Returns:
            The tasks in the order of the items, their ids rising; none when the tube stayed full
            for `timeout`: all find room together, or none is put.

        Raises:
            InvalidOptionError: Any item or option is bad; nothing was written.
            TypeError: An unknown option, or `items` is one text or mapping.

        Commits: 1 (none for no items), an insert-only MERGE. Conflicts as `put`, and natively
        compacts at times as that does.
        """
        call = arguments.put_call(items, options, self._ctx.driver)

        def attempt() -> list[Task]:
            # Anew for each try: the life of a task begins when it finds room.
            request = put.prepare(self._ctx, call)
            return put.put_many(self._ctx, self._puts, request)

        def verb() -> list[Task]:
            if self._ctx.capacity is None or not call.items:
                return attempt()
            return (
                taking.wait_for(self._ctx, call.timeout, lambda: attempt() or None, for_tasks=False)
                or []
            )

        return self._verb(verb)

    def put_df(self, df: DataFrame, *, key: str | None = None) -> PutResult:
        """Add the rows of a DataFrame, however many, in one commit; nothing is collected.

        The DataFrame is read twice: once to count and check, once to write. One whose plan exchanges
        rows between partitions (a sort, a group, a join) is evaluated once before, into a local
        checkpoint on the executors' disks, and both passes read that: a sorted one gets ids in its
        order.

        Args:
            df: Columns `data` (JSON text; with a `schema`, its columns), and those of `pri ttl ttr
                delay utube` that the tube's type has. NULL options take the tube's defaults.
            key: Identity of this put: repeating it with the same key adds nothing for at least
                `config.key_days`. For batches: each key is remembered in the table's log.

        Returns:
            How many were added, with the first and last id; ids follow the order of partitions.

        Raises:
            InvalidOptionError: A column is missing, unknown or of a wrong type, or a value is bad;
                nothing was written. Bad is also what no take could hand out: JSON deeper than 200
                lists and objects, half a pair of surrogates, moments out of the years 1 to 9999 (in
                UTC), texts that are not UTF-8, and maps with a key twice. With a `schema` a column may
                be of any type whose values its column stores, as `put` does.
            StoreError: The DataFrame had other rows when written than when counted; nothing was.

        Commits: 1, an append. Conflicts with nothing but a put of the same key. In a tube with a
        capacity a MERGE, which conflicts with other puts; without room for all of `df`, none, and
        the count is 0.
        """
        if not hasattr(df, "sparkSession"):
            validation.refuse("df", type(df), "a DataFrame of Spark; for this use put_arrow")
        identity = None if key is None else PutIdentity.of_key(validation.text("key", key))
        self._ctx.queue.require_spark()
        from tubeq_spark.verbs import put_frame  # noqa: PLC0415  pyspark is optional

        return self._verb(lambda: put_frame.put_df(self._ctx, df, identity), on_spark=True)

    def put_arrow(self, table: ArrowRows, *, key: str | None = None) -> PutResult:
        """Add the rows of an Arrow table, all in one commit or none; for tables in this process.

        Checks, ids and times are those of `put_many`, computed for whole columns: nothing is done in
        Python row by row.

        Args:
            table: A `pyarrow.Table`, a `RecordBatch`, a `RecordBatchReader`, or whatever Arrow makes a
                table of, such as a DataFrame of polars or pandas. Columns `data` (JSON text; with a
                `schema`, its columns), and those of `pri ttl ttr delay utube` that the tube's type has:
                whole numbers, seconds, and text or whole numbers. Null options take the tube's defaults.
            key: Identity of this put, as for `put_df`, which shares its keys.

        Returns:
            How many were added, with the first and last id; ids follow the order of the rows.

        Raises:
            InvalidOptionError: A column is missing, unknown or of a wrong type, or a value is bad;
                nothing was written. Bad is also what no take could hand out, as for `put_df`, and JSON
                with NaN or numbers that are infinite to Python, or of more digits than it reads.
            CommitUnknownError: The answer was lost; they may be there.

        Commits: 1 (none for no rows), an insert as of `put_many`, which conflicts with nothing; with a
        `key` an append, which conflicts with a put of the same key. In a tube with a capacity a MERGE,
        which conflicts with other puts; without room for all rows, none, and the count is 0.
        """
        identity = None if key is None else PutIdentity.of_key(validation.text("key", key))
        return self._verb(lambda: put_arrow.put_arrow(self._ctx, as_table(table), identity))

    def sink(self, name: str | None = None, *, timeout: float | None = None) -> ForeachBatch:
        """A function for `foreachBatch` that adds the rows of a stream as tasks, exactly once.

        A micro-batch that is replayed adds nothing: after a restart from the checkpoint, after a
        crash between the commit and the checkpoint, or when two runs of a query overlap. The tube
        remembers one number for each stream, for at least `config.key_days` after its last batch.
        Rows are read within the function, as by `put_df`, and not kept.

        Args:
            name: What the stream is known by in this tube; the id of the query, which its checkpoint
                keeps, by default. Needed on Spark Connect, and for each of two sinks of one query
                into one tube. Batches are numbered by the checkpoint: with a new one a stream needs
                a new name, or its first batches count as replayed, which a warning in the log says.
            timeout: Seconds that a batch waits for room in a tube with a capacity; `None` waits for
                ever, and the stream with it.

        Returns:
            `function(df, batch_id)`; `df` has the columns of `put_df`. The function raises what
            `put_df` raises, which ends the query; `TubeBusyError` when the tube stayed full; and
            `InvalidOptionError` when a batch has more rows than the tube's capacity, or when the
            stream has no name.

        Raises:
            InvalidOptionError: A bad name or timeout, or no name on Spark Connect.

        Commits: 1 for each batch that has rows; conflicts as `put_df` with a key.
        """
        self._ctx.queue.require_running()
        self._ctx.queue.require_spark()
        from tubeq_spark.streams import sink  # noqa: PLC0415  pyspark is optional

        wait = None if timeout is None else validation.seconds("timeout", timeout)
        sink.require_identity(self._ctx, name)

        def put_batch(df: DataFrame, batch_id: int) -> None:
            self._verb(lambda: sink.put_batch(self._ctx, df, batch_id, name, wait), on_spark=True)

        return put_batch

    # -- taking -------------------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> Task | None:
        """Take the next task.

        Args:
            timeout: Seconds to wait for one; `None` waits for ever, 0 does not wait. An object store that
                fails for a moment is waited for, too.

        Returns:
            The task, held by this session for its ttr, of which most is left when it is handed out
            (`next_event`); `None` when there was none.

        Raises:
            InvalidOptionError: A bad timeout.
            QueueStateError: The queue was closed meanwhile.
            ConflictError: Others came first until the retries were used up.
            StoreError: The storage failed, and still did at the last look.

        A task that cannot be handed out (data that Python cannot hold, which some other program has
        written) is buried instead, with its reason in the log, and the next one is taken. Verbs that
        return such a task give its text as `data`, or `None` with a `schema`.

        Commits: 1, none when nothing is ready; one more when it meets leases that have ended, or
        tasks that it buries, and one to `_tubeq_sessions` with a session's first take and in the
        second half of its lease. One more where the commit took more than a quarter of a ttr: it
        renews the leases. Where it goes on being so slow, leases are made longer by as much as
        takes take, five minutes at most. Conflicts only with takes (and compactions) of tasks in
        the same segment; never with a put.
        """
        tasks = self.take_many(1, timeout=timeout)
        return tasks[0] if tasks else None

    def take_many(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> list[Task]:
        """Take up to `n` tasks, in order.

        Args:
            n: How many at most, >= 0.
            timeout: Seconds to wait for the first one; `None` waits for ever.
            per_utube: Tasks of one sub-queue at most, >= 1; 1 in types without sub-queues.

        Returns:
            The tasks; empty when there was none.

        Raises:
            InvalidOptionError: A bad argument.
            QueueStateError: The queue was closed meanwhile.

        Commits: as `take`, however many tasks.
        """
        request = arguments.take_request("n", n, per_utube, self._ctx.driver)
        limit = arguments.timeout(timeout)
        return self._verb(lambda: self._take(request, limit))

    def _take(self, request: TakeRequest, timeout: float | None) -> list[Task]:
        if not request.count:
            return []
        look = lambda: taking.handed_out(self._ctx, self._takes.submit(request)) or None  # noqa: E731
        return taking.wait_for(self._ctx, timeout, look) or []

    def take_df(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> Batch:
        """Take up to `n` tasks as one batch for executors to work on; no payload is collected.

        Args:
            n: How many at most, >= 0.
            timeout: Seconds to wait for the first one; `None` waits for ever.
            per_utube: As for `take_many`.

        Returns:
            A context manager: leaving the block acks what is left, an exception releases it.

        Raises:
            InvalidOptionError: A bad argument.
            QueueStateError: The queue was closed meanwhile.

        Commits: as `take`, however many tasks.
        """
        return self._take_batch(n, timeout, per_utube)

    def take_arrow(self, n: int, *, timeout: float | None = 0, per_utube: int = 1) -> Batch:
        """Take up to `n` tasks as one batch for this process to work on as an Arrow table.

        It is the same batch as that of `take_df`, and needs no Spark: `batch.table` has the tasks, and
        `ack`, `release` and `bury` take a part of it, or ids. Arguments, result, errors and commits are
        those of `take_df`.
        """
        return self._take_batch(n, timeout, per_utube)

    def _take_batch(self, n: int, timeout: float | None, per_utube: int) -> Batch:
        request = arguments.take_request("n", n, per_utube, self._ctx.driver)
        limit = arguments.timeout(timeout)

        def verb() -> Batch:
            if not request.count:
                return Batch(self._ctx, None, self._batch_acks)
            leased = taking.wait_for(self._ctx, limit, lambda: self._batch_takes.submit(request))
            taking.undo_if_interrupted(self._ctx, leased)
            return Batch(self._ctx, leased, self._batch_acks)

        return self._verb(verb)

    def exchange(
        self, *, ack: Sequence[int], take: int, timeout: float | None = 0, per_utube: int = 1
    ) -> list[Task]:
        """Ack tasks and take the next ones: the step of a consumer's loop.

        Args:
            ack: Ids of tasks that this session holds; all or none are acked.
            take: How many to take at most, >= 0.
            timeout: Seconds to wait for the first one; `None` waits for ever.
            per_utube: As for `take_many`.

        Returns:
            The tasks taken.

        Raises:
            NotTakenError: Any of `ack` is not held; then nothing is taken either.
            InvalidOptionError: A bad argument.

        Commits: 1 when there are tasks to ack and tasks ready, sharing one MERGE, and one more before
        it when it meets leases that have ended, which it writes down as a take does; else as
        `ack_many` and `take_many`, as for tasks of a batch in types with sub-queues. Conflicts as
        theirs.
        """
        request = arguments.take_request("take", take, per_utube, self._ctx.driver)
        limit = arguments.timeout(timeout)
        ids = arguments.task_ids(ack)

        def verb() -> list[Task]:
            if not ids:
                return self._take(request, limit)
            if not request.count:
                self._acks.submit(ids)
                return []
            expire.end_lapsed_sessions(self._ctx)
            taken = exchange.exchange(self._ctx, ids, request)
            return taken or self._take(request, limit)

        return self._verb(verb)

    def process(
        self,
        handler: Callable[[DataFrame], object],
        *,
        batch_size: int,
        trigger: str | None = "1 second",
        per_utube: int = 1,
        checkpoint: str | Path | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Work off the tube continuously: a streaming query whose ticks take batches.

        At each tick batches are taken, one after the other, until nothing is ready. A batch is acked
        when the handler returns. When it raises, the batch is released (buried, as far as its tasks
        have reached `max_attempts`), the error is logged, and the query goes on with the next tick.
        So it does when a lease has ended before the handler returned: then nothing of the batch is
        acked, others may have it by now. Of several queries on a tube each takes its own batches.

        Args:
            handler: `handler(df)` with the columns of `Batch.df`; it may run for as long as the ttr
                of the tasks. It sees a task again that was not acked.
            batch_size: Tasks in a batch at most, >= 1.
            trigger: From one tick to the next, such as "10 seconds"; `None` works off what is ready
                and ends, also at the first batch that fails; that is Spark's `availableNow`, which
                serverless platforms have alone.
            per_utube: As for `take_many`.
            checkpoint: Directory of the query's checkpoint, which holds nothing but the number of
                ticks; a temporary one by default.
            name: Of the query.

        Returns:
            The query. Its `stop()` waits for the batch that the handler works on. It ends by itself,
            with an error, when the queue is closed or the tube dropped.

        Raises:
            InvalidOptionError: A bad argument.

        Commits: for each batch those of `take_df`, and 1 for its ack or release; a tick that finds
        nothing makes none. Conflicts as theirs.
        """
        if not callable(handler):
            validation.refuse("handler", handler, "a function of a DataFrame")
        size = validation.count("batch_size", batch_size, least=1)
        arguments.take_request("batch_size", size, per_utube, self._ctx.driver)
        self._ctx.queue.require_running()
        spark = self._ctx.queue.require_spark().spark
        from tubeq_spark.streams import process, ticks  # noqa: PLC0415  pyspark is optional

        unsettled: list[Batch] = []

        def tick(goes_on: Callable[[], bool]) -> None:
            take = lambda: self.take_df(size, per_utube=per_utube)  # noqa: E731
            process.work_off(self.name, take, handler, goes_on, unsettled)

        return ticks.start_ticking(spark, tick, trigger, name=name, checkpoint=checkpoint)

    def work(
        self,
        handler: Handler,
        *,
        threads: int = 1,
        batch: int = 1,
        per_utube: int = 1,
        idle: float | None = None,
        stop: threading.Event | None = None,
        on_error: str = "release",
        time_limit: float | None = None,
    ) -> WorkReport:
        """Work the tube off: take tasks, call a handler for each, ack those that it returns from.

        A task is acked when its call returns, whatever that is. When the call raises, the task is released
        with a delay that grows with its attempts (`Backoff()`); at `max_attempts` it is buried. `raise
        Bury("why")` buries it at once. In types without delay the loop takes nothing for that time.

        Tasks are taken ahead, as many as the calls need not to wait, and settled together. While a handler
        runs, the leases of all that is held are renewed at half of their ttr; that changes neither `ttr` nor
        `ttl`. A task that is lost all the same (the process was stopped for longer than its lease) is told
        in the log, and counts as nothing.

        Args:
            handler: `handler(task)`; with `batch > 1` it is `handler(tasks)`, a list of 1 to `batch` tasks.
                It may raise or return `FailedTasks` to name those that failed. A call with several tasks
                that raises anything else is repeated with each half of them, until those that fail are
                found. A coroutine function runs in an event loop.
            threads: Calls at a time, >= 1: threads, or coroutines.
            batch: Tasks of a call at most, >= 1.
            per_utube: As for `take_many`.
            idle: Seconds without a task after which it ends, >= 0; `None` waits for ever.
            stop: Ends it when it is set, after the calls in hand.
            on_error: "release", or "bury": every task that a handler fails at is buried.
            time_limit: Seconds after which a call of a coroutine function is cancelled, > 0; its task has
                failed.

        Returns:
            What was done. In the main thread SIGTERM and Ctrl-C end it, too: what is in hand is finished,
            what was taken ahead goes back as if it had never been taken. A second signal gives back what is
            in hand, too, and does not wait for it.

        Raises:
            InvalidOptionError: A bad argument.
            QueueStateError: The queue was closed meanwhile.
            TubeNotFoundError: The tube was dropped.
            StoreError: The storage failed in a way that does not pass.

        Commits: those of `exchange` for as many tasks as have ended meanwhile; 1 for failed tasks of one
        delay; 1 for a renewal. Conflicts as theirs.
        """
        from tubeq_spark.workers.start import work  # noqa: PLC0415  few programs need it

        return work(
            self,
            handler,
            threads=threads,
            batch=batch,
            per_utube=per_utube,
            idle=idle,
            stop=stop,
            on_error=on_error,
            time_limit=time_limit,
        )

    def _renew(self, task_ids: list[int]) -> list[Task]:
        """Renew the leases of held tasks, for the loop of `work`. Commits: 1; as `touch`."""
        return self._verb(lambda: settle.renew(self._ctx, task_ids))

    def _give_back(self, task_ids: list[int]) -> list[Task]:
        """Give back held tasks that no handler has begun, for the loop of `work`. Commits: 1; as `release`."""
        return self._verb(lambda: settle.give_back(self._ctx, task_ids))

    # -- settling -----------------------------------------------------------------------------

    def ack(self, task_id: int) -> Task:
        """Remove a task that is done.

        Args:
            task_id: A task held by this session.

        Returns:
            The task, in state done.

        Raises:
            NotTakenError: It is not held by this session, or its ttr has passed.

        Commits: 1, a deletion of the lease segment's partition when it holds nothing else, else a
        MERGE; shared with acks of other threads. Conflicts only with whoever ends this lease.
        """
        return self.ack_many([task_id])[0]

    def ack_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Remove tasks that are done, all or none.

        Args:
            task_ids: Tasks held by this session, none twice.

        Returns:
            The tasks in the order given, in state done.

        Raises:
            NotTakenError: Any is not held by this session, or its ttr has passed.
            InvalidOptionError: An id is no number, or named twice.

        Commits: 1, none for no ids; as `ack`.
        """
        return self._many(task_ids, self._acks.submit)

    def release(self, task_id: int, *, delay: float = 0) -> Task:
        """Give a task back: it returns to its old place in the order.

        Args:
            task_id: A task held by this session.
            delay: Seconds before it is ready again, >= 0; added to its life. Needs a type with ttl.

        Returns:
            The task: ready, delayed, or buried when it reached `max_attempts`.

        Raises:
            NotTakenError: It is not held by this session, or its ttr has passed.
            InvalidOptionError: `delay` is bad, or the type has none.

        Commits: 1. Conflicts only with whoever ends this lease. Natively it compacts at times, as `put`.
        """
        return self.release_many([task_id], delay=delay)[0]

    def release_many(self, task_ids: Sequence[int], *, delay: float = 0) -> list[Task]:
        """Give tasks back, all or none.

        Args:
            task_ids: Tasks held by this session, none twice.
            delay: As for `release`, for all of them.

        Returns:
            The tasks in the order given.

        Raises:
            NotTakenError: Any is not held by this session, or its ttr has passed.
            InvalidOptionError: An id is no number or named twice, or `delay` is bad.

        Commits: 1, none for no ids; as `release`.
        """
        delay_us = arguments.delay(delay, self._ctx.driver)
        return self._many(task_ids, lambda ids: settle.release(self._ctx, ids, delay_us))

    def touch(self, task_id: int, increment: float | None) -> Task | None:
        """Give a task more time: its lease, its ttl, and the ttr of later takes grow.

        Args:
            task_id: A task held by this session.
            increment: Seconds to add; `None`, 0 and 500 years or more do nothing.

        Returns:
            The task; `None` when nothing was done.

        Raises:
            InvalidOptionError: `increment` is negative or no number, or the type has no ttr.
            NotTakenError: It is not held by this session, or its ttr has passed.

        Commits: 1, none when nothing is done. Conflicts only with whoever ends this lease.
        """
        amount_us = arguments.increment(increment, self._ctx.driver)
        if amount_us is None:
            return None
        number = validation.task_id(task_id)
        return self._verb(lambda: settle.touch(self._ctx, number, amount_us))

    def bury(self, task_id: int) -> Task:
        """Set a task aside until it is kicked; from any state, by anybody.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, buried.

        Raises:
            TaskNotFoundError: There is no such task.

        Commits: 1, none when it is buried already. Conflicts with whatever else changes a task of
        the same segment. Natively it compacts at times, as `put`.
        """
        return self.bury_many([task_id])[0]

    def bury_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Set tasks aside, all or none; as `bury`.

        Args:
            task_ids: Any tasks of the tube, none twice.

        Returns:
            The tasks in the order given.

        Raises:
            TaskNotFoundError: Any does not exist.
            InvalidOptionError: An id is no number, or named twice.

        Commits: 1, none when there is nothing to bury; as `bury`.
        """
        return self._many(task_ids, lambda ids: settle.bury(self._ctx, ids))

    def delete(self, task_id: int) -> Task:
        """Remove a task; from any state, by anybody.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, in state done.

        Raises:
            TaskNotFoundError: There is no such task.

        Commits: 1. Conflicts with whatever else changes a task of the same segment.
        """
        return self.delete_many([task_id])[0]

    def delete_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Remove tasks, all or none; as `delete`.

        Args:
            task_ids: Any tasks of the tube, none twice.

        Returns:
            The tasks in the order given, in state done.

        Raises:
            TaskNotFoundError: Any does not exist.
            InvalidOptionError: An id is no number, or named twice.

        Commits: 1, none for no ids; conflicts as `delete`.
        """
        return self._many(task_ids, lambda ids: settle.delete(self._ctx, ids))

    def kick(self, count: int = 1) -> int:
        """Make buried tasks ready again, the first in order first; their attempts start anew.

        Args:
            count: How many at most, >= 0.

        Returns:
            How many there were.

        Raises:
            InvalidOptionError: A bad count.

        Commits: 1, none when nothing is buried. Conflicts with whatever else changes a task of the
        same segments.
        """
        number = validation.count("count", count)
        return self._verb(lambda: settle.kick(self._ctx, number) if number else 0)

    def kick_many(self, task_ids: Sequence[int]) -> list[Task]:
        """Make buried tasks ready again, named by their ids; their attempts start anew.

        Args:
            task_ids: Any buried tasks of the tube.

        Returns:
            The tasks, in the order of `task_ids`.

        Raises:
            TaskNotFoundError: There is no such task, or it is not buried; nothing was kicked.
            InvalidOptionError: An id is no number, or named twice.

        Commits: 1, none for no ids; conflicts as `bury`.
        """
        return self._many(task_ids, lambda ids: settle.kick_named(self._ctx, ids))

    # -- the whole tube -----------------------------------------------------------------------

    def peek(self, task_id: int) -> Task:
        """Look at a task without taking it.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task in its effective state.

        Raises:
            TaskNotFoundError: There is no such task, or its life is over.

        Commits: none.
        """
        number = validation.task_id(task_id)
        return self._verb(lambda: read.peek(self._ctx, number))

    def tasks_by_state(self, state: TaskState | str) -> Iterator[Task]:
        """Iterate over the tasks in an effective state, in the tube's order.

        Args:
            state: A `TaskState` or its letter.

        Yields:
            The tasks as of the call; read from storage a piece at a time.

        Raises:
            InvalidOptionError: No such state.

        Commits: none.
        """
        wanted = arguments.task_state(state)
        return self._verb(lambda: read.tasks_by_state(self._ctx, wanted))

    def df(self, effective: bool = True) -> DataFrame:  # noqa: FBT001, FBT002  (the contract's form)
        """The tube as a DataFrame.

        Args:
            effective: States as they are now, without tasks whose life is over; else as stored.

        Returns:
            Columns `task_id, state, pri, utube, data, created, ttl, ttr, next_event, attempts,
            owner, taken_at`; durations in seconds, times as UTC timestamps.

        Commits: none.
        """
        return self._verb(lambda: read.frame(self._ctx, effective=effective), on_spark=True)

    def history(self, limit: int = 1_000) -> DataFrame:
        """The newest commits to the tube's table, with what each says of itself.

        It goes back as far as the log does: `QueueConfig.retention_hours`, as they were when the
        tube was created.

        Args:
            limit: Commits, >= 1.

        Returns:
            A row a commit, the newest first: `version`; `at`, by the storage's clock; `operation`,
            the verb or what a sweep did (NULL: Delta's own, such as the creation of the table);
            `session`; `tasks` that it changed; `conflicts`, attempts that lost to other commits
            before it; `statement`, Delta's name of it.

        Raises:
            InvalidOptionError: `limit` is no such number.

        Commits: none.
        """
        most = validation.count("limit", limit, least=1)
        return self._verb(lambda: read.history(self._ctx, most), on_spark=True)

    def release_all(self) -> None:
        """Give back every taken task, whoever holds it; counted as releases.

        What others take meanwhile may stay taken.

        Commits: 1 for each 1,000 takes, none when nothing is taken. Conflicts with whatever else
        changes these tasks.
        """
        self._verb(lambda: expire.release_taken(self._ctx, None))

    def truncate(self) -> None:
        """Remove every task that was put before, in whatever state; counters stay.

        What time has ended by then is written down first: a task whose ttl has ended counts as expired.

        Commits: 1 (metadata only), more while others move tasks at the same time, 1 more when time has
        changed tasks that nobody has written down; none when empty.
        Conflicts with whatever changes a task; never with a put.
        """
        self._verb(lambda: empty.truncate(self._ctx))

    def drop(self) -> None:
        """Remove the tube with all its tasks; its table stays, empty but for a tombstone.

        The tombstone refuses late puts of whoever does not know of the drop yet.

        Raises:
            TubeBusyError: Tasks are taken.
            TubeNotFoundError: It was dropped before.

        Commits: 2 to the registry (dropping, dropped), 1 to the tube in between. Stopped after the
        first, whoever sweeps or creates the tube next finishes it.
        """
        self._verb(self._drop)

    def on_task_change(self, callback: Callback | None = None) -> Callback | None:
        """Set what is called for changes made through this queue object.

        Args:
            callback: `callback(task, event)` with the events of the state diagram; its errors are
                logged. `None` removes it.

        Returns:
            The previous one.

        Commits: none; a callback is not stored.
        """
        validation.callback("callback", callback)
        events = self._ctx.events
        previous, events.callback = events.callback, callback
        return previous

    def changes(self, starting: int | dt.datetime | None = None) -> DataFrame:
        """A stream of every change to the tube, by whomever: the durable `on_task_change`.

        A stream with a checkpoint sees each change once, whatever is restarted. It must not fall
        behind by more than `config.retention_hours`: then its next changes are gone.

        Args:
            starting: Where a stream without a checkpoint starts. `None`: with what is committed
                after this call; 0: with the first change that is kept; a later version of the
                tube's table; or a moment (aware), with the first commit at or after it. A program
                that starts its stream again passes a fixed one: `None` is another place each time,
                and Delta refuses a place after the checkpoint's of a stream that did one batch only.

        Returns:
            A streaming DataFrame, a row a change: `task_id, state, change, at, version, step, pri,
            utube, data, created, ttl, ttr, next_event, attempts, owner`. `change` is the name of
            its counter, `state` the one after it, `at` the time of the commit by the storage's
            clock, `version` the commit; `step` orders what one commit did to a task, such as a
            delay that was over (0) and the take (1). The other columns are those of `df`, as the
            commit left them. Without order between the tasks of a commit. What time alone has
            changed appears when it is written down, by a verb or a sweep; what compaction moves
            never does, nor what `truncate` and `drop` remove.

        Raises:
            InvalidOptionError: The tube was created without `change_feed`, or `starting` is bad.

        Commits: an empty one for `None` (or a moment after the last commit), which conflicts with
        nothing but another such call; else none. A tube with a feed writes each changed row up to
        three times, and a task that was removed by other than an ack stays as a row until a sweep.
        """
        self._ctx.queue.require_spark()
        from tubeq_spark.streams import changes  # noqa: PLC0415  pyspark is optional

        return self._verb(lambda: changes.changes(self._ctx, starting), on_spark=True)

    # -- inside -------------------------------------------------------------------------------

    def _many(self, task_ids: Sequence[int], verb: Callable[[list[int]], list[Task]]) -> list[Task]:
        ids = arguments.task_ids(task_ids)
        return self._verb(lambda: verb(ids) if ids else [])

    def _verb(self, verb: Callable[[], T], *, on_spark: bool = False) -> T:
        return perform(self._ctx, verb, on_spark=on_spark)


def first_tasks(tube: Tube, state: TaskState, count: int) -> list[Task]:
    """The first tasks in a state, without reading more of them. Commits: none."""
    ctx = tube._ctx  # noqa: SLF001  (kept from programs, not from the package)
    return list(islice(tube._verb(lambda: read.tasks_by_state(ctx, state, count)), count))  # noqa: SLF001
