"""The error of an object store's clock.

It is read by a request without credentials: a refusal has the header with the time, too.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tubeq_spark.clock import SystemClock
from tubeq_spark.storage.store.store_options import with_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from tubeq_spark.clock import Clock

#: Seconds to wait for the answer, and the precision of the time in it.
_PATIENCE, _PRECISION = 1.0, 1.0
#: A region of Amazon or an account of Azure. Nothing else becomes part of a host's name.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def endpoint(location: str, options: Mapping[str, str]) -> str | None:
    """The address of the store of a location; `None` if unknown, or behind a proxy."""
    given = with_environment(options)
    if "proxy_url" in given:
        return None
    named = given.get("endpoint_url") or given.get("endpoint") or given.get("storage_endpoint")
    if named is not None:
        return named if named.startswith(("http://", "https://")) else None
    place = urlsplit(location)
    if place.scheme in {"s3", "s3a"}:
        region = given.get("region") or given.get("default_region") or "us-east-1"
        return f"https://s3.{region}.amazonaws.com" if _NAME.fullmatch(region) else None
    if place.scheme in {"abfs", "abfss"}:
        host = (place.hostname or "").lower()
        return f"https://{host}" if host.endswith(".core.windows.net") else None
    if place.scheme == "az":
        account = given.get("storage_account_name") or given.get("account_name") or ""
        return f"https://{account}.blob.core.windows.net" if _NAME.fullmatch(account) else None
    return "https://storage.googleapis.com" if place.scheme in {"gs", "gcs"} else None


def drift(url: str, clock: Clock | None = None) -> float | None:
    """Seconds by which a store's clock is ahead at least; negative if behind; `None` if unknown.

    Args:
        url: Its address.
        clock: This host's, by default the system's.
    """
    clock = SystemClock() if clock is None else clock
    asked = clock.now().timestamp()
    headers = _headers(url)
    answered = clock.now().timestamp()
    date = None if headers is None else headers["Date"]
    if date is None:
        return None
    with suppress(ValueError, TypeError):
        # The header has whole seconds, and was written between these two moments.
        said = parsedate_to_datetime(date).timestamp()
        return max(said - answered, 0.0) or min(said + _PRECISION - asked, 0.0)
    return None


def _headers(url: str) -> Message | None:
    try:
        with urlopen(Request(url, method="HEAD"), timeout=_PATIENCE) as answer:  # noqa: S310
            found: Message = answer.headers
            return found
    except HTTPError as error:
        error.close()
        return error.headers
    except (URLError, OSError, HTTPException, ssl.SSLError, ValueError):
        return None
