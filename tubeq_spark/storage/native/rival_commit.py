"""The commit by which another process may have made a version on an object store first."""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tubeq_spark.storage.durability.commit_file import info_in
from tubeq_spark.storage.durability.log_names import versions_of
from tubeq_spark.storage.native.delta_log import versions
from tubeq_spark.storage.native.sending import ShortLogError
from tubeq_spark.storage.native.store_log import LOG, StoreLog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from tubeq_spark.storage.native.delta_log.actions import Actions
    from tubeq_spark.storage.store.store import Store

#: Seconds to wait for the answer of `ask_ahead` after the answer to the commit.
_AHEAD_SECONDS = 1.0


class RivalCommit:
    """The commit of a version that others may have made first."""

    def __init__(self, files: Store, uri: str, version: int) -> None:
        self._files, self._uri, self.version = files, uri, version
        self.text: bytes | None = None
        self.tag: str | None = None
        self._ahead: Future[tuple[bytes, str | None]] | None = None

    @property
    def _path(self) -> str:
        return f"{LOG}/{versions.commit_name(self.version)}"

    def ask_ahead(self) -> None:
        """Ask for it while something else is sent. If it does not exist now, it may exist later."""
        self._ahead = self._files.beside(lambda: self._files.get(self._path))

    def is_there(self, seconds: float = 0.0) -> bool:
        """Whether it existed when `ask_ahead` asked for it. Waits so many seconds for the answer."""
        ahead, self._ahead = self._ahead, None
        # A request that still waits behind others is cancelled.
        if ahead is not None and not ahead.cancel():
            # After any error the commit is asked for again where it matters.
            with suppress(OSError, CancelledError, TimeoutError):
                self.text, self.tag = ahead.result(seconds)
        return self.text is not None

    def info(self) -> Mapping[str, Any] | None:
        """Its commit info; `None` if it does not exist.

        Raises:
            ShortLogError: It may have existed.
        """
        if not self.is_there(_AHEAD_SECONDS):
            try:
                self.text, self.tag = self._files.get(self._path)
            except FileNotFoundError:
                self._require_log()
                return None
        try:
            return info_in(self.text or b"")
        except ValueError:
            # A commit that cannot be parsed is not ours.
            return {}

    def _require_log(self) -> None:
        after = None if self.version < 2 else versions.commit_name(self.version - 2)
        listed = versions_of(StoreLog(self._files, self._uri).list_from(after))
        if self.version - 1 not in listed or listed[-1] > self.version:
            msg = f"begins after version {self.version}"
            raise ShortLogError(msg)

    def actions(self) -> Actions:
        """Its actions. Raises as `versions.parsed`."""
        name = versions.commit_name(self.version)
        return versions.parsed(self.text or b"", f"{self._uri}/{LOG}/{name}")
