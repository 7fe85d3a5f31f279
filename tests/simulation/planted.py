"""Faults that are planted in the code of a log, one at a time: it proves that the simulation finds what it claims to."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOG = "tubeq_spark.storage.log"
_LOCAL = "tubeq_spark.storage.store.local_store"
_DURABILITY = "tubeq_spark.storage.durability"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in one function.

    Attributes:
        name: What is wrong.
        where: The module and the function.
        right: A text that its source has once.
        wrong: What it is replaced by.
        storage: The storage on which it shows.
    """

    name: str
    where: str
    right: str
    wrong: str
    storage: str = "store"


FAULTS = (
    Fault(
        "no check for late commits",
        f"{_LOG}.log:Log._is_created",
        "self._may_be_late(base.snapshot, base.sure) and log_files.removed_if_late(",
        "False and log_files.removed_if_late(",
    ),
    Fault(
        "a late commit does not check its data files",
        f"{_LOG}.log:Log._is_created",
        "self._may_be_late(base.snapshot, base.sure) and not",
        "False and not",
    ),
    Fault(
        "an own commit is taken for a rival's",
        f"{_LOG}.next_version:NextVersion.create",
        "return is_of(info, operation_id)",
        "return False",
    ),
    Fault(
        "a rival's commit is taken for an own one",
        f"{_LOG}.next_version:NextVersion.create",
        "return is_of(info, operation_id)",
        "return True",
    ),
    Fault(
        "a lost answer is taken for success",
        f"{_LOG}.next_version:NextVersion.create",
        "is_out = is_out or was_sent",
        "return True",
    ),
    Fault(
        "a lost answer is taken for failure",
        f"{_LOG}.next_version:NextVersion.create",
        "self._info(operation_id, error, is_out=may_be_out)",
        "self._info(operation_id, error, is_out=False)",
    ),
    Fault(
        "commits are removed too early",
        f"{_LOG}.tidying:Tidying._stays",
        "file.at >= before or version >= newest - self._retention.versions",
        "False",
    ),
    Fault(
        "commits are removed beyond the checkpoint",
        f"{_LOG}.tidying:_goes",
        "version is not None and version < start",
        "version is not None",
    ),
    Fault(
        "nobody looks whether the known version is still there",
        f"{_LOG}.log:Log._move_on",
        "not is_sure and not self._is_listed(known, files)",
        "False",
    ),
    Fault(
        "a look may be paused for hours",
        f"{_LOG}.log:Log._move_on",
        "is_old = self._may_be_late(found, now)",
        "is_old = False",
    ),
    Fault(
        "a look ends before the last version of its listing",
        f"{_LOG}.log:Log._look_anew",
        "if self._last() is not None or not files.goes_on_after(found.version):",
        "if True:",
    ),
    Fault(
        "a checkpoint lacks removed files",
        f"{_LOG}.checkpoints:_gone",
        'yield "remove", kept.filter(pc.invert(is_there))',
        'yield "remove", kept.slice(0, 0)',
    ),
    Fault(
        "a checkpoint lacks transactions",
        f"{_LOG}.checkpoints:_now",
        'yield "txn", _structs("txn", transactions)',
        'yield "txn", _structs("txn", transactions[1:])',
    ),
    Fault(
        "a checkpoint forgets what the last commits removed",
        f"{_LOG}.tidying:Tidying._write_checkpoint",
        "dict(self._removes)",
        "{version: () for version in self._removes}",
    ),
    Fault(
        "a commit behind a rival ignores what the rival has changed",
        f"{_LOG}.log:Log._commit",
        "found = change.on(base.snapshot)",
        "found = change",
    ),
    Fault(
        "data files are removed though their commit may be under way",
        f"{_LOG}.log:Log.commit",
        "self.forget()",
        "self._discard(added)",
    ),
    Fault(
        "a checkpoint that is gone counts as damaged",
        "tubeq_spark.storage.store.store:is_refused",
        "isinstance(error, (RequestError, FileNotFoundError))",
        "isinstance(error, RequestError)",
    ),
    Fault(
        "a commit has its name before its content is synced",
        f"{_LOCAL}:LocalStore.put_if_absent",
        "disk.sync_file(prepared)",
        "pass",
        "local",
    ),
    Fault(
        "the names of commits are not synced",
        f"{_DURABILITY}.synced_log:SyncedLog.settle",
        "disk.sync_directory(self.log)",
        "pass",
        "local",
    ),
    Fault(
        "data files are not synced",
        f"{_DURABILITY}.synced_log:SyncedLog.prepare",
        "self._sync_contents(found)",
        "pass",
        "local",
    ),
    Fault(
        "the rest of the log is removed, too",
        f"{_LOG}.tidying:_goes",
        "version is not None and version < start",
        "version is not None",
        "local",
    ),
    Fault(
        "a read does not look for the next version",
        f"{_LOG}.log:Log._look",
        "return self._move_on(known) or self._look_anew(known)",
        "return known",
        "local",
    ),
    Fault(
        "an own commit on local files is taken for a rival's",
        f"{_LOG}.next_version:NextVersion.create",
        "return is_of(info, operation_id)",
        "return False",
        "local",
    ),
    Fault(
        "a sync that failed is trusted",
        f"{_DURABILITY}.synced_log:SyncedLog.settle",
        "raise SyncError(msg) from error",
        "return",
        "local",
    ),
)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Plant a fault in a block."""
    module_name, _, name = fault.where.partition(":")
    module = import_module(module_name)
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part)
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(fault.right) == 1, f"{fault.where} has {fault.right!r} not once"
    flags = __future__.annotations.compiler_flag
    code = compile(source.replace(fault.right, fault.wrong), module_name, "exec", flags)
    made: dict[str, Any] = {}
    exec(code, vars(module), made)
    right, function.__code__ = function.__code__, inspect.unwrap(made[function.__name__]).__code__
    try:
        yield
    finally:
        function.__code__ = right


def finds(fault: Fault, seeds: Iterable[int], steps: int) -> tuple[int, str] | None:
    """The first seed that finds a fault, and what it finds; `None` if none does."""
    with planted(fault):
        for seed in seeds:
            found = Simulation(seed, steps, fault.storage, compared=seed % 20 == 0).run()
            if found is not None:
                return seed, found
    return None
