"""Two verbs meet: what they make of a tube must be what one after the other makes of it, in either order.

The orders are played on rows in memory (`tests/oracle`), so that no outcome is written down by hand: a
task that is lost, doubled, skipped or given to two fits neither of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.concurrency.support import FOR_EVER, ids_of, names, rows_of
from tests.oracle.queue import OracleQueue
from tests.oracle.tube import OracleTube
from tubeq_spark import PutItem, TubeqError
from tubeq_spark.model.arguments import take_request
from tubeq_spark.model.times import to_us
from tubeq_spark.storage.store.local_store import LocalStore
from tubeq_spark.testing import ManualClock
from tubeq_spark.verbs.take import take_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

    from tests.concurrency.support import Probe
    from tubeq_spark import Queue, Tube
    from tubeq_spark.runtime.taken import Taken

#: What each side has taken before, at once; `ghi` are ready, `j` is buried, `k` was delayed until now.
MINE, RIVALS = "abc", "def"
#: The keys of the first task of each side, where there are any.
KEYS = {"a": "mine", "d": "theirs"}
_DELAY = 5.0


@dataclass
class Side:
    """A session at a tube.

    Attributes:
        queue: Its queue object.
        tube: The tube.
        held: What it has taken, letters.
        new: The letter that it puts.
        others: What the other side has taken.
        ids: The ids of all letters.
        most: As many tasks as a take asks for, or fewer.
    """

    queue: Queue
    tube: Tube
    held: str
    new: str
    others: str
    ids: dict[str, int] = field(default_factory=dict)
    most: int = 9

    def of(self, letters: str) -> list[int]:
        """Their ids."""
        return [self.ids[letter] for letter in letters]


@dataclass(frozen=True)
class Kind:
    """What tube both sides meet at.

    Attributes:
        type: Its type.
        held: What each side has taken before.
        options: Of the tube, beside its type.
        has_keys: Whether the first task of each side has a key (`KEYS`).
    """

    type: str = "fifottl"
    held: tuple[str, str] = (MINE, RIVALS)
    options: Mapping[str, Any] = field(default_factory=dict)
    has_keys: bool = False


@dataclass
class Table:
    """Both sides at a tube."""

    clock: ManualClock
    mine: Side
    rival: Side
    kind: Kind

    def lay(self, put: Side) -> None:
        """Empty the tube and begin anew; `put` is who puts the tasks."""
        put.tube.truncate()
        held, keys = self.mine.held + self.rival.held, KEYS if self.kind.has_keys else {}
        # With aging `g` comes last of these, and before what is put later.
        pris = {"g": 2, "i": 1} if "aging" in self.kind.options else {}
        items = [PutItem(n, pri=pris.get(n, 0), unique=keys.get(n)) for n in held + "ghij"]
        items.append(PutItem("k", delay=_DELAY))
        ids = dict(zip(held + "ghijk", ids_of(put.tube.put_many(items)), strict=True))
        self.mine.ids = self.rival.ids = ids
        for side in (self.mine, self.rival):
            assert _hold(side.tube, len(side.held)) == side.of(side.held)
        put.tube.bury(ids["j"])
        self.clock.advance(_DELAY)

    def lay_subqueues(self, put: Side) -> None:
        """Put and take in a tube that is new: each side holds a sub-queue, and two are free."""
        held = self.mine.held + self.rival.held
        utubes = "1" * len(self.mine.held) + "2" * len(self.rival.held) + "3344"
        items = [PutItem(n, utube=u) for n, u in zip(held + "ghij", utubes, strict=True)]
        ids = dict(zip(held + "ghij", ids_of(put.tube.put_many(items)), strict=True))
        self.mine.ids = self.rival.ids = ids
        for side, utube in ((self.mine, "1"), (self.rival, "2")):
            assert names(side.tube.take_many(1, utube=utube)) == side.held[0]
        # What two hosts put at one moment has no order.
        self.clock.advance(_DELAY)


def _hold(tube: Tube, count: int) -> list[int]:
    """Take so many tasks; by two calls that share a commit, as those of threads do."""
    if isinstance(tube, OracleTube):
        return ids_of(tube.take_many(count))
    calls = taken_together(tube, *[n for n in (1, count - 1) if 0 < n < count or n == count == 1])
    return [row.task_id for call in calls for row in call.rows]


def taken_together(tube: Tube, *counts: int) -> list[Taken]:
    """What some calls take that share a commit, as calls of threads do; `None` for one without tasks."""
    ctx = tube._ctx
    requests = [take_request("n", count, 1, ctx.driver) for count in counts]
    if not requests:
        return []
    return list(tube._run(lambda ctx: take_group(ctx, requests)))  # type: ignore[arg-type]


def _swept(side: Side) -> None:
    side.queue.sweep()


VERBS: dict[str, Callable[[Side], object]] = {
    "put": lambda s: names(s.tube.put_many([s.new])),
    "take": lambda s: names(s.tube.take_many(min(2, s.most))),
    "take_all": lambda s: names(s.tube.take_many(s.most)),
    "ack_lease_segment": lambda s: names(s.tube.ack_many(s.of(s.held))),
    "ack_one": lambda s: names([s.tube.ack(s.ids[s.held[0]])]),
    "release_some": lambda s: names(s.tube.release_many(s.of(s.held[:2]))),
    "touch": lambda s: names([s.tube.touch(s.ids[s.held[1]], 100)]),
    "bury_held_by_other": lambda s: names([s.tube.bury(s.ids[s.others[0]])]),
    "release_with_errors": lambda s: names(
        s.tube.release_many(s.of(s.held[:2]), error=dict.fromkeys(s.of(s.held[:2]), "why"))
    ),
    "bury_with_an_error": lambda s: names([s.tube.bury(s.ids[s.others[0]], error="why")]),
    "delete_ready": lambda s: names([s.tube.delete(s.ids["g"])]),
    "kick": lambda s: s.tube.kick(1),
    "exchange": lambda s: names(s.tube.exchange(ack=s.of(s.held), take=min(2, s.most))),
    "exchange_some": lambda s: names(s.tube.exchange(ack=s.of(s.held[:1]), take=1)),
    "release_all": lambda s: s.tube.release_all(),
    "truncate": lambda s: s.tube.truncate(),
    "sweep": _swept,
}
#: In a tube whose tasks have keys.
OF_KEYS: dict[str, Callable[[Side], object]] = VERBS | {
    # With a key that is free, and with those of both sides; each datum is a letter.
    "put_keys": lambda s: names(
        s.tube.put_many(
            [
                PutItem(s.new, unique="free"),
                *(PutItem(s.new.upper(), unique=key) for key in KEYS.values()),
            ]
        )
    ),
}
#: In a tube where nothing is taken.
DROP: dict[str, Callable[[Side], object]] = {
    "drop": lambda s: s.tube.drop(),
    "put": VERBS["put"],
    "take": VERBS["take"],
}
#: In a tube with sub-queues.
OF_SUBQUEUES: dict[str, Callable[[Side], object]] = {
    "take": lambda s: names(s.tube.take_many(1)),
    "take_all": lambda s: names(s.tube.take_many(s.most, per_utube=2)),
    # The rival's own, which may be free by then, and one of two that are.
    "take_named": lambda s: names(s.tube.take_many(s.most, per_utube=2, utube=["2", 4])),
    "ack": lambda s: names([s.tube.ack(s.ids[s.held[0]])]),
    "release": lambda s: names([s.tube.release(s.ids[s.held[0]])]),
    "exchange": lambda s: names(s.tube.exchange(ack=s.of(s.held[:1]), take=1)),
    "exchange_named": lambda s: names(
        s.tube.exchange(ack=s.of(s.held[:1]), take=min(2, s.most), utube=["1", "3"])
    ),
    "bury_held_by_other": VERBS["bury_held_by_other"],
    "put": lambda s: names(s.tube.put_many([s.new], utube="3")),
}


def outcome(verb: Callable[[Side], object], side: Side) -> object:
    """What a verb returns, or how it is refused."""
    try:
        return verb(side)
    except TubeqError as error:
        return type(error).__name__


def left(side: Side, others: Side, *, in_memory: bool = False, may_be_gone: bool = False) -> str:
    """What is in the tube, as in "ar bt", t of `others` as T; "gone" when it was dropped."""
    if may_be_gone and side.tube.name not in side.queue.tubes():
        return "gone"
    mine, theirs = str(side.queue.session_uuid), str(others.queue.session_uuid)
    if in_memory:
        rows = [
            {"task_id": t.task_id, "data": t.data, "state": t.state.value, "owner": _owner(t, side)}
            for state in "rt!~"
            for t in side.tube.tasks_by_state(state)
        ]
    else:
        now_us = to_us(side.queue._context.clock.now())
        rows = rows_of(side.tube, "task_id", "data", "state", "owner", now_us=now_us)
    ids = [row["task_id"] for row in rows]
    assert len(set(ids)) == len(ids)
    rows.sort(key=lambda row: row["task_id"])
    texts = []
    for row in rows:
        owner = (row["state"] == "t" and row["owner"]) or ""
        assert not owner or owner.startswith((mine, theirs))
        state = row["state"].upper() if owner.startswith(theirs) and owner else row["state"]
        texts.append(row["data"].strip('"') + state)
    return " ".join(texts)


def _owner(task: Any, side: Side) -> str | None:
    row = side.queue.place.find(side.tube.name).rows[task.task_id]  # type: ignore[attr-defined]
    owner: str | None = row.owner
    return owner


def assert_serial(
    found: tuple[object, ...],
    case: tuple[object, ...],
    verbs: tuple[Callable[[Side], object], Callable[[Side], object]],
    lay: Callable[[Table], object],
    kind: Kind = Kind(),
) -> None:
    """Check what became of two verbs: what they returned, and what they left.

    A take that meets another commit may get fewer tasks than it asked for, but no others.
    """
    played = []
    for most in (9, 3, 2, 1):
        for first in (0, 1):
            played.append(_in_order(first, most, verbs, lay, kind))
            if found == played[-1]:
                return
    raise AssertionError((case, found, played))


def _in_order(
    first: int,
    most: int,
    verbs: tuple[Callable[[Side], object], Callable[[Side], object]],
    lay: Callable[[Table], object],
    kind: Kind,
) -> tuple[object, ...]:
    """What two verbs return and leave in memory, the first of them as numbered."""
    clock = ManualClock()
    queue = OracleQueue(clock)
    beside = OracleQueue(clock, beside=queue)
    for each in (queue, beside):
        each.cfg(ttr=FOR_EVER)
    tube = queue.create_tube("met", kind.type, **kind.options)
    table = seated(clock, (queue, tube), (beside, beside["met"]), kind)
    lay(table)
    table.mine.most = most
    results: list[object] = [None, None]
    for which in (first, 1 - first):
        results[which] = outcome(verbs[which], (table.mine, table.rival)[which])
    return *results, _left_in_memory(table)


def _left_in_memory(table: Table) -> str:
    return left(table.rival, table.mine, in_memory=True, may_be_gone=True)


def seated(
    clock: ManualClock,
    mine: tuple[Any, Any],
    rival: tuple[Any, Any],
    kind: Kind,
) -> Table:
    """Both sides, each a queue object and its tube."""
    held = kind.held
    return Table(
        clock,
        Side(*mine, held=held[0], new="x", others=held[1]),
        Side(*rival, held=held[1], new="y", others=held[0]),
        kind,
    )


@contextmanager
def at_point(probe: Probe, point: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """Let a rival in at a step of the block, counted from 0; yields a list that tells whether it was."""
    seen, done = [0], list[int]()

    def interrupt(_step: str, _operation: str) -> None:
        if seen[0] == point:
            act()
            done.append(point)
        seen[0] += 1

    with probe._hooked(interrupt):
        yield done


def meet(
    table: Table,
    probe: Probe,
    point: int,
    mine: tuple[str, Callable[[Side], object]],
    rival: tuple[str, Callable[[Side], object]],
) -> bool:
    """Let a rival's verb in at a step of a verb, at a table that is laid, and check what comes of it.

    Returns:
        False when the verb ended before it got there.
    """
    has_utubes = table.mine.tube.type.startswith("utube")
    results: list[object] = []
    with at_point(probe, point, lambda: results.append(outcome(rival[1], table.rival))) as done:
        result = outcome(mine[1], table.mine)
    if not done:
        return False
    found = (result, *results, left(table.rival, table.mine, may_be_gone="drop" in mine + rival))
    assert_serial(
        found,
        (mine[0], rival[0], point),
        (mine[1], rival[1]),
        (lambda t: t.lay_subqueues(t.rival)) if has_utubes else (lambda t: t.lay(t.rival)),
        table.kind,
    )
    return True


class Line:
    """The way of the native engine's commits to storage: hooks before and after each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tap it until the end of the test."""
        self._before: Callable[[], object] | None = None
        self._after: Callable[[], object] | None = None
        monkeypatch.setattr(LocalStore, "put_if_absent", self._tapped(LocalStore.put_if_absent))

    def _tapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def tapped(*args: Any, **options: Any) -> Any:
            self._run("_before")
            result = call(*args, **options)
            self._run("_after")
            return result

        return tapped

    def _run(self, which: str) -> None:
        hook = getattr(self, which)
        if hook is not None:
            setattr(self, which, None)
            hook()

    @contextmanager
    def before_next(self, act: Callable[[], object]) -> Iterator[None]:
        """Do something before the next commit of the block is sent."""
        self._before = act
        yield
        assert self._before is None, "nothing was committed"

    @contextmanager
    def after_next(self, act: Callable[[], object]) -> Iterator[None]:
        """Do something when the next commit of the block is there, before its answer is."""
        self._after = act
        yield
        assert self._after is None, "nothing was committed"
