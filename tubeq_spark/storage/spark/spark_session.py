"""Builds Spark sessions for programs and tests; the recommended settings, each with its reason, and a check of a session.

The library itself never builds, stops or reconfigures a session: programs pass one. Programs and
tests start their sessions here, so that they run with the measured settings.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import how_to_install
from tubeq_spark.storage.location import on_databricks
from tubeq_spark.storage.spark.jvm import HeldBackOutput, launch_jvm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_OLDEST_SPARK: Final = 4
_TIME_ZONE: Final = "spark.sql.session.timeZone"
STALENESS: Final = "spark.databricks.delta.stalenessLimit"
SCHEDULER: Final = "spark.scheduler.mode"


#: The recommended settings, as in `conf/spark-defaults.conf`.
SETTINGS: Final[Mapping[str, str]] = {
    # Delta's own statements and its checks of plans.
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    # Tables by name or by path, delta.`/path`, are Delta tables.
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # This many tasks rebuild each version's state; the default, 50, takes 2.7 times as long.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A MERGE of a batch joins a few rows. Raise it for jobs that shuffle much else.
    "spark.sql.shuffle.partitions": "2",
    # It runs each stage as a job of its own: 5 to 10 % of a small statement.
    "spark.sql.adaptive.enabled": "false",
    # All times of a queue are UTC; else Delta verifies the list of files at each commit.
    _TIME_ZONE: "UTC",
    # The list of files in checksum files is written and verified, but never read.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # Delta recognises a commit whose answer was lost, and does not repeat it.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    # A statement writes to few partitions, so the shuffle before it only costs.
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
    # It shuffles before each write; a batch is one file already.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    # It rewrites files after a commit, and conflicts with takes; the sweeper does not.
    "spark.databricks.delta.autoCompact.enabled": "false",
    # VACUUM lists directories in this many tasks, by default in 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Heartbeats have a pool of their own; else they wait for the tasks of all jobs.
    SCHEDULER: "FAIR",
}

#: Settings that all sessions of a program share, with their values at the start of the first session.
_OF_PROGRAM: Final = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog", SCHEDULER)

_OF_SESSION: Final = {name: SETTINGS[name] for name in SETTINGS if name not in _OF_PROGRAM}
#: Settings of the queue's own sessions, whatever those of the caller's session are.
OWN_SETTINGS: Final[Mapping[str, str]] = {
    **_OF_SESSION,
    # After a lost answer, the history must have the number of rows that the commit changed.
    "spark.databricks.delta.history.metricsEnabled": "true",
}
#: Settings with a transaction id for all writes of a session. Delta skips all writes with an id but the first.
OF_ONE_WRITE: Final = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
)
#: Settings of a caller's files. Other engines read the files of the queue, too, and know only today's calendar, and
#: moments are stored in microseconds. Spark does both by default, from 4.0 on.
OF_FILES: Final = (
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
    "spark.sql.parquet.outputTimestampType",
)
#: Settings that a caller may have for its own reads and writes. The queue's own sessions have Spark's defaults.
OWN_CLEARED: Final = (
    "spark.databricks.delta.commitInfo.userMetadata",
    *OF_ONE_WRITE,
    "spark.databricks.delta.write.txnVersion.autoReset.enabled",
    *OF_FILES,
    # For files of the native engine, which have no note about the calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead",
    # The meaning of TIMESTAMP in the DDL of the queue's tables.
    "spark.sql.timestampType",
    # All decisions need the newest version.
    STALENESS,
)
#: Values for the session that interprets plans, and for the one that compiles them. Compiling a plan takes longer than
#: running it over a few rows: with it a put, take and ack of a small batch take 1.3 to 1.4 times as long.
CODEGEN: Final[Mapping[str, tuple[str, str]]] = {
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
    "spark.sql.codegen.wholeStage": ("false", "true"),
}

#: Further settings of a local session.
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # Embedded: driver and executor are one process.
    "spark.master": "local[*]",
    # Nobody else needs to reach an embedded session, and the host's name need not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The executor's work is done in here too; Spark's default of 1g is soon full.
    "spark.driver.memory": "4g",
    # Java code that asks the JVM, not the session, for the zone sees UTC as well.
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    # What Delta's jar depends on and Spark brings along itself, in other versions: 70 MB less to download, and a start
    # that is 2 seconds shorter.
    "spark.jars.excludes": "com.fasterxml.jackson.core:*,com.github.luben:*,com.google.code.findbugs:*,"
    "commons-logging:*,commons-pool:*,io.airlift:*,javax.annotation:*,org.apache.hadoop:*,"
    "org.apache.logging.log4j:*,org.apache.parquet:*,org.locationtech.jts:*,"
    "org.roaringbitmap:*,org.slf4j:*,org.xerial.snappy:*",
    # No web server and no port for a short-lived session.
    "spark.ui.enabled": "false",
    # The progress bar would overwrite what a program prints.
    "spark.ui.showConsoleProgress": "false",
    # Warnings about each small statement say nothing new, and a failed statement raises an exception. Statements of the
    # queue fail on purpose, by raise_error(), if the rows have changed since they were read.
    "spark.log.level": "FATAL",
}


def spark_conf() -> dict[str, str]:
    """Return the session settings that we recommend for a queue.

    Delta's extension and catalog are included, the Delta jar is not: clusters bring it along, and
    `local_session` resolves it. The reason for each setting is in `conf/spark-defaults.conf`.

    Returns:
        A new dict of settings, for a session's builder, a cluster's page or spark-defaults.conf.

    Example:
        >>> spark_conf()["spark.databricks.delta.snapshotPartitions"]
        '1'
    """
    return dict(SETTINGS)


def missing_settings(spark: SparkSession) -> list[str]:
    """List the recommended settings that a session lacks.

    Works on classic sessions and on Spark Connect. A setting that the session refuses to show counts as there,
    because the caller could not change it.

    Args:
        spark: Any session.

    Returns:
        Names of settings, as in `SETTINGS`, but none that all sessions of a program share; empty if all is well.
    """
    return [name for name, value in _OF_SESSION.items() if asked(spark, name, value) != value]


def require_spark(spark: SparkSession) -> None:
    """Refuse a session with a Spark that is too old.

    Args:
        spark: Any session; a Connect server is asked for its version.

    Raises:
        StoreError: The session has a Spark older than 4.0.
    """
    found = spark.version
    major = found.partition(".")[0]
    if major.isdecimal() and int(major) < _OLDEST_SPARK:
        raise StoreError(
            f"Spark {_OLDEST_SPARK}.0 or newer is needed and this session has Spark {found}: "
            "Databricks has it from Runtime 17 on, Dataproc from 3.0, EMR and Fabric from their "
            "releases with Spark 4"
        )


def asked(spark: SparkSession, name: str, hidden: str | None = None) -> str | None:
    """Read a setting of a session; some platforms refuse even that.

    Args:
        spark: Any session.
        name: The name of the setting.
        hidden: The result if the platform refuses to show it.

    Returns:
        Its value; `None` if it is not set.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415  pyspark is optional

    # A Connect server logs an error if it is asked, without a default, for a setting that is not set.
    # The time zone always has a value; by default it is that of the JVM.
    defaults = () if name == _TIME_ZONE else (None,)
    try:
        return spark.conf.get(name, *defaults)
    except PySparkException:
        return hidden


