"""Finds the queues that are measured side by side."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from bench.databases import POSTGRES, PostgresPeer, SqlitePeer, missing_postgres
from bench.tubeq import TubeqPeer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from bench.peer import Peer
    from bench.report import Page

__all__ = ["peers"]


def peers(
    page: Page, place: Path, stack: ExitStack, durabilities: Sequence[str] = ("commit", "table")
) -> list[Peer]:
    """New queues of this package by these durabilities, and those on databases that are here.

    Args:
        page: Told what a power cut loses, and what is not here.
        place: A directory for the queues on local files.
        stack: Removes them when it ends.
        durabilities: Of this package.
    """
    found: list[Peer] = [TubeqPeer(place / name, name) for name in durabilities]
    found.append(SqlitePeer(place / "queue.sqlite"))
    missing = missing_postgres()
    if missing is None:
        found.append(PostgresPeer(os.environ[POSTGRES], f"tubeq_bench_{uuid.uuid4().hex[:12]}"))
    else:
        page.skipped[missing] = None
    for peer in found:
        stack.callback(peer.remove)
        page.queues[peer.name] = peer.about
    return found
