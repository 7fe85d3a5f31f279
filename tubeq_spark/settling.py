"""ack, release, touch, bury, delete, kick: what becomes of tasks that are somewhere.

Each is one statement over literal segments. A whole claim is acked by deleting its partition; all
else is a guarded MERGE that changes every task named or none. The rows of a claim that are not
named move to a fresh claim with it. Stopped before the statement: nothing happened. Stopped after:
done. A rival that moved the rows first makes the statement find nothing; then all is read anew.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tubeq_spark.ending import back_to_tube, end_due, write_down
from tubeq_spark.errors import NotTakenError, TaskNotFoundError
from tubeq_spark.group import each
from tubeq_spark.lifecycle import after_giving_back
from tubeq_spark.moments import FOREVER_S, LAST_US, plus
from tubeq_spark.storage import predicates
from tubeq_spark.storage.commit import Plan, Stale
from tubeq_spark.storage.feed import note, note_of_release, removal, what_time_did
from tubeq_spark.storage.quoting import bigint, moment
from tubeq_spark.storage.statements import Chosen, moved_segment
from tubeq_spark.subqueues import given_back
from tubeq_spark.task import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tubeq_spark.context import TubeContext
    from tubeq_spark.storage.engine import Affected, Merge
    from tubeq_spark.storage.rows import StoredTask

__all__ = [
    "Located",
    "Memory",
    "ack",
    "ack_group",
    "bury",
    "changed",
    "delete",
    "fresh_places",
    "held",
    "kick",
    "located",
    "release",
    "released",
    "run",
    "touch",
]

_FOREVER_US = int(FOREVER_S * 1_000_000)


@dataclass(slots=True)
class Located:
    """Named tasks, and everything else in the claims that they are in."""

    rows: list[StoredTask]
    #: All ids of each claim.
    claims: dict[int, list[int]] = field(default_factory=dict)

    @property
    def segments(self) -> list[int]:
        """Where the named tasks are."""
        return list(dict.fromkeys(row.segment for row in self.rows))

    @property
    def whole(self) -> bool:
        """Whether the named tasks are whole claims and nothing else."""
        named = {row.task_id for row in self.rows}
        return len(self.claims) == len(self.segments) and all(
            named.issuperset(ids) for ids in self.claims.values()
        )

    @property
    def chosen(self) -> str:
        """The condition for the named tasks among the rows of `source`."""
        return "TRUE" if self.whole else "s.chosen"

    def source(self) -> list[Chosen]:
        """Source rows for a MERGE: named tasks, and the rest of their claims."""
        if self.whole:
            return [Chosen(segment, None) for segment in self.segments]
        named = {row.task_id for row in self.rows}
        chosen = [Chosen(row.segment, row.task_id) for row in self.rows]
        rest = [
            Chosen(claim, task_id, chosen=False)
            for claim, ids in self.claims.items()
            for task_id in ids
            if task_id not in named
        ]
        return chosen + rest


def located(ctx: TubeContext, rows: list[StoredTask], *, remembered: bool) -> Located:
    """Find out what else is in the claims of these rows."""
    claims = list(dict.fromkeys(r.segment for r in rows if r.state is TaskState.TAKEN))
    found = Located(rows)
    unknown = []
    for claim in claims:
        members = ctx.queue.holdings.members(claim) if remembered else None
        if members is None:
            unknown.append(claim)
        else:
            found.claims[claim] = members
    if unknown:
        read: dict[int, list[int]] = defaultdict(list)
        for segment, task_id in ctx.tasks.ids_in(unknown):
            read[segment].append(task_id)
        found.claims.update(read)
    return found


def held(ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool) -> Located:
    """Tasks that this session holds in leases that last.

    Raises:
        NotTakenError: Any of them is not.
    """
    owner = ctx.queue.session.owner
    known = ctx.queue.holdings.find(ctx.record.id, ids) if remembered else None
    if known is not None and all(row.held_by(owner, now_us) for row in known):
        return located(ctx, known, remembered=True)
    rows = []
    for task_id, row in zip(ids, _in_order(ids, ctx.tasks.by_ids(ids)), strict=True):
        if row is None or not row.held_by(owner, now_us):
            msg = f"task {task_id} was not taken by this session, or its time to run has ended"
            raise NotTakenError(msg)
        rows.append(row)
    return located(ctx, rows, remembered=False)


def _in_order(ids: Sequence[int], rows: list[StoredTask]) -> list[StoredTask | None]:
    by_id = {row.task_id: row for row in rows}
    return [by_id.get(task_id) for task_id in ids]


class Memory:
    """Trusts what the queue object remembers in the first attempt only."""

    def __init__(self) -> None:
        """Trust it."""
        self.trusted = True

    def once(self) -> bool:
        """Whether to trust it now."""
        trusted, self.trusted = self.trusted, False
        return trusted


def run(ctx: TubeContext, name: str, attempt: Callable[[Memory], Plan[list[Task]]]) -> list[Task]:
    """Run a verb that may begin with what is remembered, and reads anew when that was wrong."""
    memory = Memory()
    return ctx.queue.loop.run(name, ctx.lane, lambda: attempt(memory))


def fresh_places(ctx: TubeContext, found: Located) -> tuple[int, dict[int, int]]:
    """A fresh segment, and a fresh claim for the rest of each claim."""
    dest, *fresh = ctx.queue.session.segments(1 + len(found.claims))
    return dest, dict(zip(found.claims, fresh, strict=True))


def _removal(
    ctx: TubeContext, found: Located, events: str | None = None
) -> tuple[Merge, dict[int, int]]:
    """The statement that removes the named tasks: an ack, or what `events` (SQL) says."""
    told = events is not None and ctx.table.change_feed
    if found.whole and len(found.claims) == 1 and not told:
        statement = ctx.statements.delete_claim(found.segments[0])
        return replace(statement, tasks=len(found.rows)), {}
    dest, moves = fresh_places(ctx, found)
    moves = {} if found.whole else moves
    action = "DELETE" if events is None else removal(ctx.table, dest, events)
    statement = ctx.statements.settle(found.source(), [(found.chosen, action)], moves)
    return replace(statement, tasks=len(found.rows)), moves


def _left(ctx: TubeContext, found: Located, moves: dict[int, int]) -> None:
    ctx.queue.holdings.left(ctx.record.id, (row.task_id for row in found.rows), moves)


def ack(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Remove tasks that this session holds."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, ids, ctx.queue.now_us(), remembered=memory.once())
        statement, moves = _removal(ctx, found)

        def finish(affected: Affected) -> list[Task]:
            if affected.deleted == 0:
                ctx.queue.holdings.forget(found.segments)
                raise Stale
            _left(ctx, found, moves)
            given_back(ctx, found.rows, whole=found.whole)
            return ctx.happened("ack", found.rows, TaskState.DONE)

        return Plan(statement, finish)

    tasks = run(ctx, "ack", attempt)
    ctx.lane.changed()
    return tasks


def ack_group(ctx: TubeContext, requests: Sequence[Sequence[int]]) -> list[list[Task] | Exception]:
    """Ack for several calls: in one commit, or each for itself when not all can be acked."""
    together = [task_id for ids in requests for task_id in ids]
    if len(requests) > 1 and len(set(together)) == len(together):
        with contextlib.suppress(NotTakenError):
            tasks = iter(ack(ctx, together))
            return [list(itertools.islice(tasks, len(ids))) for ids in requests]
    return each(lambda ids: ack(ctx, ids), requests)


def changed(
    ctx: TubeContext,
    found: Located,
    action: str,
    moves: dict[int, int],
    finish: Callable[[], list[Task]],
) -> Plan[list[Task]]:
    """Take the named tasks out of their claims by an action; one commit, and the sub-queues' one.

    Args:
        ctx: The tube.
        found: The tasks, and what else is in their claims.
        action: What becomes of them, an SQL action.
        moves: Fresh claims for the rest of each claim.
        finish: Counts, tells, and makes the result.
    """
    moves = {} if found.whole else moves
    statement = ctx.statements.settle(found.source(), [(found.chosen, action)], moves)

    def done(_affected: Affected) -> list[Task]:
        _left(ctx, found, moves)
        given_back(ctx, found.rows, whole=found.whole)
        return finish()

    return Plan(replace(statement, tasks=len(found.rows)), done)


def release(ctx: TubeContext, ids: Sequence[int], delay_us: int | None) -> list[Task]:
    """Give held tasks back: ready (or buried when worn out), or delayed; 0 is no delay."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        found = held(ctx, ids, now_us, remembered=memory.once())
        dest, moves = fresh_places(ctx, found)
        after = [_released(row, delay_us, now_us, ctx.max_attempts) for row in found.rows]

        action = release_action(ctx, dest, delay_us, now_us)
        return changed(ctx, found, action, moves, lambda: released(ctx, after))

    tasks = run(ctx, "release", attempt)
    ctx.lane.changed()
    return tasks