_SCALA: Final = "2.13"
_DELTA_TESTED: Final = "4.4.0"
_JAR_A_SPARK: Final = (4, 1)
_DELTA_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"
_starting = threading.Lock()


def delta_package() -> str:
    """Return the Maven coordinates of the Delta jar that fits the installed Python packages.

    Returns:
        The value for `spark.jars.packages` and `spark-submit --packages`.

    Raises:
        StoreError: pyspark is not installed.
    """
    try:
        from pyspark import __version__ as spark  # noqa: PLC0415  pyspark is optional
    except ImportError:
        message = f"pyspark is not installed: {how_to_install('spark')} brings it and Delta"
        raise StoreError(message) from None
    try:
        delta = version("delta-spark")
    except PackageNotFoundError:
        delta = _DELTA_TESTED
    # From 4.1 on, a release of Delta has one jar for each minor version of Spark.
    of_spark = "" if _numbers(delta) < _JAR_A_SPARK else "{}.{}_".format(*_numbers(spark))
    return f"io.delta:delta-spark_{of_spark}{_SCALA}:{delta}"


def _numbers(version_text: str) -> tuple[int, int]:
    """Major and minor of a version: `(4, 1)` of `4.1.0.dev1`."""
    major, minor = version_text.split(".")[:2]
    return int(major), int(minor)


