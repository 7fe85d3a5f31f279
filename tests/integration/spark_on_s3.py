"""Puts and takes by Spark on the S3 of the tests: `python -m tests.integration.spark_on_s3 URL LOCATION`.

The session reaches it by Hadoop's client, which is downloaded when it is first needed (700 MB).
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.jvm_options import SHORT_LIVED
from tubeq_spark import Queue, StoreError, local_session
from tubeq_spark.storage.spark.spark_session import CODEGEN, LOCAL_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: How a program ends that has no session.
NO_SESSION = 77
#: Tasks of a put, and of a take.
ROWS, BATCH = 50, 30
_EXCLUDED = "spark.jars.excludes"


def session(url: str) -> SparkSession:
    """A session that reaches the store."""
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    hadoop = re.sub(r"hadoop-client-api-|\.jar", "", client.name)
    clients = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    s3a = {
        "endpoint": url,
        "endpoint.region": "us-east-1",
        "access.key": "test",
        "secret.key": "test",
        "path.style.access": "true",
    }
    return local_session(
        f"spark {importlib.metadata.version('pyspark')} on S3",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop}",
            _EXCLUDED: LOCAL_SETTINGS[_EXCLUDED].replace("org.apache.hadoop:*", clients),
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
            **{name: interpreted for name, (interpreted, _) in CODEGEN.items()},
        },
    )


def rows(spark: SparkSession, first: int, count: int = ROWS) -> DataFrame:
    """Rows with numbers as payloads."""
    return spark.range(first, first + count, 1, 2).selectExpr("CAST(id AS STRING) AS data")


def tell(**found: object) -> None:
    """Print what was found."""
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()


def verbs(spark: SparkSession, location: str) -> None:
    """Put and take, and tell what came of it."""
    with Queue(spark, location) as queue:
        tell(engine=queue._engines.name)
        tube = queue.create_tube("work", "fifottl")
        tell(put=tube.put_df(rows(spark, 0), key="a").count)
        tell(again=tube.put_df(rows(spark, 0), key="a").count)
        tube.sink(name="stream")(rows(spark, ROWS), 0)
        tube.sink(name="stream")(rows(spark, ROWS), 0)
        tell(stored=tube.df().count())
        keyed = rows(spark, 2 * ROWS, 10).selectExpr("data", "data AS unique")
        tell(keyed=[tube.put_df(keyed).count, tube.put_df(keyed).count])
        with tube.take_df(BATCH) as batch:
            tell(taken=sorted(int(row.data) for row in batch.df.select("data").collect()))
        limited = queue.create_tube("limited", "limfifottl", capacity=ROWS + 5)
        puts = [limited.put_df(rows(spark, n), key=str(n)).count for n in (0, 1)]
        tell(limited=[*puts, limited.put_df(rows(spark, 0, 5)).count, limited.df().count()])


def main() -> None:
    """Start a session, and call the verbs."""
    url, location = sys.argv[1:3]
    try:
        spark = session(url)
    except (StoreError, OSError) as error:
        sys.stderr.write(str(error))
        sys.exit(NO_SESSION)
    verbs(spark, location)
    spark.stop()


if __name__ == "__main__":
    main()
