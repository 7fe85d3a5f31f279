"""The checker of a chaos finds forbidden acts in journals, and accepts all that kills and power cuts may leave."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.checker import findings
from tests.chaos.history import History
from tests.chaos.journal import Life, Op
from tests.chaos.plan import TUBES

#: What verbs answer, by numbers of a line.
COUNTS = ("count", "settled", "done", "failed", "buried")
HOSTS = next(tube for tube in TUBES if tube.rate is not None)


def op_of(tube: str, line: str) -> Op:
    """A verb of a journal: who called it, its name, from when to when, the ids of tasks, and what differs.

    A task is called by its id, as in t1, unless `as=` names another one. A verb without an end was killed. One
    that ends with `?` was answered, but nobody knows whether a power cut has undone it.
    """
    life, verb, times, *words = line.split()
    begin, _, end = times.partition("-")
    ids = [int(word) for word in words if word.isdigit()]
    given = dict(word.split("=") for word in words if "=" in word)
    error = next((word.removeprefix("!") for word in words if word.startswith("!")), None)
    utube, key = given.get("utube"), given.get("key")
    labels = [given.get("as", f"t{task_id}") for task_id in ids]
    arguments: dict[str, Any] = {"ids": ids, "delay": 0.0} | {
        name: float(given[name]) for name in ("since", "attempt") if name in given
    }
    result: dict[str, Any] = {name: int(given[name]) for name in COUNTS if name in given}
    result |= {"unsure": True} if "unsure" in words else {}
    if "since" in given or "attempt" in given:
        arguments["how"] = "work"
    if verb in ("put", "again"):
        arguments = {"items": [[label, utube, 0, 0.0] for label in labels], "key": key}
        result |= {"ids": ids} if key is None else {"ends": [ids[0], ids[-1]]}
    elif verb in ("take", "exchange"):
        tasks = zip(ids, labels, strict=True)
        nth = int(given.get("nth", 1))
        result["tasks"] = [[task_id, label, utube, 0, nth] for task_id, label in tasks]
        arguments["count"] = result.get("count", len(ids))
    elif verb == "look":
        result["counts"] = {"total": int(given["total"])}
    answered = end and not error
    verb = {"again": "put again"}.get(verb, verb)
    ended = float(end) if end.strip("?") else None
    return Op(life, verb, tube, float(begin), arguments, ended, result if answered else {}, error)


def found(story: str) -> list[str]:
    """What is wrong with a journal: the tube, its verbs, and the ids of tasks that are there at the end."""
    tube, *lines = [line.strip() for line in story.replace("\n", ";").split(";") if line.strip()]
    left = {int(word) for line in lines if line.startswith("left") for word in line.split()[1:]}
    ops = [op_of(tube, line) for line in lines if not line.startswith("left")]
    lives = [Life(name, [op for op in ops if op.life == name], []) for name in "pabcz"]
    return findings(History(lives), {each.name: set() for each in TUBES} | {tube: left})


def hosts(seconds: float, count: int) -> str:
    """Takes of one task each from a sub-queue with limits, one every few seconds; all are acked at the end."""
    ids = " ".join(map(str, range(1, count + 1)))
    begins = [2 + seconds * number for number in range(count)]
    takes = [
        f"a take {begin}-{begin + seconds / 2} {number} utube=u"
        for number, begin in enumerate(begins, 1)
    ]
    return ";".join([HOSTS.name, f"p put 0-1 {ids} utube=u", *takes, f"a ack 50-51 {ids}"])


FINE = {
    # The loop may have held the first task before it began a call.
    "killed loop": f"""{HOSTS.name}; p put 0-1 1 2 utube=u; c work 1.5-; a take 2-3 2 utube=u; a ack 4-5 2
        z take 20-21 1 utube=u; left 1""",
    "acked": "work; p put 0-1 1; a take 2-3 1; a ack 4-5 1",
    "left": "work; p put 0-1 1; z take 9-10 1; left 1",
    "unknown put, not done": "work; p put 0- 1 2",
    "unknown put, done": "work; p put 0- 1 2; z take 8-9 1 2; left 1 2",
    "refused put": "work; p put 0-1 1 !ConflictError",
    "unknown ack, done": "work; p put 0-1 1; a take 2-3 1; a ack 4- 1",
    "unknown ack, not done": """work; p put 0-1 1; a take 2-3 1; a ack 4- 1; z take 9-10 1 nth=2; left 1""",
    "released": """work; p put 0-1 1; a take 2-3 1; a release 4-5 1; b take 4.5-6 1 nth=2; b ack 7-8 1""",
    "lease over": """work; p put 0-1 1; a take 2-3 1; b take 9-10 1 nth=2
        a ack 11-12 1 !NotTakenError; b ack 13-14 1""",
    "buried by who held it before": """work; p put 0-1 1; a take 2-3 1; b take 9-10 1 nth=2
        a bury 11-12 1; left 1""",
    "buried in a sub-queue by who held it before": """sites; p put 0-1 1 2 utube=u
        a take 2-3 1 utube=u; b take 9-10 1 utube=u nth=2; b release 11-12 1; a bury 13-14 1
        c take 15-16 2 utube=u; c ack 17-18 2; left 1""",
    "utube in order": """sites; p put 0-1 1 2 utube=u; a take 2-3 1 utube=u; a ack 4-5 1
        b take 4.5-6 2 utube=u; b ack 7-8 2""",
    "single, after a killed take": """single; p put 0-1 1 2; a take 2- count=1; b take 4-5 2
        z take 19-20 1; left 1 2""",
    "as many at a time as may be": hosts(1.0, HOSTS.parallel),
    "stopped after a take for longer than its lease": """work; p put 0-1 1; a take 2-11 1
        b take 8-9 1 nth=2; b ack 10-11 1; a ack 16-17 1 !NotTakenError""",
    "stopped before a take": """work; p put 0-1 1; a take 2-11 1 nth=2; b take 3-4 1
        b release 5-6 1; a ack 12-13 1""",
    "stopped before the look at a batch": "work; p put 0-1 1; a take 2-11 count=1; left 1",
    "put again": """work; p put 0-1 1 key=k count=1; p again 2-3 1 key=k count=0; a take 4-5 1; left 1""",
    "killed put": "work; p put 0- 1 key=k",
    "killed put, again": """work; p put 0- 1 key=k; b again 2-3 1 key=k count=1; a take 4-5 1; left 1""",
    # Both were answered after the last look at the log before a power cut, and may be there.
    "ended unseen": "work; p put 0-1 1 key=k count=1; a take 2-? 1; a ack 4-? 1",
    "loop": """work; p put 0-1 1; a work 1.5-9 done=1 failed=1 buried=0; a take 2-3 1 since=3
        a release 4-9 1 attempt=1; a take 5-6 1 nth=2 since=6; a ack 7-9 1 attempt=2""",
    # Stopped while a call was at it, it has taken the task anew when that call ends.
    "loop has it anew": """work; p put 0-1 1; a work 1.5-23 done=1 failed=0 buried=0; a take 2-3 1 since=3
        a take 14-15 1 nth=2 since=15; a ack 16-23 1 attempt=1 unsure; a ack 22-23 1 attempt=2 unsure""",
    # Stopped after it had looked whether the task is held.
    "loop stopped": """work; p put 0-1 1; a work 1.5-17 done=0 failed=0 buried=0; a take 2-3 1 since=7
        b take 8-9 1 nth=2; b ack 10-11 1; a ack 15-17 1 attempt=1 unsure""",
    # Somebody else has buried it meanwhile, and a third one has kicked it.
    "loop robbed": """work; p put 0-1 1; b take 1.2-1.4 1; a work 1.5-17 done=0 failed=0 buried=0
        a take 8-9 1 nth=2 since=13; b bury 10-10.5 1; c take 11-12 1 nth=3; c ack 12-13 1
        a ack 15-17 1 attempt=2 unsure""",
}  # fmt: skip

#: Journals of what must not be, and what is said of each.
WRONG = {
    "work; p put 0-1 1": "LOST",
    "work; p put 0-1 1; a take 2-3 1": "LOST",
    "work; p put 0-1 1; a take 2-3 1; a ack 4-5 1 !NotTakenError": "LOST",
    "work; p put 0- 1 2; z take 8-9 1; left 1": "1 of 2",
    "work; p put 0-1 1 !ConflictError; z take 8-9 1; left 1": "refused",
    "work; p put 0-1 1; z take 8-9 1; z take 8-9 5 as=t1; left 1 5": "was put as",
    """work; p put 0-1 1; a take 2-3 1; a ack 6-8 1
        b take 2.5-5 1 nth=2; b ack 6-7 1""": "DOUBLE",
    "work; p put 0-1 1; a take 2-3 1; a ack 4-5 1; left 1": "DOUBLE",
    """work; p put 0-1 1; a take 2-3 1; b take 4-5 1 nth=2; a ack 6-7 1
        b ack 8-9 1 !NotTakenError""": "HELD TWICE",
    "work; p put 0-1 1; a take 2-2.1 1; b take 3-3.5 1 nth=2; left 1": "HELD TWICE",
    "work; p put 0-1 1; a take 2-3 1; b take 19-20 1; left 1": "for the 1th time",
    """sites; p put 0-1 1 2 utube=u; a take 2-3 1 utube=u; b take 4-5 2 utube=u
        a ack 6-7 1; b ack 8-9 2""": "HELD TWICE: utube u",
    """sites; p put 0-1 1 2 utube=u; a take 2-3 2 utube=u; a ack 4-5 2
        z take 9-10 1 utube=u; left 1""": "t2 before t1",
    """sites; p put 0-1 1 2 utube=u; a take 2-3 1 utube=u; a release 4-5 1
        b take 6-7 2 utube=u; b ack 8-9 2; z take 19-20 1 utube=u nth=2; left 1""": "t2 before t1",
    "single; p put 0-1 1 2; a take 2-3 2; z take 9-10 1; left 1 2": "1 tasks out of order",
    """single; p put 0-1 1 2 3; a take 2- count=1; b take 4-5 3; z take 19-20 1 2
        left 1 2 3""": "2 tasks out of order, 1 excused",
    "small; a look 0-1 total=41": "41 tasks in a tube of 40",
    "work; a touch 0-1 1 !TypeError": "TypeError",
    "work; a take 0-1 1": "was never put",
    "work; p put 0-1 1; z take 2-3 1 utube=x; left 1": "as it was put",
    # Each holds it at the end of both takes, and is not refused.
    """work; p put 0-1 1; a take 2-11 1; b take 8-9 1 nth=2; a ack 12-13 1
        b release 13-14 1""": "HELD TWICE: task t1",
    """sites; p put 0-1 1 2 utube=u; a take 2-13 1 utube=u; b take 8-9 2 utube=u
        a ack 14-15 1; b ack 15-16 2""": "HELD TWICE: utube u",
    hosts(1.0, HOSTS.parallel + 1): f"HELD TWICE: {HOSTS.parallel + 1} tasks of utube u",
    hosts(0.1, HOSTS.rate.tasks + 1): "TOO SOON: 5 tasks of utube u",  # type: ignore[union-attr]
    "work; p put 0-1 1; a take 2-3 count=1; left 1": "1 tasks of a batch are not in its table",
    "work; p put 0-1 1; a take 2-3 1; a ack 4-5 1 settled=0": "0 of 1 tasks were settled",
    "work; p put 0-1 1 key=k count=1; p again 2-3 1 key=k count=1; left 1": "DOUBLE: t1 was put by",
    "work; p put 0- 1 key=k; b again 2-3 1 key=k count=0": "LOST: t1 was put",
    # A take alone ends no task.
    "work; p put 0-1 1 key=k count=1; a take 2-? 1": "LOST: t1 was put",
    """work; p put 0-1 1 key=k count=1; a take 2-3 7 as=t1
        left 7""": "not in the order of rows",
    """work; p put 0-1 1; a work 1.5-17 done=0 failed=0 buried=0; a take 2-3 1 since=9
        b take 8-9 1 nth=2; b ack 10-11 1; a ack 15-17 1 attempt=1 unsure""": "BEGUN LATE: t1",
    """work; p put 0-1 1; a work 1.5-17 done=1 failed=0 buried=0; a take 2-3 1 since=3
        a ack 4-17 1 attempt=1 unsure; b take 18-19 1 nth=2; left 1""": "COUNTED: 1 done, not 0 to 0",
    """work; p put 0-1 1; a work 1.5-5 done=0 failed=0 buried=0; a take 2-3 1 since=3
        a ack 4-5 1 attempt=1""": "COUNTED: 0 done, not 1 to 1",
    """work; p put 0-1 1; a work 1.5-5 done=0 failed=1 buried=0; a take 2-3 1 since=3
        a bury 4-5 1 attempt=1; left 1""": "COUNTED: 0 buried, not 1 to 1",
    """work; p put 0-1 1; a work 1.5-5 done=0 failed=1 buried=0; a take 2-3 1 since=3
        a release 4-5 1 attempt=1""": "LOST: t1 was never acked",
    """work; p put 0-1 1; a work 1.5-17 done=1 failed=0 buried=0; a take 2-3 1 since=3
        a ack 9-17 1 attempt=1; b take 5-6 1 nth=2""": "HELD TWICE: task t1",
    "work; p put 0-1 1; a work 2-3 !NotTakenError; left 1": "(NotTakenError)",
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_findings_of_what_may_be_are_none(name: str) -> None:
    assert found(FINE[name]) == []


@pytest.mark.parametrize("story", WRONG)
def test_findings_of_what_must_not_be_say_so(story: str) -> None:
    assert [text for text in found(story) if WRONG[story] in text], found(story)
