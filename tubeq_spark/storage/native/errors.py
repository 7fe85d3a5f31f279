"""Recognises conflicts and lost answers; no other module names errors of the library."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store.store import ExistsError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator


#: How the library's message begins if another commit came first. An error of the storage during a commit has the
#: same class.
_CONFLICTS = (
    "Failed to commit transaction",
    "Tried committing existing table version",
    "Transaction failed: Failed to commit transaction",
)
#: The library's name for local files. Their answers cannot be lost.
_LOCAL = "LocalFileSystem"
#: How the client of an object store names the request that failed, and its status. In its longer texts a
#: coloured arrow stands between two causes.
_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+) in ")
#: The client writes this in place of an address that has a secret, such as a SAS token of Azure.
_HIDDEN = "REDACTED"
_STATUS = re.compile(r"non-2xx status code(?::|\s|\x1b\[\d+m|\u21b3)*(\d{3})")
_NO_CONNECTION = "client error (Connect)"
#: The client's text for a request that it cannot build, such as one by http that is not allowed.
_NOT_MADE = "builder error"
#: How the library refuses a table before it writes anything: it does not know features of the table's protocol, it
#: does not support a single feature, or a property forbids the change.
_FEATURES = re.compile(
    r"Unsupported table features required: \[(?P<required>.+)\]"
    r"|Feature '(?P<one>\w+)' is not supported"
    r"|(?P<property>Delta table is append-only)"
    r"|loading a (?P<managed>catalog-managed) table"
)
#: The remedy for such a refusal.
_HELP = (
    "switch it off (ALTER TABLE … DROP FEATURE, or SET TBLPROPERTIES), or open the queue with a Spark "
    "session and engine='spark'"
)
#: Features that have another name in the library than in the protocol.
_NAMES = {"clusteredTable": "clustering"}
#: Codes for expired credentials, which stores send with other statuses than 401 and 403.
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired")
#: Statuses from 400 to 499 after which a repetition may succeed: the request was slow, or came too often.
_PASSING = ("408", "429")


@contextmanager
def telling(*, is_far: bool = False) -> Iterator[None]:
    """Run a block that writes, and turn errors of the library into outcomes.

    Args:
        is_far: Whether it writes to an object store. There the outcome of a commit that was sent is known by now,
            and has an error of our own.

    Raises:
        StoreError: The library does not write tables with a feature of this one, or nothing was sent.
    """
    try:
        yield
    except (TubeqError, EngineError):
        raise
    except Exception as error:
        if not is_from_library(error):
            raise
        features = unsupported(error)
        if features is not None:
            msg = f"nothing was written, as the native engine does not write tables with {features}: {_HELP}"
            raise StoreError(msg) from error
        told = _told(error)
        if is_far and told.outcome is Outcome.LOST:
            msg = f"nothing was written: {reason_of(error)}"
            raise StoreError(msg, passes=may_pass(error)) from error
        raise told from error


@contextmanager
def reading(hint: str | None = None) -> Iterator[None]:
    """Run a block that reads tables, and turn errors of the library into ours.

    If a table is missing, an `EngineError` says so.

    Args:
        hint: A possible reason, for the message.

    Raises:
        StoreError: The storage failed to read.
    """
    try:
        yield
    except (TubeqError, EngineError):
        raise
    except Exception as error:
        if not is_from_library(error):
            raise
        features = unsupported(error)
        if features is not None:
            msg = f"the native engine does not read tables with {features}: {_HELP}"
            raise StoreError(msg) from error
        told = _told(error)
        if told.missing:
            raise told from error
        msg = f"storage could not be read: {reason_of(error)}"
        told_all = msg if hint is None else f"{msg}; {hint}"
        raise StoreError(told_all, passes=may_pass(error)) from error


def not_written(error: Exception) -> StoreError:
    """The error of a write to a table with features or a log that this package does not know."""
    return StoreError(
        f"nothing was written, as the native engine does not write tables with {error}: {_HELP}"
    )


def unsupported(error: BaseException) -> str | None:
    """The table features that the library refuses; `None` for another error."""
    found = (
        _FEATURES.search(str(error))
        if isinstance(error, Exception) and is_from_library(error)
        else None
    )
    if found is None:
        return None
    if found["property"]:
        return "delta.appendOnly"
    names = found["required"] or found["one"] or "catalogManaged"
    plain = [_named(name) for name in sorted(names.split(", "))]
    return f"the feature{'s' if len(plain) > 1 else ''} {', '.join(plain)}"


def _named(name: str) -> str:
    """The name of a table feature in the protocol, from the library's class name."""
    plain = name.removeprefix('Unknown("').removesuffix('")')
    plain = plain[:1].lower() + plain[1:]
    return _NAMES.get(plain, plain)


