"""Spark's side: a session with some settings."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bench.plan import Form, Session
from bench.spark.floor import Floor, create_like
from bench.spark.frames import QueueFrames, latest_version, payload_column
from bench.subjects import QueueMany
from tubeq_spark import Queue, QueueConfig, local_session, spark_conf
from tubeq_spark.tables import path_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from bench.subjects import Subject
    from bench.subqueues import Load
    from tubeq_spark import Batch, Tube

__all__ = ["SparkSide", "default_settings", "open_session"]

_DELTA_ITSELF = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")


class SparkSide:
    """A queue whose verbs are Spark's; as `sides.Side` says."""

    def __init__(self, spark: SparkSession, session: Session, location: str) -> None:
        """Open a queue below a location.

        Args:
            spark: The session to measure in.
            session: What its settings are.
            location: A path or URI.
        """
        self.session = session
        self._spark = spark
        self._location = location
        self._config = QueueConfig()
        self.queue = Queue(spark, f"{location}/queue", config=self._config, engine="spark")

    def versions(self) -> dict[str, str]:
        """The versions of Spark and of what it needs."""
        java = self._spark.sql(
            "SELECT java_method('java.lang.System', 'getProperty', 'java.version')"
        )
        return {
            "java": str(java.collect()[0][0]),
            "spark": self._spark.version,
            "delta": _delta_version(),
        }

    def version(self, tube: Tube) -> int:
        """The latest version of a tube's table."""
        return latest_version(self._spark, self._table(tube))

    def subject(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The verbs of a tube."""
        version = lambda: self.version(tube)  # noqa: E731
        if form is Form.MANY:
            return QueueMany(tube, batch, version)
        return QueueFrames(self._spark, tube, batch, version)

    def floor(self, tube: Tube, form: Form, batch: int) -> Subject:
        """The bare statements."""
        table = path_table(f"{self._location}/floor_{tube.name}")
        create_like(self._spark, table, self._table(tube))
        return Floor(self._spark, table, form, batch, self._config.segment_rows)

    def filling(self, tube: Tube, load: Load) -> Callable[[], int]:
        """Puts all tasks of a load as one DataFrame."""
        number = F.col("id") % load.utubes
        df = self._spark.range(load.tasks).select(
            payload_column("id").alias("data"), F.concat(F.lit("u"), number).alias("utube")
        )
        return lambda: tube.put_df(df).count

    def take(self, tube: Tube, n: int, per_utube: int) -> Batch:
        """Take; the tasks stay on the executors."""
        return tube.take_df(n, per_utube=per_utube)

    def _table(self, tube: Tube) -> str:
        return path_table(f"{self.queue.location}/{tube.name}")


def open_session(session: Session) -> SparkSession:
    """An embedded Spark with the settings that were asked for."""
    spark = local_session("tubeq-bench")
    if session is Session.RECOMMENDED:
        return spark
    warnings.filterwarnings("ignore", "this Spark session makes queues slow")
    return default_settings(spark)


def default_settings(spark: SparkSession) -> SparkSession:
    """A session with Spark's and Delta's own settings, but for those that Delta itself needs."""
    session = spark.newSession()
    for name in spark_conf():
        if name not in _DELTA_ITSELF:
            session.conf.unset(name)
    return session


def _delta_version() -> str:
    try:
        return importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # a cluster brings its own
