"""Another session commits between what a verb has read and what it writes.

The rival's verb runs when the verb has decided, before its statement: the statement must find that
what it was decided on is gone, and the verb must decide anew on what is there.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.concurrency.support import (
    PAST_TTR,
    TTR,
    Probe,
    World,
    end_heartbeat,
    ids_of,
    names,
    on_another_host,
    rows_of,
    stored,
)
from tests.thorough import without_spark
from tubeq_spark import (
    FailedTasks,
    NotTakenError,
    PutItem,
    Queue,
    QueueConfig,
    SessionError,
    TaskNotFoundError,
    TubeBusyError,
    TubeExistsError,
    TubeNotFoundError,
)
from tubeq_spark.model import ids
from tubeq_spark.testing import ManualClock
from tubeq_spark.verbs import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from tests.acceptance.support import OnSpark
    from tubeq_spark import Tube


def put(world: World, letters: str) -> list[int]:
    return ids_of(world.rival.put_many(list(letters)))


def taken(world: World, letters: str) -> list[int]:
    """Tasks that the interrupted session holds, in one lease segment."""
    put(world, letters)
    return ids_of(world.tube.take_many(len(letters)))


# -- takes ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_take_when_a_rival_takes_all_candidates_looks_at_the_next(world: World) -> None:
    put(world, "abc")
    before = world.conflicts()

    with world.probe.interrupted("decided", "take", lambda: world.rival.take_many(2)):
        mine = world.tube.take_many(2)

    assert names(mine) == "c"
    assert world.conflicts() == before + 1
    assert world.stored() == "at bt ct"
    assert [task.attempts for task in mine] == [1]


@pytest.mark.without_spark
def test_take_when_a_rival_takes_some_candidates_gets_the_others(world: World) -> None:
    put(world, "abc")

    with world.probe.interrupted("decided", "take", lambda: world.rival.take_many(1)):
        mine = world.tube.take_many(3)

    assert names(mine) == "bc"
    assert names(world.tube.ack_many(ids_of(mine))) == "bc"
    assert world.stored() == "at"


@pytest.mark.without_spark
def test_take_arrow_when_a_rival_takes_some_candidates_counts_what_it_got(world: World) -> None:
    put(world, "abc")

    with world.probe.interrupted("decided", "take", lambda: world.rival.take_many(1)):
        batch = world.tube.take_arrow(3)

    assert batch.count == 2
    assert batch.ack() == 2
    assert world.stored() == "at"


@pytest.mark.without_spark
def test_take_of_some_when_a_rival_then_buries_one_of_them_knows_what_it_holds(
    world: World,
) -> None:
    ids = put(world, "abcd")

    with (
        world.probe.interrupted("decided", "take", lambda: world.rival.take_many(1)),
        world.probe.interrupted("committed", "take", lambda: world.rival.bury(ids[1])),
    ):
        mine = world.tube.take_many(4)

    # What is not told to anybody stays taken for as long as this session lives.
    assert set("cd") <= set(names(mine))
    world.tube.ack_many(ids[2:])
    assert world.stored() == "at b!"


@pytest.mark.without_spark
def test_take_of_ended_leases_when_a_rival_takes_them_first_gets_the_next(world: World) -> None:
    taken(world, "a")
    world.clock.advance(PAST_TTR)
    put(world, "b")

    with world.probe.interrupted("decided", "end_due", lambda: world.rival.take_many(1)):
        mine = world.tube.take_many(2)

    assert names(mine) == "b"
    assert world.stored() == "at bt"
    assert world.rival.peek(mine[0].task_id).attempts == 1


@pytest.mark.without_spark
def test_exchange_when_a_rival_exchanges_for_the_same_task_takes_the_next(world: World) -> None:
    put(world, "abcd")
    mine = ids_of(world.tube.take_many(1))
    others = ids_of(world.rival.take_many(1))

    def rival_exchanges() -> None:
        assert names(world.rival.exchange(ack=others, take=1)) == "c"

    with world.probe.interrupted("decided", "exchange", rival_exchanges):
        got = world.tube.exchange(ack=mine, take=1)

    assert names(got) == "d"
    assert world.stored() == "ct dt"


@pytest.mark.thorough
def test_exchange_when_a_rival_ends_its_lease_takes_nothing(world: World) -> None:
    mine = taken(world, "a")
    put(world, "b")

    with (
        world.probe.interrupted("decided", "exchange", world.rival.release_all),
        pytest.raises(NotTakenError),
    ):
        world.tube.exchange(ack=mine, take=1)

    assert world.stored() == "ar br"


# -- settling what one holds ----------------------------------------------------------------------


def sibling_of(world: World) -> Tube:
    """The tube as another member of the interrupted session sees it."""
    queue = world.open_queue()
    queue.identify(world.mine.identify())
    return queue["shared"]


@pytest.mark.without_spark
def test_ack_when_a_member_of_its_session_acks_one_of_the_lease_segment_acks_all_or_none(
    world: World,
) -> None:
    sibling = sibling_of(world)
    a, b, c = taken(world, "abc")

    with (
        world.probe.interrupted("decided", "ack", lambda: sibling.ack(a)),
        pytest.raises(NotTakenError),
    ):
        world.tube.ack_many([a, b, c])
    assert world.stored() == "bt ct"

    with world.probe.interrupted("decided", "ack", lambda: sibling.ack(b)):
        world.tube.ack(c)
    assert world.stored() == ""


@pytest.mark.without_spark
def test_ack_of_one_task_of_a_batch_after_its_touch_leaves_the_rest_of_the_batch(
    world: World,
) -> None:
    a, *_ = put(world, "abc")
    batch = world.tube.take_arrow(3)

    world.tube.touch(a, 10)
    world.tube.ack(a)

    assert world.stored() == "bt ct"
    assert batch.ack() == 2
    assert world.stored() == ""


@pytest.mark.without_spark
def test_batch_after_touches_by_id_knows_all_that_is_left(world: World) -> None:
    a, b, c, *_ = put(world, "abc")
    batch = world.tube.take_arrow(3)
    world.tube.touch(c, 10)

    assert batch.ack([a, b]) == 2
    assert world.stored() == "ct"
    assert batch.ack() == 1
    assert world.stored() == ""


@pytest.mark.without_spark
def test_batch_after_touches_of_more_tasks_than_a_statement_names_is_acked_by_one_commit(
    world: World,
) -> None:
    world.rival.put_many(["x"] * 205)
    batch = world.tube.take_arrow(205)
    for task_id in batch.table.column("task_id").to_pylist()[:203]:
        world.tube.touch(task_id, 10)
    version = world.version()

    assert batch.ack() == 205
    assert (world.version() - version, world.stored()) == (1, "")


@pytest.mark.without_spark
@pytest.mark.parametrize("event", ["ack", "release", "bury", "touch"])
def test_verb_of_a_batch_after_a_touch_of_one_task_is_about_all_of_them(
    world: World, event: str
) -> None:
    a, *_ = put(world, "abc")
    batch = world.tube.take_arrow(3)
    world.tube.touch(a, 10)
    version = world.version()

    if event == "touch":
        assert batch.touch(5) == 3
        version = world.version()
        assert batch.ack() == 3
    else:
        assert getattr(batch, event)() == 3

    assert world.version() - version == 1
    assert world.stored() == {"release": "ar br cr", "bury": "a! b! c!"}.get(event, "")


def test_ack_of_the_rest_when_a_rival_takes_one_out_of_the_lease_segment_acks_the_rest(
    world: World,
) -> None:
    a, b, c = taken(world, "abc")

    with world.probe.interrupted("decided", "ack", lambda: world.rival.bury(a)):
        world.tube.ack_many([b, c])

    assert world.stored() == "a!"


def test_ack_of_all_when_a_rival_takes_one_out_of_the_lease_segment_acks_none(
    world: World,
) -> None:
    a, b, c = taken(world, "abc")

    with (
        world.probe.interrupted("decided", "ack", lambda: world.rival.delete(a)),
        pytest.raises(NotTakenError),
    ):
        world.tube.ack_many([a, b, c])

    assert world.stored() == "bt ct"


@pytest.mark.without_spark
def test_release_of_one_when_a_rival_takes_another_out_of_the_lease_segment_releases_it(
    world: World,
) -> None:
    a, b, _ = taken(world, "abc")

    with world.probe.interrupted("decided", "release", lambda: world.rival.delete(a)):
        world.tube.release(b)

    assert world.stored() == "br ct"


#: Each kind of statement, and each way in which a rival ends a lease.
LEASE_ENDS = [
    ("ack whole", "sweep"),
    *without_spark(("ack part", "take"), ("release", "release_all")),
]


def owners_verbs(world: World, ids: list[int]) -> dict[str, Callable[[], object]]:
    return {
        "ack whole": lambda: world.tube.ack_many(ids),
        "ack part": lambda: world.tube.ack(ids[0]),
        "release": lambda: world.tube.release_many(ids),
    }


@pytest.mark.parametrize(("verb", "rival"), LEASE_ENDS)
def test_owners_verb_when_a_rival_ends_the_lease_first_changes_nothing(
    world: World, verb: str, rival: str
) -> None:
    ids = taken(world, "ab")

    def end_lease() -> None:
        if rival == "release_all":
            world.rival.release_all()
            return
        world.clock.advance(PAST_TTR)
        if rival == "sweep":
            assert world.rivals.sweep().tubes["shared"].released == 2
        else:
            assert names(world.rival.take_many(1)) == "a"

    with (
        world.probe.interrupted("decided", verb.split(maxsplit=1)[0], end_lease),
        pytest.raises(NotTakenError),
    ):
        owners_verbs(world, ids)[verb]()

    assert world.stored() == ("at br" if rival == "take" else "ar br")
    if rival == "take":
        assert world.rival.ack(ids[0]).data == "a"


@pytest.mark.without_spark
def test_bury_when_the_owner_acks_first_says_not_found(world: World) -> None:
    a, b = ids_of(world.rival.put_many(list("ab")))
    world.rival.take_many(2)

    with (
        world.probe.interrupted("decided", "bury", lambda: world.rival.ack(a)),
        pytest.raises(KeyError, match=str(a)),
    ):
        world.tube.bury_many([a, b])

    assert world.stored() == "bt"


@pytest.mark.without_spark
def test_kick_of_a_named_task_when_a_rival_kicks_it_first_says_not_buried(world: World) -> None:
    a, b = put(world, "ab")
    world.rival.bury_many([a, b])

    with (
        world.probe.interrupted("decided", "kick", lambda: world.rival.kick_many([a])),
        pytest.raises(TaskNotFoundError, match=f"task {a} is ready, not buried"),
    ):
        world.tube.kick_many([b, a])

    assert world.stored() == "ar b!"


@pytest.mark.without_spark
def test_kick_by_a_condition_when_a_rival_kicks_or_deletes_some_first_kicks_the_rest(
    world: World,
) -> None:
    a, b, c, d = put(world, "abcd")
    world.rival.bury_many([a, b, c])

    def meanwhile() -> None:
        world.rival.kick_many([a])
        world.rival.delete(b)
        world.rival.bury(d)

    with world.probe.interrupted("decided", "kick", meanwhile):
        assert world.tube.kick(None, where="data <> '\"x\"'") == 2

    # The kick has read the tube again. So it also kicks the task that the rival has buried.
    assert world.stored() == "ar cr dr"


@pytest.mark.without_spark
def test_kick_by_a_condition_when_a_task_is_buried_anew_meanwhile_asks_it_again(
    world: World,
) -> None:
    a, b = put(world, "ab")
    world.rival.bury_many([a, b])

    def meanwhile() -> None:
        world.rival.kick_many([a])
        assert names(world.rival.take_many(1)) == "a"
        world.rival.bury(a)

    with world.probe.interrupted("decided", "kick", meanwhile):
        assert world.tube.kick(None, where="attempts = 0") == 1

    assert world.stored() == "a! br"


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.without_spark
@pytest.mark.parametrize("verb", ["ack", "release"])
def test_batch_when_a_rival_takes_one_out_of_it_goes_on_with_the_rest(
    world: World, verb: str
) -> None:
    a, *_ = put(world, "abc")
    batch = world.tube.take_arrow(3)
    world.rival.bury(a)

    assert getattr(batch, verb)() == 2

    assert world.stored() == ("a!" if verb == "ack" else "a! br cr")


@pytest.mark.without_spark
def test_batch_when_a_rival_has_released_all_of_it_says_not_taken(world: World) -> None:
    put(world, "ab")
    batch = world.tube.take_arrow(2)
    world.rival.release_all()

    with pytest.raises(NotTakenError):
        batch.ack()

    assert world.stored() == "ar br"


@pytest.mark.without_spark
def test_batch_process_when_a_rival_takes_a_task_out_meanwhile_settles_the_others(
    world: World,
) -> None:
    a, b, c, d = put(world, "abcd")
    batch = world.tube.take_arrow(4)

    def handle(_table: object) -> FailedTasks:
        world.rival.bury(a)
        return FailedTasks({a: "bad", b: "bad"})

    with world.probe.interrupted("decided", "release", lambda: world.rival.delete(c)):
        report = batch.process(handle)

    # Whose fate others have decided is no business of the batch any more.
    assert (report.done, report.failed) == (1, 1)
    assert world.stored() == "a! br"
    assert d not in [task.task_id for task in world.rival.tasks_by_state("t")]


@pytest.mark.without_spark
def test_batch_process_when_a_rival_takes_a_failed_task_out_before_its_release_acks_the_rest(
    world: World,
) -> None:
    _a, b, c, _d = put(world, "abcd")
    batch = world.tube.take_arrow(4)

    with world.probe.interrupted("decided", "release", lambda: world.rival.bury(b)):
        report = batch.process(lambda _: FailedTasks({b: "bad", c: "bad"}))

    assert (report.done, report.failed) == (2, 1)
    assert world.stored() == "b! cr"


@pytest.mark.without_spark
def test_batch_process_when_a_rival_takes_tasks_out_while_it_halves_goes_on_with_the_rest(
    world: World,
) -> None:
    a, *_ = put(world, "abcd")
    batch = world.tube.take_arrow(4)
    calls: list[int] = []

    def handle(table: pa.Table) -> None:
        calls.append(table.num_rows)
        if len(calls) == 1:
            world.rival.bury(a)
        if '"b"' in table["data"].to_pylist():
            raise OSError

    report = batch.process(handle)

    assert (report.done, report.failed) == (2, 1)
    assert world.stored() == "a! br"


@pytest.mark.thorough
def test_batch_when_it_is_split_by_frames_of_its_own_settles_each_as_told(world: World) -> None:
    put(world, "abcd")

    with world.tube.take_df(4) as batch:
        done = batch.df.where("""data IN ('"a"', '"c"')""")
        failed = batch.df.where("""data IN ('"b"', '"d"')""")
        assert batch.ack(done) == 2
        assert batch.release(failed) == 2

    assert world.stored() == "br dr"


@pytest.mark.thorough
def test_batch_ack_of_some_when_a_rival_takes_one_out_meanwhile_acks_the_named(
    world: World,
) -> None:
    a, *_ = put(world, "abc")
    batch = world.tube.take_arrow(3)
    named = world.ids("bc")

    with world.probe.interrupted("decided", "ack", lambda: world.rival.bury(a)):
        assert batch.ack(named) == 2

    assert world.stored() == "a!"


# -- the whole tube -------------------------------------------------------------------------------


@pytest.mark.without_spark
def test_kick_when_a_rival_kicks_the_same_tasks_kicks_the_next(world: World) -> None:
    world.rival.bury_many(put(world, "abc"))

    with world.probe.interrupted("decided", "kick", lambda: world.rival.kick(2)):
        assert world.tube.kick(2) == 1

    assert world.stored() == "ar br cr"


@pytest.mark.without_spark
def test_release_all_when_a_rival_does_the_same_counts_each_task_once(world: World) -> None:
    taken(world, "ab")
    before = world.told("release")["release"]

    with world.probe.interrupted("decided", "release", world.rival.release_all):
        world.tube.release_all()

    assert world.stored() == "ar br"
    assert world.told("release")["release"] == before + 2


@pytest.mark.thorough
def test_put_when_a_rival_truncates_meanwhile_is_there(world: World) -> None:
    put(world, "a")

    with world.probe.interrupted("decided", "put", world.rival.truncate):
        world.tube.put("b")

    assert world.stored() == "br"


@pytest.mark.thorough
def test_truncate_when_a_rival_puts_and_takes_meanwhile_keeps_what_was_put_after_it_began(
    world: World,
) -> None:
    put(world, "ab")

    def put_and_take() -> None:
        put(world, "c")
        assert names(world.rival.take_many(3)) == "abc"

    with world.probe.interrupted("decided", "truncate", put_and_take):
        world.tube.truncate()

    assert world.stored() == "ct"
    assert names(world.rival.ack_many(ids_of(world.rival.tasks_by_state("t")))) == "c"


@pytest.mark.without_spark
@pytest.mark.parametrize("held", ["", "b"])
def test_truncate_when_a_clock_is_ahead_keeps_what_was_put_after_it_began(
    world: World, held: str
) -> None:
    clock = ManualClock(world.clock.now() + dt.timedelta(hours=1))
    ahead = on_another_host(world.open_queue(clock=clock))
    ahead[world.tube.name].put("a")

    def put_and_take() -> None:
        put(world, "bc")
        assert names(world.rival.take_many(len(held))) == held

    with world.probe.interrupted("committed", "truncate", put_and_take):
        world.tube.truncate()

    assert world.stored() == ("bt cr" if held else "br cr")


@pytest.mark.without_spark
def test_sweep_when_a_rival_sweeps_meanwhile_writes_each_thing_down_once(world: World) -> None:
    world.rival.put_many([PutItem("a", delay=TTR), PutItem("b", ttl=TTR), PutItem("c")])
    assert names(world.tube.take_many(1)) == "b"
    world.clock.advance(PAST_TTR)
    before = world.told("delay", "ttl", "ttr")

    with world.probe.interrupted("decided", "end_due", world.rivals.sweep):
        report = world.mine.sweep()

    done = report.tubes["shared"]
    assert (done.readied, done.expired, done.released) == (0, 0, 0)
    assert world.stored() == "ar cr"
    assert world.told("delay", "ttl", "ttr") == {key: value + 1 for key, value in before.items()}


@pytest.mark.without_spark
def test_take_when_a_compaction_moves_its_candidates_takes_what_is_left_in_place(
    world: World,
) -> None:
    compacting = world.open_queue(fold_segments=1)
    for letter in "abcdefg":
        world.rival.put(letter)

    with world.probe.interrupted("decided", "take", compacting.sweep):
        mine = names(world.tube.take_many(7))

    assert mine in ("abcd", "abcdefg")
    assert world.stored() == " ".join(x + ("t" if x in mine else "r") for x in "abcdefg")


@pytest.mark.without_spark
def test_compaction_when_a_rival_takes_its_tasks_gives_up(world: World) -> None:
    for letter in "abcdefg":
        world.rival.put(letter)

    with world.probe.interrupted("decided", "fold", lambda: world.rival.take_many(7)):
        report = world.mine.sweep()

    assert report.tubes["shared"].folded == 0
    assert world.stored() == "at bt ct dt et ft gt"


# -- sessions -------------------------------------------------------------------------------------


def holder(world: World, probe: Probe, letters: str) -> Queue:
    """A queue whose session lives ten seconds after its last sign of life, and holds tasks."""
    queue = world.open_queue(ttr=10, observer=probe)
    put(world, letters)
    assert names(queue["shared"].take_many(len(letters))) == letters
    return queue


def lives_on(world: World, queue: Queue) -> None:
    """The session can take, keep and ack while others sweep."""
    put(world, "z")
    task = queue["shared"].take(0)
    assert task is not None
    world.rivals.sweep()
    assert queue["shared"].ack(task.task_id).task_id == task.task_id


@pytest.mark.without_spark
def test_mark_dead_when_the_session_renews_its_lease_first_leaves_it_its_tasks(
    world: World,
) -> None:
    queue = holder(world, Probe(), "a")
    world.clock.advance(11)

    def renew() -> None:
        assert queue["shared"].take(0) is None

    with world.probe.interrupted("decided", "mark_dead", renew):
        assert world.mine.sweep().tubes["shared"].released == 0

    assert world.stored() == "at"
    assert queue["shared"].ack_many(ids_of(queue["shared"].tasks_by_state("t")))


@pytest.mark.without_spark
def test_renewal_when_a_rival_marks_the_session_dead_first_begins_anew(world: World) -> None:
    probe = Probe()
    queue = holder(world, probe, "a")
    held = ids_of(queue["shared"].tasks_by_state("t"))
    world.clock.advance(11)
    put(world, "b")

    with probe.interrupted("decided", "renew", world.rivals.sweep):
        mine = queue["shared"].take_many(2)

    assert names(mine) == "ab"
    assert [task.attempts for task in mine] == [2, 1]
    assert queue["shared"].ack(held[0]).data == "a"
    lives_on(world, queue)


@pytest.mark.without_spark
def test_heartbeat_when_the_session_is_marked_dead_before_it_lands_does_not_deceive(
    world: World,
) -> None:
    probe = Probe()
    queue = holder(world, probe, "a")

    def die() -> None:
        world.clock.advance(11)
        assert world.rivals.sweep().tubes["shared"].released == 1

    # A change of the ttr writes a heartbeat, as the thread does, while the lease still lasts.
    with probe.interrupted("decided", "heartbeat", die):
        queue.cfg(ttr=100)

    assert world.stored() == "ar"
    lives_on(world, queue)


@pytest.mark.without_spark
def test_identify_when_the_session_dies_before_it_has_joined_is_refused_or_works(
    world: World,
) -> None:
    host = holder(world, Probe(), "a")
    joining = world.open_queue(observer=world.probe, ttr=100)

    def die() -> None:
        world.clock.advance(11)
        assert world.rivals.sweep().tubes["shared"].released == 1

    with suppress(SessionError), world.probe.interrupted("decided", "renew", die):
        joining.identify(host.session_uuid)

    lives_on(world, joining)


# -- numbers --------------------------------------------------------------------------------------


class Numbered:
    """Queues on a location of their own, whose slots soon reach their bound."""

    def __init__(self, engine: OnSpark, place: str, clock: ManualClock) -> None:
        self.engine, self.place, self.clock = engine, place, clock
        self.probe = Probe()
        self.opened: list[Queue] = []

    def open(self) -> Queue:
        config = QueueConfig(number_horizon=1.0, observer=self.probe, vacuum_hours=0)
        self.opened.append(self.engine.open(self.place, clock=self.clock, config=config))
        return self.opened[-1]


@pytest.fixture
def numbered(engine: OnSpark, tmp_path: Path, clock: ManualClock) -> Iterator[Numbered]:
    numbered = Numbered(engine, str(tmp_path / "numbered"), clock)
    yield numbered
    for queue in numbered.opened:
        end_heartbeat(queue)


@pytest.mark.without_spark
def test_ids_when_another_holder_has_taken_the_slot_over_are_never_equal(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "SLOTS", 1)
    former = numbered.open()
    tube = former.create_tube("numbered")
    put = ids_of(tube.put_many([1, 2]))
    # The bound has passed, so the only slot there is counts as free.
    numbered.clock.advance(2)
    latter = numbered.open()["numbered"]
    put += ids_of(latter.put_many([3, 4]))

    put += ids_of(tube.put_many([5, 6]))
    taken = ids_of(tube.take_many(3)) + ids_of(latter.take_many(3))

    assert len(set(put)) == 6
    assert {ids.slot_of(task_id) for task_id in put} == {0}
    assert sorted(taken) == sorted(put)
    rows = rows_of(tube, "state")
    assert {row["state"] for row in rows} == {"t"}
    assert len(rows) == 6


def rivals_for_one_slot(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tube, Tube, list[int], Callable[[], None]]:
    """A tube whose number has passed its bound, its rival, the ids that were put, and the rival's lease."""
    monkeypatch.setattr(ids, "SLOTS", 1)
    tube = numbered.open().create_tube("numbered")
    put = ids_of(tube.put_many([1]))
    latter = numbered.open()["numbered"]
    numbered.clock.advance(2)

    def lease() -> None:
        put.extend(ids_of(latter.put_many([2])))
        monkeypatch.setattr(ids, "SLOTS", 2)

    return tube, latter, put, lease


