"""Copies a queue to a new place: tubes with their tasks, ids, keys of puts, counts and moments.

Steps, after a sweep of the source: refuse if tasks are taken or may be taken; write a mark; copy the tables of the
tubes, file by file; make the table of sessions, with the bounds of all id slots; make the registry in one commit;
remove the mark. Before the registry exists the target is no queue, and nobody can open it. Nothing is written to the
source, unless it is closed: then, before the registry is made, its tubes are marked as moved, and the copy waits until
all programs have seen that.

A table is copied file by file: the data files first, then the log that names them. The copy has the newest version under
the same number, with the transaction ids of its log: keys of puts and totals of ended tasks. The log of the copy begins at
a checkpoint, as after a clean-up.

If the copy is interrupted, its files must be removed before the next call.
"""

from __future__ import annotations

import functools
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from tubeq_spark.admin import life
from tubeq_spark.admin.choose_engine import Engines, engines_of
from tubeq_spark.errors import InvalidOptionError, StoreError, TubeBusyError, TubeNotFoundError
from tubeq_spark.model.reports import CopyReport
from tubeq_spark.observe.statistics import sessions_of, written_calls
from tubeq_spark.storage.arrow.columns import array
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.location import SESSIONS, TUBES, Location, refuse_mounts
from tubeq_spark.storage.log.log_files import LOG, checkpoints_in
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.query import Select, count, named
from tubeq_spark.storage.store.local_files import make_directory
from tubeq_spark.storage.store.store import ExistsError
from tubeq_spark.storage.tables.registry import TubeRecord, without_move
from tubeq_spark.storage.tables.schema import LOG_CLEANUP, new_registry, new_sessions
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.log.snapshot import Snapshot
    from tubeq_spark.storage.native.tables import NativeTables
    from tubeq_spark.storage.store.store import Store
    from tubeq_spark.storage.store.store_options import StorageOptions

#: The mark at the target during a copy, which only one call makes.
_MARK = "_tubeq_copy.json"
#: Seconds within which all programs see that a tube was moved, as it is promised of `Tube.pause`.
_SEEN_WITHIN = 5.0
#: What messages call the registry.
_REGISTRY = "the list of tubes"
_ROW = row()


def copy(
    queue: QueueContext,
    tubes: Sequence[TubeContext],
    target: object,
    target_options: StorageOptions | None,
    *,
    close: bool,
) -> CopyReport:
    """Copy a queue that was just swept.

    Args:
        queue: The source, on the native engine.
        tubes: All its tubes.
        target: The new location.
        target_options: The options by which the target is reached.
        close: Whether the source is closed for changes.

    Raises:
        InvalidOptionError: The target is no location, or one of source and target is within the other.
        TubeBusyError: Tasks are taken or may be, or the source has changed meanwhile.
        StoreError: The target has something else, or a copy of an earlier state; or a table cannot be copied.
    """
    location = Location.parse(target)
    engines = engines_of(None, target, "native", target_options)
    try:
        new = replace(OpenedLocation.without_spark(location), durability=queue.opened.durability)
        _require_apart(queue.opened, new)
        refuse_mounts(location)
        kept = [ctx for ctx in tubes if not ctx.record.options.temporary]
        # The state is read before the checks of tubes and tasks, so later changes make it differ.
        state = _state_of(queue, kept)
        _require_all(queue, tubes)
        _require_not_moved(tubes, location.text)
        _require_quiet(queue, tubes, close=close)
        work = _Copy(queue, engines, new)
        with queue.engine.reading():
            work.begin()
            work.run(kept, state, close=close)
        temporary = [ctx.record.name for ctx in tubes if ctx.record.options.temporary]
        return CopyReport({ctx.record.name: work.tasks(ctx) for ctx in kept}, temporary)
    finally:
        engines.close()


def _require_apart(opened: OpenedLocation, new: OpenedLocation) -> None:
    one, other = f"{opened.uri}/", f"{new.uri}/"
    if one.startswith(other) or other.startswith(one):
        msg = f"target={new.location.text!r}: must be apart from {opened.location.text}"
        raise InvalidOptionError(msg)


def _require_all(queue: QueueContext, tubes: Sequence[TubeContext]) -> None:
    """Refuse if the source has other tubes by now."""
    if {record.id for record in queue.registry.records()} != {ctx.record.id for ctx in tubes}:
        raise _changed(_REGISTRY)


def _require_not_moved(tubes: Sequence[TubeContext], target: str) -> None:
    """Refuse a source that another copy has closed, because both copies would hand out its tasks.

    A copy to the same target may be made again, after one that was killed.
    """
    for ctx in tubes:
        place = ctx.record.moved_to
        if place is not None and place != target:
            msg = f"tube {ctx.record.name!r} was moved to {place}: copy the queue from there"
            raise TubeBusyError(msg)


