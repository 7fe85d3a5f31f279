"""Turns the errors of the client of object stores into ours: one line with all causes, and a hint if the answer is known.

No other module reads messages of the client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tubeq_spark.storage.store.store import RequestError

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
    (r"ExpiredToken|TokenRefreshRequired", "the credentials have expired: open the queue anew"),
    (r"AccessDenied|AuthorizationPermissionMismatch", "the key lacks the right to do this"),
    (r"Missing \w+|169\.254\.169\.254", "credentials are missing: look at storage_options"),
    (r"dns error", "no host has that name: look at the endpoint and the region"),
    (r"client error \(Connect\)", "nothing answers there: look at the endpoint and the store"),
    (
        r"operation timed out|body error",
        "the store is slow or silent; on a slow line raise timeout and retry_timeout in storage_options",
    ),
    (r"\b(?:429|503)\b", "the store is busy: try again later, with fewer requests at once"),
)


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
    hidden, address = f" {_HIDDEN} in ", f" {bucket}/{key} in "
    return RequestError(
        in_one_line(cause.replace(hidden, address) for cause in causes),
        was_sent=not (is_other or is_refused or _NO_CONNECTION in causes),
        passes=request is not None and not is_refused,
        is_of_credentials=request is not None and status is not None and is_of_credentials,
    )


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
