"""Functions that need the JVM of a classic Spark session; elsewhere they do little or nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import uuid
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.locks.committer import Committer, SystemProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_HINT: Final = "Spark needs Java 17 or newer, on the PATH or in JAVA_HOME (on Debian and Ubuntu openjdk-17-jre-headless)"
#: The lines of a JVM that did not start that say why.
_REASON: Final = re.compile("Exception|Error|JAVA_HOME|Java|bin/java")
_WAIT_S: Final = 30.0
_CHUNK: Final = 65536
_STDERR: Final = 2
#: The property that Spark sets in the thread of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
#: The properties with the description of a job in Spark's UI, and with its pool, for Spark's fair scheduler.
DESCRIPTION: Final = "spark.job.description"
POOL: Final = "spark.scheduler.pool"
_committers: WeakKeyDictionary[SparkSession, Committer] = WeakKeyDictionary()


def is_classic(spark: SparkSession) -> bool:
    """Whether the session has its JVM in this process's driver, and is no client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def hadoop_setting(spark: SparkSession, name: str) -> str | None:
    """A setting of Hadoop, from its files or from a program; `None` if it is not set, or only a server knows it."""
    if not is_classic(spark):
        return None
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  (Python has no other way)
    return cast("str | None", hadoop.get(name))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows of the driver as a DataFrame; like `createDataFrame`, but without changing the active session.

    `createDataFrame` makes its session the active one of the process, which only the program should choose.

    Args:
        spark: The session.
        table: The rows.
    """
    # Spark stops reading at a chunk without rows.
    table = table.combine_chunks()
    if not is_classic(spark):
        return spark.createDataFrame(table)
    from pyspark.sql import SparkSession as Classic  # noqa: PLC0415  pyspark is optional

    return super(Classic, spark).createDataFrame(table)


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query in whose thread this is called; its checkpoint has the same id.

    Returns:
        The id; `None` outside of streaming queries, and on Spark Connect, which does not show it.
    """
    if not is_classic(spark):
        return None
    return spark.sparkContext.getLocalProperty(_QUERY_ID)


def is_stopped(spark: SparkSession, query_id: str) -> bool:
    """Whether a streaming query of a classic session was stopped, though its thread still runs."""
    # The query may belong to another session, or the JVM may be gone.
    with contextlib.suppress(Exception):
        query = spark.streams.get(query_id)
        return query is not None and not query.isActive
    return False


def plan_text(df: DataFrame) -> str | None:
    """The physical plan of a DataFrame, as `explain` prints it; nothing is run.

    Returns:
        The plan; `None` if this version of pyspark does not show it.
    """
    if is_classic(df.sparkSession):
        plan: str = df._jdf.queryExecution().simpleString()  # noqa: SLF001  the one way to it
        return plan
    # The public method prints the text. This one, which returns it, has had the same name since Connect began.
    ask = getattr(df, "_explain_string", None)
    return None if ask is None else str(ask())


def clone_of(spark: Any) -> Any:
    """A new session with the settings, the views and the functions that a session has at this moment."""
    if not hasattr(spark, "cloneSession"):
        # Spark itself makes the session of a streaming query in this way.
        return type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())  # noqa: SLF001
    session = spark.cloneSession()
    if not is_classic(spark):
        # The server clones its part of the session. The retries are settings of the client, so they are copied here.
        session.client.set_retry_policies(spark.client.get_retry_policies())
    return session


def with_settings(df: DataFrame, settings: Mapping[str, str | None]) -> DataFrame:
    """The same rows under other settings, in a session of their own.

    The plan is that of the DataFrame, and all other settings are those of its session at this moment, so
    the rows are in the same partitions.

    Args:
        df: The rows.
        settings: The settings; `None` unsets one.

    Returns:
        The rows; `df` itself if this platform does not allow other settings.
    """
    if not is_classic(df.sparkSession):
        return df
    try:
        session = clone_of(df.sparkSession)
        for name, value in settings.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)
        plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001
        datasets = session._jvm.org.apache.spark.sql.classic.Dataset  # noqa: SLF001
        made: DataFrame = type(df)(datasets.ofRows(session._jsparkSession, plan), session)  # noqa: SLF001
    except Exception:
        logger.info("a write has no settings of its own here", exc_info=True)
        return df
    return made


