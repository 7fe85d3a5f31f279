"""Options for the Java processes that live for as long as some tests."""

from __future__ import annotations

__all__ = ["SHORT_LIVED"]

#: In minutes most code runs too seldom for the second compiler to pay: with it a session, a queue and a
#: tube are there after 42 seconds of processor time, without it after 23.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
