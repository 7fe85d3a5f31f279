"""What only a classic Spark session allows, by its JVM; and what belongs to a thread."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tubeq_spark.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_AT_LEAST: Final = 17
_HINT: Final = "install one (on Debian and Ubuntu openjdk-17-jre-headless) or set JAVA_HOME to it"
_WAIT_S: Final = 30.0
_CHUNK: Final = 65536
_STDERR: Final = 2
#: Spark sets it in the thread that runs a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
#: What its UI shows of a job.
_DESCRIPTION: Final = "spark.job.description"
#: Among which jobs it shares out its slots, where it does so fairly.
_POOL: Final = "spark.scheduler.pool"


def is_classic(spark: SparkSession) -> bool:
    """Whether the session is one of this process, and not a client of Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def hadoop_setting(spark: SparkSession, name: str) -> str | None:
    """A setting of Hadoop's files or a program's; `None` if there is none, or only a server knows it."""
    if not is_classic(spark):
        return None
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  (Python has no other way)
    found: str | None = hadoop.get(name)
    return found


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows that the driver holds, as a DataFrame; like `createDataFrame`, but without a trace.

    That makes its session the active one of the whole process, which is the program's to choose.

    Args:
        spark: The session.
        table: The rows.
    """
    # Spark reads no further than a chunk without rows.
    table = table.combine_chunks()
    if not is_classic(spark):
        return spark.createDataFrame(table)
    from pyspark.sql import SparkSession as Classic  # noqa: PLC0415  pyspark is optional

    return super(Classic, spark).createDataFrame(table)


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose thread calls: that of its checkpoint.

    Returns:
        `None` outside of streaming queries, and on Spark Connect, where nothing tells.
    """
    if not is_classic(spark):
        return None
    found: str | None = spark.sparkContext.getLocalProperty(_QUERY_ID)
    return found


def is_stopped(spark: SparkSession, query_id: str) -> bool:
    """Whether somebody has stopped a streaming query of a classic session, whose thread still runs."""
    # It may be another session's, or the JVM may be gone.
    with contextlib.suppress(Exception):
        query = spark.streams.get(query_id)
        return query is not None and not query.isActive
    return False


def plan_text(df: DataFrame) -> str | None:
    """The physical plan of a DataFrame, as `explain` prints it; nothing is run.

    Returns:
        `None` where this pyspark does not tell.
    """
    if is_classic(df.sparkSession):
        plan: str = df._jdf.queryExecution().simpleString()  # noqa: SLF001  the one way to it
        return plan
    # The public method prints; the text is asked for by the same name since Connect began.
    ask = getattr(df, "_explain_string", None)
    return None if ask is None else str(ask())


def with_settings(df: DataFrame, settings: Mapping[str, str | None]) -> DataFrame:
    """The same rows under other settings, in a session of their own.

    The plan is that of the DataFrame, and all other settings are those of its session at this moment, so
    the rows are in the same partitions.

    Args:
        df: The rows.
        settings: The settings; `None` is not set.

    Returns:
        `df` itself where this platform does not allow that.
    """
    spark: Any = df.sparkSession
    if not is_classic(spark):
        return df
    try:
        # As Spark itself makes the session of a streaming query.
        theirs = spark._jsparkSession.cloneSession()  # noqa: SLF001  (Python has no other way)
        for name, value in settings.items():
            if value is None:
                theirs.conf().unset(name)
            else:
                theirs.conf().set(name, value)
        plan = df._jdf.queryExecution().analyzed()  # noqa: SLF001
        rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(theirs, plan)  # noqa: SLF001
        made: DataFrame = type(df)(rows, type(spark)(spark.sparkContext, theirs))
    except Exception:
        logger.info("a write has no settings of its own here", exc_info=True)
        return df
    return made


