"""Runs the whole queue under simulation: `python -m tests.simulation.queue --seeds 2000`, or `--seed N` for one.

A failing seed prints the calls of the tubes concerned, without the acts that it does not need to fail.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import re
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.simulation.checker import check
from tests.simulation.history import Violation, again, line_of
from tests.simulation.queue_plans import Plan, plan_of
from tests.simulation.queue_run import Run, run
from tests.simulation.scheduler import StuckError
from tubeq_spark.storage.statement import Note, note_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.history import History
    from tests.simulation.sim_store import Event


#: The most lines of a printed history, and the most runs that make it shorter.
_LINES, _RUNS = 30, 150
#: Background work that fails: a failure of the storage is no fault.
_LEFT = ("StoreError", "CommitUnknownError")


def judge(plan: Plan) -> tuple[list[Violation], Run | None]:
    """Run a plan; its violations, and the run unless it is stuck."""
    gc.disable()
    try:
        done = run(plan)
    except StuckError as error:
        return [Violation("stuck", "", str(error))], None
    finally:
        gc.enable()
    found = check(done.history) + check_notes(done.world.journal)
    for told in done.verified.violations:
        text = f"version {told.version} of {told.tube}, task {told.task_id}: {told.text}"
        found.append(Violation(f"verify {told.rule}", told.tube, text))
    found += [Violation("verify", "", text) for text in done.verified.damaged]
    for thread, error in done.scheduler.errors:
        if type(error).__name__ not in _LEFT:
            found.append(Violation("thread", "", f"{thread.name} ended with {error!r}"))
    return found, done


def shrunk(plan: Plan, rules: set[str]) -> Plan:
    """A plan with fewer acts that violates one of the same rules."""
    size, runs = len(plan.acts) // 2, 0
    while size and runs < _RUNS:
        place = 0
        while place < len(plan.acts) and runs < _RUNS:
            fewer = plan.only(plan.acts[:place] + plan.acts[place + size :])
            runs += 1
            if {violation.rule for violation in judge(fewer)[0]} & rules:
                plan = fewer
            else:
                place += size
        size //= 2
    return plan


def replay(seed: int, acts: Sequence[int] | None = None) -> int:
    """Run a seed, and print the shortest history that shows what is wrong; 1 if something is."""
    plan = plan_of(seed)
    if acts is not None:
        plan = plan.only(tuple(act for act in plan.acts if act.number in acts))
    found, _ = judge(plan)
    if not found:
        print(f"seed {seed}: nothing was found")
        return 0
    plan = shrunk(plan, {violation.rule for violation in found})
    found, done = judge(plan)
    print(f"seed {seed}: {dict(plan.tubes)}, {plan.faults}, clocks ahead by {plan.skews}")
    print("\n".join(f"  {violation.rule}: {violation.text}" for violation in found[:5]))
    if done is not None:
        tubes = {violation.tube for violation in found} - {""} or set(plan.tubes)
        print("\n".join(line[:300] for line in _concerned(done.history, tubes)))
    numbers = ",".join(str(act.number) for act in plan.acts)
    print(f"again: python -m tests.simulation.queue --seed {seed} --acts {numbers}")
    return 1


def _concerned(history: History, tubes: Iterable[str]) -> list[str]:
    """The calls of some tubes; without what only looks at the end, if they are many."""
    lines = [line_of(call) for call in history.calls if call.tube in {*tubes, ""}]
    if len(lines) > _LINES:
        lines = [line for line in lines if not any(verb in line for verb in ("tasks_by", ".open"))]
    return lines[:_LINES]


def _one(seed: int) -> tuple[int, list[Violation]]:
    logging.disable(logging.CRITICAL)
    return seed, judge(plan_of(seed))[0]


def sweep(seeds: range, workers: int) -> int:
    """Run seeds, and print those that violate something; 1 if one does."""
    began, bad, rules = time.monotonic(), list[int](), Counter[str]()
    with ProcessPoolExecutor(workers) as pool:
        for seed, found in pool.map(_one, seeds, chunksize=4):
            if found:
                bad.append(seed)
                rules.update({violation.rule for violation in found})
                print(f"seed {seed}: {found[0].rule}: {found[0].text[:300]}", flush=True)
    spent = time.monotonic() - began
    print(f"{len(seeds)} seeds, {spent:.0f} s, found in {len(bad)}: {dict(rules)}")
    return 1 if bad else 0


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=2, help="in so many processes")
    parser.add_argument("--seed", type=int, help="replay one seed, and print what is wrong")
    parser.add_argument("--acts", help="only with the acts of these numbers")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.seed is not None:
        acts = None if given.acts is None else [int(number) for number in given.acts.split(",")]
        return replay(given.seed, acts)
    return sweep(range(given.first, given.first + given.seeds), given.workers)


# -- notes of commits ------------------------------------------------------------------------------


_COMMIT = re.compile(r"(.*)/_delta_log/(\d{20})\.json")
_TAKES = ("take", "exchange")
#: Operations that may decide without a read: by remembered tasks, or by an earlier read.
_MAY_READ_NOTHING = {
    "ack", "put", "release", "touch", "bury", "delete", "renew", "give_back", "forget",
}  # fmt: skip


def check_notes(journal: list[Event]) -> list[Violation]:
    """Find the faults in the notes of all commits to tubes."""
    return [Violation("note", "", text) for text in _faults(journal)]


def _faults(journal: list[Event]) -> Iterator[str]:
    commits: dict[int, str] = {}
    for event in journal:
        found = _COMMIT.fullmatch(event.name)
        if found is None:
            continue
        if event.content is None:
            # A commit that came late is removed by its own program, and made once more.
            commits = {number: name for number, name in commits.items() if name != event.name}
            continue
        info = json.loads(event.content.splitlines()[0])["commitInfo"]
        text = info.get("userMetadata") or ""
        note = note_in(text)
        where = f"{event.name}: {text}"
        if note is None or str(note) != text:
            yield f"{where} is not read as it was written"
            continue
        if commits.setdefault(note.operation_id, event.name) != event.name:
            yield f"{where} has the operation id of {commits[note.operation_id]}"
        if not found[1].rpartition("/")[2].startswith("_") and note.session:
            yield from (f"{where} {fault}" for fault in _faults_of(note, info))


def _faults_of(note: Note, info: dict[str, Any]) -> Iterator[str]:
    """Find the faults in the note of one commit to a tube."""
    if note.at_us is None and note.operation not in ("fold", "remove_gone"):
        yield "does not tell the moment"
    if note.base is None and note.operation not in _MAY_READ_NOTHING:
        yield "does not tell the version that it has read"
    if note.base is not None and note.base > info["readVersion"]:
        yield f"has read a version after {info['readVersion']}, on which it was made"
    if note.changed is None or note.tasks is None:
        yield "does not tell what it changed"
    if bool(note.asked) != (note.operation in _TAKES):
        yield "tells what a take asked for, and is none; or the other way round"
    most = sum(int(asked.split("/")[0]) for asked in note.asked.split(",") if asked)
    if note.operation == "take" and not 0 < (note.tasks or 0) <= most:
        yield "takes none, or more than its calls asked for"


if __name__ == "__main__":
    raise SystemExit(again("queue") if os.environ.get("PYTHONHASHSEED") != "0" else main())
