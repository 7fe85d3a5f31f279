"""A process that may not write a queue's files sees everything, and its verbs say why they cannot write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.power.disk import require_root
from tubeq_spark import Queue

if TYPE_CHECKING:
    from pathlib import Path

READER = """
import json, logging, sys
from tubeq_spark import Queue, StoreError
place, plain, of_utube = sys.argv[1], *map(int, sys.argv[2:])
logging.disable()
queue = Queue(None, place, engine="native")
fifo, utube = queue["plain"], queue["of_utubes"]
seen = {
    "tubes": queue.tubes(),
    "ready": {name: of["tasks"]["ready"] for name, of in queue.statistics().items()},
    "metrics": sorted(queue.metrics().tubes),
    "health": [problem.message for problem in queue.health(drift=1e9).problems],
    "peeked": [fifo.peek(plain).data, utube.peek(of_utube).data],
    "listed": [task.data for task in utube.tasks_by_state("r")],
    "check": queue.check().sound,
}
verbs = {
    "put": lambda: fifo.put(1),
    "put of a sub-queue": lambda: utube.put(1, utube="a"),
    "take": lambda: fifo.take(0),
    "take of a sub-queue": lambda: utube.take(0),
    "ack": lambda: fifo.ack(plain),
    "bury": lambda: fifo.bury(plain),
    "delete": lambda: fifo.delete(plain),
    "kick": lambda: fifo.kick(),
    "truncate": lambda: fifo.truncate(),
    "drop": lambda: utube.drop(),
    "create": lambda: queue.create_tube("more"),
    "identify": lambda: queue.identify(),
}
refused = {}
for name, verb in verbs.items():
    try:
        verb()
    except StoreError as error:
        refused[name] = str(error)
print(json.dumps({"seen": seen, "refused": refused, "verbs": list(verbs)}))
"""


@pytest.mark.processes
def test_reader_that_may_not_write_sees_everything_and_verbs_say_why_they_cannot(
    tmp_path: Path,
) -> None:
    require_root()
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    place = tmp_path / "queue"
    with Queue(None, str(place), engine="native") as queue:
        plain = queue.create_tube("plain", "fifottl", ttr=60).put("a")
        utubes = queue.create_tube("of_utubes", "utube")
        of_utube = utubes.put("b", utube="x")
    for path in (place, *place.rglob("*")):
        os.chown(path, 65534, 65534)
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}

    # Root without the right to write what is another user's.
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", sys.executable]
    done = subprocess.run(
        [*command, "-c", READER, str(place), str(plain.task_id), str(of_utube.task_id)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["seen"] == {
        "tubes": ["of_utubes", "plain"],
        "ready": {"of_utubes": 1, "plain": 1},
        "metrics": ["of_utubes", "plain"],
        "health": [],
        "peeked": ["a", "b"],
        "listed": ["b"],
        "check": True,
    }
    assert list(told["refused"]) == told["verbs"]
    for message in told["refused"].values():
        assert message.endswith(
            "cannot be used: Permission denied "
            "(this process may not: give its user the right to read and write there)"
        )
        assert "Errno" not in message
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before
