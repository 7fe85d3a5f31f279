"""The committer of a new location is the one in the docs, and a location keeps the one in its registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.beside import beside_spark
from tubeq_spark import InvalidOptionError, Queue, StoreError
from tubeq_spark.admin.choose_engine import committer_of_new
from tubeq_spark.programs import read_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "storage.md"
#: The rows of the page's table, by a scheme of each.
ROWS = {
    "file": "a path, `file:`",
    "s3": "`s3:`, `s3a:`",
    "s3a": "`s3:`, `s3a:`",
    "gs": "`gs:`, `az:`, `adl:`, `abfs:`, `abfss:`",
    "az": "`gs:`, `az:`, `adl:`, `abfs:`, `abfss:`",
    "adl": "`gs:`, `az:`, `adl:`, `abfs:`, `abfss:`",
    "abfs": "`gs:`, `az:`, `adl:`, `abfs:`, `abfss:`",
    "abfss": "`gs:`, `az:`, `adl:`, `abfs:`, `abfss:`",
    "hdfs": "`hdfs:` and other file systems of Hadoop",
    "wasb": "`hdfs:` and other file systems of Hadoop",
    "catalog": "`catalog.schema`",
}


def table_of_page() -> Iterator[tuple[str, list[str]]]:
    """The rows of the table on the page: the location, and the committers in its columns."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0] in ROWS.values():
            yield cells[0], cells[1:]


@pytest.mark.parametrize("scheme", ROWS)
def test_new_location_has_the_committer_that_the_page_names(scheme: str) -> None:
    told = dict(table_of_page())[ROWS[scheme]]
    columns = [
        {"is_reached": True, "has_session": False},
        {"is_reached": True, "has_session": True},
        {"is_reached": False, "has_session": True},
        {"is_reached": False, "has_session": True},
    ]

    found = [committer_of_new(scheme, **column) for column in columns]

    # Where only Spark commits, a program without a session is refused.
    assert found == ["spark" if cell in ("Spark", "refused") else "native" for cell in told]
    assert ("refused" in told) == (scheme in ("hdfs", "wasb", "catalog"))


@pytest.fixture
def of_spark(tmp_path: Path) -> Path:
    """A location of Spark's commits."""
    beside_spark(tmp_path / "of_spark").close()
    return tmp_path / "of_spark"


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A location of native commits."""
    Queue(None, tmp_path / "native", engine="native").close()
    return tmp_path / "native"


def files_of(place: Path) -> list[Path]:
    return sorted(file for file in place.rglob("*") if file.is_file())


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_location_of_spark_when_a_program_has_no_session_is_refused_before_anything_is_written(
    of_spark: Path, engine: str
) -> None:
    before = files_of(of_spark)

    with pytest.raises(StoreError, match=r"are made by Spark.*: open it with a Spark session"):
        Queue(None, of_spark, engine=engine)

    assert files_of(of_spark) == before


@pytest.mark.parametrize("new", ["spark", "native", "auto"])
def test_location_when_it_is_there_has_its_committer_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, native: Path, of_spark: Path, new: str
) -> None:
    monkeypatch.setenv("TUBEQ_ENGINE", new)

    with Queue(None, native) as queue:
        assert queue.engine == "native"
    for place, committer in ((native, "native"), (of_spark, "spark")):
        assert read_defaults(location=str(place)).committer() == committer


def test_new_location_when_the_environment_or_a_file_names_the_committer_has_that_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place, file = str(tmp_path / "new"), tmp_path / "tubeq.toml"
    file.write_text('engine = "native"\n')
    monkeypatch.setenv("TUBEQ_ENGINE", "spark")

    assert read_defaults(location=place).committer() == "spark"
    assert read_defaults(file, {}, location=place).committer() == "native"
    with pytest.raises(StoreError, match="made by Spark"):
        Queue(None, place)
    assert not Path(place).exists()


def test_engine_when_it_is_none_of_the_engines_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    allowed = re.escape("must be one of auto, spark, native")
    with pytest.raises(InvalidOptionError, match=f"engine='fast': {allowed}"):
        Queue(None, tmp_path, engine="fast")
    monkeypatch.setenv("TUBEQ_ENGINE", "fast")
    with pytest.raises(InvalidOptionError, match=f"TUBEQ_ENGINE='fast': {allowed}"):
        Queue(None, tmp_path)
