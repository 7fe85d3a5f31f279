"""A tube: put, take, ack and the other verbs, as programs call them.

Words: the table is partitioned into *segments*; a take moves its tasks to a new one, their *lease segment*. A *gate*
is a row with a number; two commits that increment it conflict. Ack, release and bury *settle* a taken task.

Each verb may raise `QueueStateError`, `TubeNotFoundError`, `StoreError`, and if it commits `TubeMovedError`,
`ConflictError` and `CommitUnknownError`.

The commits in the docstrings are to the tube's table unless they name another table. Any verb may
make one more commit, to `_tubeq_sessions`: the first verb of a queue object leases a slot for ids,
and about one verb in ten minutes renews it.

In types with sub-queues, and with `most_taken`, a take increments a gate. If another take has incremented it first, the
take is decided again. Elsewhere than on local files there are 16 gates, by a hash of the sub-queue, so takes of
different sub-queues mostly do not conflict; with `most_taken` all takes conflict. The first take of such a tube makes
one more commit, which writes the gates.

With `rate` and `order="fair"` the commit of a take also writes when the leases begin. On storage other than local files
rates hold within `config.clock_skew`.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tubeq_spark.batch import Batch
from tubeq_spark.errors import CommitUnknownError, StoreError, TaskNotFoundError
from tubeq_spark.model import arguments, validation
from tubeq_spark.model.failures import GivenError, GivenErrors, error_texts
from tubeq_spark.model.stored_task import StoredTask, put_call
from tubeq_spark.model.takes import TakeRequest, take_request
from tubeq_spark.observe import notebook, statistics
from tubeq_spark.observe.minutes import Minutes, count_minutes
from tubeq_spark.observe.snapshot import TubeDetails
from tubeq_spark.payloads.put_table import ArrowRows, as_table
from tubeq_spark.runtime.current_tube import GroupCommit
from tubeq_spark.storage.statement import PutIdentity
from tubeq_spark.task import PutResult, QueueState, Task, TaskState
from tubeq_spark.verbs import exchange, expire, maintain, put, put_rows, read, settle, wait
from tubeq_spark.verbs.settle_batch import kick
from tubeq_spark.verbs.take import take_group
from tubeq_spark.verbs.wait import end_dead_sessions_if_news, wait_for

if TYPE_CHECKING:
    import datetime as dt
    import threading
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tubeq_spark.model.arguments import Seconds, TaskId, Utubes
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.model.reports import UtubeCounts
    from tubeq_spark.runtime.context import TubeContext
    from tubeq_spark.runtime.current_tube import CurrentTube
    from tubeq_spark.runtime.events import Callback
    from tubeq_spark.runtime.held_tasks import Taken
    from tubeq_spark.storage.tables.registry import TubeRecord
    from tubeq_spark.streams.sink import ForeachBatch
    from tubeq_spark.workers.handlers import Handler, WorkReport

__all__ = ["Tube", "details_of", "first_tasks"]

T = TypeVar("T")
log = logging.getLogger(__name__)

#: The most sub-queues in a report, and the most different texts of errors that it counts.
_UTUBES, _ERRORS = 20, 1_000


class Tube:
    """One tube of a queue; made by `Queue.create_tube` and `Queue.tube`. Thread-safe.

    While a commit of this tube runs, other verbs of the same queue object wait. Waiting verbs of
    one kind share the next commit: puts with puts, takes with takes, acks with acks; but each `take_df` and
    `take_arrow` has its own. Without Spark, in types without sub-queues, acks and takes share one commit. All other
    verbs run one after the other.
    """

    def __init__(
        self, current: CurrentTube, drop: Callable[[], None], reopen: Callable[[], Tube]
    ) -> None:
        """Wrap a context.

        Args:
            current: The tube, as its queue object uses it.
            drop: The queue's part of dropping this tube.
            reopen: Opens the tube again in the process that unpickles it; can be pickled itself.
        """
        self._current, self._run, self._read = current, current.run, current.read
        self._drop = drop
        self._reopen = reopen
        # None of these refers to this object, so that an unused queue is freed without the garbage collector.
        self._puts = GroupCommit[list[StoredTask], list[Task]](
            lambda requests: [*put.put_group(current.ctx, requests)]
        )
        self._together = GroupCommit[list[int] | TakeRequest, Any](
            lambda requests: _acked_and_taken(current, requests)
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type!r})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: tasks by state, ages, files, options; no payloads. Commits: none."""
        return notebook.shown(repr(self), lambda: self._read(notebook.tube_fields))

    def __reduce__(self) -> tuple[Callable[[], Tube], tuple[()]]:
        """Pickle the way to open the tube again: Spark Connect runs stream functions elsewhere."""
        return self._reopen, ()

    @property
    def name(self) -> str:
        """The name of the tube."""
        return self._ctx.record.name

    @property
    def type(self) -> str:
        """The type of the tube, such as "fifottl"."""
        return self._ctx.record.type

    @property
    def table(self) -> str:
        """The SQL name of its Delta table, for your own queries; only the verbs may write to it.

        The table is named like the tube, or `name__2` and so on if an earlier tube has had that table.
        """
        return self._ctx.table.name

    @property
    def options(self) -> TubeOptions:
        """Its options, including defaults, as `create_tube` and `alter` have set them; a mapping with attributes.

        Changes by other programs are visible within five seconds. Raises `TubeNotFoundError` if the tube was dropped.
        """
        return self._record.options

    @property
    def paused(self) -> bool:
        """Whether the tube is paused; as `options`."""
        return self._record.paused

    @property
    def _record(self) -> TubeRecord:
        if self._ctx.queue.life.state is not QueueState.RUNNING:
            return self._ctx.record
        return self._read(lambda ctx: ctx.record)

    @property
    def _ctx(self) -> TubeContext:
        return self._current.ctx

    def alter(self, **options: Any) -> None:
        """Change options of the tube for all programs, which see it within five seconds.

        Args:
            **options: Options of `create_tube` that the type has, of `pri ttl ttr delay capacity max_attempts
                backoff parallel rate order most_taken aging`. `None` resets to the default. `pri`, `ttl`,
                `ttr` and `delay` apply to later puts only. `capacity` can be changed, but
                neither added nor removed; a very large number removes the limit. `aging` can be changed only
                while the tube has no tasks. For five seconds the less strict of the old and the new limit
                applies.

        Raises:
            InvalidOptionError: An option is bad, or the type or `alter` lacks it; nothing was written.
            TypeError: An unknown option.
            TubeNotFoundError: The tube was dropped.

        Commits: 1 to the registry, none if nothing changes.
        """
        self._read(lambda _: self._current.alter(options))

    def pause(self) -> None:
        """Stop all takes within five seconds; puts, acks and all other verbs go on.

        Taken tasks may be acked, released and touched. A waiting take goes on waiting until `resume`. Pausing
        a paused tube does nothing.

        Raises:
            TubeNotFoundError: The tube was dropped.

        Commits: as `alter`.
        """
        self._read(lambda _: self._current.pause(paused=True))

    def resume(self) -> None:
        """End a pause; takes of other programs find tasks again within five seconds. As `pause`."""
        self._read(lambda _: self._current.pause(paused=False))

    # -- putting ------------------------------------------------------------------------------

    def put(
        self,
        data: Any,
        *,
        pri: int | None = None,
        ttl: Seconds | None = None,
        ttr: Seconds | None = None,
        delay: Seconds | None = None,
        utube: str | int | None = None,
        unique: str | int | None = None,
        timeout: Seconds | None = 0,
    ) -> Task | None:
        """Add a task, unless a stored one has its unique key.

        An option that the tube's type lacks is refused.

        Args:
            data: Any JSON value, with lists and dicts at most 200 deep; with a `schema`, a dict or
                Row with its columns. A value is stored if Arrow's safe cast keeps it, or refused.
            pri: 0 (the highest) ... 2147483647.
            ttl: Time to live in seconds from now, >= 0; a hundred years or more is unlimited. A taken or
                delayed task does not expire.
            ttr: Seconds for which a consumer may hold it, > 0; the ttl by default.
            delay: Seconds before it can be taken, >= 0; added to its ttl.
            utube: Its sub-queue: text of any length; an int becomes its decimal text.
            unique: Its unique key: text of at most 1,024 bytes in UTF-8; an int becomes its decimal text. At
                most one stored task of the tube has it, in whatever state. The key is in use while the task is
                stored, and in a tube with `unique_for` at least this many seconds from the put.
            timeout: Seconds to wait for free capacity in a limfifottl tube; `None` is 0. Other types accept
                only 0.

        Returns:
            The task, ready or delayed; `None` if the tube stayed full for `timeout` seconds. If a
            stored task has the unique key, that task, unchanged; then the call needs no free capacity and
            does not count as a `put`. If a task with the unique key was put less than `unique_for`
            seconds ago and is removed, that task in state DONE, with `None` as its data.

        Raises:
            InvalidOptionError: Bad data or option; nothing was written.
            CommitUnknownError: The answer was lost; the task may have been added. Or this process was suspended
                while the queue was moved: the task may be at the old place only.

        Commits: 1, an insert-only MERGE into a new segment. Conflicts with nothing. In a tube with a capacity it
        conflicts with other puts; if the tube is full, one more commit first removes tasks whose ttl has ended. On
        the native engine about one put in several dozen also compacts small segments, in a commit of its own. That
        commit conflicts with takes of these segments, and the takes win.

        With a unique key the commit is a MERGE that also increments a gate; if a stored task has the key, there is no
        commit. It conflicts only with other puts of unique keys. If a task with the key has an ended ttl, one more
        commit removes it first. The put reads the column of unique keys, except in files whose statistics exclude
        the key.
        """
        options = {"pri": pri, "ttl": ttl, "ttr": ttr, "delay": delay, "utube": utube}
        options["unique"] = unique
        tasks = self.put_many([data], timeout=timeout, **options)
        return tasks[0] if tasks else None

    def put_many(self, items: Iterable[Any], **options: Any) -> list[Task]:
        """Add tasks, all of them in one commit or none.

        Args:
            items: Data, or `PutItem`s with their own options.
            **options: As for `put`; defaults for the items. `unique` is refused for several items: give
                each `PutItem` its own.

        Returns:
            The tasks in the order of the items; added tasks have ascending ids. For an item whose unique
            key a stored task or an earlier item has, that task. An empty list if for `timeout`
            seconds the tube had no capacity for all new tasks.

        Raises:
            InvalidOptionError: Any item or option is bad; nothing was written.
            TypeError: An unknown option, or `items` is a string or a mapping.

        Commits: as `put`, for any number of items; none without items.
        """
        trace = self._ctx.queue.traces.current()
        call = put_call(items, options, self._ctx.tube_type, trace)

        def attempt(ctx: TubeContext) -> list[Task] | None:
            # The rows are prepared again for each try, because the ttl of a task begins when it is put.
            rows = put.prepare(ctx, call)
            return (self._puts.submit(rows) or None) if rows else None

        def verb(ctx: TubeContext) -> list[Task]:
            if ctx.capacity is None or not call.items:
                return attempt(ctx) or []
            return wait_for(self._current, call.timeout, attempt, for_tasks=False) or []

        return self._put(verb)

    def put_df(self, df: DataFrame, *, key: str | None = None) -> PutResult:
        """Add any number of rows of a DataFrame in one commit, without collecting them.

        The DataFrame is read twice: first to count and check the rows, then to write them. If its
        plan has a shuffle (a sort, a group, a join), it is first evaluated into a local checkpoint
        on the executors' disks, and both passes read that. So the ids of a sorted DataFrame follow
        its order.

        Args:
            df: Columns `data` (JSON text; with a `schema`, its columns). Optional columns are those
                of `pri`, `ttl ttr delay` (seconds), `utube` and `unique` that the tube's type has; NULL means
                the tube's default, or no unique key.
            key: Identity of this put: a second put with the same put key adds nothing, for at least
                `config.key_days`. If a put adds nothing because all its unique keys exist, its put key is
                not stored. Use one put key for a batch, because each is an entry in the table's log. A put with
                a column `unique` (even one of NULLs only) and a put without it do not share put keys: the same
                `key` then adds rows twice.

        Returns:
            The number of added tasks, with the first and last id; ids follow the order of
            partitions. Rows whose unique key a stored task has, or an earlier row, are not added.

        Raises:
            InvalidOptionError: A column is missing, unknown or of a wrong type, or a value is bad;
                nothing was written. Values that no take could return are bad, too: JSON with more
                than 200 nested lists and objects, unpaired surrogates, timestamps outside the years
                1 to 9999 (in UTC), text that is not UTF-8, and maps with a repeated key. With a
                `schema` a column may have another type if `put` would store its values.
            StoreError: The DataFrame had more rows in the second read than in the first; nothing was written.
                With fewer rows it puts those, but on S3 it raises this error.

        Commits: 1, an append. Without capacity and `unique` it conflicts only with a put of the same put key.
        In a tube with a capacity it is a MERGE, which conflicts with other puts; if the capacity is too small for
        all rows, it makes no commit, and the count is 0. With a column `unique` the new rows are found by a
        join with the stored unique keys, into one more local checkpoint; the commit is a MERGE, which
        conflicts with all puts of unique keys. On S3, at a location of the native engine, Spark writes the
        files first, and that engine makes the commit.
        """
        if not hasattr(df, "sparkSession"):
            validation.refuse("df", type(df), "a DataFrame of Spark; for this use put_arrow")
        identity = None if key is None else PutIdentity.of_key(validation.text("key", key))
        self._ctx.queue.require_spark()
        from tubeq_spark.verbs import put_frame  # noqa: PLC0415  pyspark is optional

        span = self._ctx.queue.traces.current()

        def verb(ctx: TubeContext) -> PutResult:
            frame = put_frame.count_frame(ctx, df, span)
            return put_frame.put_frame(ctx, frame, identity).result

        return self._put(verb, on_spark=True)

    def put_arrow(self, table: ArrowRows, *, key: str | None = None) -> PutResult:
        """Add the rows of an Arrow table in this process, all of them in one commit or none.

        Checks, ids and times are those of `put_many`, but computed for whole columns instead of
        single rows.

        Args:
            table: A `pyarrow.Table`, a `RecordBatch`, a `RecordBatchReader`, or an object that
                Arrow converts to a table, such as a DataFrame of polars or pandas. It has the
                column `data` (JSON text; with a `schema`, its columns). Optional columns are those
                of `pri` (integers), `ttl ttr delay` (seconds), `utube` and `unique` (strings or
                integers) that the tube's type has; null means the tube's default, or no unique key.
            key: Identity of this put, as for `put_df`. Both methods share their put keys.

        Returns:
            The number of added tasks, with the first and last id; ids follow the order of the
            rows. Rows whose unique key a stored task has, or an earlier row, are not added.

        Raises:
            InvalidOptionError: A column is missing, unknown or of a wrong type, or a value is bad;
                nothing was written. Values that no take could return are bad, too, as for `put_df`,
                and JSON with NaN, with numbers that Python reads as infinite, or with more digits
                than Python reads.
            CommitUnknownError: The answer was lost; the tasks may have been added.

        Commits: 1 (none for no rows), an insert as in `put_many`, which conflicts with nothing;
        with a put key an append, which conflicts with a put of the same put key. In a tube with a
        capacity it is a MERGE, which conflicts with other puts; if the capacity is too small for
        all rows, it makes no commit, and the count is 0. With a column `unique`, even one of NULLs
        only, it is the MERGE of `put_many`, also with a put key.
        """
        identity = None if key is None else PutIdentity.of_key(validation.text("key", key))
        span = self._ctx.queue.traces.current()

        def verb(ctx: TubeContext) -> PutResult:
            return put_rows.put_arrow(ctx, as_table(table), identity, span)

        return self._put(verb)

    def sink(self, name: str | None = None, *, timeout: Seconds | None = None) -> ForeachBatch:
        """Return a `foreachBatch` function that adds the rows of a stream as tasks, exactly once.

        A replayed micro-batch adds nothing: after a restart from the checkpoint, after a crash
        between the commit and the checkpoint, or when two runs of a query overlap. The table's log
        keeps one number for each stream, for at least `config.key_days` after its last batch. The
        function reads the rows as `put_df` does, and does not keep them.

        Args:
            name: Identity of the stream in this tube; by default the id of the query, which its
                checkpoint has. A name is needed on Spark Connect, and for two sinks of one query
                into the same tube. The checkpoint numbers the batches: a stream with a new
                checkpoint needs a new name; otherwise its first batches count as replayed, and the
                log has a warning.
            timeout: Seconds for which a batch, and so the stream, waits for free capacity; `None`
                waits forever.

        Returns:
            `function(df, batch_id)`; `df` has the columns of `put_df`. The function raises the
            errors of `put_df`, which end the query. It also raises `TubeBusyError` if the tube
            stayed full, and `InvalidOptionError` if a batch has more rows than the tube's capacity,
            or if the stream has no name.

        Raises:
            InvalidOptionError: A bad name or timeout, or no name on Spark Connect.

        Commits: 1 for each batch that has rows; conflicts as `put_df` with a put key.
        """
        self._ctx.queue.require_running()
        self._ctx.queue.require_spark()
        from tubeq_spark.streams import sink  # noqa: PLC0415  pyspark is optional

        wait = None if timeout is None else validation.seconds("timeout", timeout)
        sink.require_identity(self._ctx, name)

        def put_batch(df: DataFrame, batch_id: int) -> None:
            span = self._ctx.queue.traces.current()

            self._put(
                lambda _: sink.put_batch(self._current, df, batch_id, name, wait, span),
                on_spark=True,
            )

        return put_batch

    def _put(
        self, verb: Callable[[TubeContext], T], *, name: str = "put", on_spark: bool = False
    ) -> T:
        """Run a verb that puts tasks. Each of its attempts is refused if the tube was moved to another place.

        Raises:
            CommitUnknownError: The tube was moved before the commit, but this process was suspended, or slow.
        """

        def here(ctx: TubeContext) -> T:
            done = verb(ctx)
            try:
                self._current.newest().require_here()
            except StoreError as error:
                msg = f"{name}: what it committed is perhaps not where the queue is used: {error}"
                raise CommitUnknownError(msg) from error
            return done

        return self._run(name, here, on_spark=on_spark)

    # -- taking -------------------------------------------------------------------------------

    def take(self, timeout: Seconds | None = None, *, utube: Utubes | None = None) -> Task | None:
        """Take the next task.

        If another program has written a payload that Python cannot represent, the take buries the
        task, logs the reason, and takes the next one. Verbs that return such a task set its `data`
        to the text, or to `None` with a `schema`.

        Args:
            timeout: Seconds to wait for a task; `None` waits forever, 0 does not wait. The call
                also goes on waiting through short failures of an object store.
            utube: Take only from this sub-queue, or from these (a list, tuple or set of names, in
                which `None` stands for the tasks that were put without `utube`). `None` takes from
                all. In types with sub-queues only.

        Returns:
            The task, which this session holds until `next_event`, usually for at least three quarters of its
            ttr; `None` if none was ready.

        Raises:
            InvalidOptionError: A bad timeout or sub-queue, or the type has no sub-queues.
            QueueStateError: The queue was closed while the call waited.
            ConflictError: The take lost conflicts until its retries were used up.
            StoreError: The storage failed, also at the last attempt.
            CommitUnknownError: The take may be committed. The session searches for its tasks, and
                releases them.

        Commits: 1, none if no task is ready. One more if it finds leases that have ended, or tasks
        to bury. One more to `_tubeq_sessions` in the first take of a session and in the second half
        of the session's timeout. One more, which renews the leases, if the commit took more than a
        quarter of a ttr; two more if it took the whole ttr. If takes stay that slow, their leases are longer by the duration of a
        take, at most five minutes. Takes of several threads may share a commit. Conflicts with other commits
        that change tasks of the same segment, and with takes that increment the same gate; never with a put.
        """
        tasks = self.take_many(1, timeout=timeout, utube=utube)
        return tasks[0] if tasks else None

    def take_many(
        self,
        n: int,
        *,
        timeout: Seconds | None = 0,
        per_utube: int = 1,
        utube: Utubes | None = None,
    ) -> list[Task]:
        """Take up to `n` tasks, in order.

        Args:
            n: Tasks at most, >= 0.
            timeout: Seconds to wait for the first task; `None` waits forever.
            per_utube: Tasks of one sub-queue at most, >= 1; 1 in types without sub-queues.
            utube: As for `take`.

        Returns:
            The tasks; an empty list if none was ready.

        Errors and commits: as `take`, for any number of tasks.
        """
        request = self._asked("n", n, per_utube, utube)
        limit = validation.timeout(timeout)
        return self._run("take", lambda _: self._take(request, limit))

    def _asked(self, name: str, count: Any, per_utube: Any, utube: Any) -> TakeRequest:
        driver = self._ctx.tube_type
        plain_type = None if driver.subqueues else driver.name
        return take_request(name, count, per_utube, utube, plain_type=plain_type)

    def _take(self, request: TakeRequest, timeout: float | None) -> list[Task]:
        if not request.count:
            return []

        def look(ctx: TubeContext) -> list[Task] | None:
            return wait.handed_out(ctx, self._together.submit(request)) or None

        return wait_for(self._current, timeout, look) or []

    def take_df(
        self,
        n: int,
        *,
        timeout: Seconds | None = 0,
        per_utube: int = 1,
        utube: Utubes | None = None,
    ) -> Batch:
        """Take up to `n` tasks as one batch for the executors.

        Where commits are native, this process takes and settles the batch itself, without a job of Spark, and Spark
        reads `Batch.df`. It holds the tasks in memory for a moment. Where Spark commits, payloads never come to the
        driver.

        Args:
            n: Tasks at most, >= 0.
            timeout: Seconds to wait for the first task; `None` waits forever.
            per_utube: As for `take_many`.
            utube: As for `take`.

        Returns:
            A context manager: leaving the block acks the remaining tasks. An exception releases
            them; `FailedTasks` releases the tasks that it names and acks the others.
            `Batch.process` calls a function with it.

        Raises:
            StoreError: The queue has no Spark session; nothing was taken.

        Other errors and commits: as `take`, for any number of tasks.
        """
        asked = self._asked("n", n, per_utube, utube)
        return self._take_batch(asked, timeout, as_arrow=False)

    def take_arrow(
        self,
        n: int,
        *,
        timeout: Seconds | None = 0,
        per_utube: int = 1,
        utube: Utubes | None = None,
    ) -> Batch:
        """Take up to `n` tasks as one batch, as an Arrow table in this process.

        The batch is that of `take_df`, but needs no Spark: `batch.table` has the tasks, and `ack`,
        `release` and `bury` accept some of its rows, or ids. Arguments, result, errors and commits
        are those of `take_df`.
        """
        asked = self._asked("n", n, per_utube, utube)
        return self._take_batch(asked, timeout, as_arrow=True)

    def _take_batch(self, asked: TakeRequest, timeout: Seconds | None, *, as_arrow: bool) -> Batch:
        request = replace(asked, as_batch=True)
        limit = validation.timeout(timeout)

        def verb(ctx: TubeContext) -> Batch:
            if not as_arrow:
                ctx.queue.require_spark()
            if not request.count:
                return Batch(self._current, None, as_arrow=as_arrow)
            leased = wait_for(self._current, limit, lambda _: self._together.submit(request))
            wait.undo_if_interrupted(ctx, leased)
            return Batch(self._current, leased, as_arrow=as_arrow)

        return self._run("take", verb, on_spark=not as_arrow)

    def exchange(
        self,
        *,
        ack: Sequence[TaskId],
        take: int,
        timeout: Seconds | None = 0,
        per_utube: int = 1,
        utube: Utubes | None = None,
    ) -> list[Task]:
        """Ack tasks and take the next ones, in one commit if possible.

        Args:
            ack: Ids of tasks that this session holds; all of them are acked or none.
            take: Tasks to take at most, >= 0.
            timeout: Seconds to wait for the first task; `None` waits forever.
            per_utube: As for `take_many`.
            utube: As for `take`, of the tasks to take.

        Returns:
            The taken tasks. If the take failed after the ack was committed, the list is empty, and the log
            has a warning.

        Raises:
            NotTakenError: This session does not hold a task of `ack`; nothing was acked or taken.
            InvalidOptionError: A bad argument.
            CommitUnknownError: The tasks may be acked. The session searches for taken tasks, and releases them.

        Commits: 1 MERGE if there are tasks to ack and ready tasks. One more before it if it finds
        leases that have ended, as in `take`. Otherwise, and after two lost conflicts, the commits of `ack_many`
        and `take_many`. Conflicts as these.
        """
        request = self._asked("take", take, per_utube, utube)
        limit = validation.timeout(timeout)
        ids = validation.task_ids(ack)

        def verb(ctx: TubeContext) -> list[Task]:
            if not ids:
                return self._take(request, limit)
            taken: Taken | None = None
            if not request.count or ctx.record.paused:
                self._together.submit(ids)
            else:
                end_dead_sessions_if_news(ctx)
                taken = exchange.exchange(self._current, ids, request)
            try:
                if taken is not None:
                    return wait.handed_out(self._ctx, taken)
                return self._take(request, limit)
            except Exception:
                # An error would make the caller repeat the call, and ack again.
                log.warning("tube %s: acked, and nothing taken", self.name, exc_info=True)
                return []

        return self._run("exchange", verb)

    def process(
        self,
        handler: Callable[[DataFrame], object],
        *,
        batch_size: int,
        trigger: str | None = "1 second",
        per_utube: int = 1,
        utube: Utubes | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        halves: bool = True,
    ) -> StreamingQuery:
        """Process the tasks of the tube by a streaming query, which takes batches at each tick.

        At each tick the query takes batches, one after the other, until no task is ready. It acks a
        batch when the handler returns. The handler may name single tasks that failed: it returns or raises
        `FailedTasks`, or returns a DataFrame with the columns `task_id` and `error` alone. These are released,
        or buried if they have reached `max_attempts`, and the others are acked. If it raises anything else, it
        is called again with halves of the batch, until the failing tasks are found, as by `Batch.process`.
        `halves=False` switches that off: all tasks of the batch then count as failed. If no task of a batch
        succeeded, the query logs the error and continues at the next tick. It does the same if a lease ends
        before the handler returns. Then no task of the batch is acked, because other consumers may have taken
        some of them. Several queries on a tube take different batches.

        Args:
            handler: `handler(df)` with the columns of `Batch.df`; it may run for the ttr of the
                tasks. It gets a task again if the task was not acked, or was in a batch that failed, so it
                must be idempotent for each task.
            batch_size: Tasks in a batch at most, >= 1.
            trigger: Time from one tick to the next, such as "10 seconds". With `None` the query
                processes the ready tasks and ends; it also ends after the first batch in which no task
                succeeded. This is Spark's `availableNow`, the only trigger on serverless platforms.
            per_utube: As for `take_many`.
            utube: As for `take`: tasks of other sub-queues are left to others.
            checkpoint: Directory of the query's checkpoint, which contains only the number of
                ticks; by default a temporary directory.
            name: Name of the query.
            halves: Whether a batch that fails is halved to find the bad tasks.

        Returns:
            The query. Its `stop()` waits for the current call, and releases the tasks that it has not handled.
            Ctrl-C, the stop button of a notebook and SIGTERM do the same to a program that waits in
            `awaitTermination()` on classic Spark, and then have their usual effect: `KeyboardInterrupt` there, or the
            end of the program. A second signal does not wait for the call. The query ends with an error when the
            queue is closed or the tube is dropped.

        Raises:
            InvalidOptionError: A bad argument, also a bad `trigger`.
            QueueStateError: The queue is closed.
            TubeNotFoundError: The tube was dropped.
            StoreError: The queue has no Spark session.

        Commits: for each batch those of `take_df` and of `Batch.process`; none at a tick that finds no task.
        Conflicts as these.
        """
        validation.function("handler", handler, "a function of a DataFrame")
        size = validation.count("batch_size", batch_size, least=1)
        self._asked("batch_size", size, per_utube, utube)
        self._ctx.queue.require_running()
        spark = self._ctx.queue.require_spark().spark
        from tubeq_spark.streams import process  # noqa: PLC0415  pyspark is optional

        take = partial(self.take_df, size, per_utube=per_utube, utube=utube)
        handle = partial(Batch.process, handler=handler, halves=halves)
        tick = partial(process.work_off, self.name, take, handle, [])
        query = process.start_ticking(spark, tick, trigger, name=name, checkpoint=checkpoint)
        told = f"tube {self.name}: the stream ends after the call in hand"
        return process.until_signal(query, told)

    def work(  # noqa: PLR0913  (the contract)
        self,
        handler: Handler,
        *,
        threads: int = 1,
        batch: int = 1,
        per_utube: int = 1,
        utube: Utubes | None = None,
        idle: Seconds | None = None,
        stop: threading.Event | None = None,
        on_error: str = "release",
        time_limit: Seconds | None = None,
    ) -> WorkReport:
        """Run a worker loop: take tasks, call a handler for each, and ack those whose call returns.

        A task is acked when its call returns, whatever the value. Only if the value is a coroutine or a generator,
        whose code has not run, the task has failed. When the call raises, the task is released with its error and a
        delay that grows with its attempts (the tube's `backoff`, else `Backoff()`); at `max_attempts` it is buried.
        `raise Bury("why")` buries it at once. In types without delays the loop holds the failed task for that time, a
        minute at most, so only its sub-queue waits.

        The loop prefetches tasks, so that calls do not wait, and settles them together. In tubes with `rate`,
        `parallel` above 1, `most_taken` or `order="fair"` it prefetches none. While a handler runs, the loop
        renews the leases of all its tasks at half of their ttr; that changes neither `ttr` nor `ttl`. A lease can
        still end: the process was stopped for longer than the lease, or the handler or another program
        settled the task. Such a task is logged, and not counted in the report.

        When ten tasks in a row have failed, of all threads together, the loop takes no more tasks. It releases
        the prefetched ones and does not count the attempt. It tries one task after 10 seconds, then after growing
        waits of up to 60: one with few attempts. It goes on when one succeeds. Meanwhile failures do not count as
        attempts, for an hour. With `idle` the loop gives up when this has lasted for `idle` seconds, after a last
        try. `metrics` and `health` show the wait. If a call with several tasks fails, and 32 calls in a row with
        parts of them, too, the other tasks are released.

        If an error ends the loop, such as a dropped tube, it begins no more calls, settles the finished tasks,
        and releases the others, including those of running calls.

        Args:
            handler: `handler(task)`; with `batch > 1` it is `handler(tasks)`, a list of 1 to `batch` tasks.
                It may raise or return `FailedTasks` to name failed tasks. A call with several tasks that
                raises anything else is repeated with each half of them, until the failing tasks are found.
                Each repetition gets the payloads as stored, even if the handler has changed them before. A
                coroutine function runs in an event loop.
            threads: Calls at a time, >= 1: threads, or coroutines.
            batch: Tasks of a call at most, >= 1.
            per_utube: As for `take_many`.
            utube: As for `take`: tasks of other sub-queues are left to others.
            idle: Seconds after which the loop ends, >= 0: without a task, or because all calls fail; `None` waits
                forever.
            stop: An event that ends the loop after the running calls.
            on_error: "release"; or "bury", which buries every failed task.
            time_limit: Seconds after which a call of a coroutine function is cancelled, > 0; its task has
                failed.

        Returns:
            The counts of the loop. In the main thread SIGTERM and Ctrl-C end the loop, too: it finishes the
            running calls, releases the prefetched tasks and does not count the attempt. After a second signal it
            also releases the tasks of running calls, and does not wait for them.

        Raises:
            InvalidOptionError: A bad argument.
            QueueStateError: The queue was closed meanwhile.
            TubeNotFoundError: The tube was dropped.
            StoreError: The storage failed in a way that does not pass.

        Commits: those of `exchange` for each group of finished tasks; for each group of failed tasks 1 for the
        released and 1 for the buried ones; 1 for each renewal, of all tasks. Conflicts as theirs.
        """
        options = dict(locals())
        from tubeq_spark.workers.start import work  # noqa: PLC0415  few programs need it

        return work(options.pop("self"), **options)

    # -- settling -----------------------------------------------------------------------------

    def ack(self, task_id: TaskId) -> Task:
        """Remove a task that is done.

        Args:
            task_id: A task held by this session.

        Returns:
            The task, in state done.

        Raises:
            NotTakenError: This session does not hold it, or its lease has ended.
            InvalidOptionError: `task_id` is no task and no number.

        Commits: 1, shared with acks of other threads. It deletes the lease segment's partition if this queue object
        has settled all other tasks of the take; else it is a MERGE. Conflicts only with commits that end a lease of
        this lease segment.
        """
        return self.ack_many([task_id])[0]

    def ack_many(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Remove tasks that are done, all of them or none.

        Args:
            task_ids: Tasks held by this session, none twice.

        Returns:
            The tasks in the order given, in state done.

        Raises:
            NotTakenError: This session does not hold one of them, or its lease has ended.
            InvalidOptionError: An id is not a number, or is given twice.

        Commits: 1, none for no ids; as `ack`.
        """
        ids = validation.task_ids(task_ids)
        return self._run("ack", lambda _: self._together.submit(ids) if ids else [])

    def release(
        self, task_id: TaskId, *, delay: Seconds | None = None, error: GivenError = None
    ) -> Task:
        """Release a task: it returns to its old place in the order.

        Args:
            task_id: A task held by this session.
            delay: Seconds before it is ready again, >= 0; added to its ttl. Needs a type with ttl.
                `None`: the backoff of the tube if there is an error and the tube has one, else 0.
            error: Why it has failed: a text, or an exception, which becomes `Type: message` and the end of
                its traceback, at most 4,000 characters. `Task.error` keeps it until the next error;
                without `error` the last one stays.

        Returns:
            The task: ready, delayed, or buried if it has reached `max_attempts`.

        Raises:
            NotTakenError: This session does not hold it, or its lease has ended.
            InvalidOptionError: An argument is bad, or the type has no delays; nothing was written.

        Commits: 1. Conflicts only with commits that end this lease. On the native engine it
        sometimes compacts, as `put` does.
        """
        return self.release_many([task_id], delay=delay, error=error)[0]

    def release_many(
        self, task_ids: Sequence[TaskId], *, delay: Seconds | None = None, error: GivenErrors = None
    ) -> list[Task]:
        """Release tasks, all of them or none.

        Args:
            task_ids: Tasks held by this session, none twice.
            delay: As for `release`, for all of them.
            error: As for `release`, for all of them; or a dict with the error of each by its id.

        Returns:
            The tasks in the order given.

        Raises:
            NotTakenError: This session does not hold one of them, or its lease has ended.
            InvalidOptionError: An id is not a number or is given twice, `delay` or `error` is bad, or a
                task has none in a dict of errors; nothing was written.

        Commits: 1, none for no ids; as `release`.
        """
        ids = validation.task_ids(task_ids)
        how = arguments.release(delay, error_texts(error, ids), self._ctx.tube_type)
        return self._settle(settle.release(how), ids)

    def touch(self, task_id: TaskId, increment: Seconds | None) -> Task | None:
        """Give a task more time: its lease, its ttl, and the ttr of later takes grow.

        Args:
            task_id: A task held by this session.
            increment: Seconds to add; `None`, 0 and 500 years or more change nothing.

        Returns:
            The task; `None` if nothing was changed.

        Raises:
            InvalidOptionError: `increment` is negative or no number, or the type has no ttr.
            NotTakenError: This session does not hold it, or its lease has ended.

        Commits: 1, none if nothing is changed. Conflicts only with commits that end this lease.
        """
        amount_us = arguments.increment(increment, self._ctx.tube_type)
        if amount_us is None:
            return None
        number = validation.task_id(task_id)
        return self._settle(settle.touch(amount_us), [number])[0]

    def bury(self, task_id: TaskId, *, error: GivenError = None) -> Task:
        """Set a task aside until it is kicked; in any state, by any session.

        Args:
            task_id: Any task of the tube.
            error: Why, as for `release`. A task that is already buried does not change, and keeps its own.

        Returns:
            The task, buried.

        Raises:
            TaskNotFoundError: No task has this id.
            InvalidOptionError: An argument is bad; nothing was written.

        Commits: 1, none if it is already buried; 1 more if its lease, delay or ttl has ended. Conflicts with other
        commits that change tasks of the same segment. On the native engine it sometimes compacts, as `put`.
        """
        return self.bury_many([task_id], error=error)[0]

    def bury_many(self, task_ids: Sequence[TaskId], *, error: GivenErrors = None) -> list[Task]:
        """Set tasks aside, all of them or none; as `bury`.

        Args:
            task_ids: Any tasks of the tube, none twice.
            error: As for `bury`, for all of them; or a dict with the error of each by its id.

        Returns:
            The tasks in the order given.

        Raises:
            TaskNotFoundError: One of them does not exist.
            InvalidOptionError: An id is not a number or is given twice, `error` is bad, or a task has none
                in a dict of errors; nothing was written.

        Commits: 1, none when there is nothing to bury; as `bury`.
        """
        ids = validation.task_ids(task_ids)
        return self._settle(settle.bury(error_texts(error, ids)), ids)

    def delete(self, task_id: TaskId) -> Task:
        """Remove a task; in any state, by any session.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task, in state done.

        Raises:
            TaskNotFoundError: No task has this id.
            InvalidOptionError: `task_id` is no task and no number.

        Commits: 1; 1 more if its lease, delay or ttl has ended. Conflicts with other commits that change tasks of
        the same segment.
        """
        return self.delete_many([task_id])[0]

    def delete_many(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Remove tasks, all of them or none; as `delete`.

        Args:
            task_ids: Any tasks of the tube, none twice.

        Returns:
            The tasks in the order given, in state done.

        Raises:
            TaskNotFoundError: One of them does not exist.
            InvalidOptionError: An id is not a number, or is given twice.

        Commits: 1, none for no ids; conflicts as `delete`.
        """
        return self._settle(settle.DELETE, validation.task_ids(task_ids))

    def kick(self, count: int | None = 1, *, where: str | None = None) -> int:
        """Make buried tasks ready again, in their order; their attempts begin at 0 again.

        Args:
            count: How many at most, >= 0; `None`: all.
            where: Which ones: a condition in SQL over the columns of `df`, such as `"attempts >= 3 AND error
                LIKE '%timeout%'"`. It has `AND OR NOT`, comparisons, `IN`, `BETWEEN`, `LIKE`, `IS NULL`, and
                the functions `coalesce contains endswith length startswith`; texts, numbers, and timestamps
                such as `TIMESTAMP '2026-11-21 08:30:00'`, in UTC unless they have a zone. It compares only
                values of the same kind; the payload is JSON text.

        Returns:
            The number of kicked tasks.

        Raises:
            InvalidOptionError: A bad count; or `where` is no such condition, or names another column.
            ModuleNotFoundError: `where` needs sqlglot, the extra `where`.

        Commits: 1, none if no task is buried. Conflicts with other commits that change tasks of the same segments.
        """
        number = None if count is None else validation.count("count", count)
        return self._run("kick", lambda ctx: kick(ctx, number, where))

    def kick_many(self, task_ids: Sequence[TaskId]) -> list[Task]:
        """Make buried tasks, named by their ids, ready again; their attempts begin at 0 again.

        Args:
            task_ids: Any buried tasks of the tube.

        Returns:
            The tasks, in the order of `task_ids`.

        Raises:
            TaskNotFoundError: No task has one of the ids, or it is not buried; nothing was kicked.
            InvalidOptionError: An id is not a number, or is given twice.

        Commits: 1, none for no ids; conflicts as `bury`.
        """
        return self._settle(settle.KICK, validation.task_ids(task_ids))

    # -- the whole tube -----------------------------------------------------------------------

    def peek(self, task_id: TaskId) -> Task:
        """Return a task without taking it.

        Args:
            task_id: Any task of the tube.

        Returns:
            The task in its effective state.

        Raises:
            TaskNotFoundError: No task has this id, or its ttl has ended.
            InvalidOptionError: `task_id` is no task and no number.

        Commits: none.
        """
        number = validation.task_id(task_id)
        return self._read(lambda ctx: read.peek(ctx, number))

    def statistics(self) -> dict[str, Any]:
        """Return counts of the tube's tasks and calls, as `Queue.statistics(name)` does.

        Raises:
            StoreError: The tube cannot be read.

        Commits: none.
        """
        return self._read(lambda ctx: statistics.statistics_of(ctx.queue, [ctx])[0].as_dict())

    def tasks_by_state(self, state: TaskState | str) -> Iterator[Task]:
        """Iterate over the tasks in one effective state, in the tube's order.

        Args:
            state: A `TaskState`, its name in any case (`"ready"`), or its letter.

        Yields:
            The tasks with their values at the time of the call, read from storage in pieces.

        Raises:
            InvalidOptionError: `state` is not a state.

        Commits: none.
        """
        wanted = arguments.task_state(state)
        return self._read(lambda ctx: read.tasks_by_state(ctx, wanted))

    def utubes(self, limit: int | None = None) -> list[UtubeCounts]:
        """Count the tasks of each sub-queue, by effective state.

        Sub-queues without stored tasks are not listed. Tasks that are done, and tasks whose ttl has
        ended, do not count.

        Args:
            limit: Sub-queues at most, >= 0; `None`: all.

        Returns:
            One item for each sub-queue: the one with the most tasks first; of those with equally
            many the one with the oldest task, then by name.

        Raises:
            InvalidOptionError: `limit` is bad, or the type has no sub-queues.

        Commits: none; one query of the tube.
        """
        arguments.require_subqueues("utubes", self._ctx.tube_type)
        most = None if limit is None else validation.count("limit", limit)
        return self._read(lambda ctx: [] if most == 0 else read.utubes(ctx, most))

    @overload
    def taken_utubes(self, *, as_df: Literal[False] = False) -> pa.Table: ...

    @overload
    def taken_utubes(self, *, as_df: Literal[True]) -> DataFrame: ...

    def taken_utubes(self, *, as_df: bool = False) -> pa.Table | DataFrame:
        """Return the taken-utube rows: one row for each sub-queue that is taken or has a stored last lease.

        Args:
            as_df: Whether to return a DataFrame.

        Returns:
            Columns `utube, number, taken, last_begun`: the sub-queue; the number of its gate (on local files one
            for all sub-queues); its taken tasks; when its last lease began, with `rate` or `order="fair"` (UTC).
            Sorted by `utube`.

        Raises:
            InvalidOptionError: The type has no sub-queues.
            StoreError: `as_df`, and the queue has no Spark session.

        Commits: none; one query of the tube.
        """
        arguments.require_subqueues("taken_utubes", self._ctx.tube_type)
        if not as_df:
            return self._read(read.taken_utubes)

        def frame(ctx: TubeContext) -> DataFrame:
            return ctx.queue.require_spark().shown_rows(read.taken_utubes(ctx))

        return self._read(frame, on_spark=True)

    def why(self, task_id: TaskId) -> str:
        """Explain in one sentence why a task is not handed out.

        It is delayed, taken or buried; its tube is paused; its sub-queue is busy with another task,
        or locked; other tasks come before it; it is done, or its ttl has ended; or it is next. The
        text is for people and may change.

        Args:
            task_id: Any task of the tube.

        Returns:
            The sentence, such as "Task 7 is delayed until 2026-01-02 03:04:05 UTC."

        Raises:
            TaskNotFoundError: No task has this id.
            InvalidOptionError: `task_id` is no task and no number.

        Commits: none; a few small queries, one of which counts the tasks before it.
        """
        number = validation.task_id(task_id)
        return self._read(lambda ctx: read.why(ctx, number))

    def df(self, effective: bool = True) -> DataFrame:  # noqa: FBT001, FBT002  (the contract's form)
        """Return the tube as a DataFrame.

        Args:
            effective: Whether to show effective states, without tasks whose ttl has ended, instead
                of stored states.

        Returns:
            Columns `task_id, state, pri, utube, data, created, ttl, ttr, next_event, attempts,
            owner, taken_at, error`; durations in seconds, times as UTC timestamps. `owner` is the session
            that holds a taken task, and `taken_at` when it was taken.

        Raises:
            StoreError: The queue has no Spark session.

        Commits: none.
        """
        return self._read(lambda ctx: read.frame(ctx, effective=effective), on_spark=True)

    def history(self, limit: int = 1_000) -> DataFrame:
        """Return the newest commits to the tube's table, with the note of each.

        It goes back as far as the log: `QueueConfig.retention_hours`, as they were when the tube was created.

        Args:
            limit: Number of commits at most, >= 1.

        Returns:
            One row for each commit, the newest first: `version`; `at`, the time by the storage's
            clock; `operation`, the verb or the step of a sweep (NULL for Delta's own commits, such
            as the creation of the table); `session`; `tasks`, the number of changed tasks;
            `conflicts`, the number of attempts that lost a conflict before it; `statement`, Delta's
            name of the operation.

        Raises:
            InvalidOptionError: `limit` is not an integer >= 1.
            StoreError: The queue has no Spark session.

        Commits: none.
        """
        most = validation.count("limit", limit, least=1)
        return self._read(lambda ctx: read.history(ctx, most), on_spark=True)

    def release_all(self) -> None:
        """Release the taken tasks of all sessions; they are counted as releases.

        Tasks that others take meanwhile may stay taken.

        Commits: 1 for each 1,000 takes, none if no task is taken; 1 more if leases, delays or ttls have ended.
        Conflicts with other commits that change these tasks.
        """
        self._run("release_all", lambda ctx: expire.release_taken(ctx, None))

    def truncate(self) -> None:
        """Remove all tasks that were put before, in any state, and perhaps tasks that are put meanwhile; counters stay.

        Ended leases, delays and ttls are written first, so a task whose ttl has ended counts as expired.

        Commits: 1 (metadata only); more if others move tasks at the same time; 1 more if leases, delays or ttls
        have ended; 1 more to free unique keys that stay in use by `unique_for`; none if the tube is
        empty. Conflicts with commits that change tasks, never with a put.
        """
        self._run("truncate", maintain.truncate)

    def drop(self) -> None:
        """Remove the tube with all its tasks; its table stays, with only a tombstone.

        The tombstone is a row that makes late puts fail, from programs that have not seen the drop.

        Raises:
            TubeBusyError: Tasks are taken.
            TubeNotFoundError: The tube was dropped before.

        Commits: 1 to the tube, then 1 to the registry. If the drop is interrupted in between, the next sweep or
        creation of the tube finishes it.
        """
        self._run("drop", lambda _: self._drop())

    def on_task_change(self, callback: Callback | None = None) -> Callback | None:
        """Set the function that is called for changes through this queue object.

        The thread of a verb calls it, after the commit and before the verb returns. It is not called for tasks of
        batches, `put_df`, `put_arrow` and `truncate`.

        Args:
            callback: `callback(task, event)`; no coroutine function. The event is `put`, `take`, `ack`,
                `release`, `touch`, `bury`, `kick`, `delete`, `ttl`, `ttr` (its lease ended) or `delay`. Errors
                of the function are logged. `None` removes it.

        Returns:
            The previous callback.

        Commits: none; a callback is not stored.
        """
        validation.callback("callback", callback)
        events = self._ctx.events
        previous, events.callback = events.callback, callback
        return previous

    def changes(self, starting: int | dt.datetime | None = None) -> DataFrame:
        """Return a stream of all changes to the tube by all programs: a durable `on_task_change`.

        A stream with a checkpoint gets each change once, also after restarts. It must not fall
        behind by more than `config.retention_hours`, as they were when the tube was created: older changes are
        removed.

        Args:
            starting: Where a stream without a checkpoint begins. `None`: with the first commit
                after this call. 0: with the oldest commit of the log; if a sweep has removed its
                files, the stream fails and must begin later. A version of the tube's table, or an
                aware datetime: with the first commit from there on. A program that restarts its stream
                passes a fixed value. With `None` each start begins at another version, and Delta may refuse to
                restart after only one batch.

        Returns:
            A streaming DataFrame with one row for each change: `task_id, state, change, at,
            version, step, pri, utube, data, created, ttl, ttr, next_event, attempts, owner`.
            `change` is the name of the counter, `state` the state after the change, `at` the time
            of the commit by the storage's clock, `version` the version of the commit. `step` orders
            the changes of one commit to a task, such as the end of a delay (0) and the take (1).
            The other columns are those of `df`, with the values after the commit. The tasks of a
            commit have no order. Changes by time appear when a verb or a sweep writes them. Rows
            that a compaction moves, and tasks that `truncate` and `drop` remove, do not appear.

        Raises:
            InvalidOptionError: The tube was created without `change_feed`, or `starting` is bad.
            StoreError: The queue has no Spark session.

        Commits: an empty one for `None` (or for a time after the last commit), which conflicts only
        with another such call; otherwise none. A tube with a change feed writes each changed row up
        to three times. A task that was removed by anything but an ack stays as a row until a sweep.
        """
        self._ctx.queue.require_spark()
        from tubeq_spark.streams import changes  # noqa: PLC0415  pyspark is optional

        return self._read(lambda ctx: changes.changes(ctx, starting), on_spark=True)

    # -- inside -------------------------------------------------------------------------------

    def _settle(self, verb: settle.Verb, ids: list[int]) -> list[Task]:
        """Settle tasks by a verb. In traces a renewal is a touch."""
        settled = lambda ctx: settle.settle(ctx, verb, ids) if ids else []  # noqa: E731
        return self._run(verb.event or "touch", settled)


def _acked_and_taken(
    current: CurrentTube, requests: list[list[int] | TakeRequest]
) -> Sequence[Any]:
    """Ack and take for the calls of a group. A call that is alone shares no commit."""
    first = requests[0]
    if len(requests) > 1:
        return exchange.together(current, requests)
    return (
        [settle.ack(current.ctx, first)]
        if isinstance(first, list)
        else take_group(current, [first])
    )


def first_tasks(tube: Tube, state: TaskState, count: int, where: str | None = None) -> list[Task]:
    """The first tasks in a state, and of a condition as for `Tube.kick`; no others are read. Commits: none."""
    found = tube._read(lambda ctx: read.tasks_by_state(ctx, state, count, where))  # noqa: SLF001  (kept from programs, not from the package)
    return list(islice(found, count))


def details_of(tube: Tube, commits: int, minutes: Minutes | None = None) -> TubeDetails:
    """A tube as the report and the dashboard show it. Commits: none.

    Args:
        tube: The tube.
        commits: How many of its newest commits.
        minutes: What was counted before; new commits are added.
    """
    minutes = Minutes() if minutes is None else minutes
    first = None
    for task in first_tasks(tube, TaskState.READY, 1):
        with suppress(TaskNotFoundError):  # the task has ended meanwhile
            first = tube.why(task.task_id)
    return TubeDetails(
        count_minutes(tube._ctx, minutes, commits)[:commits],  # noqa: SLF001  (as above)
        tube.utubes(_UTUBES) if tube._ctx.tube_type.subqueues else None,  # noqa: SLF001
        tube._read(lambda ctx: read.failures(ctx, _ERRORS)),  # noqa: SLF001
        first,
        minutes,
    )
