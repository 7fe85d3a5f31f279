"""What a benchmark measures, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Form", "Part", "Plan", "Series", "Session"]

#: From this size on a batch goes through the DataFrame verbs.
FRAMES_FROM = 10_000
#: The largest batch that the default session is given.
_DEFAULT_MOST = 100
_QUICK_ROUNDS = 3


class Part(StrEnum):
    """A part of the benchmark."""

    BATCHES = "batches"
    DEFAULT = "default"
    AGE = "age"
    UTUBES = "utubes"


class Form(StrEnum):
    """Which form of the verbs is measured."""

    MANY = "many"
    FRAMES = "df"


class Session(StrEnum):
    """Settings of the Spark session."""

    RECOMMENDED = "recommended"
    DEFAULT = "default"


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
        rounds: How often to measure each verb; by the size of the batch when `None`.
        commits: Commits of the tube that is compared with a fresh one.
        quick: Whether a rough answer will do.
        most_tasks: Loads of sub-queues with more tasks are left out; `None`: none is.
    """

    parts: frozenset[Part]
    batches: tuple[int, ...]
    rounds: int | None
    commits: int
    quick: bool
    most_tasks: int | None = None

    def series(self, session: Session) -> list[Series]:
        """What is measured in a session."""
        batches = self.batches
        if session is Session.DEFAULT:
            batches = tuple(b for b in batches if b <= _DEFAULT_MOST)
        found = [self._series(_form(batch), batch, session) for batch in batches]
        # What it costs when the driver holds every task, too.
        largest = max(batches, default=0)
        if largest > FRAMES_FROM:
            found.append(self._series(Form.MANY, largest, session))
        return found

    def _series(self, form: Form, batch: int, session: Session) -> Series:
        small = batch < FRAMES_FROM
        rounds = self.rounds or _rounds(batch)
        if self.rounds is None and (self.quick or (form is Form.MANY and not small)):
            rounds = _QUICK_ROUNDS
        elif self.rounds is None and session is Session.DEFAULT:
            rounds = (rounds + 1) // 2
        warm_up = 4 if small and not self.quick else 1
        return Series(form, batch, rounds, warm_up)

    @property
    def age_series(self) -> Series:
        """The comparison of an aged tube with a fresh one."""
        rounds = self.rounds or (_QUICK_ROUNDS if self.quick else _rounds(1))
        return Series(Form.MANY, 1, rounds, 2)


def _form(batch: int) -> Form:
    return Form.MANY if batch < FRAMES_FROM else Form.FRAMES


def _rounds(batch: int) -> int:
    return next(n for most, n in ((10, 15), (1_000, 11), (50_000, 7), (batch, 5)) if batch <= most)
