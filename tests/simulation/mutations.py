"""Plants faults in the package by a seed, and tells which the simulation finds: `python -m tests.simulation.mutations`.

A fault is planted in a process of its own, when the module is imported. Only lines that a few seeds reach are changed.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import importlib.machinery
import itertools
import json
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.simulation.checker import Violation
    from tests.simulation.queue_acts import Plan

PACKAGE = Path(__file__).parents[2] / "tubeq_spark"
ROOMS = ("verbs", "runtime", "storage")
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


class Planter(ast.NodeTransformer):
    """Numbers the places of a file that can be changed. It changes one of them, or watches all of some kinds of change."""

    def __init__(self, chosen: int = -1, watched: str = "") -> None:
        """Begin.

        Args:
            chosen: The number of the place to change.
            watched: The name of a file whose places are watched: `watch` is asked whether a change has an effect.
        """
        self.places: list[tuple[int, str]] = []
        self._chosen, self._watched = chosen, watched

    def _is_chosen(self, line: int, kind: str) -> bool:
        self.places.append((line, kind))
        return len(self.places) - 1 == self._chosen

    def _watch(self, place: int, value: ast.expr, without: bool | None = None) -> ast.expr:
        """A call that has the value of an expression, and notes whether a change of it has an effect."""
        if not self._watched:
            return value
        file, number, constant = map(ast.Constant, (self._watched, place, without))
        return ast.Call(ast.Name("_watch_fault", ast.Load()), [file, number, value, constant], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit what is below a node, and swap statements of a block."""
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, (ast.Module, ast.ClassDef)):
            for i, (first, second) in enumerate(itertools.pairwise(body)):
                if not (_is_call(first) and _is_call(second)):
                    continue
                if self._is_chosen(second.lineno, "two statements swapped"):
                    body[i], body[i + 1] = second, first
                elif self._watched:
                    always = self._watch(len(self.places) - 1, ast.Constant(True))
                    first.value = ast.IfExp(always, first.value, ast.Constant(None))
        return super().generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Drop a guard."""
        is_guard = len(node.body) == 1 and isinstance(node.body[0], _LEAVES) and not node.orelse
        place = len(self.places)
        if is_guard and self._is_chosen(node.lineno, "a guard dropped"):
            node.test = ast.copy_location(ast.Constant(value=False), node.test)
        self.generic_visit(node)
        if is_guard:
            node.test = self._watch(place, node.test, without=False)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Turn a comparison."""
        turned = _TURNED.get(type(node.ops[0])) if len(node.ops) == 1 else None
        place = len(self.places)
        if turned is not None and self._is_chosen(node.lineno, "a comparison turned"):
            node.ops = [turned()]
        self.generic_visit(node)
        return node if turned is None else self._watch(place, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Remove a `not`."""
        is_not, place = isinstance(node.op, ast.Not), len(self.places)
        if is_not and self._is_chosen(node.lineno, "a not removed"):
            node.op = ast.UAdd()
            node.operand = ast.copy_location(
                ast.Call(ast.Name("bool", ast.Load()), [node.operand], []), node
            )
        self.generic_visit(node)
        return self._watch(place, node) if is_not else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Leave out the second of several conditions."""
        place, is_and = len(self.places), isinstance(node.op, ast.And)
        if self._is_chosen(node.lineno, "a condition left out"):
            node.values[1] = ast.Constant(value=is_and)
        self.generic_visit(node)
        node.values[1] = self._watch(place, node.values[1], without=is_and)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Turn a sum or a difference; in a sum with a number, this is another number."""
        is_sum = isinstance(node.op, (ast.Add, ast.Sub)) and not _is_text(node)
        place = len(self.places)
        if is_sum and self._is_chosen(node.lineno, "a number that is another"):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        self.generic_visit(node)
        return self._watch(place, node) if is_sum else node


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_text(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.JoinedStr, ast.List, ast.Tuple)) for part in ast.walk(node))


def mutations(reached: Mapping[str, Iterable[str]]) -> list[Mutation]:
    """All changes of reached places, which are named by file and number."""
    found = []
    for file, places in sorted(reached.items()):
        planter = Planter()
        planter.visit(ast.parse((PACKAGE / file).read_text()))
        numbers = sorted(map(int, places))
        found += [Mutation(file, place, *planter.places[place]) for place in numbers]
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


def _plant(planted: Callable[[str], Any]) -> None:
    """Let modules be made of other code: of what a function makes of the path of each, if it makes something."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        code = planted(loader.path)
        return original(loader, name) if code is None else compile(code, loader.path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code


def _marked(plan: Plan) -> tuple[list[Violation], str]:
    """Run a plan; its violations, and a mark of all requests, results and stored bytes."""
    from tests.simulation.queue import judged  # noqa: PLC0415  the package is imported with the fault

    found, done = judged(plan)
    if done is None:
        return found, "stuck"
    mark = hashlib.sha256("\n".join([*done.history.lines(), *done.world.trace]).encode())
    for name, file in sorted(done.world.files.items()):
        mark.update(name.encode() + file.content)
    return found, mark.hexdigest()


def one(file: str, place: str, seeds: Mapping[int, str], seconds: float) -> Any:
    """Plant a fault, and run seeds until one finds it: the seed and the rule. Otherwise how many seeds ran otherwise, and one.

    Args:
        file: The file.
        place: The number of a place in it, or the name of a fault.
        seeds: The seeds, with the mark of each without the fault.
        seconds: After so many it gives up.
    """
    path, began, other = str(PACKAGE / file), time.monotonic(), []
    code = _planted(file, place)
    _plant(lambda name: code if name == path else None)
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415

    ran = 0
    for seed, mark in seeds.items():
        ran += 1
        found, now = _marked(plan_of(seed))
        if found:
            return {"seed": seed, "rule": found[0].rule, "text": found[0].text}
        other += [seed] if now != mark else []
        if time.monotonic() - began > seconds:
            break
    return {"seed": None, "ran": ran, "other": other}


def watch(seeds: range, output: Path) -> None:
    """Write which places of the package are reached, in which seeds a change of each has an effect, and the marks of all seeds."""
    effects: dict[str, dict[int, list[int]]] = {}
    now = -1

    def note(file: str, place: int, value: Any, without: bool | None = None) -> Any:
        seen = effects[file].setdefault(place, [])
        # Without a place, a condition has this value, and a change of another place has an effect in any case.
        if value is not without and (not seen or seen[-1] != now):
            seen.append(now)
        return value

    def planted(path: str) -> Any:
        name = os.path.relpath(path, PACKAGE)
        if Path(name).parts[0] not in ROOMS:
            return None
        effects[name] = {}
        tree = Planter(watched=name).visit(ast.parse(Path(path).read_text()))
        return ast.fix_missing_locations(tree)

    builtins._watch_fault = note  # type: ignore[attr-defined]
    _plant(planted)
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415

    marks = {}
    for now in seeds:
        marks[now] = _marked(plan_of(now))[1]
    output.write_text(json.dumps({"effects": effects, "marks": marks}))


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


def _line_of(fault: Mutation, answer: Any) -> tuple[str, str]:
    """What was found of a fault, and a line of the table."""
    if not isinstance(answer, dict):
        end, how = "found", "it does not end" if answer is None else answer
    elif answer["seed"] is not None:
        end, how = "found", f"by seed {answer['seed']}: {answer['rule']}"
    elif not answer["other"]:
        end, how = "without effect", f"in {answer['ran']} seeds"
    else:
        end, how = "NOT FOUND", f"in {answer['ran']} seeds, otherwise in {answer['other'][:3]}"
    return end, f"{fault.file}:{fault.line}  {fault.kind}  {end} {how}"


def sweep(known: Path, count: int, seed: int, seconds: float) -> Iterator[tuple[str, str]]:
    """Draw faults, and tell of each whether it is found; the named ones come first."""
    seen = json.loads(known.read_text())
    possible = mutations(seen["effects"])
    drawn = random.Random(seed).sample(possible, min(count, len(possible)))
    named = [Mutation(file, -1, 0, name) for name, (file, _, _) in NAMED.items()]
    for fault in [*named, *drawn]:
        place = fault.kind if fault.place < 0 else str(fault.place)
        given = ("--file", fault.file, "--place", place, "--known", str(known))
        yield _line_of(fault, _child(*given, "--seconds", str(seconds), seconds=seconds + 60))


def _seeds_of(known: Path, file: str, place: str) -> dict[int, str]:
    """The seeds in which a fault has an effect, with the mark of each without it."""
    seen = json.loads(known.read_text())
    marks = {int(seed): mark for seed, mark in seen["marks"].items()}
    seeds = seen["effects"].get(file, {}).get(place, marks)
    # -1 stands for the import of the module.
    return marks if -1 in seeds else {seed: marks[seed] for seed in seeds}


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="draw so many faults")
    parser.add_argument("--seed", type=int, default=1, help="by this seed")
    parser.add_argument("--seconds", type=float, default=600, help="look for each so long")
    parser.add_argument("--known", type=Path, default=Path("/tmp/reached.json"), help="a file")
    parser.add_argument("--watch", type=int, help="write that file first, with so many seeds")
    parser.add_argument("--file", help="only plant a fault in this file")
    parser.add_argument("--place", help="at this place: a number, or the name of a fault")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.watch is not None:
        watch(range(given.watch), given.known)
    elif given.file is not None:
        seeds = _seeds_of(given.known, given.file, given.place)
        print(json.dumps(one(given.file, given.place, seeds, given.seconds)))
    else:
        ends = Counter[str]()
        for end, line in sweep(given.known, given.count, given.seed, given.seconds):
            ends[end] += 1
            print(line, flush=True)
        print(dict(ends))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