def released(ctx: TubeContext, after: list[StoredTask]) -> list[Task]:
    """Count and tell that tasks were given back, some of them worn out."""
    ctx.happened("bury", [row for row in after if row.state is TaskState.BURIED])
    return ctx.happened("release", after)


def release_action(ctx: TubeContext, dest: int, delay_us: int | None, now_us: int) -> str:
    """The action of a release, for rows whose columns decide between ready and buried."""
    readied = predicates.readied_state(ctx.max_attempts, "t.")
    told = note_of_release(ctx.table, ctx.max_attempts)
    if delay_us == 0:
        return back_to_tube(dest, readied) + told
    worn = f"({readied}) = '!'"
    due = plus(now_us, delay_us)
    grown = _grown("ttl", delay_us)
    end = _end("expires_at", delay_us)
    return (
        f"UPDATE SET segment = {bigint(dest)}, owner = NULL, claim = NULL, "
        f"state = CASE WHEN {worn} THEN '!' ELSE '~' END, "
        f"next_event = CASE WHEN {worn} THEN t.expires_at ELSE {moment(due)} END, "
        f"ttl = CASE WHEN {worn} THEN t.ttl ELSE {grown} END, "
        f"expires_at = CASE WHEN {worn} THEN t.expires_at ELSE {end} END{told}"
    )


