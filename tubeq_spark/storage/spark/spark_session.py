"""Builds Spark sessions for programs and tests.

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
from tubeq_spark.storage.spark.spark_settings import LOCAL_SETTINGS, delta_is_on, spark_conf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

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
        StoreError: Java is missing or too old, pyspark is not installed, the process has a session
            without Delta, or Spark does not start.

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
        session = SparkSession.active()
    except PySparkRuntimeError:
        # On Databricks the builder finds the session from every thread, also on Spark Connect.
        return SparkSession.builder.getOrCreate() if on_databricks() else None
    if not delta_is_on(session):
        raise StoreError(
            "this process has a Spark session without Delta already: "
            "stop it, or start it with the settings of spark_conf() and the Delta jar"
        )
    return session


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
