"""Makes readable sentences from errors of Spark, of object stores, and of missing packages."""

from __future__ import annotations

import contextlib
import errno
import json
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The wrapper of each request error, which has no information.
_WRAPPERS = re.compile(
    r"^(?:Kernel error -> )?(?:Generic (\w+) error|Error performing list request)$"
)
_CODE = re.compile(r"<Code>(.*?)</Code>", re.DOTALL)
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
#: The most characters of an answer. If a page of HTML answers in place of a store, its beginning is enough.
_MOST = 300
#: Hints by texts in an answer of a store; the first one that fits is used. The error codes are those of S3 and of
#: other stores.
_STORE_HELP = (
    (
        r"SignatureDoesNotMatch|AuthenticationFailed",
        "the secret is wrong: look at AWS_SECRET_ACCESS_KEY (Azure: the account key)",
    ),
    (r"InvalidAccessKeyId", "the key is unknown there: look at AWS_ACCESS_KEY_ID and the endpoint"),
    (
        r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist",
        "create the bucket first, or look at its name, the endpoint and the region",
    ),
    (
        r"URL scheme is not allowed",
        "the endpoint is http: set AWS_ALLOW_HTTP (Azure, GCS: allow_http) to 'true', or name an https one",
    ),
    (
        r"RequestTimeTooSkewed|Request is not yet valid|RequestExpired",
        "the clocks of this host and of the store are minutes apart: set this host's",
    ),
    (
        r"ExpiredToken|TokenRefreshRequired",
        "the credentials have expired: open the queue with new ones",
    ),
    (
        r"AccessDenied|AuthorizationPermissionMismatch",
        "the key may not do this: give it the right to",
    ),
    (
        r"Missing \w+|169\.254\.169\.254",
        "credentials are missing: look at the names and values in storage_options",
    ),
    (
        r"dns error",
        "no host has that name: look at the endpoint and the region in storage_options",
    ),
    (
        r"client error \(Connect\)",
        "nothing answers there: look at the endpoint, and whether the store is up",
    ),
    (
        r"operation timed out|body error",
        "the store is slow or silent; on a slow line raise timeout and retry_timeout in storage_options",
    ),
    (r"\b(?:429|503)\b", "the store is busy: try again later, with fewer requests at once"),
)
#: Hints for errors that the operating system reports for a file.
_HELP = {
    errno.EACCES: "this process may not: give its user the right to read and write there",
    errno.EPERM: "this process may not: give its user the right to read and write there",
    errno.EROFS: "it is mounted for reading only",
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "the quota of its user is used up: make room",
    errno.EMFILE: "this process has too many files open: close queues, or raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many files open",
}
#: py4j writes this before a Java exception; it has no information.
_PY4J = "An error occurred while calling "
_CAUSED_BY = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*([\w$]+(?:: .*)?)$", re.MULTILINE)
#: The error number of the operating system in messages of Python and Arrow.
_ERRNO = re.compile(r"\[[Ee]rrno -?\d+\] ")
_PACKAGE = re.compile(r"^(?:: )?(?:[a-z][\w$]*\.)+(?=[A-Z])")
_NAME = "tubeq-spark"


def in_one_line(parts: Iterable[str]) -> str:
    """All causes of a request's error in one line, with a hint if known."""
    causes: list[str] = []
    for part in map(_said, parts):
        wrapper = _WRAPPERS.match(part)
        if wrapper is None:
            causes.append(part)
        elif wrapper[1] and not causes:
            causes.append(wrapper[1])
    line = ": ".join(cause for cause in causes if cause)
    helps = next((help_ for found, help_ in _STORE_HELP if re.search(found, line)), None)
    return line if helps is None else f"{line} ({helps})"


def _said(part: str) -> str:
    """The message of one line; for an answer in XML its code and message."""
    code, message = _CODE.search(part), _MESSAGE.search(part)
    if code is None:
        plain = " ".join(part.split())
        return plain if len(plain) <= _MOST else f"{plain[:_MOST]}\u2026"
    before = " ".join(part[: part.index("<")].split())
    said = [before, code[1].strip(), "" if message is None else " ".join(message[1].split())]
    return ": ".join(text for text in said if text)


def reason_of(error: BaseException) -> str:
    """Return the message of an error as one line, with its first cause if that differs.

    The cause comes from the Java stack trace in errors of PySpark, classic or over Connect.
    """
    lines = [line for line in _text(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(_PY4J):
        lines = lines[1:]
    said = _PACKAGE.sub("", lines[0]).strip() if lines else ""
    said = said or type(error).__name__
    if isinstance(error, OSError):
        said = _ERRNO.sub("", said)
        if error.errno in _HELP:
            return f"{said} ({_HELP[error.errno]})"
    causes = _CAUSED_BY.findall(_trace(error))
    if not causes or causes[-1].partition(": ")[2] in said:
        return said
    return f"{said} (caused by {causes[-1].strip()})"


def _text(error: BaseException) -> str:
    # A Java error requests its text from the JVM, whose connection may be closed.
    with contextlib.suppress(Exception):
        return str(error)
    with contextlib.suppress(Exception):
        return str(error.args[0])
    return ""


def _trace(error: BaseException) -> str:
    """The Java stack trace in an error; "" if it has none."""
    trace = getattr(error, "_stackTrace", None)
    if trace is None and hasattr(error, "getStackTrace"):
        trace = error.getStackTrace()
    if trace is None and hasattr(error, "java_exception"):
        trace = _text(error)
    return trace if isinstance(trace, str) else ""


def how_to_install(*extras: str, origin: str | None = None) -> str:
    """Return the command that installs extras.

    Args:
        *extras: Their names.
        origin: The contents of `direct_url.json` of an installation from a clone or a wheel; by
            default those of this installation. The command then needs no package index.
    """
    place = _place(origin)
    wanted = f"{_NAME}[{','.join(extras)}]"
    return f"pip install '{wanted} @ {place}'" if place else f"pip install '{wanted}'"


def missing(error: ModuleNotFoundError, *extras: str) -> ModuleNotFoundError:
    """Return the error for an import that needs extras."""
    package = (error.name or "").partition(".")[0]
    said = f"{package} is not installed: {how_to_install(*extras)}"
    return ModuleNotFoundError(said, name=error.name, path=error.path)


def _place(origin: str | None) -> str:
    """The URL of the clone or wheel; empty if the package came from an index."""
    if origin is None:
        with suppress(PackageNotFoundError):
            origin = distribution(_NAME).read_text("direct_url.json")
    with suppress(ValueError, AttributeError):
        url = json.loads(origin or "{}").get("url", "")
        return url if isinstance(url, str) and url.startswith("file:") else ""
    return ""
