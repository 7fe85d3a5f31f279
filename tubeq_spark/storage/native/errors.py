"""Turns errors of storage into ours, with what they mean for a statement."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from tubeq_spark.errors import StoreError
from tubeq_spark.model.error_text import reason_of
from tubeq_spark.storage.arrow.evaluate import NotByArrowError
from tubeq_spark.storage.log.actions import UnknownLogError
from tubeq_spark.storage.outcome import EngineError, Outcome
from tubeq_spark.storage.store.patience import passes
from tubeq_spark.storage.store.store import ExistsError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The remedy for a table that this package does not know.
_SWITCH_OFF = (
    "switch off features that it does not know (ALTER TABLE … DROP FEATURE, or SET TBLPROPERTIES)"
)
#: The errors of a storage.
OF_STORAGE = (OSError, ExistsError)
#: The errors of a query or a statement that Arrow cannot compute, or not from the files of a table.
OF_ROWS = (NotByArrowError, pa.ArrowException)


@contextmanager
def telling() -> Iterator[None]:
    """Run a block that writes, and turn errors of the storage into outcomes.

    Raises:
        StoreError: Nothing was written: the table has features, or a request failed before the commit.
        EngineError: Another error of the storage, or rows cannot be computed.
    """
    try:
        yield
    except UnknownLogError as error:
        msg = f"nothing was written, as the native engine cannot write this table: {error}; {_SWITCH_OFF}"
        raise StoreError(msg) from error
    except RequestError as error:
        # The outcome of a commit that was sent is known by now, and has an error of our own.
        raise StoreError(f"nothing was written: {reason_of(error)}", passes=error.passes) from error
    except ExistsError as error:
        raise EngineError(reason_of(error), Outcome.CONFLICT) from error
    except (OSError, *OF_ROWS) as error:
        raise EngineError(reason_of(error), Outcome.FAILED) from error


@contextmanager
def reading(hint: str | None = None) -> Iterator[None]:
    """Run a block that reads tables, and turn errors of the storage into ours.

    Args:
        hint: A possible reason, for the message.

    Raises:
        StoreError: The storage failed to read, or this package cannot read the table.
    """
    try:
        yield
    except UnknownLogError as error:
        msg = f"the native engine cannot read this table: {error}; {_SWITCH_OFF}"
        raise StoreError(msg) from error
    except (*OF_STORAGE, *OF_ROWS) as error:
        msg = f"storage could not be read: {reason_of(error)}"
        if hint is not None:
            msg = f"{msg}; {hint}"
        raise StoreError(msg, passes=passes(error)) from error
