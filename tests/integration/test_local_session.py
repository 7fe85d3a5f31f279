"""`local_session` starts a quiet session with the recommended settings, and explains why it cannot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.programs import ran
from tubeq_spark import local_session, spark_conf
from tubeq_spark.storage.spark.spark_session import delta_package, missing_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_local_session_has_the_recommended_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in spark_conf()} == spark_conf()
    assert missing_settings(spark) == []


def test_local_session_returns_the_one_that_is_there(spark: SparkSession) -> None:
    assert local_session("another", **{"spark.master": "local[7]"}) is spark


def test_local_session_runs_python_of_the_same_kind(spark: SparkSession) -> None:
    def tell(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    told = spark.range(1).mapInArrow(tell, "python string").collect()

    assert told[0].python == sys.executable


def test_missing_settings_sees_what_a_session_turned_off(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.unset("spark.databricks.delta.snapshotPartitions")
    session.conf.set("spark.sql.shuffle.partitions", "200")
    session.conf.set("spark.sql.session.timeZone", "Europe/Paris")

    assert missing_settings(session) == [
        "spark.databricks.delta.snapshotPartitions",
        "spark.sql.shuffle.partitions",
        "spark.sql.session.timeZone",
    ]


@pytest.mark.thorough
@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.usefixtures("spark")  # which has fetched the jars; a first start tells of that
def test_local_session_is_quiet_from_start_to_end(tmp_path: Path) -> None:
    result = ran(
        "-c",
        "import sys\n"
        "from tubeq_spark import local_session\n"
        "spark = local_session('quiet', **{'spark.master': 'local[1]'})\n"
        f"spark.range(2).write.format('delta').save('{tmp_path}/t')\n"
        "try: spark.sql(\"SELECT raise_error('on purpose')\").collect()\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print(spark.sparkContext._jvm.java.util.TimeZone.getDefault().getID())\n"
        "spark.stop()\n"
        "print('stopped', file=sys.stderr, flush=True)\n"
        "again = local_session('again', **{'spark.master': 'local[1]'})\n"
        f"print(again.sql('SELECT * FROM delta.`{tmp_path}/t`').count())\n",
        cwd=tmp_path,
    )

    assert result.stdout.splitlines() == ["SparkRuntimeException", "UTC", "2"]
    assert result.stderr.startswith("stopped\n")
    assert result.returncode == 0


@pytest.mark.thorough
@pytest.mark.processes
def test_local_session_that_cannot_get_the_delta_jar_says_so(tmp_path: Path) -> None:
    # An empty cache and no repository but an empty folder: a first start without a network.
    ivy = tmp_path / "ivy.xml"
    ivy.write_text(
        "<ivysettings><settings defaultResolver='here'/><resolvers><filesystem name='here'>"
        f"<artifact pattern='{tmp_path}/[artifact].[ext]'/>"
        "</filesystem></resolvers></ivysettings>"
    )

    result = ran(
        "-c",
        "from tubeq_spark import StoreError, local_session\n"
        f"conf = {{'spark.jars.ivy': '{tmp_path}/ivy', 'spark.jars.ivySettings': '{ivy}'}}\n"
        "try: local_session(**conf)\n"
        "except StoreError as error: print(error)\n",
        cwd=tmp_path,
    )

    *_, said = result.stdout.splitlines()  # Ivy tells on stdout that it has settings of its own
    assert result.stderr == ""
    assert said.startswith("Spark did not start: ")
    assert "unresolved dependency: io.delta#delta-spark" in said


@pytest.mark.thorough
@pytest.mark.processes
def test_local_session_in_a_jvm_without_the_delta_jar_is_refused(tmp_path: Path) -> None:
    result = ran(
        "-c",
        "from pyspark.sql import SparkSession\n"
        "from tubeq_spark import StoreError, local_session\n"
        "plain = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "plain = plain.getOrCreate()\n"
        "plain.stop()\n"
        "try: local_session()\n"
        "except StoreError as error: print(error)\n",
        cwd=tmp_path,
    )

    (has_no_jar,) = result.stdout.splitlines()
    assert has_no_jar.startswith("Spark runs without the Delta jar: ")
    assert delta_package() in has_no_jar
