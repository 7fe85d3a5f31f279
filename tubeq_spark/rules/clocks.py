"""How far a host's clock may differ from a store's, and the message if it differs by more."""

from __future__ import annotations

__all__ = ["told_drift"]

#: Seconds; a store tells its time in whole ones.
_MOST = 1.0


def told_drift(seconds: float | None) -> str | None:
    """The message for a store's clock that differs from this host's by too much.

    `None`: nothing, as that is not far, or is not known.
    """
    if seconds is None or abs(seconds) <= _MOST:
        return None
    way = "behind" if seconds > 0 else "ahead of"
    return (
        f"this host's clock is {abs(seconds):.0f} s or more {way} the store's: leases end at the wrong moment, "
        "and stores refuse requests from 15 minutes on; let a time service set it"
    )