def _require_quiet(queue: QueueContext, tubes: Sequence[TubeContext], *, close: bool) -> None:
    """Refuse a source whose tasks are taken, or may be taken meanwhile."""
    for ctx in tubes:
        is_taken = ctx.table.mine() & (_ROW.state == TaskState.TAKEN.value)
        taken = queue.engine.rows(Select(ctx.table.name, {"n": count()}, is_taken))[0]["n"]
        if taken:
            msg = f"tube {ctx.record.name!r} has {taken} taken tasks: ack or release them first"
            raise TubeBusyError(msg)
    running = [ctx.record.name for ctx in tubes if not (close or ctx.record.paused)]
    others = [info for info in sessions_of(queue, tubes) if info.uuid != queue.session.uuid]
    if running and others:
        where = ", ".join(sorted({f"{info.host} pid {info.pid}" for info in others}))
        msg = (
            f"programs use the queue ({where}): stop them, close the queue by the copy, or pause the tubes "
            f"{', '.join(running)}"
        )
        raise TubeBusyError(msg)


def _state_of(queue: QueueContext, tubes: Sequence[TubeContext]) -> dict[str, int]:
    """The versions of the tubes and of the registry, by what messages call them."""
    names = {f"tube {ctx.record.name!r}": ctx.table.name for ctx in tubes}
    names[_REGISTRY] = queue.opened.location.table(TUBES)
    return {what: queue.engine.tables.version(name) or 0 for what, name in names.items()}


class _Copy:
    """One call of `copy`."""

    def __init__(self, queue: QueueContext, engines: Engines, new: OpenedLocation) -> None:
        self._queue, self._engines, self._new = queue, engines, new
        self._tables = _native(engines.rows)
        self._source = _native(queue.engine).store_of(queue.opened.uri)
        self._target = self._tables.store_of(new.uri)
        self._is_local = new.locks is not None

    @functools.cached_property
    def _made(self) -> QueueContext:
        """The queue at the target, which makes the directory of lock files; so only after `begin`."""
        return life.make_context(self._engines, self._new, self._queue.clock, self._queue.config)

    def begin(self) -> None:
        """Write the mark.

        Raises:
            StoreError: Something exists at the target.
        """
        msg = (
            f"{self._new.location.text} is not empty: a copy needs a new place; if an earlier copy was interrupted, "
            "remove its files first"
        )
        if self._target.list("", most=1):
            raise StoreError(msg)
        if self._new.locks is not None:
            make_directory(self._new.locks.parent, synced=True)
        try:
            self._target.put_if_absent(_MARK, b"")
        except ExistsError as error:
            raise StoreError(msg) from error

    def run(self, tubes: Sequence[TubeContext], state: dict[str, int], *, close: bool) -> None:
        """Copy tubes.

        Args:
            tubes: All tubes but temporary ones, which end with their session.
            state: The state of the source before the copy.
            close: Whether the source is closed.
        """
        records = self._records([ctx.record.id for ctx in tubes])
        for ctx in tubes:
            self._copy_table(ctx)
        self._make_sessions(tubes)
        self._require_unchanged(tubes, state)
        with ExitStack() as opening:
            if close:
                commits = self._close(tubes, opening)
                self._require_unchanged(tubes, state | {_REGISTRY: state[_REGISTRY] + commits})
            self._make_registry(records)
            opening.pop_all()
        self._target.delete([_MARK])

    def _close(self, tubes: Sequence[TubeContext], opening: ExitStack) -> int:
        """Mark tubes as moved, and wait until all programs have seen that.

        Args:
            tubes: The tubes.
            opening: Is left if the copy fails: then each mark is undone, also if others cannot be undone.

        Returns:
            The number of commits to the registry.
        """
        place, commits = self._new.location.text, 0
        for ctx in tubes:
            opening.callback(self._unmark, ctx)
            commits += self._mark(ctx, place) != ctx.record
        self._queue.clock.sleep(_SEEN_WITHIN)
        return commits

    def _mark(self, ctx: TubeContext, place: str | None) -> TubeRecord:
        moved = functools.partial(replace, moved_to=place)
        return self._queue.registry.alter(ctx.record, moved, "move")

    def _unmark(self, ctx: TubeContext) -> None:
        with suppress(TubeNotFoundError):  # somebody has dropped it
            self._mark(ctx, ctx.record.moved_to)

    def _require_unchanged(self, tubes: Sequence[TubeContext], state: Mapping[str, int]) -> None:
        """Refuse a copy of a source that has changed: it could use ids of later puts again, or lack a tube."""
        for what, version in _state_of(self._queue, tubes).items():
            if version != state[what]:
                raise _changed(what)

    def _copy_table(self, ctx: TubeContext) -> None:
        """Copy the table of a tube."""
        name = ctx.record.table
        try:
            newest = _native(self._queue.engine).newest(self._queue.opened.location.table(name))
            copy_table(self._source, self._target, name, newest)
        except FileNotFoundError as error:
            raise _changed(f"tube {ctx.record.name!r}") from error
        tables, table = self._tables, self._new.location.table(name)
        # On local files the queue removes old commits, elsewhere Delta does (`schema.LOG_CLEANUP`).
        wanted = "false" if self._is_local else "true"
        if tables.properties(table).get(LOG_CLEANUP, "true") != wanted:
            tables.set_property(table, LOG_CLEANUP, wanted)

    def _make_sessions(self, tubes: Sequence[TubeContext]) -> None:
        """Make the table of sessions, with the bounds of all slots and the calls so far."""
        table_lock = self._new.table_lock(SESSIONS)
        new = new_sessions(
            self._new.location.table(SESSIONS), self._queue.config, local=self._is_local
        )
        with table_lock.changing(self._made.engine.committing_jvm):
            self._tables.create(new)
        self._made.slots.raise_to(self._queue.slots.bounds())
        # The copy may give the id of a tube that is not copied to a new tube, so its calls are left out.
        ids_of_copied = {str(ctx.record.id) for ctx in tubes}
        self._made.sessions.begin_with(
            {name: n for name, n in calls.items() if name.partition("/")[0] in ids_of_copied}
            for calls in written_calls(self._queue)
        )

    def tasks(self, ctx: TubeContext) -> int:
        """The number of stored tasks of a tube of the copy."""
        table = self._new.location.table(ctx.record.table)
        rows = self._made.engine.rows(Select(table, {"n": count()}, ctx.table.mine()))
        return int(rows[0]["n"])

    def _records(self, tubes: Sequence[int]) -> pa.Table:
        """The rows of tubes in the registry of the source, without marks of an earlier copy that was killed."""
        table = self._queue.opened.location.table(TUBES)
        columns = new_registry(table, self._queue.config, "native", local=self._is_local).columns
        rows = self._queue.engine.arrow(Select(table, named(*columns)))
        rows = rows.filter(pc.is_in(rows.column("id"), value_set=array(tubes, pa.int64())))
        options = [*map(without_move, rows.column("options").to_pylist())]
        place = rows.schema.get_field_index("options")
        return rows.set_column(place, "options", array(options, pa.string()))

    def _make_registry(self, records: pa.Table) -> None:
        table_lock = self._new.table_lock(TUBES)
        name = self._new.location.table(TUBES)
        config = replace(self._queue.config, durability=self._new.durability)
        new = new_registry(name, config, "native", local=self._is_local)
        if self._is_local:
            # The copied files were not synced one by one.
            os.sync()
        with table_lock.changing(self._made.engine.committing_jvm):
            if not self._tables.create(new, records.select([*new.columns])):
                msg = f"{new.name} was created by another program"
                raise StoreError(msg)


