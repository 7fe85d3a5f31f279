"""The payloads of tasks, which are the same for all queues."""

from __future__ import annotations

import functools
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["payload", "payloads", "texts"]


def payload(number: int) -> dict[str, Any]:
    """The payload of one task."""
    return {"url": f"http://example.org/page/{number}", "depth": 3}


@functools.lru_cache(2)
def texts(count: int) -> list[str]:
    """The payloads of `count` tasks, as JSON."""
    return [json.dumps(payload(number)) for number in range(count)]


def payloads(count: int) -> pa.Array:
    """The same in Arrow."""
    numbers = pa.array(range(count), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(
        '{"url":"http://example.org/page/', numbers, '","depth":3}', ""
    )
