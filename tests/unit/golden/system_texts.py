"""All queries and statements of the system tables, and those that create tables, as cases."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.unit.golden.recording import Case, Recorder
from tests.unit.golden.sample_values import LATER, NAMES, NOW
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.ids import SLOTS, tick_at
from tubeq_spark.model.membership import Member, SlotLease
from tubeq_spark.model.options import TubeOptions
from tubeq_spark.model.times import US
from tubeq_spark.storage.location import SESSIONS, TUBES, Location
from tubeq_spark.storage.tables.id_slots import Slots
from tubeq_spark.storage.tables.registry import Registry, TubeRecord
from tubeq_spark.storage.tables.schema import (
    new_registry,
    new_sessions,
    new_system_tables,
    new_tube_table,
)
from tubeq_spark.storage.tables.sessions import Sessions
from tubeq_spark.storage.tables.vacuum_notes import VacuumNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tubeq_spark.storage.statement import Affected
    from tubeq_spark.storage.tables.system_table import SystemTable

__all__ = ["system_cases"]

PATH = Location("/queues/a q")
CATALOG = Location("main.que`ues", ("main", "que`ues"))


def system_cases() -> Iterator[Case]:
    """Every case of a system table."""
    yield from registry()
    yield from sessions()
    yield from maintenance_of_sessions()
    yield from slots()
    yield from new_tables()


def of(
    kind: type[SystemTable],
    title: str,
    call: Callable[[Any], object],
    *answers: Any,
    affected: Sequence[Affected | Exception] = (),
) -> Case:
    """A case of one of the system tables."""
    table = PATH.table(TUBES if kind is Registry else SESSIONS)

    def made(recorder: Recorder) -> object:
        return call(kind(recorder.engine, table, recorder.loop, recorder.lock, recorder.random))

    return Case(f"{kind.__name__}.{title}", made, answers, affected)


# -- the registry --------------------------------------------------------------------------------------


def record(name: str = "urls", **changes: Any) -> TubeRecord:
    """A tube."""
    values: dict[str, Any] = {
        "options": TubeOptions(),
        "created_us": NOW,
    }
    return TubeRecord(name, f"{name}__2", 7, "fifo", **values | changes)


def found(record: TubeRecord) -> dict[str, Any]:
    """A tube as a query finds it."""
    options = record.options.to_json()
    if record.owner is not None:
        options = options.replace('"temporary": true', f'"temporary": "{record.owner}"')
    return {
        "name": record.name,
        "table_name": record.table,
        "id": record.id,
        "type": record.type,
        "options": options,
        "status": "live",
        "created": record.created_us,
    }


#: The last id of the registry, and how many records have a name.
FREE, IN_USE_BY_ONE = [{"last": 6, "taken": 0}], [{"last": 6, "taken": 1}]


def registry() -> Iterator[Case]:
    case = partial(of, Registry)
    here = [found(record())]
    yield case("records: all", lambda table: table.records(), here)
    yield case("with_dropped: all", lambda table: table.with_dropped(), here)
    yield case("find: one", lambda table: table.find("URLS"), here)
    yield case("live: one", lambda table: table.live("urls"), here)
    yield case("add: one", lambda table: table.add(record()), FREE)
    yield case("add: of a name in use", lambda table: table.add(record()), IN_USE_BY_ONE)
    yield case(
        "add: a name and options of rare characters",
        lambda table: table.add(
            record("O'Neil", options=TubeOptions(pri=3, schema="`a'b` STRING, n INT"))
        ),
        FREE,
    )
    mortal = record(options=TubeOptions(temporary=True), owner="session/1")
    yield case("add: temporary", lambda table: table.add(mortal), FREE)
    yield case(
        "alter: the owner",
        lambda table: table.alter(mortal, lambda tube: replace(tube, owner="session/2")),
        [found(mortal)],
    )
    yield case(
        "alter: a drop",
        lambda table: table.alter(record(), lambda tube: replace(tube, is_live=False)),
        here,
    )
    yield case(
        "alter: a pause",
        lambda table: table.alter(record(), lambda tube: replace(tube, paused=True)),
        [found(record())],
    )


# -- sessions ------------------------------------------------------------------------------------------

MEMBER = Member("a session", "member 1", 2, 3, live=True, lease_until=LATER)
#: One of each kind of rows that a sweep asks for.
SURVEY: list[dict[str, Any]] = [
    {
        "bucket": 1,
        "kind": kind,
        "session": "a session",
        "key": "7" if kind.startswith("vacuum") else "member 1",
        "seq": 3,
        "n": 2,
        "last": {"status": "live", "until": LATER, "epoch": 2},
    }
    for kind in ("member", "dead", "slot", "vacuum", "vacuum_tried", "writing")
]


of_sessions, of_notes = partial(of, Sessions), partial(of, VacuumNotes)


def sessions() -> Iterator[Case]:
    yield of_sessions("views: all", lambda table: table.views(), SURVEY[:2])
    for name in NAMES:
        if name is not None:
            yield of_sessions(f"views: {name!r}", lambda table, name=name: table.views(name))
    yield of_sessions("survey: all", lambda table: table.survey(LATER), SURVEY)
    for member in ("", "O'Neil"):
        yield of_sessions(f"calls: {member!r}", lambda table, member=member: table.calls(member, 0))
    yield of_sessions("last_written: 5", lambda table: table.last_written(5))
    calls = {"7/urls": 3, "8/O'Neil {note}": 4}
    counted = Member("O'Neil", "back\\slash", 2, 3, live=False, lease_until=None, calls=calls)
    yield of_sessions("begin_with: two", lambda table: table.begin_with([calls, calls]))
    for said, member in {"live": MEMBER, "left, with calls": counted}.items():
        yield of_sessions(f"beat: {said}", lambda table, member=member: table.beat(member, NOW))
        yield of_sessions(f"renew: {said}", lambda table, member=member: table.renew(member, NOW))
    for said, until in {"marked": NOW - 9 * US, "alive": LATER}.items():
        for session in ("a session", "O'Neil"):
            last = {"status": "live", "until": until, "epoch": 2}
            yield of_sessions(
                f"mark_dead: {said}, {session}",
                lambda table, session=session: table.mark_dead(session, 2, NOW, 2 * US),
                [SURVEY[0] | {"session": session, "last": last}],
            )
    yield of_sessions(
        "mark_dead: marked before",
        lambda table: table.mark_dead("a session", 2, NOW, 2 * US),
        SURVEY[:2],
    )
    yield of_sessions(
        "mark_dead: of nobody", lambda table: table.mark_dead("a session", 2, NOW, 2 * US)
    )


def maintenance_of_sessions() -> Iterator[Case]:
    for tried in (False, True):
        yield of_notes(
            f"note_vacuum: tried is {tried}",
            lambda table, tried=tried: table.note_vacuum(7, NOW, tried=tried),
        )
    name = PATH.table("O'Neil")
    yield of_notes("ask_to_wait: one", lambda table: table.ask_to_wait([name], NOW))
    yield of_notes("asked_to_wait: one", lambda table: table.asked_to_wait(name, NOW))
    member = SURVEY[0] | {"last": {"status": "left", "calls": {"7/urls": 3}}}
    lives = SURVEY[0] | {
        "session": "O'Neil",
        "key": "member 2",
        "last": {"status": "live", "calls": None},
    }
    calls = {"7/urls": 2, "8/pages": 1}
    total = {"bucket": 2_001, "kind": "total", "session": None, "key": "total", "seq": 4, "n": 1}
    kept = [lives, total | {"last": {"status": None, "calls": calls}}]
    for said, least, whole, rows in (
        ("first", 2, False, [member, lives]),
        ("later", 2, False, [member, *kept]),
        ("without members that are gone", 1, False, kept),
        ("few", 99, False, [member, lives]),
        ("whole", 99, True, [lives | {"n": 1}]),
    ):
        yield of_sessions(
            f"compact: {said}",
            lambda table, least=least, whole=whole: table.compact(least, whole=whole),
            rows,
        )


# -- slots ---------------------------------------------------------------------------------------------

TICK = tick_at(NOW)
HOLDER = "O'Neil"


def leased(count: int, bound: int) -> list[dict[str, Any]]:
    """So many slots, all with a bound."""
    last = {"holder": "member 1"}
    return [{"key": str(slot), "seq": bound, "last": last} for slot in range(count)]


def slots() -> Iterator[Case]:
    case = partial(of, Slots)

    def lease(table: Slots) -> object:
        return table.lease(HOLDER, NOW, 1_000)

    yield case("bounds: all", lambda table: table.bounds())
    yield case("raise_to: two", lambda table: table.raise_to({3: TICK, 4: TICK + 1}))
    busy = leased(SLOTS, TICK + 5)
    yield case("lease: one of a bucket was never used", lease)
    yield case("lease: one of a bucket is free", lease, leased(3, TICK - 5))
    yield case("lease: a bucket is in use, another slot is free", lease, busy, leased(3, TICK - 5))
    yield case("lease: all are in use", lease, busy, busy)
    yield case("lease: the answer is lost", lease, affected=[CommitUnknownError("lost", -1)])
    held = SlotLease(3, "member 1", TICK)
    for said, answer in {"held": leased(4, TICK), "of another holder": []}.items():
        yield case(f"extend: {said}", lambda table: table.extend(held, TICK + 9), answer)


# -- new tables ----------------------------------------------------------------------------------------


def new_tables() -> Iterator[Case]:
    config = QueueConfig(retention_hours=48, key_days=7)
    for said, place in {"a path": PATH, "a catalog": CATALOG}.items():
        yield Case(
            f"schema.new_system_tables: {said}",
            lambda _, place=place: new_system_tables(place, config, "spark"),
        )
    for local in (False, True):
        where = "local" if local else "elsewhere"
        for name, make in {
            "new_registry": partial(new_registry, engine="spark"),
            "new_sessions": new_sessions,
        }.items():
            yield Case(
                f"schema.{name}: {where}",
                lambda _, name=name, make=make, local=local: make(name, config, local=local),
            )
        for payload in (None, "STRUCT<url: STRING, n: INT>"):
            yield Case(
                f"schema.new_tube_table: {where}, payload {payload}",
                lambda _, payload=payload, local=local: new_tube_table(
                    PATH.table("urls"), config, payload, change_feed=local, local=local
                ),
            )
