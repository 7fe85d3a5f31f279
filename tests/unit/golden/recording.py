"""Records the texts that `storage/tables` makes, with an engine and a commit loop that run nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tubeq_spark.storage.spark.render import Renderer, creation_of, text_of
from tubeq_spark.storage.statement import Affected, Statement
from tubeq_spark.storage.tables.schema import NewTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tubeq_spark.storage.commit_loop import Plan
    from tubeq_spark.storage.query import Query


T = TypeVar("T")
#: The columns of an answer without rows: those that any query is read by.
_NO_ROWS = pa.schema(
    [
        *[(name, pa.string()) for name in ("state", "utube", "data", "owner", "error", "unique")],
        *[(name, pa.int32()) for name in ("pri", "attempts")],
        *[(name, pa.int64()) for name in ("n", "segment", "task_id", "created", "ttl", "ttr")],
        *[(name, pa.int64()) for name in ("next_event", "expires_at", "take_id", "since")],
        *[("rank", pa.int64()), ("trace", pa.string()), ("claim", pa.int64())],
    ]
).empty_table()


def lines_of_query(query: Query) -> list[str]:
    """The text of a query as Spark is given it, and its sources."""
    renderer = Renderer()
    return [f"query: {renderer.query(query)}", *_sources(renderer.sources)]


@dataclass(frozen=True)
class Frame:
    """In place of a DataFrame."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """Calls one method that makes SQL.

    Attributes:
        title: The method, a colon, and the variant.
        call: Calls it; the statement that it returns is written down.
        answers: What the engine answers to its queries, in turn; then nothing is found.
        affected: What its commits change, in turn; then each inserts one row. An error is raised.
    """

    title: str
    call: Callable[[Recorder], object]
    answers: Sequence[Any] = ()
    affected: Sequence[Affected | Exception] = ()


class Recorder:
    """What a case is given in place of storage; it is an engine and a commit loop, too.

    Attributes:
        lines: The texts of all queries and statements, as the golden file has them.
        queries: The queries.
        statements: What was to be committed, and the tables that were to be made.
    """

    def __init__(self, case: Case) -> None:
        """Answer as `case` says."""
        self.lines: list[str] = []
        self.queries: list[Query] = []
        self.statements: list[Statement | NewTable] = []
        self.engine: Any = self
        self.loop: Any = self
        self.lock: Any = None
        self.random = random.Random(7)
        self.tables = SimpleNamespace(
            bad_files=lambda _: (),
            told_files=lambda _: None,
        )
        self._answers = iter(case.answers)
        self._affected = iter(case.affected)

    # -- as an engine -----------------------------------------------------------------------------

    def rows(self, query: Query) -> list[dict[str, Any]]:
        self._asked(query)
        found: list[dict[str, Any]] = next(self._answers, [])
        return found

    def arrow(self, query: Query, expected: int = 0) -> pa.Table:
        self._asked(query)
        if expected:
            self.lines.append(f"expected: {expected}")
        found = next(self._answers, _NO_ROWS)
        return found if isinstance(found, pa.Table) else pa.Table.from_pylist(found)

    def _asked(self, query: Query) -> None:
        self.queries.append(query)
        self.lines += lines_of_query(query)

    # -- as a commit loop -------------------------------------------------------------------------

    def run(self, operation: str, _lock: object, attempt: Callable[[], Plan[T]], **_: object) -> T:
        plan = attempt()
        if plan.statement is None:
            self.lines.append(f"nothing to commit: {operation}")
            return plan.finish(Affected())
        self.lines.append(f"operation: {operation}")
        self.made(plan.statement)
        affected = next(self._affected, Affected(inserted=1))
        if isinstance(affected, Exception):
            raise affected
        return plan.finish(affected)

    def made(self, statement: Statement | NewTable) -> None:
        """Write a statement down."""
        self.statements.append(statement)
        self.lines += described(statement)


def calling(made: str, make: Callable[[Recorder], Any]) -> Callable[..., Case]:
    """What makes the cases of an object: each calls the method that its title begins with, by some arguments."""

    def case(
        title: str, *args: Any, answers: Sequence[Any] = (), affected: Any = (), **options: Any
    ) -> Case:
        def call(recorder: Recorder) -> object:
            return getattr(make(recorder), title.partition(":")[0])(*args, **options)

        return Case(f"{made}.{title}", call, answers, affected)

    return case


def recorded(case: Case) -> Recorder:
    """What a case asks and commits."""
    recorder = Recorder(case)
    result = case.call(recorder)
    for part in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(part, (Statement, NewTable)):
            recorder.made(part)
    return recorder


def entry_of(case: Case) -> str:
    """What the golden file has of a case."""
    return "\n".join([f"## {case.title}", *recorded(case).lines]) + "\n"


def described(statement: Statement | NewTable) -> list[str]:
    """The lines about one statement."""
    if isinstance(statement, NewTable):
        return [f"statement: {creation_of(statement)}"]
    return list(_append(statement) if statement.is_append else _statement(statement))


def _statement(statement: Statement) -> Iterator[str]:
    renderer = Renderer()
    yield f"statement: {renderer.statement(statement)}"
    for column, values in statement.partitions.items():
        yield f"partitions: {column} in {list(values)}"
    yield from _sources(renderer.sources)
    if statement.size:
        yield f"size: {statement.size}"
    if statement.tasks is not None:
        yield f"tasks: {statement.tasks}"
    if statement.ended is not None:
        yield f"ended: {statement.ended}"


def _append(append: Statement) -> Iterator[str]:
    yield f"append: {append.table}"
    yield from _sources({"rows": append.new})
    for clause in append.inserts:
        values = (f"{text_of(value)} AS {name}" for name, value in (clause.sets or {}).items())
        yield f"stored: {', '.join(values)}"
    if append.once is not None:
        yield f"once: {append.once}"
    if append.size:
        yield f"size: {append.size}"


def _sources(sources: Mapping[str, Any]) -> Iterable[str]:
    for name, source in sources.items():
        if isinstance(source, Frame):
            yield f"source: {name}, a DataFrame: {', '.join(source.columns)}"
        else:
            columns = ", ".join(f"{part.name} {part.type}" for part in source.schema)
            yield f"source: {name}, {source.num_rows} rows: {columns}"
