"""Options that several programs have, and the checks of their values."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a queue, and how it is reached."""
    add = parser.add_argument
    add("--location", help="of the queue: a path, a URI, or catalog.schema")
    add("--remote", metavar="URL", help="Spark Connect server instead of a Spark of its own")
    add("--engine", metavar="NAME", help="who commits: auto, native or spark")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="defaults of these, as conf/tubeq.toml shows them (TUBEQ_CONFIG, or tubeq.toml here)",
    )
    add("--verbose", action="store_true", help="show where an error came from")


def count(text: str, least: int = 0) -> int:
    """An integer >= `least`."""
    number = int(text)
    if number < least:
        msg = f"must be {least} or more"
        raise argparse.ArgumentTypeError(msg)
    return number


def positive_count(text: str) -> int:
    """An integer >= 1."""
    return count(text, least=1)


def seconds(text: str, least: float = 0) -> float:
    """A duration of less than a year."""
    number = float(text)
    if not least <= number < 366 * 86_400:
        msg = f"must be {least:g} or more, and less than a year"
        raise argparse.ArgumentTypeError(msg)
    return number
