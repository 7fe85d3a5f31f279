"""Lists values of the wrong kind or out of range for each kind of argument."""

from __future__ import annotations

import math
from typing import Any

NO_NUMBERS: list[Any] = ["1", "a", True, False, math.nan, math.inf, -math.inf, [1], b"1", 1j, {}]
NO_DURATIONS = [*NO_NUMBERS, -1, -0.001]
NO_LEASES = [*NO_DURATIONS, 0, 0.0]
NO_COUNTS = [*NO_NUMBERS, -1, 1.5, 2.0]
NO_PRIS = [*NO_COUNTS, 2**31]
NO_IDS: list[Any] = ["1", True, 1.0, 1.5, math.nan, None, [1], b"1", {}]
NO_UTUBES: list[Any] = [1.5, True, b"a", [1], "\ud800"]
NO_NAMES: list[Any] = [
    "",
    "_x",
    "_tubeq_tubes",
    "a" * 33,
    "a b",
    "a-b",
    "a.b",
    "a/b",
    "../a",
    "a`b",
    "a'b",
    "a\n",
    "ä",
    "\u0661",
    b"a",
    1,
    True,
    None,
]
NO_STORAGE_MODES: list[Any] = ["foo", "", 1, True]
NO_BOOLEANS: list[Any] = ["yes", 1, 0, 1.5]