@pytest.mark.without_spark
def test_extension_of_a_slot_when_a_rival_leases_it_first_leads_to_another_slot(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube, latter, put, lease = rivals_for_one_slot(numbered, monkeypatch)

    with numbered.probe.interrupted("decided", "extend_slot", lease):
        put += ids_of(tube.put_many([3]))
    put += ids_of(latter.put_many([4]))

    assert len(set(put)) == 4
    assert [ids.slot_of(task_id) for task_id in put] == [0, 0, 1, 0]


@pytest.mark.without_spark
def test_lease_of_a_slot_when_a_rival_leases_it_first_is_another_one(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "SLOTS", 1)
    put = []
    tube = numbered.open().create_tube("numbered")
    rival = numbered.open()["numbered"]

    def lease() -> None:
        put.extend(ids_of(rival.put_many([1])))
        monkeypatch.setattr(ids, "SLOTS", 2)

    with numbered.probe.interrupted("decided", "lease_slot", lease):
        put += ids_of(tube.put_many([2]))

    assert [ids.slot_of(task_id) for task_id in put] == [0, 1]


@pytest.mark.thorough
def test_put_when_the_answer_to_a_raise_that_came_too_late_is_lost_leases_another_slot(
    numbered: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    tube, _, put, lease = rivals_for_one_slot(numbered, monkeypatch)

    def lose() -> None:
        raise ConnectionError("the answer is lost")

    with (
        numbered.probe.interrupted("decided", "extend_slot", lease),
        numbered.probe.interrupted("committed", "extend_slot", lose),
    ):
        put += ids_of(tube.put_many([3]))

    assert [ids.slot_of(task_id) for task_id in put] == [0, 0, 1]


# -- tubes ----------------------------------------------------------------------------------------
# Last, and what sweeps first: each tube that is left makes every later sweep longer.


def new_tube(world: World, name: str, letters: str) -> tuple[Tube, Tube]:
    """A tube as both sessions see it."""
    rival = world.rivals.create_tube(name)
    rival.put_many(list(letters))
    return world.mine[name], rival


@pytest.mark.without_spark
def test_sweep_when_the_tube_was_dropped_and_made_anew_meanwhile_keeps_the_new_tasks(
    world: World,
) -> None:
    world.rivals.create_tube("made_anew", "fifottl").put("a", delay=TTR)
    world.clock.advance(TTR)

    def make_anew() -> None:
        world.rivals["made_anew"].drop()
        world.rivals.create_tube("made_anew").put("b")

    with world.probe.interrupted("read", "end_due", make_anew):
        world.mine.sweep()

    assert stored(world.rivals["made_anew"]) == "br"


@pytest.mark.without_spark
def test_put_when_a_rival_drops_the_tube_is_refused(world: World) -> None:
    mine, rival = new_tube(world, "dropped_for_put", "a")

    with world.probe.interrupted("decided", "put", rival.drop), pytest.raises(TubeNotFoundError):
        mine.put("b")

    assert stored(world.mine.create_tube("dropped_for_put")) == ""


@pytest.mark.thorough
def test_take_when_a_rival_drops_the_tube_gets_nothing(world: World) -> None:
    mine, rival = new_tube(world, "dropped_for_take", "a")

    with (
        world.probe.interrupted("decided", "take", rival.drop),
        pytest.raises(TubeNotFoundError),
    ):
        mine.take(0)

    assert "dropped_for_take" not in world.rivals.tubes()


@pytest.mark.thorough
def test_drop_when_a_rival_takes_meanwhile_is_refused_and_the_tube_lives(world: World) -> None:
    mine, rival = new_tube(world, "taken_in_drop", "ab")

    with (
        world.probe.interrupted("decided", "drop", lambda: rival.take_many(1)),
        pytest.raises(TubeBusyError),
    ):
        mine.drop()

    assert stored(world.rivals["taken_in_drop"]) == "at br"
    assert rival.put("c") is not None
    assert names(rival.ack_many(ids_of(rival.tasks_by_state("t")))) == "a"
    mine.drop()


@pytest.mark.without_spark
def test_drop_when_tasks_are_taken_is_refused_before_others_see_the_tube_as_dropped(
    world: World,
) -> None:
    mine, rival = new_tube(world, "busy", "a")
    assert names(rival.take_many(1)) == "a"
    world.probe.events.clear()

    with pytest.raises(TubeBusyError):
        mine.drop()

    assert "committed" not in {step for step, _ in world.probe.events}


@pytest.mark.without_spark
@pytest.mark.parametrize("finishes", ["drop", "sweep", "create_tube"])
def test_drop_when_another_program_comes_before_its_last_commit_has_dropped_the_tube(
    world: World, finishes: str
) -> None:
    name = f"dropped_before_{finishes}"
    mine, rival = new_tube(world, name, "ab")

    def finish() -> None:
        if finishes == "drop":
            with pytest.raises(TubeNotFoundError):
                rival.drop()
        elif finishes == "sweep":
            world.rivals.sweep()
        else:
            world.rivals.create_tube(name).put("c")

    with world.probe.interrupted("committed", "drop", finish):
        mine.drop()

    assert (name in world.rivals.tubes()) == (finishes == "create_tube")
    assert stored(world.rivals.create_tube(name, if_not_exists=True)) in ("", "cr")


@pytest.mark.thorough
def test_drop_in_a_catalog_when_the_tube_is_made_anew_before_it_ends_keeps_the_new_tasks(
    world: World,
) -> None:
    world.spark.sql("CREATE SCHEMA IF NOT EXISTS rivals")
    probe = Probe()
    mine, rivals = (
        Queue(
            world.spark,
            "spark_catalog.rivals",
            clock=world.clock,
            config=QueueConfig(observer=observer, vacuum_hours=0),
        )
        for observer in (probe, None)
    )
    tube = mine.create_tube("made_anew")

    def make_anew() -> None:
        # A sweep finishes the drop, which this one then wakes up to finish.
        rivals.sweep()
        rivals.create_tube("made_anew").put("b")

    with probe.interrupted("committed", "drop", make_anew):
        tube.drop()

    assert stored(rivals["made_anew"]) == "br"
    for queue in (mine, rivals):
        end_heartbeat(queue)


@pytest.mark.parametrize("name", ["made_twice", *without_spark("MADE_once")])
def test_create_tube_when_a_rival_creates_it_first_says_that_it_exists(
    world: World, name: str
) -> None:
    rivals_name = name.lower()

    with (
        world.probe.interrupted(
            "decided", "create_tube", lambda: world.rivals.create_tube(rivals_name)
        ),
        pytest.raises(TubeExistsError),
    ):
        world.mine.create_tube(name)

    assert [n for n in world.mine.tubes() if n.lower() == rivals_name] == [rivals_name]


@pytest.mark.without_spark
def test_create_tube_if_not_exists_when_a_rival_creates_it_first_is_the_same_tube(
    world: World,
) -> None:
    rival: list[Tube] = []

    def create() -> None:
        rival.append(world.rivals.create_tube("made_by_two"))

    with world.probe.interrupted("decided", "create_tube", create):
        mine = world.mine.create_tube("made_by_two", if_not_exists=True)

    mine.put("a")
    assert names(rival[0].take_many(2)) == "a"


# -- the loop of workers ------------------------------------------------------------------------------


@pytest.mark.without_spark
def test_renew_when_a_rival_deletes_one_of_the_tasks_refuses_all(world: World) -> None:
    ids = taken(world, "ab")

    with (
        world.probe.interrupted("decided", "renew", lambda: world.rival.delete(ids[0])),
        pytest.raises(NotTakenError),
    ):
        world.tube._settle(settle.RENEW, ids)

    assert names(world.tube._settle(settle.RENEW, ids[1:])) == "b"
    assert names([world.tube.ack(ids[1])]) == "b"
    assert world.stored() == ""


@pytest.mark.without_spark
def test_renew_when_a_rival_deletes_another_task_of_the_lease_segment_renews(world: World) -> None:
    ids = taken(world, "ab")

    with world.probe.interrupted("decided", "renew", lambda: world.rival.delete(ids[1])):
        assert names(world.tube._settle(settle.RENEW, ids[:1])) == "a"

    assert world.stored() == "at"
    assert names([world.tube.ack(ids[0])]) == "a"


@pytest.mark.without_spark
def test_give_back_when_a_rival_has_ended_the_lease_refuses(world: World) -> None:
    ids = taken(world, "ab")

    with (
        world.probe.interrupted("decided", "give_back", world.rival.release_all),
        pytest.raises(NotTakenError),
    ):
        world.tube._settle(settle.GIVE_BACK, ids[1:])

    assert world.stored() == "ar br"
