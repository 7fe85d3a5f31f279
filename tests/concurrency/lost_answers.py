"""Verbs on an S3, one for each kind of commit, and what they must do although it loses the answer to each of them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.queries import select
from tubeq_spark import CommitUnknownError, PutItem, Rate, TubeqError
from tubeq_spark.storage.expression import row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.concurrency.s3_store import Store
    from tubeq_spark import Queue, Task, Tube

__all__ = ["CASES", "OPTIONS", "Bench", "Case", "tried"]

#: No test waits for long.
OPTIONS = {"timeout": "1s", "connect_timeout": "1s", "max_retries": "3"}
_numbers = itertools.count()
#: Tubes with options: their types, and these. Of each two tasks of a sub-queue may begin.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "limfifottl": ("limfifottl", {"capacity": 100}),
    "parallel": ("utubettl", {"parallel": 2}),
    "rate": ("utubettl", {"parallel": 9, "rate": Rate(2, 10_000)}),
}


@dataclass
class Bench:
    """A queue on S3, and a tube of a kind that verbs are tried on."""

    store: Store
    queue: Queue
    kind: str = "fifottl"
    tubes: dict[str, Tube] = field(default_factory=dict)
    #: For the queues that a case opens itself.
    options: dict[str, str] = field(default_factory=lambda: OPTIONS)

    @property
    def tube(self) -> Tube:
        """The tube."""
        if self.kind not in self.tubes:
            type_name, more = KINDS.get(self.kind, (self.kind, {}))
            name = f"{self.kind}_{next(_numbers)}"
            self.tubes[self.kind] = self.queue.create_tube(name, type_name, **more)
        return self.tubes[self.kind]

    def put(self, letters: str, utubes: str = "") -> None:
        """Put tasks, each with a letter, and with one for its sub-queue."""
        for letter, utube in itertools.zip_longest(letters, utubes):
            self.tube.put(letter, **({"utube": utube} if utube else {}))

    def taken(self, letters: str, utubes: str = "") -> list[int]:
        """Put tasks, and take them all."""
        self.put(letters, utubes)
        return [task.task_id for task in self.tube.take_many(len(letters))]

    def stored(self) -> str:
        """All tasks as stored, as in `"ar bt"`: data and state, in the order of put."""
        table = self.tube._ctx.table
        rows = self.queue._context.engine.rows(
            select(table.name, "task_id", "data", "state", where=table.mine())
        )
        found = sorted((row["task_id"], json.loads(row["data"]) + row["state"]) for row in rows)
        return " ".join(text for _, text in found)

    def empty(self) -> None:
        """Begin anew; what has begun by a rate counts for long, so with another tube."""
        if self.kind == "rate":
            self.tubes.pop(self.kind, None)
        if self.stored():
            self.tube.release_all()
            self.tube.truncate()


@dataclass(frozen=True)
class Case:
    """A verb.

    Attributes:
        name: Its name.
        given: Before it.
        act: The verb; what it returns.
        result: What it must return.
        after: The tube then.
        kind: The type of the tube.
    """

    name: str
    given: Callable[[Bench], Any]
    act: Callable[[Bench, Any], Any]
    result: object
    after: str
    kind: str = "fifottl"


def letters(tasks: Iterable[Task | None]) -> str:
    """The data of tasks; a dot: there is none."""
    return "".join("." if task is None else task.data for task in tasks)


def table(text: str) -> pa.Table:
    """An Arrow table of tasks, each with a letter."""
    return pa.table({"data": [json.dumps(letter) for letter in text]})


def twice_with_a_key(bench: Bench, _: object) -> tuple[int, int]:
    """Put an Arrow table with a key, and once more with the same."""
    key = f"key {next(_numbers)}"
    counts = [bench.tube.put_arrow(table("ab"), key=key).count for _ in range(2)]
    return counts[0], counts[1]


def twice_with_keys(bench: Bench, _: object) -> str:
    """Put tasks with keys, and once more, one by one and as a table."""
    items = [PutItem(letter, unique=letter) for letter in "ab"]
    tasks = bench.tube.put_many(items)
    assert bench.tube.put_many(items) == tasks
    added = bench.tube.put_arrow(table("bc").append_column("unique", [["b", "c"]])).count
    return f"{letters(tasks)}{added}"


def take_of_subqueues(bench: Bench, _: object) -> str:
    """Take for three, where two may have a task."""
    return letters(bench.tube.take(0) for _ in range(3))


def created_anew(bench: Bench, _: object) -> str:
    """Create a tube, drop it and create it again."""
    name = f"anew_{next(_numbers)}"
    bench.queue.create_tube(name).put("a")
    bench.queue[name].drop()
    tube = bench.queue.create_tube(name, "utubettl")
    tube.put("b", utube="u")
    return letters([tube.take(0), tube.take(0)])


def altered(bench: Bench, _: object) -> tuple[object, ...]:
    """Give a tube an option that needs columns, and pause it."""
    tube = bench.queue.create_tube(f"old_{next(_numbers)}")
    tube.put("a")
    tube.alter(most_taken=5)
    tube.pause()
    paused = tube.paused, letters([tube.take(0)])
    tube.resume()
    return (*paused, tube.options["most_taken"], letters([tube.take(0)]))


def dropped(bench: Bench, _: object) -> bool:
    """Drop a tube."""
    tube = bench.queue.create_tube(f"old_{next(_numbers)}")
    tube.put("a")
    tube.drop()
    return tube.name in bench.queue.tubes()


def opened(bench: Bench, _: object) -> tuple[str, int]:
    """Open another location, and take what was put there: leases of a session and of numbers."""
    with bench.store.open(f"s3://bucket/new_{next(_numbers)}", options=bench.options) as queue:
        tube = queue.create_tube("work")
        tube.put("a")
        taken = letters([tube.take(0), tube.take(0)])
        slots = queue._context.engine.rows(
            select(queue._context.sessions._table, "key", where=row().kind == "slot")
        )
    return taken, len(slots)


CASES = (
    Case("put", lambda _: None, lambda b, _: letters([b.tube.put("a")]), "a", "ar"),
    Case("put_arrow_with_a_key", lambda _: None, twice_with_a_key, (2, 0), "ar br"),
    Case("put_with_keys", lambda _: None, twice_with_keys, "ab1", "ar br cr"),
    Case(
        "put_with_a_capacity",
        lambda _: None,
        lambda b, _: letters([b.tube.put("a")]),
        "a",
        "ar",
        "limfifottl",
    ),
    Case("take", lambda b: b.put("ab"), lambda b, _: letters([b.tube.take(0)]), "a", "at br"),
    Case(
        "take_arrow",
        lambda b: b.put("abc"),
        lambda b, _: b.tube.take_arrow(2).count,
        2,
        "at bt cr",
    ),
    Case("ack", lambda b: b.taken("a"), lambda b, ids: letters([b.tube.ack(ids[0])]), "a", ""),
    Case(
        "ack_of_some",
        lambda b: b.taken("ab"),
        lambda b, ids: letters([b.tube.ack(ids[0])]),
        "a",
        "bt",
    ),
    Case(
        "release_with_an_error",
        lambda b: b.taken("ab"),
        lambda b, ids: [b.tube.release(ids[0], error="why").error, b.tube.peek(ids[0]).error],
        ["why", "why"],
        "ar bt",
    ),
    Case(
        "delete",
        lambda b: (b.put("ab"), b.tube.peek(b.tube.put("c").task_id))[1],
        lambda b, task: letters([b.tube.delete(task.task_id)]),
        "c",
        "ar br",
    ),
    Case(
        "exchange",
        lambda b: (b.taken("a"), b.put("bc"))[0],
        lambda b, ids: letters(b.tube.exchange(ack=ids, take=1)),
        "b",
        "bt cr",
    ),
    Case("truncate", lambda b: b.put("ab"), lambda b, _: b.tube.truncate(), None, ""),
    Case(
        "take_of_subqueues",
        lambda b: b.put("abc", "uuv"),
        take_of_subqueues,
        "ac.",
        "at br ct",
        "utubettl",
    ),
    Case(
        "exchange_of_subqueues",
        lambda b: (b.put("ab", "uu"), [t.task_id for t in b.tube.take_many(1)])[1],
        lambda b, ids: letters(b.tube.exchange(ack=ids, take=1)),
        "b",
        "bt",
        "utubettl",
    ),
    *(
        Case(
            f"take_with_{kind}",
            lambda b: b.put("abcd", "uuuv"),
            lambda b, _: letters(b.tube.take(0) for _ in range(4)),
            "abd.",
            "at bt cr dt",
            kind,
        )
        for kind in ("parallel", "rate")
    ),
    Case("create_tube_anew", lambda _: None, created_anew, "b.", ""),
    Case("drop", lambda _: None, dropped, False, ""),
    Case("alter", lambda _: None, altered, (True, ".", 5, "a"), ""),
    Case("open", lambda _: None, opened, ("a.", 1), ""),
)


def tried(bench: Bench, case: Case, kind: str, times: int | None = None) -> list[str]:
    """Do a verb that loses the answer to each of its commits, or to so many.

    Returns:
        What went wrong, and how many answers were lost, each by a word.
    """
    bench.kind = case.kind
    bench.empty()
    given = case.given(bench)
    bench.store.requests()
    wrong = []
    try:
        with bench.store.losing(kind=kind, times=times):
            result = case.act(bench, given)
    except CommitUnknownError:
        wrong.append("unknown")
    except TubeqError as error:
        wrong.append(type(error).__name__)
    else:
        if result != case.result:
            wrong.append("wrong answers")
    sent = Counter(line for line, _ in bench.store.commits())
    wrong += ["lost answers"] * len(sent) + ["sent twice"] * (sent.total() - len(sent))
    stored, wanted = bench.stored().split(), case.after.split()
    if len(stored) > len(wanted):
        wrong.append("doubled")
    leaked = {task for task in stored if task.endswith("t")} - set(wanted)
    return wrong + ["leaked"] * bool(leaked) + ["stored wrongly"] * (stored != wanted)
