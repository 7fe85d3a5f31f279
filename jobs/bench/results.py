"""What a benchmark has found, as JSON has it."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import tubeq_spark
from bench.goals import goals
from bench.measure import VERBS, quartiles
from bench.plan import Engine, Session
from bench.subqueues import as_dict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.measure import Measured
    from bench.peers.run import Beside
    from bench.processes import Shared
    from bench.run import Aged, Compared
    from bench.starting import Started
    from bench.stores.run import OnStore
    from bench.subqueues import Drained

__all__ = ["Results"]


@dataclass(slots=True)
class Results:
    """Everything that was found."""

    versions: dict[str, str] = field(default_factory=dict)
    #: How many processes wanted a core in the last minute, at the beginning and after each engine.
    load: list[float] = field(default_factory=list)
    #: Whether it was stopped before all was measured.
    stopped: bool = False
    series: list[dict[str, Any]] = field(default_factory=list)
    age: list[dict[str, Any]] = field(default_factory=list)
    drained: list[dict[str, Any]] = field(default_factory=list)
    verbs: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[str, Any] | None = None
    start: dict[str, Any] | None = None
    peers: Beside | None = None
    stores: OnStore | None = None

    def begin(self, versions: Mapping[str, str]) -> None:
        """Note with what, and on how busy a machine, something is measured from now on."""
        self.versions |= {
            "tubeq_spark": tubeq_spark.__version__,
            "python": platform.python_version(),
            **versions,
        }
        self.note_load()

    def note_load(self) -> None:
        """Note how busy the machine is."""
        self.load.append(round(os.getloadavg()[0], 1))

    def add(self, found: Compared) -> None:
        """Add a comparison of the queue with the floor."""
        session = found.session
        verbs = _side_by_side(session.engine, queue=found.queue, floor=found.floor)
        self.series.append(
            {
                "engine": session.engine.value,
                "session": None if session is Session.NONE else session.value,
                "form": found.series.form.value,
                "batch": found.series.batch,
                "rounds": found.series.rounds,
                "commits": {"queue": found.queue.all_commits, "floor": found.floor.all_commits},
                "verbs": verbs,
            }
        )

    def add_age(self, found: Aged) -> None:
        """Add a comparison of an aged tube with fresh ones."""
        verbs = _side_by_side(found.engine, aged=found.aged, fresh=found.fresh)
        self.age.append(
            {
                "engine": found.engine.value,
                "commits": found.commits,
                "done": found.done,
                "files": found.files,
                "log_files": found.log,
                "verbs": verbs,
            }
        )

    def add_drained(self, found: Drained) -> None:
        """Add consumers that have emptied sub-queues."""
        self.drained.append(as_dict(found))

    def add_verb(
        self,
        name: str,
        seconds: Sequence[float],
        *,
        cpu: Sequence[float] = (),
        commits: int | None = None,
    ) -> None:
        """Add calls of another verb on one task.

        Args:
            name: As it is shown.
            seconds: Of each call.
            cpu: Processor time of each call, where it was measured.
            commits: Of one call, where they are known.
        """
        cpu_s = round(statistics.median(cpu), 6) if cpu else None
        found = {"verb": name, **_seconds(seconds), "cpu_s": cpu_s, "commits": commits}
        self.verbs.append(found)

    def add_processes(self, processes: int, found: Shared) -> None:
        """Add processes that have shared a tube."""
        self.processes = {
            "processes": processes,
            "alone": [asdict(one) for one in found.alone],
            "together": [asdict(one) for one in found.together],
            "ratio": round(found.ratio, 3),
        }

    def add_start(self, found: Started) -> None:
        """Add calls of `tubeq`."""
        pairs = zip(found.put, found.floor, strict=True)
        self.start = {
            "put": _seconds(found.put),
            "floor": _seconds(found.floor),
            "ratio": round(statistics.median(put / floor for put, floor in pairs), 3),
        }

    def as_dict(self) -> dict[str, Any]:
        """What `--json` writes."""
        return {
            "versions": self.versions,
            "load": self.load,
            "stopped": self.stopped,
            "cores": os.cpu_count(),
            "series": self.series,
            "age": self.age,
            "utubes": self.drained,
            "verbs": self.verbs,
            "processes": self.processes,
            "start": self.start,
            "peers": None if self.peers is None else asdict(self.peers),
            "stores": None if self.stores is None else asdict(self.stores),
            "targets": list(goals(self)),
        }


def _side_by_side(engine: Engine, **sides: Measured) -> dict[str, Any]:
    """By verb: two sides, and the ratio of the first to the second; of a JVM no processor time."""
    (mine, theirs), of_process = sides.values(), engine is Engine.NATIVE
    return {
        verb: {name: side.as_dict(verb) for name, side in sides.items()}
        | {
            "ratio": round(mine.ratio_to(theirs, verb), 3),
            "cpu_ratio": round(mine.cpu_ratio_to(theirs, verb), 3) if of_process else None,
        }
        for verb in VERBS
    }


def _seconds(values: Sequence[float]) -> dict[str, Any]:
    return {
        "n": len(values),
        "median_s": round(statistics.median(values), 4),
        "quartiles_s": [round(value, 4) for value in quartiles(values)],
    }
