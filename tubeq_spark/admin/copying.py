"""Copies a queue to a new place: tubes with their tasks, ids, keys of puts, counts and moments.

Steps, after a sweep of the source: refuse if tasks are taken or may be taken; write a mark; copy the tables of the
tubes and of the sessions, file by file; copy the registry; remove the mark. Before the registry exists the target is no
queue, and nobody can open it. Nothing is written to the source, unless it is closed: then, before the registry is
copied, its tubes are marked as moved, and the copy waits until all programs have seen that.

Of a table the data files are copied first. Then a checkpoint is written that names them. The copy has the newest version
under the same number, with the transaction ids of its log: keys of puts and totals of ended tasks. The members of the source end in the copy as if their programs had been killed.

If the copy is interrupted, its files must be removed before the next call.
"""

from __future__ import annotations

import functools
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tubeq_spark.admin.choose_engine import Engines, engines_of
from tubeq_spark.clock import SystemClock, to_us
from tubeq_spark.errors import InvalidOptionError, StoreError, TubeBusyError, TubeNotFoundError
from tubeq_spark.model.reports import CopyReport
from tubeq_spark.observe.statistics import sessions_of
from tubeq_spark.storage.expression import row
from tubeq_spark.storage.location import SESSIONS, TUBES, Location, refuse_mounts
from tubeq_spark.storage.log import checkpoints
from tubeq_spark.storage.log.log_files import LOG, LogFiles, commit_name
from tubeq_spark.storage.log.snapshot import with_property
from tubeq_spark.storage.opened_location import OpenedLocation
from tubeq_spark.storage.query import Select, count
from tubeq_spark.storage.store.local_files import make_directory
from tubeq_spark.storage.store.store import ExistsError
from tubeq_spark.storage.tables.schema import LOG_CLEANUP
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubeq_spark.runtime.context import QueueContext, TubeContext
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.expression import Expression
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
        _reopen(queue, tubes, location.text)
        queue.session.beat_if_needed()
        # The state is read before the checks of tubes and tasks, so later changes make it differ.
        state = _state_of(queue, tubes)
        _require_all(queue, tubes)
        _require_quiet(queue, tubes, close=close)
        work = _Copy(queue, engines, new)
        with queue.engine.reading():
            work.begin()
            work.run(tubes, state, close=close)
        return CopyReport({ctx.record.name: _count(queue, ctx, ctx.table.mine()) for ctx in tubes})
    finally:
        engines.close()


def _require_apart(opened: OpenedLocation, new: OpenedLocation) -> None:
    one, other = f"{opened.uri}/", f"{new.uri}/"
    if one.startswith(other) or other.startswith(one):
        msg = f"target={new.location.text!r}: must be apart from {opened.location.text}"
        raise InvalidOptionError(msg)


def _require_all(queue: QueueContext, tubes: Sequence[TubeContext]) -> None:
    """Refuse if the source has other tubes by now, or is closed."""
    found = {record.id: record.moved_to for record in queue.registry.records()}
    if found != dict.fromkeys(ctx.record.id for ctx in tubes):
        raise _changed(_REGISTRY)


def _reopen(queue: QueueContext, tubes: Sequence[TubeContext], target: str) -> None:
    """Refuse a source that another copy has closed, because both copies would hand out its tasks.

    A copy to the same target may be made again, after one that was killed: then the source is opened again.
    """
    for ctx in tubes:
        place = ctx.record.moved_to
        if place is not None and place != target:
            msg = f"tube {ctx.record.name!r} was moved to {place}: copy the queue from there"
            raise TubeBusyError(msg)
        if place is not None:
            _mark(queue, ctx, None)


def _mark(queue: QueueContext, ctx: TubeContext, place: str | None) -> None:
    """Mark a tube as moved to a place, or as one that is used here."""
    queue.registry.alter(ctx.record, functools.partial(replace, moved_to=place), "move")