def launch_jvm(conf: SparkConf, output: HeldBackOutput) -> JavaGateway:
    """Start Spark's JVM with a configuration.

    Args:
        conf: The settings, including those of the process itself (memory, jars).
        output: Receives the messages of the process.

    Returns:
        The gateway for a SparkContext.

    Raises:
        StoreError: The process ended at once, for example because Java is missing or the jars could not be resolved.
    """
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415  pyspark is optional
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    try:
        return launch_gateway(conf, {"stderr": output.writer})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        reason = output.verdict
    finally:
        # The JVM is the only writer.
        os.close(output.writer)
    raise StoreError(f"Spark did not start: {reason()}; {_HINT}")


class HeldBackOutput:
    """Holds back the output of Spark's JVM while it starts, and passes on later output.

    Resolving the jars alone prints a hundred lines, and no setting of Spark turns them off.
    """

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        self._held: list[bytes] = []
        self._passes_on = False
        self._thread = threading.Thread(
            target=self._pump, args=(reader,), name="spark-stderr", daemon=True
        )
        self._thread.start()

    def let_go(self) -> None:
        """Write the held output to the debug log, and pass on later output."""
        self._passes_on = True
        logger.debug("Spark's start:\n%s", self._text())

    def verdict(self) -> str:
        """Return the line of the output that says why a JVM ended. All writers must have closed the pipe."""
        self._thread.join(_WAIT_S)
        lines = [line.strip() for line in self._text().splitlines() if line.strip()]
        reasons = filter(_REASON.search, lines)
        return next(reasons, lines[-1] if lines else "it ended without a word")

    def _text(self) -> str:
        return b"".join(self._held).decode(errors="replace")

    def _pump(self, reader: int) -> None:
        while chunk := os.read(reader, _CHUNK):
            if self._passes_on:
                os.write(_STDERR, chunk)
            else:
                self._held.append(chunk)
        os.close(reader)


T = TypeVar("T")


@contextlib.contextmanager
def job_property(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a property of the thread's jobs for a block, and restore its earlier value; not on Spark Connect."""
    context, before = None, None
    # If Spark cannot be reached, the block itself raises the error.
    with contextlib.suppress(Exception):
        if is_classic(spark):
            context = spark.sparkContext
            before = context.getLocalProperty(name)
            context.setLocalProperty(name, value)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            if context is not None:
                context.setLocalProperty(name, before)  # type: ignore[arg-type]


def carried(spark: SparkSession, run: Callable[[], T]) -> Callable[[], T]:
    """Wrap `run` so that it does the same in another thread, with this thread's properties.

    If Spark cannot be reached, the properties are left out, and `run` raises the error.
    """
    session: Any = spark
    properties, tags = None, set[str]()
    with contextlib.suppress(Exception):
        if is_classic(spark):
            properties = _scala_context(session).getLocalProperties().clone()
        tags = set(session.getTags())

    def carry() -> T:
        with contextlib.suppress(Exception):
            if properties is not None:
                _scala_context(session).setLocalProperties(properties)
            session.clearTags()
            for tag in tags:
                session.addTag(tag)
        return run()

    return carry


def _scala_context(session: Any) -> Any:
    return session.sparkContext._jsc.sc()  # noqa: SLF001  (Python has no other way)


def committer_of(spark: SparkSession) -> Committer:
    """The JVM that commits for a session."""
    if spark not in _committers:
        here, pid, started = SystemProcesses(), None, None
        if is_classic(spark):
            pid = cast("Any", spark)._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001
            started = here.started(pid)
        # No program can wait for a JVM whose process is not seen here, or recognise it.
        unseen = Committer(pid, started=str(uuid.uuid4()))
        _committers[spark] = Committer(pid, here.host(), started) if started else unseen
    return _committers[spark]
