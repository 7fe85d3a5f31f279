"""Makes one line from the causes of a request's error, with a hint if the answer of the store is known."""

from __future__ import annotations

import re
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
