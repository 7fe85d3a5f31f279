"""Plants faults in the code of a log, one at a time, and proves that the simulation finds each."""

from __future__ import annotations
import __future__

import inspect
import textwrap
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in one function; `planted.toml` has all.

    Attributes:
        name: What is wrong.
        where: The module of `tubeq_spark.storage` and the function.
        right: A text that its source has once.
        wrong: What it is replaced by.
        storage: The storage on which it shows.
    """

    name: str
    where: str
    right: str
    wrong: str
    storage: str = "store"


FAULTS = tuple(
    Fault(**found)
    for found in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["fault"]
)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Plant a fault in a block."""
    module_name, _, name = fault.where.partition(":")
    module = import_module(f"tubeq_spark.storage.{module_name}")
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
