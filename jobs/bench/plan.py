"""What a benchmark measures, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Engine", "Form", "Part", "Plan", "Series", "Session"]

#: From this size on a batch goes through the verbs on tables: DataFrames, or Arrow's.
TABLES_FROM = 10_000
#: The largest batch that the default session is given.
_DEFAULT_MOST = 100
_QUICK_ROUNDS = 3


class Part(StrEnum):
    """A part of the benchmark."""

    BATCHES = "batches"
    DEFAULT = "default"
    AGE = "age"
    UTUBES = "utubes"
    VERBS = "verbs"
    PROCESSES = "processes"
    START = "start"
    PEERS = "peers"
    STORES = "stores"


class Form(StrEnum):
    """Which form of the verbs is measured."""

    MANY = "many"
    FRAMES = "df"
    ARROW = "arrow"


class Engine(StrEnum):
    """What runs the verbs."""

    NATIVE = "native"
    SPARK = "spark"

    @property
    def tables(self) -> Form:
        """The form of its verbs for large batches."""
        return Form.ARROW if self is Engine.NATIVE else Form.FRAMES


class Session(StrEnum):
    """Settings of the Spark session; of the native engine, that there is none."""

    NONE = "none"
    RECOMMENDED = "recommended"
    DEFAULT = "default"

    @property
    def engine(self) -> Engine:
        """What runs the verbs there."""
        return Engine.NATIVE if self is Session.NONE else Engine.SPARK

    def __str__(self) -> str:
        return "native" if self is Session.NONE else f"spark {self.value}"


@dataclass(frozen=True, slots=True)
class Series:
    """One size of batch in one form, measured some number of times.

    Attributes:
        form: The form of the verbs.
        batch: Tasks in a batch.
        rounds: How often each verb is measured.
        warm_up: Rounds before that, which are not counted: code is compiled on the way.
    """

    form: Form
    batch: int
    rounds: int
    warm_up: int

    def __str__(self) -> str:
        return f"{self.form} {self.batch:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for.

    Attributes:
        parts: The parts to run.
        batches: Sizes of batches.
        rounds: How often to measure each verb; by the engine and the size of the batch when `None`.
        commits: Commits of the tube that is compared with a fresh one; by the engine when `None`.
        done: Tasks that these commits put, take and ack; by the engine when `None`.
        quick: Whether a rough answer will do.
        most_tasks: Loads of sub-queues with more tasks are left out; `None`: none is.
    """

    parts: frozenset[Part]
    batches: tuple[int, ...]
    rounds: int | None = None
    commits: int | None = None
    done: int | None = None
    quick: bool = False
    most_tasks: int | None = None

    def series(self, session: Session) -> list[Series]:
        """What is measured in a session."""
        batches = self.batches
        if session is Session.DEFAULT:
            batches = tuple(b for b in batches if b <= _DEFAULT_MOST)
        tables = session.engine.tables
        found = [
            self._series(Form.MANY if batch < TABLES_FROM else tables, batch, session)
            for batch in batches
        ]
        # What it costs when the driver holds every task, too.
        largest = max(batches, default=0)
        if largest > TABLES_FROM:
            found.append(self._series(Form.MANY, largest, session))
        return found

    def _series(self, form: Form, batch: int, session: Session) -> Series:
        small = batch < TABLES_FROM
        rounds = self.rounds or _rounds(batch, session.engine)
        if self.rounds is None and (self.quick or (form is Form.MANY and not small)):
            rounds = _QUICK_ROUNDS
        elif self.rounds is None and session is Session.DEFAULT:
            rounds = (rounds + 1) // 2
        warm_up = 4 if small and not self.quick else 1
        return Series(form, batch, rounds, warm_up)

    def age_series(self, engine: Engine) -> Series:
        """The comparison of an aged tube with a fresh one."""
        rounds = self.rounds or (_QUICK_ROUNDS if self.quick else _rounds(1, engine))
        return Series(Form.MANY, 1, rounds, 2)

    def age_commits(self, engine: Engine) -> int:
        """Commits of the tube that is old."""
        many = 5_000 if engine is Engine.NATIVE else 500
        return self.commits or (60 if self.quick else many)

    def age_done(self, engine: Engine) -> int:
        """Tasks that these are for; 0: as few as can be."""
        if self.done is not None or self.quick or engine is Engine.SPARK:
            return self.done or 0
        return 1_000_000

    def verb_rounds(self) -> int:
        """How often each of the other verbs is measured."""
        return self.rounds or (_QUICK_ROUNDS if self.quick else 50)

    def load_rounds(self, engine: Engine) -> int:
        """How often a load of its own is measured."""
        return self.rounds or (3 if engine is Engine.NATIVE and not self.quick else 1)


def _rounds(batch: int, engine: Engine) -> int:
    """How often a batch is measured: less the longer it lasts."""
    sizes = ((10, 15, 100), (1_000, 11, 50), (50_000, 7, 20), (batch, 5, 10))
    on_spark, native = next((some, many) for most, some, many in sizes if batch <= most)
    return native if engine is Engine.NATIVE else on_spark
