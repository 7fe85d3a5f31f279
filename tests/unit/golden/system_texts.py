"""Lists all queries and statements of the system tables, and those that create tables, as cases."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.unit.golden.recording import Case, calling
from tests.unit.golden.sample_values import LATER, NAMES, NOW
from tubeq_spark.clock import US
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import CommitUnknownError
from tubeq_spark.model.ids import SLOTS, tick_at
from tubeq_spark.model.membership import Member, SlotLease
from tubeq_spark.model.options import TubeOptions
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tubeq_spark.storage.tables.system_table import SystemTable


PATH = Location("/queues/a q")
CATALOG = Location("main.que`ues", ("main", "que`ues"))


def system_cases() -> Iterator[Case]:
    """Every case of a system table."""
    yield from registry()
    yield from sessions()
    yield from maintenance_of_sessions()
    yield from slots()
    yield from new_tables()


def of(kind: type[SystemTable]) -> Callable[..., Case]:
    """What makes the cases of one of the system tables."""
    table = PATH.table(TUBES if kind is Registry else SESSIONS)
    return calling(
        kind.__name__, lambda made: kind(made.engine, table, made.loop, made.lock, made.random)
    )


# -- the registry --------------------------------------------------------------------------------------


def record(name: str = "urls", **changes: Any) -> TubeRecord:
    """A tube."""
    values: dict[str, Any] = {"options": TubeOptions(), "created_us": NOW}
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
    case = of(Registry)
    here = [found(record())]
    yield case("records: all", answers=[here])
    yield case("with_dropped: all", answers=[here])
    yield case("find: one", "URLS", answers=[here])
    yield case("live: one", "urls", answers=[here])
    yield case("add: one", record(), answers=[FREE])
    yield case("add: of a name in use", record(), answers=[IN_USE_BY_ONE])
    rare = record("O'Neil", options=TubeOptions(pri=3, schema="`a'b` STRING, n INT"))
    yield case("add: a name and options of rare characters", rare, answers=[FREE])
    mortal = record(options=TubeOptions(temporary=True), owner="session/1")
    yield case("add: temporary", mortal, answers=[FREE])
    for said, tube, changes in (
        ("the owner", mortal, {"owner": "session/2"}),
        ("a drop", record(), {"is_live": False}),
        ("a pause", record(), {"is_paused": True}),
    ):
        change = partial(replace, **changes)
        yield case(f"alter: {said}", tube, change, answers=[[found(tube)]])


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
    for kind in ("member", "dead", "slot", "vacuum", "vacuum_tried")
]


of_sessions = of(Sessions)


def sessions() -> Iterator[Case]:
    yield of_sessions("views: all", answers=[SURVEY[:2]])
    for name in NAMES:
        if name is not None:
            yield of_sessions(f"views: {name!r}", name)
    yield of_sessions("survey: all", LATER, answers=[SURVEY])
    for member in ("", "O'Neil"):
        yield of_sessions(f"calls: {member!r}", member, 0)
    yield of_sessions("last_written: 5", 5)
    calls = {"7/urls": 3, "8/O'Neil {note}": 4}
    counted = Member("O'Neil", "back\\slash", 2, 3, live=False, lease_until=None, calls=calls)
    for said, member in {"live": MEMBER, "left, with calls": counted}.items():
        yield of_sessions(f"beat: {said}", member, NOW)
        yield of_sessions(f"renew: {said}", member, NOW)

    def mark_dead(said: str, *answers: object, session: str = "a session") -> Case:
        return of_sessions(f"mark_dead: {said}", session, 2, NOW, 2 * US, answers=answers)

    for said, until in {"marked": NOW - 9 * US, "alive": LATER}.items():
        for session in ("a session", "O'Neil"):
            last = {"status": "live", "until": until, "epoch": 2}
            answer = [SURVEY[0] | {"session": session, "last": last}]
            yield mark_dead(f"{said}, {session}", answer, session=session)
    yield mark_dead("marked before", SURVEY[:2])
    yield mark_dead("of nobody")


def maintenance_of_sessions() -> Iterator[Case]:
    for tried in (False, True):
        yield of_sessions(f"note_vacuum: tried is {tried}", 7, NOW, tried=tried)
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
        yield of_sessions(f"compact: {said}", least, whole=whole, answers=[rows])


# -- slots ---------------------------------------------------------------------------------------------

TICK = tick_at(NOW)
HOLDER = "O'Neil"


def leased(count: int, bound: int) -> list[dict[str, Any]]:
    """So many slots, all with a bound."""
    last = {"holder": "member 1"}
    return [{"key": str(slot), "seq": bound, "last": last} for slot in range(count)]


def slots() -> Iterator[Case]:
    case = of(Slots)

    def lease(said: str, *answers: object, **options: Any) -> Case:
        return case(f"lease: {said}", HOLDER, NOW, 1_000, answers=answers, **options)

    busy, free = leased(SLOTS, TICK + 5), leased(3, TICK - 5)
    yield lease("one of a bucket was never used")
    yield lease("one of a bucket is free", free)
    yield lease("a bucket is in use, another slot is free", busy, free)
    yield lease("a bucket is in use, another slot was never used", busy, leased(3, TICK + 5))
    yield lease("all are in use", busy, busy)
    yield lease("the answer is lost", affected=[CommitUnknownError("lost", -1)])
    held = SlotLease(3, "member 1", TICK)
    for said, answer in {"held": leased(4, TICK), "of another holder": []}.items():
        yield case(f"extend: {said}", held, TICK + 9, answers=[answer])


# -- new tables ----------------------------------------------------------------------------------------


def new_tables() -> Iterator[Case]:
    config = QueueConfig(retention_hours=48, key_days=7)

    def new(title: str, make: Callable[..., object], *args: object, **options: object) -> Case:
        return Case(f"schema.{title}", lambda _: make(*args, **options))

    for said, place in {"a path": PATH, "a catalog": CATALOG}.items():
        yield new(f"new_system_tables: {said}", new_system_tables, place, config, "spark")
    for local in (False, True):
        where = "local" if local else "elsewhere"
        registry, tube = f"new_registry: {where}", f"new_tube_table: {where}, payload"
        yield new(registry, new_registry, "new_registry", config, "spark", local=local)
        yield new(f"new_sessions: {where}", new_sessions, "new_sessions", config, local=local)
        for payload in (None, "STRUCT<url: STRING, n: INT>"):
            options = {"change_feed": local, "local": local}
            table = PATH.table("urls")
            yield new(f"{tube} {payload}", new_tube_table, table, config, payload, **options)
