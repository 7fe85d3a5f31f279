"""Derives from each call of a history the effects that it had, or may have had, on each task."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.simulation.history import ENDS, NAMED, PUTS, TAKES, US, WHOLE, key_of
from tests.simulation.queue_task import GONE, Op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.history import Call, History
    from tests.simulation.queue_lives import Lives

#: A take that lasts so long may lose tasks before it returns.
_SLOW = 2 * US


def is_wanted(call: Call, item: Mapping[str, Any]) -> bool:
    """Whether a take asks for the sub-queue of a task."""
    utubes = call.args.get("utube")
    return utubes is None or item.get("utube") in utubes


def is_only_key(task: Mapping[str, Any]) -> bool:
    """Whether a result shows a task that is gone, but whose key is still in use."""
    return task["state"] == GONE and task["data"] is None


class Ops:
    """The operations on the tasks of a history."""

    def __init__(self, history: History, lives: Lives) -> None:
        self._history, self._lives = history, lives

    def by_key(self) -> dict[str, list[Op]]:
        """The operations on each task."""
        found: dict[str, list[Op]] = defaultdict(list)
        for call in self._history.calls:
            ops = self._left(call) if call.outcome == "raised" else self._of_verb(call)
            if call.verb in ENDS:
                # A session that others share keeps its tasks, and one whose storage fails leaves them.
                is_shared = len(self._lives.sessions.sharing[call.session]) > 1
                may_skip = not call.returned or is_shared or self._history.is_faulty
                ops = (
                    (key, Op(call, "close", None, may_skip)) for key in self._put_before_end(call)
                )
            for key, op in ops:
                found[key].append(op)
        return found

    def _put_before_end(self, call: Call) -> Iterator[str]:
        """The tasks that may have been put before a call ended."""
        for key, put in self._lives.puts.items():
            if put.call.first < call.last and call.tube in ("", put.call.tube):
                yield key

    def _left(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb that raised may have done."""
        if call.error == "NotTakenError":
            # What is left of a batch goes back.
            for number in call.args.get("batch", ()):
                if number in self._lives.keys:
                    yield self._lives.keys[number], Op(call, "close", None, may_skip=True)
        # The queue object may have closed after the commit of a take, and released the tasks.
        if call.error in ("StoreError", "QueueStateError") and call.verb in TAKES:
            yield from self._of_take(call, {})
        if call.error == "StoreError" and call.verb in WHOLE:
            # It makes several commits.
            for key in self._put_before_end(call):
                yield key, Op(call, call.verb, None, may_skip=True)

    def _of_verb(self, call: Call) -> Iterator[tuple[str, Op]]:
        """What a verb does to the tasks of its tube."""
        shown = {key_of(task["data"]): task for task in call.tasks() if not is_only_key(task)}
        if call.verb in PUTS:
            yield from self._of_put(call, shown)
        elif call.verb in NAMED:
            yield from self._of_named(call, call.args["ids"], shown)
        elif call.verb in TAKES:
            yield from self._of_named(call, call.args.get("ack", ()), {})
            yield from self._of_take(call, shown)
        elif call.verb == "tasks_by_state":
            yield from ((key, Op(call, "see", task)) for key, task in shown.items())
        elif call.verb == "kick" and call.result != 0:
            yield from ((key, Op(call, "kick", None, True)) for key in self._put_before_end(call))
        elif call.verb in WHOLE:
            yield from (
                (key, Op(call, call.verb, None, call.unknown)) for key in self._put_before_end(call)
            )

    def _of_put(self, call: Call, shown: Mapping[str, Any]) -> Iterator[tuple[str, Op]]:
        wanted = {key_of(item["data"]) for item in call.args["items"]}
        for key in wanted:
            if key in self._lives.puts and self._lives.puts[key].call is call:
                yield key, Op(call, "put", shown.get(key), call.unknown)
        for key in shown.keys() - wanted:
            # Until somebody takes or sweeps, the task may be shown as its dead session has left it.
            is_left = shown[key].get("owner") in self._lives.sessions.deaths
            yield key, Op(call, "see", None if is_left else shown[key])

    def _of_named(
        self, call: Call, ids: list[int], shown: Mapping[str, Any]
    ) -> Iterator[tuple[str, Op]]:
        action = NAMED.get(call.verb, "ack")
        for key in (self._lives.keys[number] for number in ids if number in self._lives.keys):
            yield key, Op(call, action, shown.get(key), call.unknown)

    def _of_take(self, call: Call, shown: Mapping[str, Any]) -> Iterator[tuple[str, Op]]:
        for key, task in shown.items():
            yield key, Op(call, "take", task, call.unknown)
        if not call.returned or call.ended - call.began > _SLOW:
            # It may also have taken tasks that it has lost, or given back, before it returned.
            for key in self._lives.of_tube[call.tube]:
                if is_wanted(call, self._lives.puts[key].item):
                    yield key, Op(call, "take", None, may_skip=True)
