"""The queue objects of each session, and the tasks that it holds: `Queue.sessions`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from uuid import UUID

from tubeq_spark.model.membership import MemberName
from tubeq_spark.model.reports import SessionInfo
from tubeq_spark.model.times import from_us, limited_us, of_us
from tubeq_spark.runtime.context import left_out
from tubeq_spark.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tubeq_spark.model.membership import Member
    from tubeq_spark.runtime.context import QueueContext, TubeContext


def sessions_of(queue: QueueContext, tubes: Iterable[TubeContext]) -> list[SessionInfo]:
    """The queue objects whose leases have not ended, and those whose sessions hold tasks of these tubes.

    It reads the sessions once, and each tube once. A tube that cannot be read is left out.
    """
    now_us, skew_us = queue.now_us(), limited_us(queue.config.skew)
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for ctx in tubes:
        with left_out(queue, ctx.record.name):
            taken = ctx.table.is_in(TaskState.TAKEN, now_us)
            for owner, count in ctx.reader.counts("owner", taken, skips=()).items():
                held[owner][ctx.record.name] = count
    members = (member for view in queue.sessions.views().values() for member in view.members)
    found = [
        _info(member, tasks)
        for member in members
        if member.live
        if (tasks := held[f"{member.session}/{member.epoch}"]) or member.alive(now_us, skew_us)
    ]
    return sorted(found, key=lambda info: (info.since, str(info.uuid), info.member))


def _info(member: Member, tasks: Mapping[str, int]) -> SessionInfo:
    name = MemberName.parse(member.member)
    return SessionInfo(
        UUID(member.session),
        name.uuid,
        name.host,
        name.pid,
        of_us(name.since_us),
        from_us(member.lease_until),
        sum(tasks.values()),
        dict(sorted(tasks.items())),
    )
