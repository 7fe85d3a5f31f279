"""Runs verbs in another thread, where no interrupt can be raised, while the main thread waits.

Python raises `KeyboardInterrupt`, and other exceptions of signal handlers, between any two
bytecodes of the main thread, and in no other thread. So a verb that the main thread calls runs in a
thread of this module. An interrupt ends the wait, not the verb: the verb begins nothing new,
finishes the requests that it has sent, and undoes results that no caller will get (`if_interrupted`). The main
thread waits for that until a second interrupt, or for `PATIENCE` seconds; then the verb ends in the
background. Verbs of other threads run in their own threads. No interrupt is raised there, but a function of the
program, such as a callback, may end the thread (`SystemExit`). Then the result is undone, too.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import logging
import os
import threading
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubeq_spark.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
log = logging.getLogger(__name__)

#: The name of the threads that run verbs of the main thread.
THREAD_NAME = "tubeq-verbs"
#: Seconds that the main thread waits for the end of a verb that was interrupted.
PATIENCE = 10.0
#: Seconds between two checks for an interrupt that has not woken the main thread.
_LOOK = 0.2
#: Seconds that the end of the process waits for verbs in the background.
_AT_EXIT = 30.0


class _Call(Generic[T]):
    """A verb that a thread of the program waits for."""

    def __init__(self, verb: Callable[[], T]) -> None:
        self._verb = verb
        self._context = copy_context()
        self.undos: list[Callable[[], object]] = []
        self.thens: list[Callable[[], object]] = []
        self.is_interrupted = False
        #: Whether `gives_up` has told the verb not to retry.
        self.gave_up = False
        self.result: T | None = None
        self.error: BaseException | None = None
        #: Locks, because an interrupt cannot strike within a call of a C function. `_begun` is held once the verb has
        #: begun; `_decided`, once it has ended or its caller was interrupted; `ended`, until the verb has ended.
        self._begun, self._decided = _thread.allocate_lock(), _thread.allocate_lock()
        self.ended = _thread.allocate_lock()
        self.ended.acquire()

    def run(self) -> None:
        """Run the verb, in a thread in which no interrupt is raised."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            if not self.is_interrupted:
                _current.call = self
                self.result = self._context.run(self._verb)
        except BaseException as error:  # noqa: BLE001  (the caller of the verb gets it)
            self.error = error
        finally:
            _current.call = None
            if not self._decided.acquire(blocking=False) or _ends_thread(self.error):
                self.undo()
            self.ended.release()

    def interrupt(self) -> None:
        """Make the verb end, and undo a result that its caller will not get."""
        self.is_interrupted = True
        if self._decided.acquire(blocking=False):
            # The call is sent again, because the interrupt may have come before it was sent.
            _send(self)
            ended = self.ended
        else:
            undoing = _Call(self.undo)
            _send(undoing)
            ended = undoing.ended
        if not ended.acquire(timeout=PATIENCE):
            log.warning("an interrupted verb goes on in the background; what it takes goes back")

    def undo(self) -> None:
        """Undo results that the caller does not get."""
        undos, self.undos = self.undos, []
        for undo in reversed(undos):
            try:
                undo()
            except Exception:
                log.exception("what an interrupted verb has done could not be undone")


class _Current(threading.local):
    """The call that runs in this thread."""

    call: _Call[Any] | None = None


_current = _Current()


def uninterrupted(
    verb: Callable[[], T],
    *,
    carried: Callable[[Callable[[], T]], Callable[[], T]] | None = None,
    then: Callable[[], object] | None = None,
) -> T:
    """Run a verb so that an interrupt of the main thread, or the end of another one, leaves nothing half done.

    Args:
        verb: The function to run.
        carried: Wraps a function so that it does the same in another thread.
        then: Called by the calling thread after the verb has ended in any way.

    Returns:
        The result of `verb`.
    """
    if _current.call is not None:
        # This call is a part of another verb, which is safe already.
        if then is not None:
            _current.call.thens.append(then)
        return verb()
    in_main = threading.get_ident() == threading.main_thread().ident
    call = _Call(carried(verb) if in_main and carried is not None else verb)
    if then is not None:
        call.thens.append(then)
    try:
        if in_main:
            _send(call)
            # Not every interrupt wakes a thread that waits for a lock.
            while not call.ended.acquire(timeout=_LOOK):
                pass
        else:
            call.run()
        for each in call.thens:
            each()
    except BaseException:
        call.interrupt()
        raise
    # From here on no function is called: Python runs signal handlers after calls, and where functions begin.
    if call.error is not None:
        try:
            raise call.error
        finally:
            # The traceback of the error refers to this call, so keeping it would make a cycle.
            call.error = None
    return call.result  # type: ignore[return-value]  # without an error there is one


def _ends_thread(error: BaseException | None) -> bool:
    """Whether an error ends its thread, so that no caller has the result."""
    return isinstance(error, (SystemExit, KeyboardInterrupt))


def if_interrupted(undo: Callable[[], object]) -> None:
    """Register an undo that runs if this thread's verb is interrupted, because its caller then gets no result."""
    call = _current.call
    if call is not None:
        call.undos.append(undo)


def is_interrupted() -> bool:
    """Whether the verb of this thread was interrupted, so that no caller waits for its result."""
    call = _current.call
    return call is not None and call.is_interrupted


def gives_up() -> bool:
    """Whether the verb of this thread must not retry. It is true only once, so that the verb can still tidy up."""
    call = _current.call
    if call is None or not call.is_interrupted or call.gave_up:
        return False
    call.gave_up = True
    return True


@contextlib.contextmanager
def for_others() -> Iterator[None]:
    """Run a block that also works for other threads, so that an interrupt of this caller must not end it."""
    call, _current.call = _current.call, None
    try:
        yield
    finally:
        _current.call = call


# -- the threads --------------------------------------------------------------------------------

#: Calls to run; `None` ends a thread.
_calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
#: The running threads, and an entry for each of them that waits for a call. The threads themselves change these.
_threads: list[threading.Thread] = []
_waiting: list[None] = []


def _send(call: _Call[T]) -> None:
    """Run a call in an idle thread or a new one; may be called twice."""
    if not _waiting:
        thread = threading.Thread(target=_run_calls, name=THREAD_NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # A process that ends cannot start threads.
            call.run()
            return
    _calls.put(call)


def _run_calls() -> None:
    _threads.append(threading.current_thread())
    while True:
        _waiting.append(None)
        call = _calls.get()
        _waiting.pop()
        if call is None:
            break
        call.run()
        # The call holds the result of the verb.
        del call
    _threads.remove(threading.current_thread())


def _end_threads() -> None:
    """Wait for verbs in the background, because a thread within a library must end before the interpreter does."""
    clock = SystemClock()
    until = clock.monotonic() + _AT_EXIT
    threads = list(_threads)
    for _ in threads:
        _calls.put(None)
    for thread in threads:
        thread.join(max(0.0, until - clock.monotonic()))


def _begin_anew() -> None:
    """Reset the state after a fork: the threads belong to the parent process."""
    global _calls  # noqa: PLW0603  (a thread of the parent process may hold its lock)
    _calls = SimpleQueue()
    _threads.clear()
    _waiting.clear()


atexit.register(_end_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
