"""Errors of the client of object stores as ours. No other module reads its messages."""

from __future__ import annotations

import re
from urllib.parse import unquote

from tubeq_spark.model.error_text import in_one_line
from tubeq_spark.storage.store.store import RequestError

#: How the client names the request that failed, and the status of the answer.
_REQUEST = re.compile(r"Error performing ([A-Z]+) (\S+) in ")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
#: The client writes this in place of an address that has a secret, such as a SAS token of Azure.
_HIDDEN = "REDACTED"
#: The client's text for a request that it cannot build, such as one by http that is not allowed.
_NOT_MADE = "builder error"
#: Codes for expired credentials, which stores send with other statuses than 401 and 403.
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired")
#: A missing bucket has the same status as a missing object.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
#: Statuses from 400 to 499 after which a repetition may succeed: the request was slow, or came too often.
_PASSING = (408, 429)
#: After this the client has details for its developers, with causes that its message leaves out.
_DEBUG = "\n\nDebug source:"
_NO_CONNECTION = "client error (Connect)"
_CAUSES = (
    (re.compile(r"kind: Connect\b"), _NO_CONNECTION),
    (re.compile(r"\bBadScheme\b"), "URL scheme is not allowed"),
    (re.compile(r"kind: Timeout\b|\bTimedOut\b"), "operation timed out"),
)
#: Texts of deeper causes in these details.
_SAID = re.compile(r'^\s*(?:message: )?"([^"]+)",?$', re.MULTILINE)
#: Between two causes in its message.
_BETWEEN = re.compile(r": (?=Error performing|<)| - ")


def request_error(error: BaseException, bucket: str, key: str) -> RequestError:
    """The error of a failed request, from the client's error and the URI of the bucket and the key."""
    causes = _causes(error)
    text = "\n".join(causes)
    request, found = _REQUEST.search(text), _STATUS.search(text)
    status = None if found is None else int(found[1])
    is_refused = _NOT_MADE in text or (
        status is not None and 400 <= status < 500 and status not in _PASSING
    )
    # A request for credentials comes before it, to another address. The client of Google encodes most characters.
    is_other = request is not None and not (
        request[2] == _HIDDEN or unquote(request[2].partition("?")[0]).endswith(f"/{key}")
    )
    is_of_credentials = status in (401, 403) or _EXPIRED.search(text) is not None
    return RequestError(
        text_of(error, bucket, key),
        status=status,
        was_sent=not (is_other or is_refused or _NO_CONNECTION in causes),
        passes=request is not None and not is_refused,
        is_of_credentials=request is not None and status is not None and is_of_credentials,
    )


def text_of(error: BaseException, bucket: str, key: str) -> str:
    """The message of the client's error in one line, with the address of the request."""
    hidden, address = f" {_HIDDEN} in ", f" {bucket}/{key} in "
    return in_one_line(cause.replace(hidden, address) for cause in _causes(error))


def is_of_file(error: FileNotFoundError) -> bool:
    """Whether a file that should be read or removed is missing; otherwise its bucket is."""
    text = str(error)
    request = _REQUEST.search(text)
    is_put = request is not None and request[1] == "PUT"
    return not is_put and _NO_BUCKET.search(text) is None


def _causes(error: BaseException) -> list[str]:
    """The causes in the message of an error, the outermost first."""
    said, _, debug = str(error).partition(_DEBUG)
    causes = [cause for pattern, cause in _CAUSES if pattern.search(debug)]
    return [*_BETWEEN.split(said), *causes, *_SAID.findall(debug)]
