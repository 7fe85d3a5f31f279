"""Judges the notes of all commits of a simulated run by the journal of its storage."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Violation
from tubeq_spark.storage.statement import Note, note_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.sim_store import Event

_COMMIT = re.compile(r"(.*)/_delta_log/(\d{20})\.json")
_TAKES = ("take", "exchange")
#: Operations that may be decided by remembered tasks, by nothing, or by what was read before.
_MAY_READ_NOTHING = {
    "ack", "put", "release", "touch", "bury", "delete", "renew", "give_back", "forget",
}  # fmt: skip


def check_notes(journal: list[Event]) -> list[Violation]:
    """What is wrong with the notes of the commits to tubes."""
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
    """What is wrong with the note of a verb's commit to a tube."""
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