def _told(error: Exception) -> EngineError:
    missing = isinstance(error, TableNotFoundError)
    return EngineError(reason_of(error), _outcome_of(error), missing=missing)


def _outcome_of(error: Exception) -> Outcome:
    if isinstance(error, ExistsError):
        return Outcome.CONFLICT
    if isinstance(error, CommitFailedError) and str(error).startswith(_CONFLICTS):
        return Outcome.CONFLICT
    if isinstance(error, OSError) and error.errno is not None:
        # An error of the operating system about a local file. Errors of the library have no number.
        return Outcome.FAILED
    if isinstance(error, (CommitFailedError, OSError)):
        return Outcome.FAILED if _LOCAL in str(error) else Outcome.LOST
    return Outcome.FAILED


def is_from_library(error: Exception) -> bool:
    """Whether the library, or the storage below it, raised it."""
    # DataFusion raises plain Exceptions.
    return isinstance(error, (DeltaError, OSError, ExistsError)) or type(error) is Exception


def is_missing(error: BaseException) -> bool:
    """Whether the table does not exist."""
    return isinstance(error, TableNotFoundError)


def may_pass(error: BaseException) -> bool:
    """Whether a failed request to an object store may succeed if it is repeated."""
    if isinstance(error, RequestError):
        return error.passes
    text = str(error)
    return _REQUEST.search(text) is not None and not _is_refused(text)


def may_have_sent(error: BaseException, version: int) -> bool:
    """Whether a commit of this version may have reached an object store despite an error."""
    if isinstance(error, RequestError):
        return error.was_sent
    text = str(error)
    request = _request(text)
    if is_conflict(error) or request is None:
        # A conflict writes nothing. A text without a request comes from another kind of storage.
        return not is_conflict(error)
    if _is_commit(*request, version):
        return _NO_CONNECTION not in text and not _is_refused(text)
    # Data files are sent before the commit. A request to the log may come after it.
    _, url = request
    return "_delta_log" in url or url == _HIDDEN


def may_be_under_way(error: BaseException, version: int) -> bool:
    """Whether a missing commit may still arrive, because its request got no answer.

    If another request failed, the commit was not sent yet, or was answered: it cannot arrive later.
    """
    if isinstance(error, RequestError):
        return error.was_sent
    request = _request(str(error))
    is_other = request is not None and not _is_commit(*request, version)
    return not is_other and may_have_sent(error, version)


def _request(text: str) -> tuple[str, str] | None:
    """Method and address of the request that failed."""
    found = _REQUEST.search(text)
    # The client of Google Cloud Storage encodes all characters but letters and digits.
    return None if found is None else (found[1], unquote(found[2]))


def _is_commit(method: str, url: str, version: int) -> bool:
    """Whether a request commits a version, or may do so because its address is hidden."""
    return method == "PUT" and (url == _HIDDEN or url.endswith(f"/_delta_log/{version:020}.json"))


def _is_refused(text: str) -> bool:
    """Whether an object store refused the request, or cannot be reached at all."""
    if _NOT_MADE in text:
        return True
    status = _STATUS.search(text)
    return status is not None and status[1].startswith("4") and status[1] not in _PASSING


def is_of_credentials(error: BaseException) -> bool:
    """Whether an object store refused a request, and may accept it with other credentials."""
    if isinstance(error, RequestError):
        return error.is_of_credentials
    text = str(error)
    status = _STATUS.search(text)
    if _REQUEST.search(text) is None or status is None:
        return False
    return status[1] in {"401", "403"} or _EXPIRED.search(text) is not None


def is_conflict(error: BaseException) -> bool:
    """Whether another commit came first, and nothing was written."""
    if isinstance(error, EngineError):
        return error.outcome is Outcome.CONFLICT
    return isinstance(error, Exception) and _outcome_of(error) is Outcome.CONFLICT