def local_session(app_name: str = "tubeq", **conf: str) -> SparkSession:
    """Return a local Spark session with Delta and the recommended settings.

    If the process already has a session, that one is returned unchanged, because a process has only
    one. On Databricks that is the session of the notebook or the job. In a program that
    spark-submit runs, the settings of spark-submit take precedence, and it also sets master, memory
    and addresses, so the same program runs on a cluster.

    The first start on a machine downloads Delta's jars from Maven Central into `~/.ivy2.5.2`, about 13 MB.

    Args:
        app_name: Name of the application.
        **conf: More settings, or other values for ours: `local_session(**{"spark.master":
            "local[2]"})`. Values of `spark.jars.packages` and `spark.driver.extraJavaOptions` are
            added to ours.

    Returns:
        The session, which the caller stops.

    Raises:
        StoreError: Java is missing or too old, pyspark is not installed, or Spark does not start.

    Example:
        >>> spark = local_session("my-job", **{"spark.driver.memory": "8g"})
    """
    package = delta_package()
    with _starting:
        running = _running_session()
        if running is not None:
            return running
        return _start_session(_local_conf(app_name, package, conf))


def _local_conf(app_name: str, package: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Combine all settings of a local session; those of the caller take precedence."""
    ours = {**spark_conf(), **LOCAL_SETTINGS}
    ours |= {"spark.app.name": app_name, "spark.jars.packages": package}
    theirs = dict(conf)
    for name, separator in (("spark.jars.packages", ","), ("spark.driver.extraJavaOptions", " ")):
        if name in conf:
            theirs[name] = f"{ours[name]}{separator}{conf[name]}"
    return ours | theirs


def _running_session() -> SparkSession | None:
    """Return the session of this process, if there is one."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415  pyspark is optional
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        # On Databricks the builder finds the session from every thread, also on Spark Connect.
        return SparkSession.builder.getOrCreate() if on_databricks() else None


def _start_session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  pyspark is optional
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise StoreError(
            "local_session() starts an embedded session, but SPARK_REMOTE asks for Spark Connect: "
            "unset it, or give Queue a session of SparkSession.builder.remote()"
        )
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # set by spark-submit, which has started the JVM
        return _session_of_submit(settings)
    # A stopped session leaves its JVM running, and a process has only one JVM.
    if SparkContext._gateway is not None:  # noqa: SLF001  there is no public name
        return _session_on(SparkConf().setAll(list(settings.items())))
    # Spark reads only the environment; the first python3 on the PATH may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    output = HeldBackOutput()
    try:
        return _session_on(conf, launch_jvm(conf, output))
    finally:
        output.let_go()


def _session_of_submit(settings: Mapping[str, str]) -> SparkSession:
    """Start the session of a program that spark-submit runs, perhaps on a cluster."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  pyspark is optional

    SparkContext._ensure_initialized()  # noqa: SLF001  the conf is empty before
    conf = SparkConf()
    # The addresses and memory of a local session would be wrong on a cluster.
    for name in settings.keys() - LOCAL_SETTINGS.keys():
        conf.setIfMissing(name, settings[name])
    return _session_on(conf)


def _session_on(conf: SparkConf, gateway: JavaGateway | None = None) -> SparkSession:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  pyspark is optional
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    context = SparkContext(conf=conf, gateway=gateway)
    session = SparkSession.builder.getOrCreate()
    jvm: Any = context._jvm  # noqa: SLF001  the class path is the JVM's
    try:
        jvm.Thread.currentThread().getContextClassLoader().loadClass(_DELTA_CLASS)
    except Py4JJavaError:
        session.stop()
        raise StoreError(
            "Spark runs without the Delta jar: give spark-submit --packages "
            f"{delta_package()}, or start a new process"
        ) from None
    return session
