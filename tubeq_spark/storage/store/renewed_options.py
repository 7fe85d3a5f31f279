"""The `storage_options` of a location, which a program may renew before its credentials expire."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tubeq_spark.clock import SystemClock
from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.model.validation import refuse
from tubeq_spark.storage.store.patience import Patience
from tubeq_spark.storage.store.store import RequestError

if TYPE_CHECKING:
    from typing import TypeAlias

log = logging.getLogger(__name__)

T = TypeVar("T")
#: Options, or a function that returns them and is called again and again.
StorageOptions: TypeAlias = "Mapping[str, str] | Callable[[], Mapping[str, str]]"

#: Seconds for which the options of a function are used, and the least seconds between two calls of it.
_AGE, _PAUSE = 600.0, 60.0
_CLOCK = SystemClock()


def is_of_credentials(error: BaseException) -> bool:
    """Whether a store refused a request, and may accept it with other credentials."""
    return isinstance(error, RequestError) and error.is_of_credentials


class RenewedOptions:
    """The options that are in force now; safe to use from many threads."""

    def __init__(self, given: StorageOptions | RenewedOptions | None = None) -> None:
        """Call the function, if it is one.

        Raises:
            InvalidOptionError: It does not return options.
            StoreError: The function fails.
        """
        told = given.given if isinstance(given, RenewedOptions) else given
        #: As the program gave them.
        self.given: StorageOptions = {} if told is None else told
        self._function = None if isinstance(self.given, Mapping) else self.given
        self._lock = threading.Lock()
        #: When the function was called last, and when the next call is due.
        self._called_at = self._due_at = -math.inf
        try:
            self._current = self._asked()
        except TubeqError:
            raise
        except Exception as error:
            msg = f"storage_options() failed: {reason_of(error)}"
            raise StoreError(msg) from error
        #: For how long requests are repeated after errors that may pass.
        self.patience = Patience.parse(self._current)

    def current(self) -> Mapping[str, str]:
        """The options. After some minutes the function is called again; if it fails, the old ones stay."""
        # Other threads go on with the old options meanwhile.
        if _CLOCK.monotonic() >= self._due_at and self._lock.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._current

    def tried(self, call: Callable[[Mapping[str, str]], T]) -> T:
        """Run a request with the options, and once more with others if the store refuses their credentials.

        A refused request has done nothing, so a commit is not sent twice.
        """
        options = self.current()
        try:
            return call(options)
        except Exception as error:
            if not is_of_credentials(error) or not self._are_others_than(options):
                raise
        return call(self._current)

    def _are_others_than(self, refused: Mapping[str, str]) -> bool:
        """Whether the current options differ from the refused ones, after a new call of the function if it is time."""
        if self._function is None:
            return False
        with self._lock:
            # Another thread may have called it meanwhile.
            is_late = _CLOCK.monotonic() >= self._called_at + _PAUSE
            if self._current == refused and is_late:
                self._renew()
            return self._current != refused

    def _renew(self) -> None:
        """Call the function again; the lock is held."""
        try:
            found = self._asked()
        # A call of `sys.exit` is a failure, too: the function may be called by the heartbeat, which must go on.
        except (Exception, SystemExit):
            # The function is called again in a minute. The old options may be valid until then.
            self._due_at = self._called_at + _PAUSE
            log.warning("storage_options() failed; the former options stay", exc_info=True)
        else:
            self._current = found

    def _asked(self) -> Mapping[str, str]:
        """Call the function. Options that are no function never change."""
        self._called_at = _CLOCK.monotonic()
        self._due_at = self._called_at + (math.inf if self._function is None else _AGE)
        found = self.given if self._function is None else self._function()
        if not isinstance(found, Mapping):
            # The message has only the type: the contents are secret.
            refuse("storage_options()", type(found).__name__, "a mapping of text to text")
        return dict(found)
