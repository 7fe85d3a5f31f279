"""Plants faults in the package by a seed, and tells which the simulation finds: `python -m tests.simulation.mutations`.

A fault is planted in a process of its own, when the module is imported. Only lines that a few seeds reach are changed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import itertools
import json
import logging
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "tubeq_spark"
ROOMS = ("verbs", "runtime", "storage")
#: The seeds that show which lines are reached.
_REACHING = range(12)
#: Faults by name: the file, a text in it, and what it becomes.
NAMED = {
    "a lost answer taken for a rival": (
        "storage/log/next_version.py", "return is_of(info, operation_id)", "return False",
    ),
    "a late commit that is not looked for": (
        "storage/log/log.py", ") and log_files.removed_if_late(", ") and not (",
    ),
    "two first takes of one sub-queue": (
        "storage/tables/utube_locks.py", "_T.claim != operation_id,", "_T.claim == operation_id,",
    ),
    "a paused take after its lease": (
        "verbs/renew.py", "            late = _late(calls, ctx.queue.now_us())\n",
        "            late = []\n            return calls\n",
    ),
    "a lock that is freed whatever its number": (
        "storage/tables/utube_locks.py",
        "_T.claim.is_in([*take_ids, operation_id]),\n            [Clause(None)],\n            operation_id,\n            utubes,",
        "_T.claim != operation_id,\n            [Clause(None)],\n            operation_id,\n            utubes,",
    ),
    "a paused take that is not fenced": (
        "verbs/subqueue_locks.py", "    return _without_tasks(ctx, fenced)\n", "    return fenced\n",
    ),
}  # fmt: skip
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


class Mutation(NamedTuple):
    """A change of one place: the file, the number of the place in it, its line, and what is done."""

    file: str
    place: int
    line: int
    kind: str


class Planter(ast.NodeVisitor):
    """Numbers the places of a file that can be changed, and changes one of them."""

    def __init__(self, chosen: int = -1) -> None:
        self.places: list[tuple[int, str]] = []
        self._chosen = chosen

    def _is_chosen(self, line: int, kind: str) -> bool:
        self.places.append((line, kind))
        return len(self.places) - 1 == self._chosen

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is below a node, and swap statements of a block."""
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, (ast.Module, ast.ClassDef)):
            for i, (first, second) in enumerate(itertools.pairwise(body)):
                are_calls = _is_call(first) and _is_call(second)
                if are_calls and self._is_chosen(second.lineno, "two statements swapped"):
                    body[i], body[i + 1] = second, first
        super().generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Drop a guard."""
        is_guard = len(node.body) == 1 and isinstance(node.body[0], _LEAVES) and not node.orelse
        if is_guard and self._is_chosen(node.lineno, "a guard dropped"):
            node.test = ast.copy_location(ast.Constant(value=False), node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Turn a comparison."""
        turned = _TURNED.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if turned is not None and self._is_chosen(node.lineno, "a comparison turned"):
            node.ops = [turned()]
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Remove a `not`."""
        if isinstance(node.op, ast.Not) and self._is_chosen(node.lineno, "a not removed"):
            node.op = ast.UAdd()
            node.operand = ast.copy_location(
                ast.Call(ast.Name("bool", ast.Load()), [node.operand], []), node
            )
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Leave out the first of several conditions."""
        if len(node.values) > 1 and self._is_chosen(node.lineno, "a condition left out"):
            node.values[1] = ast.Constant(value=isinstance(node.op, ast.And))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Turn a sum or a difference; in a sum with a number, this is another number."""
        is_sum = isinstance(node.op, (ast.Add, ast.Sub)) and not _is_text(node)
        if is_sum and self._is_chosen(node.lineno, "a number that is another"):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        self.generic_visit(node)


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_text(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.JoinedStr, ast.List, ast.Tuple)) for part in ast.walk(node))


def mutations(reached: dict[str, set[int]]) -> list[Mutation]:
    """All changes of reached lines."""
    found = []
    for file, lines in sorted(reached.items()):
        planter = Planter()
        planter.visit(ast.parse((PACKAGE / file).read_text()))
        found += [
            Mutation(file, place, line, kind)
            for place, (line, kind) in enumerate(planter.places)
            if line in lines
        ]
    return found


# -- in the process of a fault ---------------------------------------------------------------------


def _planted(file: str, place: str) -> Any:
    """The code of a file with a fault: the number of a place, or a name."""
    text = (PACKAGE / file).read_text()
    if place in NAMED:
        _, before, after = NAMED[place]
        if text.count(before) != 1:
            raise SystemExit(f"{file} has changed: {before!r} is not there")
        return text.replace(before, after)
    tree = ast.parse(text)
    Planter(int(place)).visit(tree)
    return ast.fix_missing_locations(tree)


def _plant(file: str, place: str) -> None:
    planted, path = _planted(file, place), str(PACKAGE / file)
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if loader.path == path:
            return compile(planted, path, "exec")
        return original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code


def one(file: str, place: str, seeds: range) -> None:
    """Plant a fault, and run seeds until one finds it."""
    _plant(file, place)
    from tests.simulation.queue import judge  # noqa: PLC0415  the package is imported with the fault
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415

    for seed in seeds:
        found, _ = judge(plan_of(seed))
        if found:
            print(json.dumps([seed, found[0].rule]))
            return
    print(json.dumps([None, ""]))


def reach() -> None:
    """Print the lines of the package that some seeds run."""
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415
    from tests.simulation.queue_run import run  # noqa: PLC0415
    from tests.simulation.scheduler import SimThread  # noqa: PLC0415

    tops = {f"{PACKAGE / room}/" for room in ROOMS}
    lines: dict[str, set[int]] = {}

    def trace(frame: Any, _event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(name.startswith(top) for top in tops):
            return None
        seen = lines.setdefault(os.path.relpath(name, PACKAGE), set())

        def each_line(frame: Any, event: str, _arg: Any) -> Any:
            if event == "line":
                seen.add(frame.f_lineno)
            return each_line

        return each_line

    plain = SimThread.run

    def traced(thread: SimThread) -> None:
        sys.settrace(trace)
        plain(thread)

    SimThread.run = traced  # type: ignore[method-assign]
    for seed in _REACHING:
        run(plan_of(seed))
    print(json.dumps({file: sorted(found) for file, found in lines.items()}))


# -- in the process that draws ---------------------------------------------------------------------


def _child(*args: str, seconds: float) -> Any:
    """The answer of a process of this module; `None` if it does not end in time, an error's text if it fails."""
    command = [sys.executable, "-m", "tests.simulation.mutations", *args]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or not done.stdout:
        return f"fails: {done.stderr.strip().splitlines()[-1][:80]}"
    return json.loads(done.stdout.splitlines()[-1])