def _require_quiet(queue: QueueContext, tubes: Sequence[TubeContext], *, close: bool) -> None:
    """Refuse a source whose tasks are taken, or may be taken meanwhile."""
    for ctx in tubes:
        if ctx.record.options.temporary:
            msg = f"tube {ctx.record.name!r} is temporary: close the queue object that created it"
            raise TubeBusyError(msg)
        is_taken = ctx.table.mine() & (_ROW.state == TaskState.TAKEN.value)
        taken = _count(queue, ctx, is_taken)
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
        self._queue, self._new = queue, new
        self._tables = _native(engines.rows)
        self._target = self._tables.store_of(new.uri)
        self._is_local = new.locks is not None

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
            tubes: All tubes.
            state: The state of the source before the copy.
            close: Whether the source is closed.
        """
        registry = self._newest(TUBES)
        for ctx in tubes:
            self._copy_table(ctx.record.table, f"tube {ctx.record.name!r}")
        self._copy_table(SESSIONS, "the table of sessions")
        self._require_unchanged(tubes, state)
        with ExitStack() as opening:
            if close:
                self._close(tubes, opening)
                self._require_unchanged(tubes, state | {_REGISTRY: state[_REGISTRY] + len(tubes)})
            self._copy_registry(registry)
            opening.pop_all()
        self._target.delete([_MARK])

    def _close(self, tubes: Sequence[TubeContext], opening: ExitStack) -> None:
        """Mark tubes as moved, by a commit for each, and wait until all programs have seen that.

        Args:
            tubes: The tubes.
            opening: Is left if the copy fails: then each mark is undone, also if others cannot be undone.
        """
        for ctx in tubes:
            opening.callback(self._unmark, ctx)
            _mark(self._queue, ctx, self._new.location.text)
        self._queue.clock.sleep(_SEEN_WITHIN)

    def _unmark(self, ctx: TubeContext) -> None:
        with suppress(TubeNotFoundError):  # somebody has dropped it
            _mark(self._queue, ctx, None)

    def _require_unchanged(self, tubes: Sequence[TubeContext], state: Mapping[str, int]) -> None:
        """Refuse a copy of a source that has changed: it could use ids of later puts again, or lack a tube."""
        for what, version in _state_of(self._queue, tubes).items():
            if version != state[what]:
                raise _changed(what)

    def _newest(self, name: str) -> Snapshot:
        """The newest version of a table of the source."""
        return _native(self._queue.engine).newest(self._queue.opened.location.table(name))

    def _copy_table(self, name: str, what: str, newest: Snapshot | None = None) -> None:
        """Copy a table, by default its newest version; messages call it `what`."""
        source = _native(self._queue.engine).store_of(f"{self._queue.opened.uri}/{name}")
        target = self._tables.store_of(f"{self._new.uri}/{name}")
        if self._new.locks is not None:
            make_directory(self._new.locks.parent / name, synced=True)
        newest = newest or self._newest(name)
        # On local files the queue removes old commits, elsewhere Delta does (`schema.LOG_CLEANUP`).
        cleans = "false" if self._is_local else "true"
        shape = with_property(newest.shape, LOG_CLEANUP, cleans)
        try:
            copy_table(source, target, replace(newest, shape=shape))
        except FileNotFoundError as error:
            raise _changed(what) from error

    def _copy_registry(self, registry: Snapshot) -> None:
        """Copy the version of the registry that has no marks."""
        # Copied files are not synced one by one. The registry must be on the disk after all others.
        if self._is_local:
            os.sync()
        self._copy_table(TUBES, _REGISTRY, registry)
        if self._is_local:
            os.sync()


def _count(queue: QueueContext, ctx: TubeContext, where: Expression) -> int:
    """The number of rows of a tube that meet a condition."""
    rows = queue.engine.rows(Select(ctx.table.name, {"n": count()}, where))
    return int(rows[0]["n"])


def _native(engine: Engine) -> NativeTables:
    """The tables of the native engine, which both queues have."""
    return cast("NativeTables", engine.tables)


def _changed(what: str) -> TubeBusyError:
    return TubeBusyError(
        f"{what} was changed while it was copied: stop all programs of the queue, remove the files of the copy, and copy again"
    )


def copy_table(source: Store, target: Store, newest: Snapshot) -> None:
    """Copy a table, with a log that begins at a checkpoint of its newest version.

    Args:
        source: Its files.
        target: The files of the copy.
        newest: Its newest version.

    Raises:
        FileNotFoundError: Another program has removed old files meanwhile.
        OSError: The storage fails.
    """
    for path, file in newest.files.items():
        _copy_file(source, target, path, file.size)
    now_ms = to_us(SystemClock().now()) // 1_000
    checkpoints.write_first(LogFiles(target), newest, now_ms)
    # Readers look for the commit of the newest version.
    _copy_file(source, target, f"{LOG}/{commit_name(newest.version)}", 0)


def _copy_file(source: Store, target: Store, path: str, size: int) -> None:
    """Copy a file of this many bytes."""
    with source.open_file(path, size) as content:
        target.put(path, content.read())
