"""Finds the JVM that commits for a Spark session."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tubeq_spark.storage.locks.committer import Committer, Processes, processes
from tubeq_spark.storage.spark.conflicts import is_unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: A query that Spark evaluates during planning, so in the JVM that commits, and not in an executor.
_ASK = (
    "SELECT java_method('java.lang.ProcessHandle', 'current') AS pid, "
    "java_method('java.lang.System', 'getProperty', 'sun.java.command') AS command FROM VALUES (1)"
)

_known: WeakKeyDictionary[SparkSession, Committer] = WeakKeyDictionary()


def committer_of(spark: SparkSession) -> Committer:
    """The JVM of a session. The first call runs one query without a job."""
    found = _known.get(spark)
    if found is None:
        found = _known[spark] = _ask(spark, processes())
    return found


def _ask(spark: SparkSession, here: Processes) -> Committer:
    try:
        told = spark.sql(_ASK).collect()[0]
        pid, command = int(told["pid"]), told["command"]
        started = here.started(pid)
        # If the JVM is in a container or on another host, another process here may have its pid.
        if started is not None and command and here.command(pid).endswith(command.strip()):
            return Committer("", pid, here.host(), started)
        return Committer(str(spark.conf.get("spark.app.id")), pid)
    except Exception as error:
        if is_unreachable(error):
            raise
        log.debug("the session does not tell of its JVM", exc_info=True)
        # Without a process here, no program can wait for the JVM, or recognise it.
        return Committer(str(uuid.uuid4()))
