"""Writes the calls of worker loops into the history."""

from __future__ import annotations

import functools
from inspect import getclosurevars
from typing import TYPE_CHECKING, Any

from tests.simulation.history import US

if TYPE_CHECKING:
    from tests.simulation.queue_program import Program
    from tubeq_spark.tube import Tube

#: The methods of a tube by which a worker loop takes and ends tasks.
_WORKED = ("take_many", "exchange", "ack_many", "release_many", "_settle")
#: How a history names the verbs with which the loop calls the last one.
_SETTLED = {"release": "retry", "bury": "bury_held", "give_back": "give_back", "renew": "renew"}


class Worked:
    """A tube for a worker loop. It writes the calls into the history, and checks that handlers of acked tasks returned."""

    def __init__(self, program: Program, tube: Tube, done: set[int]) -> None:
        self._program, self._tube, self._done = program, tube, done

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tube, name)
        if name not in _WORKED:
            return found

        def written_down(*given: Any, **options: Any) -> Any:
            verb = _SETTLED[given[0].name] if name == "_settle" else name
            args = dict(options)
            if verb == "exchange":
                args["n"] = args.pop("take")
            else:
                args["n" if verb == "take_many" else "ids"] = given[name == "_settle"]
            if verb == "retry":
                how = getclosurevars(given[0].change).nonlocals["how"]
                if not how.by_backoff:
                    # The loop has stopped this call, so its task is ready at once.
                    args["delay"] = 0
                elif self._tube.type.endswith("ttl"):
                    args["backoff"] = [US, 2.0, 3600 * US]
            acked = args.get("ack", args["ids"] if verb == "ack_many" else ())
            assert self._done.issuperset(acked), "a task is acked whose handler has not returned"
            call = functools.partial(found, *given, **options)
            return self._program.call(verb, self._tube.name, args, call, raises=True)

        return written_down
