"""A queue keeps what its durability promises in each crash state of a modelled disk, without root."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.power.crash_states import Recorder, restore
from tests.power.readers import disagreements
from tests.thorough import nightly
from tubeq_spark import PutItem, Queue, QueueConfig
from tubeq_spark.storage.durability import background
from tubeq_spark.storage.durability.synced_log import MARK_SUFFIX
from tubeq_spark.storage.log import tidying
from tubeq_spark.storage.log.tidying import LocalRetention

if TYPE_CHECKING:
    from pathlib import Path

    from tests.power.crash_states import Moment

TUBES = {"work": "fifottl", "hosts": "utube"}
#: Logs are shortened in the middle of a story: so many versions stay, for so long, looked after so often.
SHORT_LOG = (6, 0.0, 4)


class Story:
    """Verbs that one process calls, and the tasks that are there after each of them."""

    def __init__(self, recorder: Recorder, durability: str, seed: int) -> None:
        self._dice = random.Random(seed)
        self._recorder = recorder
        self._config = QueueConfig(durability=durability, fold_segments=2)
        self._held: dict[str, list[int]] = {name: [] for name in TUBES}
        self._names: dict[int, str] = {}
        #: The names of the tasks in each tube after so many verbs.
        self.stored: list[dict[str, frozenset[str]]] = [dict.fromkeys(TUBES, frozenset())]
        #: The name of each task by its id.
        self.issued = self._names

    def tell(self, verbs: int) -> None:
        """Call so many verbs."""
        with Queue(None, str(self._recorder.root), engine="native", config=self._config) as queue:
            for name, kind in TUBES.items():
                queue.create_tube(name, kind)
            self._recorder.moments.clear()
            for number in range(verbs):
                self._step(queue, self._dice.choice(list(TUBES)), number)
                self._recorder.ended += 1
                self._recorder.note()

    def _step(self, queue: Queue, name: str, number: int) -> None:
        tube, held = queue[name], self._held[name]
        verb = self._dice.choice(("put", "put", "put", "take", "ack", "ack", "release", "sweep"))
        after = dict(self.stored[-1])
        if verb == "put":
            labels = [f"{name}.{number}.{each}" for each in range(self._dice.choice((1, 1, 4)))]
            after[name] |= set(labels)
            # In flight it is there or not.
            self.stored.append(after)
            options: dict[str, Any] = {"utube": f"u{number % 5}"} if name == "hosts" else {}
            tasks = tube.put_many([PutItem(label, **options) for label in labels])
            self._names.update({task.task_id: task.data for task in tasks})
            return
        if verb == "ack" and held:
            task_id = held.pop()
            after[name] -= {self._names[task_id]}
        self.stored.append(after)
        if verb == "take":
            held += [task.task_id for task in tube.take_many(2)]
        elif verb == "ack" and after != self.stored[-2]:
            tube.ack(task_id)
        elif verb == "release" and held:
            tube.release(held.pop())
        elif verb == "sweep":
            queue.sweep()
            background.flusher.flush()


def found_in(place: Path, name: str) -> frozenset[str]:
    """The names of a tube's tasks, by another reader."""
    rows = DeltaTable(str(place / name)).to_pyarrow_table(columns=["data"])
    # The gates of takes have no data.
    return frozenset(json.loads(text) for text in rows["data"].drop_null().to_pylist())


def rebooted(state: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """The marks are those of the boot before."""
    return {
        path: content.replace(b'"boot": "', b'"boot": "x', 1)
        if content and path.endswith(MARK_SUFFIX)
        else content
        for path, content in state.items()
    }


def assert_kept(place: Path, moment: Moment, story: Story, durability: str) -> None:
    """What is there is what some verbs made, and these are enough of them; and the queue goes on."""
    least = moment.ended if durability == "commit" else moment.flushed
    with Queue(
        None, str(place), engine="native", config=QueueConfig(durability=durability)
    ) as queue:
        for name in TUBES:
            assert queue.statistics(name)["tasks"]["total"] >= 0
        assert list(disagreements(place)) == []
        for name in TUBES:
            # The verb that is under way counts or not.
            possible = [stored[name] for stored in story.stored[least : moment.ended + 2]]
            found = found_in(place, name)
            assert found in possible, (name, sorted(found ^ possible[-1]))
            options: dict[str, Any] = {"utube": "new"} if name == "hosts" else {}
            task = queue[name].put("afterwards", **options)
            assert task.task_id not in story.issued
            taken = queue[name].take_many(100)
            assert "afterwards" in [each.data for each in taken]
            queue[name].ack_many([each.task_id for each in taken])


@pytest.mark.parametrize(
    ("durability", "seed", "verbs", "count"),
    [
        ("commit", 1, 25, 20),
        ("table", 2, 25, 20),
        *nightly(("commit", 3, 60, 100), ("table", 4, 60, 100)),
    ],
)
def test_crash_at_any_sync_leaves_what_the_durability_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    durability: str,
    seed: int,
    verbs: int,
    count: int,
) -> None:
    monkeypatch.setattr(LocalRetention, "versions", SHORT_LOG[0])
    monkeypatch.setattr(LocalRetention, "SECONDS", SHORT_LOG[1])
    monkeypatch.setattr(tidying, "EVERY", SHORT_LOG[2])
    (tmp_path / "keep").mkdir()
    (tmp_path / "disk").mkdir()
    recorder = Recorder(tmp_path / "disk", tmp_path / "keep")
    recorder.follow(monkeypatch)
    story = Story(recorder, durability, seed)
    story.tell(verbs)

    dice = random.Random(seed)
    chosen = dice.sample(recorder.moments, min(count // 4, len(recorder.moments)))
    for moment_number, moment in enumerate(chosen):
        for number, state in enumerate(moment.states(dice, mixed=2)):
            # A place of its own: a process knows what it has recovered.
            place = tmp_path / f"after.{moment_number}.{number}"
            place.mkdir()
            restore(rebooted(state), place)
            try:
                assert_kept(place, moment, story, durability)
            except BaseException as error:
                error.add_note(f"state {number} after {moment.ended} verbs")
                raise
            shutil.rmtree(place)
