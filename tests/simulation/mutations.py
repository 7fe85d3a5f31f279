"""Plants faults in the package by a seed, and tells which the simulation finds: `python -m tests.simulation.mutations`.

Each fault has a process of its own, which imports the changed module. Only places that some seeds reach are changed.
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
import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tests.simulation.history import again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.simulation.history import Violation
    from tests.simulation.queue_acts import Plan

PACKAGE = Path(__file__).parents[2] / "tubeq_spark"
ROOMS = ("verbs", "runtime", "storage")
#: A fault that uses this many times its processor time does not end.
_PATIENCE = 3
#: Faults by name: the file, a text in it, and what it becomes.
NAMED = {
    "a lost answer taken for a rival": (
        "storage/log/next_version.py", "return is_of(info, operation_id)", "return False",
    ),
    "a late commit that is not looked for": (
        "storage/log/log.py", ") and log_files.removed_if_late(", ") and not (",
    ),
    "two first takes of one sub-queue": (
        "verbs/limits.py", "        _begin(ctx, now_us)\n        return None\n", "        return limits\n",
    ),
    "a number that comes back": (
        "storage/tables/take_writer.py", '"number": number + 1}', '"number": 1 - number}',
    ),
    "a number that is not compared": (
        "storage/tables/take_writer.py", "_T.task_id == _S.task_id]",
        "(_T.task_id == _S.task_id) | _S.number.is_not_null()]",
    ),
    "a paused take after its lease": (
        "verbs/after_take.py", "lasting = _with_time_left(ctx, first.lease.owner, held)",
        "lasting = held",
    ),
}  # fmt: skip
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutation(NamedTuple):
    """A fault: its file, the number of its place in the file, its line, the kind of change, and the code that it changes."""

    file: str
    place: int
    line: int
    kind: str
    text: str = ""

    def rank(self, seed: int) -> str:
        """Its place in the draw of a seed. It stays when code elsewhere changes."""
        return hashlib.sha256(f"{seed} {self.file} {self.kind} {self.text}".encode()).hexdigest()


class Planter(ast.NodeTransformer):
    """Numbers the places of a file that can be changed. It changes one of them, or watches all of them."""

    def __init__(self, chosen: int = -1, watched: str = "") -> None:
        """Begin.

        Args:
            chosen: The number of the place to change.
            watched: The name of the file if its places are watched. Each place then reports its value to `watch`.
        """
        self.places: list[tuple[int, str, str]] = []
        self._chosen, self._watched = chosen, watched
        self._same = Counter[str]()

    def _is_chosen(self, node: ast.expr | ast.stmt, kind: str) -> bool:
        text = ast.unparse(node) if self._chosen < 0 else ""
        self._same[text] += 1
        self.places.append((node.lineno, kind, f"{text} {self._same[text]}"))
        return len(self.places) - 1 == self._chosen

    def _watch(self, place: int, value: ast.expr, without: bool | None = None) -> ast.expr:
        """A call that returns the value of an expression, and reports it to `watch`."""
        if not self._watched:
            return value
        file, number, constant = map(ast.Constant, (self._watched, place, without))
        return ast.Call(ast.Name("_watch_fault", ast.Load()), [file, number, value, constant], [])

    def visit(self, node: ast.AST) -> Any:
        """Change a place, or watch it."""
        change, place = _change_of(node), len(self.places)
        if change is None:
            return self.generic_visit(node)
        kind, other, without = change
        if self._is_chosen(cast("ast.expr | ast.stmt", node), kind):
            return _with(node, other)
        node = self.generic_visit(node)
        return _with(node, self._watch(place, _with(node), without))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit what is below a node, and swap statements of a block."""
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, (ast.Module, ast.ClassDef)):
            for i, (first, second) in enumerate(itertools.pairwise(body)):
                if not (_is_call(first) and _is_call(second)):
                    continue
                if self._is_chosen(second, "two statements swapped"):
                    body[i], body[i + 1] = second, first
                elif self._watched:
                    always = self._watch(len(self.places) - 1, ast.Constant(True))
                    first.value = ast.IfExp(always, first.value, ast.Constant(None))
        return super().generic_visit(node)


def _change_of(node: ast.AST) -> tuple[str, ast.expr, bool | None] | None:
    """The change of a place: its name, the new expression, and the constant that this is, if it is one."""
    match node:
        case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue() | ast.Break()], orelse=[]):
            return "a guard dropped", ast.Constant(False), False
        case ast.Compare(ops=[op]) if type(op) in _TURNED:
            turned = ast.Compare(node.left, [_TURNED[type(op)]()], node.comparators)
            return "a comparison turned", turned, None
        case ast.UnaryOp(op=ast.Not()):
            plain = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
            return "a not removed", plain, None
        case ast.BoolOp():
            is_and = isinstance(node.op, ast.And)
            return "a condition left out", ast.Constant(is_and), is_and
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not _is_text(node):
            op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return "a number that is another", ast.BinOp(node.left, op, node.right), None
    return None


def _with(node: ast.AST, value: ast.expr | None = None) -> Any:
    """The node with another expression in its place; without one, the expression that is there."""
    if isinstance(node, ast.If):
        node.test = value or node.test
        return node.test if value is None else node
    if isinstance(node, ast.BoolOp):
        node.values[1] = value or node.values[1]
        return node.values[1] if value is None else node
    return value or node


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_text(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.JoinedStr, ast.List, ast.Tuple)) for part in ast.walk(node))


