"""The recommended session settings, each with its reason, and a check of a given session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tubeq_spark.errors import StoreError
from tubeq_spark.storage.location import on_databricks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

_OLDEST_SPARK: Final = 4
_TIME_ZONE: Final = "spark.sql.session.timeZone"
STALENESS: Final = "spark.databricks.delta.stalenessLimit"
SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"
SCHEDULER: Final = "spark.scheduler.mode"


class Setting(NamedTuple):
    """A value of a Spark setting, and the reason for it."""

    value: str
    reason: str


SETTINGS: Final[Mapping[str, Setting]] = {
    "spark.sql.extensions": Setting(
        "io.delta.sql.DeltaSparkSessionExtension",
        "Delta's own statements and its checks of plans.",
    ),
    "spark.sql.catalog.spark_catalog": Setting(
        "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "Tables by name or by path, delta.`/path`, are Delta tables.",
    ),
    SNAPSHOT_PARTITIONS: Setting(
        "1",
        "Every new version of a table rebuilds its state by a job of this many tasks, 50 if "
        "unset: the dearest default, with it a put, take and ack last 2.7 times as long.",
    ),
    "spark.sql.shuffle.partitions": Setting(
        "2",
        "A MERGE of a batch joins a few rows; 200 tasks for them double the time of a take. "
        "Raise it for jobs that shuffle much else.",
    ),
    "spark.sql.adaptive.enabled": Setting(
        "false",
        "Adaptive execution runs each stage as a job of its own, 5 to 10 % of a small "
        "statement, and with so few partitions there is nothing to adapt.",
    ),
    _TIME_ZONE: Setting(
        "UTC",
        "All times of a queue are UTC; in any other zone Delta also verifies the list of "
        "files at each commit.",
    ),
    "spark.databricks.delta.allFilesInCrc.enabled": Setting(
        "false",
        "The list of files in each version's checksum file is written and verified, but "
        "nothing on the path of a queue reads it.",
    ),
    "spark.databricks.delta.commit.idempotencyCheck.enabled": Setting(
        "true",
        "A commit that landed while its answer was lost is recognised by Delta, instead of "
        "being written twice or conflicting with itself.",
    ),
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": Setting(
        "false",
        "A statement of the queue writes to one or few partitions: the shuffle before the "
        "write only costs.",
    ),
    "spark.databricks.delta.optimizeWrite.enabled": Setting(
        "false",
        "It shuffles before each write; a batch is one file already.",
    ),
    "spark.databricks.delta.autoCompact.enabled": Setting(
        "false",
        "It rewrites files after a commit, within the statement, and what it rewrites "
        "conflicts with takes. The sweeper folds small segments where nobody works.",
    ),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": Setting(
        "8",
        "VACUUM, by which a sweep removes dead files, lists directories in this many tasks: "
        "10,000 if unset, which is minutes on a small machine.",
    ),
    SCHEDULER: Setting(
        "FAIR",
        "Heartbeats are jobs of a pool of their own, which gets the next free slot. By default they "
        "wait for the last task of each job before them, and the session may end meanwhile.",
    ),
}

_DELTA_ITSELF: Final = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
#: Settings that all sessions of a program share, with their values at the start of the first session.
_OF_PROGRAM: Final = (*_DELTA_ITSELF, SCHEDULER)

#: Settings of the queue's own sessions, whatever those of the caller's session are.
OWN_SETTINGS: Final[Mapping[str, str]] = {
    **{name: setting.value for name, setting in SETTINGS.items() if name not in _OF_PROGRAM},
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
    # Warnings about each small statement say nothing new.
    "spark.log.level": "ERROR",
}


def spark_conf() -> dict[str, str]:
    """Return the session settings that we recommend for a queue.

    Delta's extension and catalog are included, the Delta jar is not: clusters bring it along, and
    `local_session` resolves it. The reason for each setting is in `SETTINGS`.

    Returns:
        A new dict of settings, for a session's builder, a cluster's page or spark-defaults.conf.

    Example:
        >>> spark_conf()["spark.databricks.delta.snapshotPartitions"]
        '1'
    """
    return {name: setting.value for name, setting in SETTINGS.items()}


def missing_settings(spark: SparkSession) -> list[str]:
    """List the recommended settings that matter and that are off in a session.

    Works on classic sessions and on Spark Connect. A setting that the session refuses to show counts as on, because
    the caller could not change it.

    Args:
        spark: Any session.

    Returns:
        Names of settings, as in `SETTINGS`; empty if all is well.
    """
    return [name for name, accepts in _MATTERING.items() if not _is_on(spark, name, accepts)]


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
        message = (
            f"Spark {_OLDEST_SPARK}.0 or newer is needed and this session has Spark {found}: "
            "Databricks has it from Runtime 17 on, Dataproc from 3.0, EMR and Fabric from their "
            "releases with Spark 4"
        )
        raise StoreError(message)


def delta_is_on(spark: SparkSession) -> bool:
    """Tell whether a session has Delta's extension and a catalog that knows Delta.

    Args:
        spark: Any session.

    Returns:
        Whether statements on Delta tables can work.
    """
    return not any(name in _DELTA_ITSELF for name in missing_settings(spark))


def _contains(text: str) -> Callable[[str], bool]:
    return lambda value: text in value.lower()


def _at_most(limit: int) -> Callable[[str], bool]:
    # A few more partitions than recommended may be a decision of the program, but the default is an oversight.
    return lambda value: value.isdecimal() and int(value) <= limit


def _is_off(value: str) -> bool:
    return value.lower() != "true"


# The settings whose absence breaks something, or costs measurable time. An unset value is "".
_MATTERING: Final[Mapping[str, Callable[[str], bool]]] = {
    "spark.sql.extensions": _contains("deltasparksessionextension"),
    # Unity Catalog has a class of its own that knows Delta.
    "spark.sql.catalog.spark_catalog": bool,
    SNAPSHOT_PARTITIONS: _at_most(8),
    "spark.sql.shuffle.partitions": _at_most(16),
    _TIME_ZONE: _contains("utc"),
    "spark.databricks.delta.commit.idempotencyCheck.enabled": _contains("true"),
    "spark.databricks.delta.optimizeWrite.enabled": _is_off,
    "spark.databricks.delta.autoCompact.enabled": _is_off,
}


def _is_on(spark: SparkSession, name: str, accepts: Callable[[str], bool]) -> bool:
    if name in _DELTA_ITSELF and on_databricks():
        return True  # Databricks has Delta built in, and shows it in no setting.
    return accepts(asked(spark, name, hidden=SETTINGS[name].value) or "")


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