def _native(engine: Engine) -> NativeTables:
    """The tables of the native engine, which both queues have."""
    return cast("NativeTables", engine.tables)


def _changed(what: str) -> TubeBusyError:
    return TubeBusyError(
        f"{what} was changed while it was copied: stop all programs of the queue, remove the files of the copy, and copy again"
    )


def copy_table(source: Store, target: Store, name: str, newest: Snapshot) -> None:
    """Copy a table.

    Args:
        source: The files of its location.
        target: The files of the new location.
        name: Its name.
        newest: Its newest version.

    Raises:
        FileNotFoundError: Another program has removed old files meanwhile.
        OSError: The storage fails.
        StoreError: The log lacks a commit.
    """
    log = _log_at(source, name, newest.version)
    data = {f"{name}/{path}": file.size for path, file in newest.files.items()}
    for path, size in (data | log).items():
        _copy_file(source, target, path, size)


def _copy_file(source: Store, target: Store, path: str, size: int) -> None:
    """Copy a file of this many bytes."""
    with source.open_file(path, size) as content:
        target.put(path, content.read())


def _log_at(source: Store, name: str, version: int) -> dict[str, int]:
    """The files of a log that a reader of a version needs, in the order in which they are written."""
    found = {file.name: file.size for file in source.list(f"{name}/{LOG}")}
    checkpoints = {of.version: file for file, of in checkpoints_in(found).items() if of.is_plain}
    first = max((v for v in checkpoints if v <= version), default=None)
    commits = [f"{v:020}.json" for v in range(first or 0, version + 1)]
    missing = [c for c in (commits if first is None else commits[1:]) if c not in found]
    if missing:
        raise StoreError(f"table {name} cannot be copied: its log lacks {missing[0]}")
    # `_last_checkpoint` is not copied: it is only a hint.
    files = [*(() if first is None else (checkpoints[first],)), *commits]
    return {f"{name}/{LOG}/{file}": found[file] for file in files if file in found}
