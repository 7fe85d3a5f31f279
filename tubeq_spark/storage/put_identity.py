"""The identity of a put by key or stream, which makes a repetition add nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PutIdentity"]


@dataclass(frozen=True, slots=True)
class PutIdentity:
    """A name that a tube remembers, with its highest version.

    A put is a repetition when a version as high was put before. So a stream, whose batches are
    numbered, takes one place in the tube's memory, however many batches it has.

    Attributes:
        name: Unique in the tube; begins with a prefix for its kind, so that kinds never clash.
        version: 1 for the only put of that name, or the number of a batch, >= 0.
    """

    name: str
    version: int

    @classmethod
    def of_key(cls, key: str) -> PutIdentity:
        """One put, by a key that the program chose."""
        return cls(f"key {key}", 1)

    @classmethod
    def of_batch(cls, stream: str, batch: int) -> PutIdentity:
        """A micro-batch of a stream with a name of the program."""
        return cls(f"stream {stream}", batch)

    @classmethod
    def of_query_batch(cls, query: str, batch: int) -> PutIdentity:
        """A micro-batch of a streaming query, by the query id in its checkpoint."""
        return cls(f"query {query}", batch)
