"""Processes the tasks of a tube in batches with your function, until a signal comes.

    python jobs/consume.py --location /data/q --tube crawl --results /data/pages work:fetch
    python jobs/consume.py --location main.tubeq --tube mail --once work:send

`fetch(df)` gets the tasks as a DataFrame (`task_id, data, attempts` and more). It returns a DataFrame with a
`task_id` for the table of results, or None. The steps have this order, so that the program can be killed at any moment:

1. `take_df` takes a batch.
2. The function gets it as a DataFrame. If it returns a DataFrame, this is evaluated while it is added to the
   table of results by one commit. The commit leaves out tasks that have rows there already, and tasks that the
   function names as failed. If the function raises, it gets the halves of the batch, until the failing tasks
   are found.
3. The tasks that failed are released, and the others acked.

A crash after 1 or during 2 leaves taken tasks, which are taken again after the end of the dead session's lease, or of
their own. After a crash after 2, the function also gets the batch once more, and its results add nothing. So results
are stored once, and all other effects of a function may happen twice. SIGTERM and Ctrl-C end the program after the batch
in hand; a second signal releases that batch. Copy this job, and change it.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark import Batch, FailedTasks, Queue, Tube, TubeqError
from tubeq_spark.programs import (
    BadUseError,
    ExitCode,
    Stop,
    end,
    job_parser,
    load_function,
    log,
    logged,
    named_table,
    open_spark,
    option_of,
    read_defaults,
    report_error,
    seconds_of,
    whole_of,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

#: Seconds that a take waits for tasks; a request to stop is seen as often.
_WAIT_S = 2.0
#: The columns of rows that name failed tasks.
_FAILED = ["error", "task_id"]
#: Whether MERGE adds the columns that a table lacks.
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"


def main(argv: Sequence[str] | None = None) -> int:
    """Consume as the command line asks; returns the exit code."""
    given = _parser().parse_args(argv)
    try:
        with logged(given.tube, as_json=given.json, verbose=given.verbose):
            return run(given)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last one to hear of it
        return report_error("consume.py", error, verbose=given.verbose, as_json=given.json)


def _parser() -> argparse.ArgumentParser:
    parser = job_parser("consume.py", __doc__)
    add = parser.add_argument
    add(
        "handler",
        metavar="MODULE:FUNCTION",
        help="function that gets a batch as a DataFrame",
    )
    add("--tube", required=True, help="an existing tube")
    add("--remote", help="Spark Connect server, sc://host:15002")
    add("--once", action="store_true", help="end when no task is ready")
    add("--strict", action="store_true", help="exit with 4 if tasks failed or were buried")
    add("--results", metavar="TABLE", help="table for the results: a path or a name")
    add("--path", type=Path, default=Path(), help="folder of the module")
    size, duration = option_of(lambda text: whole_of(text, 1)), option_of(seconds_of)
    failures = option_of(lambda text: whole_of(text, 0))
    add("--batch-size", metavar="N", type=size, default=1000, help="tasks of a batch")
    add("--per-utube", metavar="N", type=size, default=1, help="tasks of one sub-queue in a batch")
    many = "stop after N failed batches in a row; 0 = never"
    add("--max-failures", metavar="N", type=failures, default=3, help=many)
    lease = "time until the tasks of a dead consumer are released"
    add("--lease", metavar="TIME", type=duration, help=lease)
    return parser


def run(given: argparse.Namespace) -> int:
    """Run a consumer until it ends; returns the exit code."""
    settings = read_defaults(
        given.config, location=given.location, remote=given.remote, engine=given.engine
    )
    handler = load_function(given.handler, given.path)
    location, engine = settings.queue_location(), settings.committer()
    spark = open_spark("tubeq-consume", settings.remote)
    # Imported here, because the help needs no Spark.
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415

    # The definitions of its module are sent to executors by value, so they need not have the file.
    module = sys.modules[given.handler.partition(":")[0]]
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    with (
        Stop(log.info) as stop,
        Queue(spark, location, config=settings.config, engine=engine, create=False) as queue,
    ):
        queue.cfg(ttr=given.lease or settings.ttr)
        tube = queue.tube(given.tube)
        results = None if given.results is None else Results(spark, given.results)
        if results is not None and results.name == tube.table:
            raise BadUseError(f"--results {given.results} is the tube itself")
        consumer = Consumer(
            tube=tube,
            handler=handler,
            results=results,
            stop=stop,
            once=given.once,
            batch_size=given.batch_size,
            per_utube=given.per_utube,
            max_failures=given.max_failures,
        )
        ending = consumer.run()
    batches, tasks = consumer.failed_batches, consumer.failed_tasks
    counts = {"done": consumer.done, "failed_batches": batches, "failed_tasks": tasks}
    text = f"{ending}: {consumer.done:,} tasks, {batches:,} failed batches"
    text += f", {tasks:,} failures of single tasks" * bool(tasks)
    print(json.dumps({"tube": given.tube, "ending": ending} | counts) if given.json else text)
    if ending == "gave up":
        return ExitCode.FAILED
    return ExitCode.TASKS_FAILED if given.strict and (batches or tasks) else ExitCode.DONE


@dataclass(kw_only=True)
class Consumer:
    """Consumes a tube.

    Attributes:
        tube: The tube.
        handler: Called with `Batch.df`. Returns results, failed tasks, a pair of both, or `None`. Failed tasks are
            `FailedTasks`, or rows with only the columns `task_id` and `error`. The results of other tasks are added
            to `results`.
        results: The table of results; `None` if the handler returns none.
        stop: Called between two batches; the consumer ends when it is true.
        once: Whether to end when no task is ready, instead of waiting for more.
        batch_size: The most tasks in a batch, >= 1; commits are per batch.
        per_utube: The most tasks of one sub-queue in a batch, >= 1.
        max_failures: Give up after this many failed batches in a row; 0 = never.
        done: The number of tasks that were acked.
        added: The number of rows that were added to the results.
        failed_batches: The number of batches in which no task succeeded.
        failed_tasks: The number of failed tasks of batches with other tasks that succeeded.
    """

    tube: Tube
    handler: Callable[[DataFrame], Any]
    results: Results | None
    stop: Callable[[], bool]
    once: bool = False
    batch_size: int = 1_000
    per_utube: int = 1
    max_failures: int = 3
    done: int = 0
    added: int = 0
    failed_batches: int = 0
    failed_tasks: int = 0

    def run(self) -> str:
        """Consume until it ends; return "finished", "stopped" or "gave up".

        Raises:
            BadUseError: The result of the handler cannot be used; its batch was given back.
            KeyboardInterrupt: The current batch was given back.
        """
        wait, in_a_row = 0.0 if self.once else _WAIT_S, 0
        while not self.stop():
            batch = self.tube.take_df(self.batch_size, timeout=wait, per_utube=self.per_utube)
            if not batch.count:
                if self.once:
                    return "finished"
            elif self._process(batch):
                in_a_row = 0
            else:
                in_a_row += 1
                self.failed_batches += 1
                if in_a_row == self.max_failures:
                    log.warning("gave up, because call after call failed; tasks are left")
                    return "gave up"
        return "stopped"

    def _process(self, batch: Batch) -> bool:
        """Process a batch; return whether that succeeded. Leaving the block gives the remaining tasks back."""
        began, before = time.monotonic(), self.added
        try:
            with batch:
                # No task causes an error of the storage.
                errors = (BadUseError, TubeqError)
                report = batch.process(self.handle, stop=self.stop, raises=errors)
        except BadUseError:
            raise
        except Exception as error:  # noqa: BLE001  the storage may be back for the next batch
            said = "a batch of %d failed, and its tasks were released"
            log.warning(said, batch.count, exc_info=error)
            return False
        self.done += report.done
        said = f"{report.done:,} of {batch.count:,} tasks done in {time.monotonic() - began:.1f} s"
        if self.results is not None:
            said += f", {self.added - before:,} results"
        if report.failed:
            said += f", {report.failed:,} failed ({report.buried:,} buried)"
        if report.given_back:
            said += f", {report.given_back:,} not tried"
        if report.error is not None or not report.done:
            log.warning("%s", said, exc_info=report.error)
            return False
        self.failed_tasks += report.failed
        log.info("%s", said)
        return True

    def handle(self, df: DataFrame) -> Any:
        """Call the handler, store its results, and return the failed tasks that it has named."""
        made = self.handler(df)
        is_pair = isinstance(made, tuple) and len(made) == 2
        failed: Any
        results, failed = made if is_pair else (made, None)
        if results is None or isinstance(results, FailedTasks) or _names_failed(results):
            return failed if results is None else results
        if not hasattr(results, "sparkSession"):
            kind = type(results).__name__
            raise BadUseError(f"the handler must return a DataFrame or None, not {kind}")
        if self.results is None:
            raise BadUseError("the handler returns a DataFrame: name a table for it by --results")
        if hasattr(failed, "sparkSession") and _names_failed(failed):
            # They are evaluated here, before the results, so that all read the same failed tasks. Without the tasks of
            # other batches, and the further reasons of a task, the rows are no more than the batch has.
            failed = failed.where("error IS NOT NULL")
            ours = failed.join(df.select("task_id"), "task_id", "left_semi")
            failed = ours.dropDuplicates(["task_id"]).toArrow()
        # The results of a task are stored once. A failed task runs again, so its results are not stored now.
        self.added += self.results.add(results, but=_failed_ids(failed))
        return failed


def _names_failed(made: Any) -> bool:
    """Whether a DataFrame, or a table of Arrow, has no results, but names failed tasks."""
    return sorted(getattr(made, "column_names", getattr(made, "columns", ()))) == _FAILED


def _failed_ids(failed: Any) -> list[int]:
    """The ids of failed tasks: in `FailedTasks`, or in a table of Arrow."""
    if isinstance(failed, FailedTasks):
        return [*failed.reasons]
    rows = failed.to_pylist() if _names_failed(failed) else ()
    return [row["task_id"] for row in rows if None not in row.values()]


class Results:
    """A Delta table with a column `task_id`. It has the rows of a task once, however often its batch is processed.

    The first batch with results creates it.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        """Name a table; nothing is read or written yet.

        Args:
            spark: A session with Delta.
            text: A path, a URI, or a name such as `catalog.schema.table`.

        Raises:
            InvalidOptionError: `text` is none of these.
        """
        self._spark, self._is_there = spark, False
        self.text, self.name = named_table(text)

    def add(self, rows: DataFrame, but: Collection[int] = ()) -> int:
        """Add the rows of tasks that have none in the table yet; evaluates `rows`.

        Two consumers that add at the same moment conflict; the loser tries again. On local files
        consumers in other processes wait.

        Args:
            rows: Any number of rows for each task, with a column `task_id BIGINT`.
            but: The ids of tasks whose rows are left out.

        Returns:
            The number of added rows.

        Raises:
            BadUseError: The rows have no such column, or other columns than the table.
            ConflictError: Others committed first for a minute; nothing was added.
            StoreError: The table cannot be locked; nothing was added.

        Commits: 1, an insert-only MERGE, none if no row is new; the first time 1 to create the table.
        """
        from pyspark.sql import types as T  # noqa: PLC0415

        from tubeq_spark import guarded_write  # noqa: PLC0415

        if dict(rows.dtypes).get("task_id") != "bigint":
            msg = f"the handler's result needs a column task_id BIGINT; it has: {rows.dtypes}"
            raise BadUseError(msg)
        if not self._is_there:
            columns = T.StructType([T.StructField(f.name, f.dataType) for f in rows.schema])
            writer = self._spark.createDataFrame([], columns).write.format("delta").mode("ignore")
            guarded_write(self._spark, self.text, lambda: writer.saveAsTable(self.name))
            self._is_there = True
        self._require_its_columns(rows.columns)
        if but:
            rows = rows.where(f"task_id IS NULL OR task_id NOT IN ({', '.join(map(str, but))})")
        table = self.name.replace("{", "{{").replace("}", "}}")
        statement = (
            f"MERGE INTO {table} t USING {{rows}} s ON t.task_id = s.task_id "
            "WHEN NOT MATCHED THEN INSERT *"
        )
        merged = guarded_write(
            self._spark, self.text, lambda: self._spark.sql(statement, rows=rows).collect()
        )
        return int(merged[0]["num_inserted_rows"])

    def _require_its_columns(self, columns: Sequence[str]) -> None:
        """Refuse rows with other columns than the table, because a MERGE would leave out columns that the table lacks.

        If the session lets MERGE add columns, the rows are not refused.

        Raises:
            BadUseError: The rows have other columns.
        """
        theirs = {name.lower() for name in columns}
        ours = {name.lower() for name in self._spark.table(self.name).columns}
        faults = [f"it has no column {name}" for name in sorted(theirs - ours)]
        faults += [f"the result has no column {name}" for name in sorted(ours - theirs)]
        if faults and self._spark.conf.get(_EVOLVES, "false") != "true":
            msg = f"--results {self.text} is a table of other results: {', '.join(faults)}"
            raise BadUseError(msg)


if __name__ == "__main__":
    end(main())
