"""Finds the queues that are measured: this one, and what is installed and answers here."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from bench.native.peer import TubeqPeer
from bench.peers import postgres, sqlite, with_procrastinate

if TYPE_CHECKING:
    from pathlib import Path

    from bench.peers.peer import Peer

__all__ = ["DURABILITIES", "find"]

#: Of this queue.
DURABILITIES = ("commit", "table")


def find(place: Path) -> tuple[list[Peer], list[str]]:
    """New queues, and sentences about those that are not here.

    Args:
        place: A directory for the queues on local files.
    """
    found: list[Peer] = [TubeqPeer(place / name, name) for name in DURABILITIES]
    skipped: list[str] = []
    run = f"tubeq_bench_{uuid.uuid4().hex[:12]}"
    uri = os.environ.get(postgres.VARIABLE, "")
    others: list[tuple[str | None, Peer]] = [
        (sqlite.missing(), sqlite.SqlitePeer(place / "queue.sqlite")),
        (postgres.missing(), postgres.PostgresPeer(uri, f"{run}_table")),
        (with_procrastinate.missing(), with_procrastinate.ProcrastinatePeer(uri, f"{run}_jobs")),
    ]
    for missing, peer in others:
        if missing is None:
            found.append(peer)
        else:
            skipped.append(missing)
    return found, skipped