def _grown(column: str, amount_us: int | None) -> str:
    """A duration made longer; a hundred years or more is never."""
    if amount_us is None:
        return "CAST(NULL AS BIGINT)"
    longer = f"t.{column} + {bigint(amount_us)}"
    return f"CASE WHEN {longer} < {bigint(_FOREVER_US)} THEN {longer} END"


def _end(column: str, amount_us: int | None) -> str:
    """The end of a life whose ttl grows."""
    if amount_us is None:
        return "CAST(NULL AS TIMESTAMP)"
    longer = f"t.ttl + {bigint(amount_us)} < {bigint(_FOREVER_US)}"
    return f"CASE WHEN {longer} THEN {predicates.plus_us('t.' + column, amount_us, LAST_US)} END"


def _longer(duration_us: int | None, amount_us: int | None) -> int | None:
    total = plus(duration_us, amount_us)
    return None if total is None or total >= _FOREVER_US else total


def _released(
    row: StoredTask, delay_us: int | None, now_us: int, max_attempts: int | None
) -> StoredTask:
    state = after_giving_back(row.attempts, max_attempts)
    if delay_us == 0 or state is TaskState.BURIED:
        return replace(row, state=state, next_event=row.expires_at)
    ttl = _longer(row.ttl, delay_us)
    return replace(
        row,
        state=TaskState.DELAYED,
        next_event=plus(now_us, delay_us),
        ttl=ttl,
        expires_at=None if ttl is None else plus(row.expires_at, delay_us),
    )


