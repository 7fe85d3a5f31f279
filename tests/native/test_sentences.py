"""Errors name the fault, and tubes, tasks and errors can be pickled."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.native.support import opened
from tubeq_spark import (
    CommitUnknownError,
    InvalidOptionError,
    NotTakenError,
    PutItem,
    Queue,
    QueueConfig,
    QueueNotFoundError,
    QueueStateError,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def queue(anywhere: Queue) -> Queue:
    """A queue on either."""
    return anywhere


def test_queue_when_it_was_closed_says_so(queue: Any) -> None:
    tube = queue.create_tube("work")
    assert list(queue) == ["work"]
    queue.close()
    with pytest.raises(QueueStateError, match=r"^the queue was closed$"):
        tube.put("a")


class Hostile:
    """Something that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError


HOLDS_ITSELF: list[object] = []
HOLDS_ITSELF += [HOLDS_ITSELF, HOLDS_ITSELF]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"a": [1, {2, 3}]}, "data['a'][1]=<class 'set'>"),
        ({"a": {"b": {1: 2}}}, "data, a key of ['a']['b']=<class 'int'>"),
        ({None: 1}, "data, a key=<class 'NoneType'>"),
        ([0.5, float("inf")], "data[1]=inf"),
        (["fine", "\ud800"], "data[1]=<class 'str'>"),
        ([Hostile()], "data[0]=<class 'tests.native.test_sentences.Hostile'>"),
        (HOLDS_ITSELF, "data=<class 'list'>"),
        (b"bytes", "data=<class 'bytes'>"),
    ],
)
def test_put_when_a_part_of_its_payload_is_no_json_says_which(
    queue: Any, data: object, where: str
) -> None:
    tube = queue.create_tube("work")
    for call, name in (
        (lambda: tube.put(data), where),
        (lambda: tube.put_many([PutItem("good"), PutItem(data)]), f"items[1]: {where}"),
    ):
        with pytest.raises(InvalidOptionError) as refused:
            call()
        assert str(refused.value).startswith(f"{name}: must be a JSON value")


def test_put_df_when_it_is_given_no_frame_of_spark_names_put_arrow(tmp_path: Path) -> None:
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work")
        with pytest.raises(InvalidOptionError, match="of Spark; for this use put_arrow"):
            tube.put_df({"data": ["1"]})  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["nowhere", "empty", "file"])
def test_queue_when_there_is_none_and_none_is_to_be_made_says_so_and_makes_nothing(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(QueueNotFoundError, match=f"no queue at {tmp_path / place}"):
        Queue(None, str(tmp_path / place), engine="native", create=False)

    assert sorted(tmp_path.rglob("*")) == before
    with opened(tmp_path / "there"):
        Queue(None, str(tmp_path / "there"), engine="native", create=False).close()
    with pytest.raises(InvalidOptionError, match="create"):
        Queue(None, str(tmp_path / "there"), engine="native", create=1)  # type: ignore[arg-type]


FORK_IN_A_PUT = """
import os, sys, threading
from tubeq_spark import Queue, QueueConfig, StoreError
from tubeq_spark.testing import InMemoryQueue

is_in, may_go_on = threading.Event(), threading.Event()

def stop(step, operation):
    if step == "decided" and threading.current_thread().name == "putting":
        is_in.set()
        may_go_on.wait()

own = lambda **more: Queue(None, sys.argv[2], engine="native", **more)
config = QueueConfig(observer=stop)
opened = InMemoryQueue(config=config) if sys.argv[1] == "memory" else own(config=config)
tube = opened.create_tube("work")
putting = threading.Thread(target=tube.put, args=["a"], name="putting")
putting.start()
is_in.wait()
if not os.fork():
    verbs = [lambda: tube.put("b"), lambda: tube.take(0), lambda: opened.create_tube("more")]
    if sys.argv[1] == "native":
        verbs += [own, opened.statistics, opened.metrics]
    for verb in verbs:
        try:
            verb()
        except StoreError as error:
            print("start workers by multiprocessing's spawn" in str(error), flush=True)
    os._exit(0)
os.wait()
may_go_on.set()
putting.join()
print(tube.take(0).data)
opened.close()
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("engine", "verbs"), [("native", 6), ("memory", 3)])
def test_process_that_was_forked_while_a_thread_puts_says_so_and_does_not_wait(
    tmp_path: Path, engine: str, verbs: int
) -> None:
    """That thread, which has the locks of the tube, is not there; nor are those of the library."""
    command = [sys.executable, "-c", FORK_IN_A_PUT, engine, str(tmp_path / "queue")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [*["True"] * verbs, "a"], done.stderr


def test_values_and_errors_travel_by_pickle(queue: Any) -> None:
    tube = queue.create_tube("work", "fifottl", ttr=60)
    task = tube.put({"a": [1]})
    for value in (task, tube.options, QueueConfig(attempts=3), PutItem("a", pri=1)):
        assert pickle.loads(pickle.dumps(value)) == value
    for error in (NotTakenError("not held"), CommitUnknownError("who knows", 7)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_tube_when_it_is_sent_to_another_process_opens_itself_there(tmp_path: Path) -> None:
    """By its whole location, and without Spark."""
    program = (
        "import pickle, sys\n"
        "tube = pickle.load(sys.stdin.buffer)\n"
        "print(tube.put('from there').data, 'pyspark' in sys.modules)\n"
    )
    with opened(tmp_path) as queue:
        tube = queue.create_tube("work")
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps(tube),
            cwd=tmp_path.parent,
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode().strip() == "from there False"
        task = tube.take(0)
        assert task.data == "from there"


def test_tube_when_it_is_sent_to_where_its_location_is_not_makes_none_there(tmp_path: Path) -> None:
    with opened(tmp_path / "place") as queue:
        sent = pickle.dumps(queue.create_tube("work"))
    shutil.rmtree(tmp_path / "place")

    with pytest.raises(QueueNotFoundError):
        pickle.loads(sent)

    assert not (tmp_path / "place").exists()
