"""Plants faults in the package by a seed, and names the test that finds each: `python -m tests.mutations`.

`--watch` runs the tests once, and notes which modules of tests reach each place of the package. Then each fault of the
draw has a process of its own, which imports the changed module and runs these modules, the short ones first, until a
test fails. These are the tests of `make test` that need no Spark.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import importlib
import importlib.machinery
import itertools
import json
import multiprocessing
import os
import signal
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tubeq_spark"
SUITES = ("unit", "native", "simulation", "stateful", "acceptance", "concurrency")
LIBRARIES = ("pyarrow.dataset", "pyspark.sql", "deltalake", "typer.testing")
#: The tests of `make test` that need no Spark, one after the other.
OPTIONS = (
    *("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--engine", "native", "--engine", "memory"),
    # A fault may let a test wait for ever. The leases of the pages end if the machine is slow.
    *("--timeout=90", "--ignore=tests/acceptance/test_docs.py"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-m", "not thorough and not nightly and not connect"),
)
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
        "storage/tables/tube_writer.py", '"number": number + 1}', '"number": 1 - number}',
    ),
    "a number that is not compared": (
        "storage/tables/tube_writer.py", "_T.task_id == _S.task_id]",
        "(_T.task_id == _S.task_id) | _S.number.is_not_null()]",
    ),
    "a paused take after its lease": (
        "verbs/take.py", "with_time_left(current, ctx, Take(ctx, requests).run())",
        "Take(ctx, requests).run()",
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


def drawn(known: Mapping[str, Mapping[str, Sequence[str]]], seed: int) -> list[Mutation]:
    """All faults in places that tests reach, in the order of a draw. The named ones come first."""
    found = []
    for file, places in known.items():
        planter = Planter()
        planter.visit(ast.parse((PACKAGE / file).read_text()))
        found += [Mutation(file, int(place), *planter.places[int(place)]) for place in places]
    named = [Mutation(file, -1, 0, name) for name, (file, _, _) in NAMED.items()]
    return [*named, *sorted(found, key=lambda fault: fault.rank(seed))]


# -- in a process with other code ------------------------------------------------------------------


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


class Watcher:
    """Notes which modules of tests reach each place of the package, and how long these modules take."""

    def __init__(self) -> None:
        """Watch the modules that are imported from now on."""
        self.reached: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.seconds: dict[str, float] = defaultdict(float)
        self._now = ""
        builtins._watch_fault = self._note  # type: ignore[attr-defined]
        _plant(self._watched)

    def _watched(self, path: str) -> Any:
        if not Path(path).is_relative_to(PACKAGE):
            return None
        name = str(Path(path).relative_to(PACKAGE))
        tree = Planter(watched=name).visit(ast.parse(Path(path).read_text()))
        return ast.fix_missing_locations(tree)

    def _note(self, file: str, place: int, value: Any, without: bool | None = None) -> Any:
        # A change to a constant has no effect where the value is this constant already.
        if value is not without and self._now:
            self.reached[file][place].add(self._now)
        return value

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._now = nodeid.partition("::")[0]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended."""
        self.seconds[self._now] += report.duration


class Finder:
    """Keeps the first test that fails."""

    found = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended."""
        if report.failed:
            self.found = self.found or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module was imported, or not."""
        if report.failed:
            self.found = self.found or f"{report.nodeid} (it cannot be imported)"


def watch(suites: Sequence[str]) -> dict[str, Any]:
    """Run tests, and return which of their modules reach each place, and their seconds."""
    watcher = Watcher()
    pytest.main([*OPTIONS[1:], *suites], plugins=[watcher])
    reached = {
        file: {place: sorted(modules) for place, modules in places.items()}
        for file, places in watcher.reached.items()
    }
    return {"reached": reached, "seconds": watcher.seconds}


def find(fault: Mutation, modules: Sequence[str], seconds: int) -> str:
    """Plant a fault, and run modules of tests until one of their tests fails; the test, or nothing.

    It may use so many seconds of the processor.
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        for stream in (1, 2):
            os.dup2(nothing.fileno(), stream)
    path, code, finder = str(PACKAGE / fault.file), _planted(fault), Finder()
    _plant(lambda name: code if name == path else None)

    def give_up(*_: object) -> None:
        finder.found = finder.found or "it does not end"
        pytest.exit(finder.found)

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    code = pytest.main([*OPTIONS, *modules], plugins=[finder])
    # With some faults the fixtures of all tests cannot be imported.
    is_run = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return finder.found or ("" if is_run else f"pytest itself, which ends with {code}")


# -- in the process that draws ---------------------------------------------------------------------


def _apart(call: Callable[..., Any], *args: object) -> Any:
    """Call a function in a process of its own, which has not imported the package, but libraries."""
    for name in LIBRARIES:
        importlib.import_module(name)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(call, args)


def _found(fault: Mutation, modules: Sequence[str], seconds: int) -> str:
    """Return the test that finds a fault, or nothing. `modules` reach its place; the shortest comes first."""
    # Most faults are found by a few of them. To collect all takes longer than to run these.
    for part in (modules[:8], modules[8:40], modules[40:]):
        if part and (found := _apart(find, fault, part, seconds)):
            return str(found)
    return ""


def main() -> None:
    """Watch, or plant faults and print who finds each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--known", type=Path, required=True, help="the file that --watch writes")
    parser.add_argument("--watch", action="store_true", help="only write the file")
    parser.add_argument("--count", type=int, default=100, help="faults to plant")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the draw")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the draw")
    parser.add_argument("--seconds", type=int, default=600, help="of the processor for each fault")
    given = parser.parse_args()
    if given.watch:
        suites = [f"tests/{suite}" for suite in SUITES]
        given.known.write_text(json.dumps(_apart(watch, suites)))
        return
    known = json.loads(given.known.read_text())
    ends = Counter[bool]()
    faults = drawn(known["reached"], given.seed)[given.first : given.first + given.count]
    for fault in faults:
        places = known["reached"].get(fault.file, {})
        modules = places.get(str(fault.place)) or sorted({m for of in places.values() for m in of})
        found = _found(fault, sorted(modules, key=known["seconds"].get), given.seconds)
        ends[bool(found)] += 1
        print(f"{fault.file}:{fault.line}  {fault.kind}  {found or 'NOT FOUND'}", flush=True)
    print(f"{ends[True]} of {len(faults)} found")


if __name__ == "__main__":
    main()