def mutations(effects: Mapping[str, Mapping[str, Sequence[int]]]) -> list[Mutation]:
    """All changes that have an effect in some seeds. `effects` has these seeds by the file and number of the place."""
    found = []
    for file, places in sorted(effects.items()):
        planter = Planter()
        planter.visit(ast.parse((PACKAGE / file).read_text()))
        numbers = sorted(int(n) for n, seeds in places.items() if n.isdecimal() and seeds)
        found += [Mutation(file, place, *planter.places[place]) for place in numbers]
    return found


# -- in the process of a fault ---------------------------------------------------------------------


def _planted(fault: Mutation) -> Any:
    """The code of a file with a fault."""
    text = (PACKAGE / fault.file).read_text()
    if fault.kind in NAMED:
        _, before, after = NAMED[fault.kind]
        if text.count(before) != 1:
            msg = f"{fault.file} has changed: {before!r} is not there"
            raise ValueError(msg)
        return text.replace(before, after)
    tree = Planter(fault.place).visit(ast.parse(text))
    return ast.fix_missing_locations(tree)


def _plant(planted: Callable[[str], Any]) -> None:
    """Replace the code of modules when Python imports them.

    Args:
        planted: Returns the new code for the path of a module, or `None` to keep its own code.
    """
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        code = planted(loader.path)
        return original(loader, name) if code is None else compile(code, loader.path, "exec")

    importlib.machinery.SourceFileLoader.get_code = get_code


def _marked(plan: Plan) -> tuple[list[Violation], str]:
    """Run a plan; its violations, and a hash of all that its programs have seen."""
    from tests.simulation.queue import judge  # noqa: PLC0415  the package is imported with the fault

    found, done = judge(plan)
    if done is None:
        return found, "stuck"
    return found, hashlib.sha256(done.history.text().encode()).hexdigest()


def _give_up(*_: object) -> None:
    raise TimeoutError


def one(fault: Mutation, marks: Mapping[str, str], seconds: float) -> tuple[str, str]:
    """Plant a fault, run seeds until one finds it, and return how that ended, in a word and in a sentence.

    Args:
        fault: The fault.
        marks: The hash of each seed's run without the fault.
        seconds: The processor time after which it gives up.
    """
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE * seconds)
    path, other, ran = str(PACKAGE / fault.file), list[str](), 0
    code = _planted(fault)
    _plant(lambda name: code if name == path else None)
    from tests.simulation.queue_acts import plan_of  # noqa: PLC0415

    plans = [plan_of(int(seed)) for seed in marks]
    quiet = [plan for plan in plans if plan.is_quiet]
    others = [plan for plan in plans if not plan.is_quiet]
    # Quiet seeds also judge what all calls cost, and only in the others something fails.
    for plan in filter(None, itertools.chain(*itertools.zip_longest(quiet, others))):
        found, now = _marked(plan)
        if found:
            return "found", f"by seed {plan.seed}: {found[0].rule}"
        ran, other = ran + 1, other + [str(plan.seed)] * (now != marks[str(plan.seed)])
        if time.process_time() > seconds:
            break
    if not other:
        return "without effect", f"in {ran} seeds"
    return "NOT FOUND", f"in {ran} seeds; otherwise in {len(other)}, such as {', '.join(other[:3])}"


def watch(seeds: range, output: Path) -> None:
    """Write a file for `sweep`: in which seeds a change of each place has an effect, and the hash of each seed's run."""
    effects: dict[str, dict[int, list[int]]] = {}
    now = -1

    def note(file: str, place: int, value: Any, without: bool | None = None) -> Any:
        seen = effects[file].setdefault(place, [])
        # A change to a constant has no effect where the value is this constant already.
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


def sweep(known: Path, drawn: Iterable[Mutation], seconds: float) -> Iterator[tuple[str, str]]:
    """For each fault, a word for its end, and a line of the table."""
    seen = json.loads(known.read_text())
    for fault in drawn:
        place = fault.kind if fault.place < 0 else str(fault.place)
        reached = seen["effects"].get(fault.file, {}).get(place, [-1])
        # -1 stands for the import of the module.
        seeds = seen["marks"] if -1 in reached else map(str, reached)
        marks = {seed: seen["marks"].get(seed) for seed in seeds}
        # Each fault has a process of its own, which imports the package with it.
        with multiprocessing.get_context("fork").Pool(1) as pool:
            try:
                end, how = pool.apply(one, (fault, marks, seconds))
            except Exception as error:  # noqa: BLE001  (the package does not run with the fault)
                end, how = "found", f"it fails, or does not end: {error!r:.80}"
        yield end, f"{fault.file}:{fault.line}  {fault.kind}  {end} {how}"


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="faults with an effect to try")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the draw")
    parser.add_argument("--seconds", type=float, default=600, help="processor time for each fault")
    parser.add_argument("--known", type=Path, required=True, help="the file that --watch writes")
    parser.add_argument("--watch", type=int, help="only write the file, from this many seeds")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.watch is not None:
        watch(range(given.watch), given.known)
        return 0
    possible = mutations(json.loads(given.known.read_text())["effects"])
    drawn = sorted(possible, key=lambda fault: fault.rank(given.seed))
    named = [Mutation(file, -1, 0, name) for name, (file, _, _) in NAMED.items()]
    ends = Counter[str]()
    for end, line in sweep(given.known, [*named, *drawn], given.seconds):
        ends[end] += 1
        print(line, flush=True)
        if ends["found"] + ends["NOT FOUND"] == given.count + len(named):
            break
    print(dict(ends))
    return 0


if __name__ == "__main__":
    raise SystemExit(again("mutations") if os.environ.get("PYTHONHASHSEED") != "0" else main())