def _line_of(fault: Mutation, answer: Any) -> tuple[bool, str]:
    """Whether a fault is found, and a line of the table."""
    if answer is None:
        how = "found: it does not end"
    elif isinstance(answer, str):
        how = f"found: {answer}"
    else:
        how = f"found by seed {answer[0]}: {answer[1]}" if answer[0] is not None else "NOT FOUND"
    return how != "NOT FOUND", f"{fault.file}:{fault.line}  {fault.kind}  {how}"


def sweep(count: int, seed: int, seeds: int, workers: int) -> Iterator[tuple[bool, str]]:
    """Draw faults, and tell of each whether it is found; the named ones come first."""
    answer = _child("--reach", seconds=900)
    if not isinstance(answer, dict):
        raise SystemExit(f"the lines that are reached cannot be told: {answer}")
    possible = mutations({file: set(lines) for file, lines in answer.items()})
    drawn = random.Random(seed).sample(possible, min(count, len(possible)))
    named = [Mutation(file, -1, 0, name) for name, (file, _, _) in NAMED.items()]

    def ask(fault: Mutation) -> tuple[bool, str]:
        place = fault.kind if fault.place < 0 else str(fault.place)
        given = ("--file", fault.file, "--place", place, "--seeds", str(seeds))
        return _line_of(fault, _child(*given, seconds=30 + 3 * seeds))

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(ask, [*named, *drawn])


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="draw so many faults")
    parser.add_argument("--seed", type=int, default=1, help="by this seed")
    parser.add_argument("--seeds", type=int, default=40, help="run so many seeds with each fault")
    parser.add_argument("--workers", type=int, default=2, help="in so many processes")
    parser.add_argument("--reach", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.reach:
        reach()
    elif given.file is not None:
        one(given.file, given.place, range(given.seeds))
    else:
        began, count, found = time.monotonic(), 0, 0
        for is_found, line in sweep(given.count, given.seed, given.seeds, given.workers):
            count, found = count + 1, found + is_found
            print(line, flush=True)
        print(f"{found} of {count} are found, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