def touch(ctx: TubeContext, task_id: int, increment_us: int) -> Task:
    """Give a held task more time: its lease, its life, and the ttr of later takes."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        found = held(ctx, [task_id], ctx.queue.now_us(), remembered=memory.once())
        moves = fresh_places(ctx, found)[1]
        row = found.rows[0]
        ttl = _longer(row.ttl, increment_us)
        after = replace(
            row,
            segment=moves[row.segment],
            next_event=plus(row.next_event, increment_us),
            ttl=ttl,
            ttr=_longer(row.ttr, increment_us),
            expires_at=None if ttl is None else plus(row.expires_at, increment_us),
        )

        def finish(_affected: Affected) -> list[Task]:
            holdings = ctx.queue.holdings
            holdings.left(ctx.record.id, [task_id], moves)
            if found.whole or holdings.members(after.segment) is not None:
                holdings.add(ctx.record.id, [after])
            # Else the rest of the claim is not remembered: of a claim all is known, or nothing.
            return ctx.happened("touch", [after])

        actions = [(found.chosen, touch_action(ctx, moves, increment_us))]
        return Plan(ctx.statements.settle(found.source(), actions, moves), finish)

    return run(ctx, "touch", attempt)[0]


def touch_action(ctx: TubeContext, moves: dict[int, int], increment_us: int) -> str:
    """The action of a touch: the whole claim moves, changed rows and rest to one fresh claim."""
    return (
        f"UPDATE SET segment = {moved_segment(moves)}, "
        f"next_event = {predicates.plus_us('t.next_event', increment_us, LAST_US)}, "
        f"ttl = {_grown('ttl', increment_us)}, ttr = {_grown('ttr', increment_us)}, "
        f"expires_at = {_end('expires_at', increment_us)}" + note(ctx.table, "'touch'")
    )


def _anywhere(
    ctx: TubeContext, ids: Sequence[int], now_us: int, *, remembered: bool
) -> tuple[Located, list[StoredTask]]:
    """Tasks in any state, held by anybody: where they are, and as they are by now.

    Raises:
        TaskNotFoundError: Any of them does not exist, or its life is over.
    """
    rows: Sequence[StoredTask | None] | None = None
    if remembered:
        rows = ctx.queue.holdings.find(ctx.record.id, ids)
    if rows is None:
        remembered = False
        rows = _in_order(ids, ctx.tasks.by_ids(ids))
    stored, seen = [], []
    for task_id, row in zip(ids, rows, strict=True):
        now = None if row is None else row.seen_at(now_us, ctx.max_attempts)
        if row is None or now is None:
            msg = f"task {task_id} not found"
            raise TaskNotFoundError(msg)
        stored.append(row)
        seen.append(now)
    return located(ctx, stored, remembered=remembered), seen


def delete(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Remove tasks in any state."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        found, seen = _anywhere(ctx, ids, now_us, remembered=memory.once())
        told = what_time_did(now_us, ctx.max_attempts, "delete")
        statement, moves = _removal(ctx, found, told)

        def finish(affected: Affected) -> list[Task]:
            if affected.total == 0:
                ctx.queue.holdings.forget(found.segments)
                raise Stale
            _left(ctx, found, moves)
            given_back(ctx, found.rows, whole=found.whole)
            write_down(ctx, found.rows, now_us)
            return ctx.happened("delete", seen, TaskState.DONE)

        return Plan(statement, finish)

    tasks = run(ctx, "delete", attempt)
    ctx.lane.changed()
    return tasks


def _refuse_done(rows: Sequence[StoredTask]) -> None:
    for row in rows:
        if row.state is TaskState.DONE:
            msg = f"task {row.task_id} is done"
            raise TaskNotFoundError(msg)


def bury(ctx: TubeContext, ids: Sequence[int]) -> list[Task]:
    """Set tasks of any state aside; those that are buried already stay as they are."""

    def attempt(memory: Memory) -> Plan[list[Task]]:
        now_us = ctx.queue.now_us()
        found, seen = _anywhere(ctx, ids, now_us, remembered=memory.once())
        _refuse_done(seen)
        buried = {row.task_id for row in seen if row.state is TaskState.BURIED}
        found.rows = [row for row in found.rows if row.task_id not in buried]
        after = [replace(r, state=TaskState.BURIED, next_event=r.expires_at) for r in seen]
        result = [row.task() for row in after]
        if not found.rows:
            return Plan(None, lambda _: result)
        dest, moves = fresh_places(ctx, found)

        def finish() -> list[Task]:
            write_down(ctx, found.rows, now_us)
            ctx.happened("bury", [row for row in after if row.task_id not in buried])
            return result

        told = note(ctx.table, what_time_did(now_us, ctx.max_attempts, "bury"))
        return changed(ctx, found, back_to_tube(dest, "'!'") + told, moves, finish)

    tasks = run(ctx, "bury", attempt)
    ctx.lane.changed()
    return tasks


def kick(ctx: TubeContext, count: int) -> int:
    """Make up to `count` buried tasks ready, in the tube's order, with their attempts forgotten."""

    def attempt() -> Plan[int]:
        now_us = ctx.queue.now_us()
        cuts = ctx.tasks.buried_segments(now_us, count)
        if not cuts:
            return Plan(None, lambda _: 0)
        last = max((cut.last for cut in cuts), key=lambda cut: (cut.pri, cut.task_id))
        which = f"{predicates.is_buried(now_us, 't.')} AND {ctx.table.up_to(last, 't.')}"
        told = []
        if ctx.callback is not None:
            where = f"{predicates.is_buried(now_us)} AND {ctx.table.up_to(last)}"
            told = ctx.tasks.read(where, ctx.table.in_order, count)
        segments = sorted(cut.segment for cut in cuts)
        dest = ctx.queue.session.segments(1)[0]
        action = back_to_tube(dest, "'r'") + ", attempts = CAST(0 AS INT)"
        action += note(ctx.table, "'kick'")
        source = [Chosen(segment, None) for segment in segments]
        statement = ctx.statements.settle(source, [(which, action)], {})
        statement = replace(statement, tasks=sum(cut.count for cut in cuts))

        def finish(affected: Affected) -> int:
            if affected.updated == 0:
                raise Stale
            ctx.count("kick", affected.updated)
            ready = [replace(row, state=TaskState.READY, attempts=0) for row in told]
            ctx.remember("kick", [row.task() for row in ready])
            return affected.updated

        return Plan(statement, finish)

    if ctx.max_attempts is not None:
        # A lease that ended may have worn a task out: it is buried, but stored as taken.
        end_due(ctx, ctx.queue.now_us())
    kicked = ctx.queue.loop.run("kick", ctx.lane, attempt)
    if kicked:
        ctx.lane.changed()
    return kicked
