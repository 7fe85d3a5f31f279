"""How far a host's clock may be from a store's, and what is said of one that is further off."""

from __future__ import annotations

__all__ = ["MOST_DRIFT", "told_drift"]

#: Seconds; a store tells its time in whole ones.
MOST_DRIFT = 1.0


def told_drift(seconds: float) -> str:
    """What to say of a store's clock that is so far ahead of this host's, or behind it."""
    way = "behind" if seconds > 0 else "ahead of"
    return (
        f"this host's clock is {abs(seconds):.0f} s or more {way} the store's: leases end at the wrong moment, "
        "and stores refuse requests from 15 minutes on; let a time service set it"
    )
