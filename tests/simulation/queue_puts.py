"""Judges one put by the contract: its ids, fields, capacity and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.history import PUTS, key_of
from tests.simulation.queue_task import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.checker import Checker
    from tests.simulation.history import Call

#: Verbs that free all keys of a tube.
WIPES = ("truncate", "drop")


class Puts:
    """The rules of one put."""

    def __init__(self, checker: Checker, call: Call) -> None:
        self.checker, self.call, self.lives = checker, call, checker.lives

    def _fail(self, rule: str, text: str) -> None:
        self.checker.fail(rule, self.call, text)

    def check(self) -> None:
        """Check all rules."""
        items = self.call.args["items"]
        wanted = {key_of(item["data"]): item for item in items}
        # A key that comes twice returns one task twice.
        shown = {task["task_id"]: task for task in self.call.tasks()}
        added = [task for task in shown.values() if key_of(task["data"]) in wanted]
        ids = [task["task_id"] for task in added]
        if ids != sorted(set(ids)):
            self._fail("ids", f"ids are not in the order of the items: {ids}")
        for task in added:
            self._check_fields(task, wanted[key_of(task["data"])])
        count = self.call.result if self.call.verb == "put_arrow" else len(added)
        if not count or "capacity" in self.checker.history.tubes[self.call.tube]:
            self._check_capacity(len(items), count)
        self._check_unique(wanted, added)

    def _check_fields(self, task: dict[str, Any], item: Mapping[str, Any]) -> None:
        at = self.lives.windows[self.call.first]
        if not at.low <= task["created"] <= at.high:
            self._fail("created", f"{task['created']} is not in {at}")
        choices = self.lives.resolved(self.call, item)
        for name in ("pri", "utube", "unique"):
            values = {each.get(name) or None for each in choices}
            if (task.get(name) or None) not in values:
                self._fail("fields", f"{name} is {task.get(name)}, not {values}")

    def _check_capacity(self, wanted: int, added: int) -> None:
        limits, most = self.lives.limits(self.call, "capacity")
        has_keys = any(item.get("unique") is not None for item in self.call.args["items"])
        sure, maybe = self.checker.among(self.call, STORED)
        if added:
            if len(sure) + added > most:
                self._fail("capacity", f"{len(sure)} tasks and {added} more in {limits}")
        elif (
            not has_keys
            and (not limits or len(maybe) + wanted <= min(limits))
            and self.lives.are_known(self.call.tube)
            and not self.checker.overlapping(self.call, PUTS)
        ):
            self._fail("capacity", f"refused with at most {len(maybe)} tasks in {limits}")

    def _check_unique(self, wanted: Mapping[str, Any], added: list[Any]) -> None:
        keys = [task["unique"] for task in added if task.get("unique") is not None]
        if len(keys) != len(set(keys)):
            self._fail("unique", f"keys twice: {keys}")
        for unique in keys:
            if self._uses_of(unique)[0]:
                self._fail("unique", f"the key {unique} is in use")
        given = {item.get("unique") for item in wanted.values()} - {None}
        others = [task for task in self.call.tasks() if key_of(task["data"]) not in wanted]
        for unique in {task.get("unique") for task in others}:
            if unique not in given or not self._uses_of(unique)[1]:
                self._fail("unique", f"{unique} is not in use, or none of the keys {given}")

    def _uses_of(self, unique: str) -> tuple[bool, bool]:
        """Whether a key is surely in use, and whether it may be: by a stored task, or for a while from a put."""
        for_us = self.checker.history.tubes[self.call.tube].get("unique_for") or 0
        wiped = self.checker.last_of(self.call, *WIPES)
        is_wiped = bool(self.checker.history.earlier(self.call, *WIPES))
        at, sure, maybe = self.lives.windows[self.call.first], False, False
        for key, (put, item) in self.lives.puts.items():
            if item.get("unique") != unique or put.tube != self.call.tube or put is self.call:
                continue
            kinds = self.lives.kinds_at(key, self.call)
            is_known, own = self.lives.is_known(key), self.lives.windows[put.first]
            sure |= is_known and bool(kinds) and kinds <= {*STORED}
            sure |= not is_wiped and put.before(self.call) and at.high < own.low + for_us
            maybe |= not is_known or bool(kinds & {*STORED}) or put.unknown
            maybe |= put.last > wiped and at.low <= own.high + for_us
        return sure, maybe