def require_java() -> None:
    """Raise one clear sentence if no suitable Java is installed.

    Raises:
        StoreError: No Java is found where Spark looks for it, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home) / "bin" / "java") if home else shutil.which("java")
    place = f"in JAVA_HOME, {home}" if home else "on the PATH"
    banner = None if java is None else _version_banner(java)
    if banner is None:
        message = f"Spark needs Java {_AT_LEAST} or newer and there is none {place}: {_HINT}"
        raise StoreError(message)
    found = _major_version(banner)
    if found is not None and found < _AT_LEAST:
        message = f"Spark needs Java {_AT_LEAST} or newer and {java} is Java {found}: {_HINT}"
        raise StoreError(message)


def _version_banner(java: str) -> str | None:
    """Return what `java -version` prints, None if it does not run."""
    try:
        result = subprocess.run(  # noqa: S603  the program that Spark itself would run
            [java, "-version"], capture_output=True, text=True, timeout=_WAIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None  # macOS has a java that only says where to get one, and fails
    return result.stderr + result.stdout


def _major_version(banner: str) -> int | None:
    """Return 17 for `openjdk version "17.0.15"` and 8 for `"1.8.0_392"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(match[1]) if match else None


def launch_jvm(conf: SparkConf, output: HeldBackOutput) -> JavaGateway:
    """Start Spark's JVM with a configuration.

    Args:
        conf: Settings, those of the process itself (memory, jars) included.
        output: Where the process writes its messages.

    Returns:
        The gateway that a SparkContext takes.

    Raises:
        StoreError: The process ended at once, e.g. because the jars could not be resolved.
    """
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415  pyspark is optional
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    try:
        return launch_gateway(conf, {"stderr": output.writer})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        message = f"Spark did not start: {output.verdict()}"
        raise StoreError(message) from None
    finally:
        output.close_writer()


class HeldBackOutput:
    """Holds back the output of Spark's JVM while it starts, and passes on later output.

    Resolving the jars alone prints a hundred lines, and no setting of Spark turns them off.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._held = bytearray()
        self._passes_on = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pump, name="spark-stderr", daemon=True)
        self._thread.start()

    def close_writer(self) -> None:
        """Close our end, so that the JVM is the only writer."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def let_go(self) -> None:
        """Write the held output to the debug log, and pass on later output."""
        with self._lock:
            self._passes_on = True
            logger.debug("Spark's start:\n%s", self._held.decode(errors="replace"))
            self._held.clear()

    def verdict(self) -> str:
        """Return the line with the reason why a JVM ended."""
        self.close_writer()
        self._thread.join(_WAIT_S)
        with self._lock:
            lines = self._held.decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        reasons = [line for line in said if "Exception" in line or "Error" in line]
        return next(iter([*reasons, *reversed(said)]), "it ended without a word")

    def _pump(self) -> None:
        while chunk := os.read(self._reader, _CHUNK):
            with self._lock:
                if self._passes_on:
                    os.write(_STDERR, chunk)
                else:
                    self._held += chunk
        os.close(self._reader)


T = TypeVar("T")


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Name the jobs of a block in Spark's UI, and restore the name that the thread's jobs had.

    A client of Spark Connect cannot name jobs: it tags its statements, which the server's UI shows with
    their tags.
    """
    tagged = False
    # Where Spark cannot be reached, the block says so.
    with contextlib.suppress(Exception):
        if not is_classic(spark) and text not in spark.getTags():
            spark.addTag(text)
            tagged = True
    try:
        with _with_property(spark, _DESCRIPTION, text):
            yield
    finally:
        with contextlib.suppress(Exception):
            if tagged:
                spark.removeTag(text)


@contextlib.contextmanager
def in_pool(spark: SparkSession, name: str) -> Iterator[None]:
    """Have Spark give the next free slots to the jobs of a block, if it shares them out fairly.

    A client of Spark Connect cannot choose that.
    """
    with _with_property(spark, _POOL, name):
        yield


@contextlib.contextmanager
def _with_property(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Set a property of the thread's jobs for a block, and restore its value; not on Spark Connect."""
    context, before = None, None
    # Where Spark cannot be reached, the block says so.
    with contextlib.suppress(Exception):
        if is_classic(spark):
            context = _scala_context(spark)
            before = context.getLocalProperty(key)
            context.setLocalProperty(key, value)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            if context is not None:
                context.setLocalProperty(key, before)


def carried(spark: SparkSession, run: Callable[[], T]) -> Callable[[], T]:
    """Wrap `run` so that it does the same in another thread, with this thread's properties.

    Where Spark cannot be reached they are left out: `run` will say what is wrong.
    """
    session: Any = spark
    tags: set[str] = set()
    properties = None
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
    return session.sparkContext._jsc.sc()  # noqa: SLF001  (Python has no other way to these)
