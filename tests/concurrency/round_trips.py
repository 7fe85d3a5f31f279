"""Prints the requests to an object store for a task, by batch size: `python -m tests.concurrency.round_trips`."""

from __future__ import annotations

from collections import Counter

from tests.concurrency.s3_store import served

__all__ = ["main"]

#: Dollars for a million requests by their method, in Amazon's region us-east-1; a GET is a listing if it has no key.
PRICES = {"PUT": 5.0, "LIST": 5.0, "GET": 0.4}
SIZES, ROUNDS = (1, 10, 100, 1_000), 100


def main() -> None:
    """Print the requests of a task that is put, taken and acked in batches, all of the background with them."""
    for size in SIZES:
        with served() as store, store.open("s3://bucket/queue") as queue:
            tube = queue.create_tube("work", "fifottl", ttr=3600)
            store.requests()
            for _ in range(ROUNDS):
                tube.put_many(range(size))
                tube.ack_many([task.task_id for task in tube.take_many(size)])
            queue.close()
            found = Counter(_kind(line) for line, _ in store.requests())
        tasks = ROUNDS * size
        dollars = sum(PRICES.get(kind, 0.0) * count / tasks for kind, count in found.items())
        told = ", ".join(f"{kind} {count / tasks:.3f}" for kind, count in sorted(found.items()))
        print(f"batches of {size}: {told}; {dollars:.4f} dollars a million tasks")


def _kind(line: str) -> str:
    return "LIST" if line.startswith("GET") and "list-type" in line else line.split(maxsplit=1)[0]


if __name__ == "__main__":
    main()
