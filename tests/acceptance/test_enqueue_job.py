"""`jobs/enqueue.py` puts the rows of a file or a table once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import enqueue
import pytest

from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.thorough
def test_rows_of_a_file_and_of_a_table_are_put_once_by_a_key(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, file = str(tmp_path / "queue"), tmp_path / "mails.jsonl"
    file.write_text('{"id": 1, "to": "ann"}\n{"id": 2, "to": "bob"}\n{"id": 3, "to": null}\n')
    with Queue(None, place, engine="native") as maker:
        maker.create_tube("mails", "utubettl")
    spark.range(5).createOrReplaceTempView("orders_of_a_job")
    to_tube = ("--location", place, "--tube", "mails")
    options = ("--where", "to IS NOT NULL", "--data", "struct(id)", "--option", "utube=to")

    for _ in range(2):
        enqueue.main([str(file), *to_tube, *options, "--key", "a day"])
    enqueue.main(["orders_of_a_job", *to_tube])

    assert capsys.readouterr().out.splitlines() == [
        f"put {count} tasks into mails" for count in (2, 0, 5)
    ]
    with Queue(None, place) as queue:
        found = [(task.utube, task.data) for task in queue["mails"].tasks_by_state("ready")]
    assert sorted(found, key=str) == sorted(
        [("ann", {"id": 1}), ("bob", {"id": 2}), *((None, {"id": n}) for n in range(5))], key=str
    )


def test_line_that_is_not_json_ends_the_job_before_anything_is_put(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, file = str(tmp_path / "queue"), tmp_path / "mails.jsonl"
    file.write_text('{"id": 1}\n{"id":\n')
    with Queue(None, place, engine="native") as maker:
        maker.create_tube("mails", "fifo")

    with pytest.raises(Exception, match="MALFORMED"):
        enqueue.main([str(file), "--location", place, "--tube", "mails"])

    with Queue(None, place) as queue:
        assert queue.statistics("mails")["tasks"]["total"] == 0
    assert spark.range(1).count() == 1
