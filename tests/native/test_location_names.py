"""A directory of any name holds a queue, and a queue refuses ambiguous places and those without hard links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tubeq_spark import InvalidOptionError, Queue, StoreError
from tubeq_spark.storage.location import Location, local_directory, refuse_mounts

ODD = ["a b", "ü x", "a&b=c", "a%20b", "[x]", "a'b", "a`b", "~x", "$x", "a\\b", "a#b", "a?b"]


@pytest.mark.parametrize(
    ("form", "name"),
    [*(("{}", name) for name in ODD), ("file:{}", "ü x+[y];a%b"), ("file://{}", "ü x+[y];a%b")],
)
def test_queue_in_a_directory_of_an_odd_name_is_there_and_nowhere_else(
    tmp_path: Path, form: str, name: str
) -> None:
    place = form.format(tmp_path / name)
    for kind in ("fifottl", "utube"):
        with Queue(None, place, engine="native") as queue:
            tube = queue.create_tube(kind, kind)
            tube.put("a", **({"utube": "x"} if kind == "utube" else {}))
        with Queue(None, place, engine="native", create=False) as queue:
            task = queue[kind].take(0)
            queue[kind].ack(task.task_id)
            queue.sweep()
            assert queue.metrics().tubes[kind].commits > 0
            assert queue.health(drift=10**9).ok
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "name", ["a#b", "a?b", "a//b", "a/./b", "a/..", "a\\b", "[a]", "a%20b", "a{b}", "a^b", "a|b"]
)
@pytest.mark.parametrize("place", ["s3://bucket", "gs://bucket", "abfss://container@account"])
def test_queue_at_a_uri_that_the_client_takes_for_another_is_refused(place: str, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be used without Spark: give it a name"):
        Queue(None, f"{place}/{name}", engine="native")


@pytest.mark.parametrize("name", ["a:b", "runs/2026-11-25T10:00/q", "C:/q", "file:q"])
def test_queue_at_a_relative_location_when_the_working_directory_changes_is_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for directory in (tmp_path, tmp_path / "other"):
        directory.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with Queue(None, name, engine="native") as queue:
        monkeypatch.chdir(tmp_path / "other")
        queue.create_tube("work").put("x")
        assert list(Path.cwd().iterdir()) == []
    with Queue(None, str(tmp_path / name.removeprefix("file:")), engine="native") as queue:
        assert queue.statistics("work")["tasks"]["ready"] == 1
        assert queue.health().ok
    monkeypatch.chdir(tmp_path)
    with Queue(None, name, engine="native", create=False) as queue:
        assert queue["work"].take(0) is not None


@pytest.mark.parametrize(
    "uri", ["s3:b/q", "s3:/b/q", "S3A://b/q", "abfss://c@a/q", "hdfs:/q", "dbfs:/q"]
)
def test_uri_is_what_it_was_given_as(uri: str) -> None:
    assert Location.parse(uri) == Location(uri)
    assert local_directory(uri) is None


@pytest.mark.parametrize("engine", ["native", "auto"])
@pytest.mark.parametrize("uri", ["http://h/q", "HTTPS://h/q", "foo://h/q", "foo:/q", "mailto:/x"])
def test_queue_at_a_uri_that_no_engine_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, uri: str, engine: str
) -> None:
    monkeypatch.delenv("TUBEQ_ENGINE")
    with pytest.raises(StoreError, match=r"nothing can be written to .*: name a path, or a URI of"):
        Queue(None, uri, engine=engine)


def test_location_with_a_dot_is_a_path_where_it_is_a_directory_or_given_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("main.jobs").parts == ("main", "jobs")
    assert Location.parse(Path("main.jobs")) == Location(str(tmp_path / "main.jobs"))
    assert local_directory(Location.parse("./main.jobs").text) == tmp_path / "main.jobs"
    with pytest.raises(StoreError, match=r"for a directory of this name write \./main.jobs$"):
        Queue(None, "main.jobs", engine="native")
    (tmp_path / "main.jobs").mkdir()
    # A suffix of a file is no schema either.
    for name in ("main.jobs", "l.jsonl", "my.tasks.JSON"):
        assert Location.parse(name) == Location(str(tmp_path / name))


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\0b", "a\x7fb", "\ud800", 5, None])
def test_location_that_can_be_none_is_refused(text: object) -> None:
    with pytest.raises(InvalidOptionError, match="a path, a URI such as hdfs://host/q, or catalog"):
        Location.parse(text)


# -- places that would not keep writers apart ---------------------------------------------------------------


def opened(place: object) -> None:
    with Queue(None, str(place), engine="native") as queue:
        queue.create_tube("work", if_not_exists=True)


@pytest.mark.parametrize(
    "place", ["/Volumes/main/default/files/queue", "file:/dbfs/queue", "file:///Volumes/a/b/c"]
)
def test_opening_when_databricks_shows_a_store_as_a_directory_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    (tmp_path / "link").symlink_to("/dbfs/queue")
    refuse_mounts(Location.parse(place))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    for refused in (place, tmp_path / "link"):
        with pytest.raises(StoreError, match=r"Databricks.*abfss://…, s3://…, gs://…"):
            opened(refused)


@pytest.mark.parametrize("place", ["/local_disk0/q", "s3://dbfs/q", "/tmp/Volumes/q", "main.dbfs"])
def test_place_on_databricks_when_it_is_another_one_is_not_refused(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    refuse_mounts(Location.parse(place))


@pytest.fixture
def unlinked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without hard links."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("unlinked")
def test_opening_when_there_are_no_hard_links_says_what_to_do_and_leaves_no_table(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match=r"without hard links, .* engine='spark'"):
        opened(tmp_path)
    assert not [*tmp_path.rglob("*.json"), *tmp_path.rglob("*.parquet")]
