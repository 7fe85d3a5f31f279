"""Chooses the engine for the row verbs of a queue and of its tubes: the native engine where it is safe, else Spark.

A commit of the native engine removes rows and adds rows. Delta's change feed would not show which
of them are the same task, and a stream of changes would report a take as a put.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import how_to_install, reason_of
from tubeq_spark.model.validation import refuse
from tubeq_spark.storage.location import TUBES, Location, local_directory
from tubeq_spark.storage.opened_location import allows_one_engine_only
from tubeq_spark.storage.tables.schema import WRITERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tubeq_spark.config import QueueConfig
    from tubeq_spark.model.options import TubeOptions
    from tubeq_spark.runtime.context import QueueContext
    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.opened_location import OpenedLocation
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.spark.put_files import PutFiles
    from tubeq_spark.storage.store.store_options import StorageOptions

log = logging.getLogger(__name__)

ENGINES = ("auto", "spark", "native")
#: The environment variable that replaces "auto".
_VARIABLE = "TUBEQ_ENGINE"
#: The client of object stores.
_CLIENT = "obstore"
#: Parts of a URI that this client changes.
_MISREAD_IN_URIS = re.compile(r'[%\\#?\[\]{}^`|<>"]|//|/\.{1,2}(/|$)')


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of a queue object.

    Attributes:
        name: "spark", "native", or "memory".
        rows: The engine that runs its row verbs, and reads and writes the system tables.
        spark: The engine that makes DataFrames of its tables; `None` without a Spark session.
        opens: Opens the location, for an engine that knows where its tables are; else `None`.
        storage_options: The options by which the native engine reaches the storage.
        shares: Whether Spark runs statements of a native `rows` that need much memory of this process.
    """

    name: str
    rows: Engine
    spark: SparkEngine | None
    opens: Callable[[QueueConfig], OpenedLocation] | None = None
    storage_options: StorageOptions | None = None
    shares: bool = False

    def put_files(self) -> PutFiles | None:
        """Has Spark write the rows of DataFrames for native commits; `None` unless both engines are used."""
        from tubeq_spark.storage.native.engine import NativeEngine  # noqa: PLC0415  it is optional
        from tubeq_spark.storage.spark.put_files import PutFiles  # noqa: PLC0415  pyspark is optional

        if self.spark is None or not isinstance(self.rows, NativeEngine):
            return None
        return PutFiles(self.spark, self.rows.put_directories)

    def close(self) -> None:
        """Release the resources of both engines."""
        self.rows.close()
        if self.spark is not None and self.spark is not self.rows:
            self.spark.close()


def engines_of(
    spark: SparkSession | None,
    text: object,
    wanted: object,
    storage_options: StorageOptions | None,
) -> Engines:
    """Choose the engines for a location, without a commit.

    Args:
        spark: The program's session, if it has one.
        text: The location as it was given.
        wanted: One of `ENGINES`.
        storage_options: The options by which the native engine reaches the storage; `None` uses those of the
            session and the environment.

    Raises:
        InvalidOptionError: Not a location, or not an engine.
        StoreError: The engine cannot work there.
    """
    location = Location.parse(text)
    name = _chosen(spark, location, wanted, storage_options)
    through_spark = None
    if spark is not None:
        from tubeq_spark.storage.spark.engine import SparkEngine  # noqa: PLC0415  pyspark is optional

        through_spark = SparkEngine(spark)
    if name == "native":
        from tubeq_spark.storage.native.engine import NativeEngine  # noqa: PLC0415  it is optional

        options: StorageOptions | None = storage_options
        if spark is not None and options is None:
            options = _options_of(spark, location)
        rows = NativeEngine(options)
        why_not, shares = None, False
        if spark is not None and _asked(wanted) == "auto":
            if storage_options is None:
                why_not = _why_left_to_spark(spark, rows, location)
            shares = local_directory(location.text) is not None and _is_classic(spark)
        if why_not is None:
            return Engines(name, rows, through_spark, storage_options=options, shares=shares)
        log.info("row verbs at %s are run by Spark: %s", location.text, why_not)
        rows.close()
        name = "spark"
    if through_spark is None:
        msg = "engine='spark' needs a Spark session"
        raise StoreError(msg)
    return Engines(name, through_spark, through_spark)


def _options_of(spark: SparkSession, location: Location) -> Mapping[str, str] | None:
    """The options by which the native engine reaches a location, from the settings of a session."""
    if local_directory(location.text) is not None:
        return None
    from tubeq_spark.storage.spark.open_location import store_options  # noqa: PLC0415  optional

    return store_options(spark, location.text)


def _why_left_to_spark(spark: SparkSession, rows: Engine, location: Location) -> str | None:
    """Why "auto" chooses Spark where only one engine may commit; `None` if it chooses the native engine."""
    if not allows_one_engine_only(location.text):
        return None
    from tubeq_spark.storage.spark.open_location import commits_by_dynamodb  # noqa: PLC0415  optional

    try:
        registry = location.table(TUBES)
        theirs = None
        if rows.tables.is_table(registry):
            theirs = rows.tables.properties(registry).get(WRITERS)
    except TubeqError as error:
        return f"the native engine does not reach it: {reason_of(error)}"
    if theirs is None and commits_by_dynamodb(spark, location.text):
        return "the session has a log store for it"
    return "its commits are made by Spark" if theirs == "spark" else None


def needs_spark(text: object, wanted: object = "auto") -> bool:
    """Whether a queue needs a Spark session; otherwise a program need not start one.

    Nothing is read. If the native engine was asked for and cannot work, the answer is no, too: opening the
    queue raises the reason.

    Args:
        text: The location as it was given.
        wanted: One of `ENGINES`.

    Raises:
        InvalidOptionError: Not a location, or not an engine.
        StoreError: No engine can work at such a location.
    """
    location = Location.parse(text)
    _require_reachable(location)
    asked = _asked(wanted)
    if asked != "auto":
        return asked == "spark"
    why_not = _why_not_native(None, location) or _why_not_unasked(None, location)
    if why_not is not None:
        log.info("row verbs at %s are run by Spark: %s", location.text, why_not)
    return why_not is not None


def open_location(
    engines: Engines, text: object, config: QueueConfig, *, create: bool
) -> OpenedLocation:
    """Open a location, and create missing system tables.

    Raises:
        QueueNotFoundError: There is no queue, and `create` is False.
        StoreError: The location cannot be used, or only by the other engine.
    """
    if engines.opens is not None:
        return engines.opens(config)
    if engines.name == "native":
        from tubeq_spark.storage.native import engine as native  # noqa: PLC0415  it is optional

        return native.open_location(engines.rows, text, config, create=create)
    from tubeq_spark.storage.spark import open_location as spark  # noqa: PLC0415  pyspark is optional

    if engines.spark is None:  # never: engines_of has refused it
        raise AssertionError
    opened = spark.open_location(engines.spark, text, config, create=create)
    if not engines.spark.has_own:
        spark.warn_of_slow_session(engines.spark.spark)
    return opened


def _chosen(
    spark: SparkSession | None,
    location: Location,
    wanted: object,
    storage_options: StorageOptions | None,
) -> str:
    asked = _asked(wanted)
    _require_reachable(location)
    if asked == "spark":
        if storage_options is not None:
            refuse(
                "storage_options", storage_options, "None with engine='spark': Spark has its own"
            )
        return "spark"
    why_not = _why_not_native(spark, location)
    if asked == "native" or spark is None:
        if why_not is not None:
            raise StoreError(why_not) from _missing(location)
        return "native"
    if why_not is None and storage_options is None:
        why_not = _why_not_unasked(spark, location)
    if why_not is None:
        log.info("row verbs at %s are run by the native engine", location.text)
        return "native"
    log.info("row verbs at %s are run by Spark: %s", location.text, why_not)
    return "spark"


def _require_reachable(location: Location) -> None:
    unreachable = location.why_unreachable(by_spark=True)
    if unreachable is not None:
        raise StoreError(unreachable)


def _asked(wanted: object) -> str:
    """The engine that the program or the environment asks for."""
    if wanted not in ENGINES:
        refuse("engine", wanted, f"one of {', '.join(ENGINES)}")
    if wanted != "auto":
        return str(wanted)
    asked = os.environ.get(_VARIABLE) or "auto"
    if asked not in ENGINES:
        refuse(f"the environment variable {_VARIABLE}", asked, f"one of {', '.join(ENGINES)}")
    return asked


def _missing(location: Location) -> ModuleNotFoundError | None:
    """The cause of the error if the location needs the client of object stores, and it is not installed."""
    if local_directory(location.text) is not None:
        return None
    try:
        is_there = importlib.util.find_spec(_CLIENT) is not None
    except ValueError:
        # A program has put something else in its place.
        is_there = False
    return None if is_there else ModuleNotFoundError(f"no module {_CLIENT}", name=_CLIENT)


def _why_not_native(spark: SparkSession | None, location: Location) -> str | None:
    """Why the native engine cannot work at a location; `None` if it can."""
    unreachable = location.why_unreachable(by_spark=False)
    if unreachable is not None:
        return unreachable
    directory = local_directory(location.text)
    if _missing(location) is not None:
        return (
            f"{_CLIENT} is needed to reach object stores without Spark: {how_to_install('native')}"
        )
    if directory is None and _MISREAD_IN_URIS.search(location.text.partition("://")[2]):
        return (
            f"the client {_CLIENT} takes {location.text} for another place: give it a name without "
            r"any of % \ # ? [ ] { } ^ ` | < >, quotes, empty parts, and the parts . and .."
        )
    if spark is not None and directory is not None:
        from tubeq_spark.storage.spark.open_location import local_place  # noqa: PLC0415  optional

        if local_place(spark, location) is None:
            return (
                f"{location.text} is not on local files to this Spark session: name the file system, "
                "as in file:/queue"
            )
    return None


def _why_not_unasked(spark: SparkSession | None, location: Location) -> str | None:
    """Why "auto" does not choose the native engine; `None` if it does."""
    if local_directory(location.text) is None:
        if spark is not None and allows_one_engine_only(location.text):
            # Only commits of ours are safe there. Opening the location shows which engine it belongs to.
            return None
        return "the native engine needs storage_options to reach it, or engine='native'"
    if spark is not None and not _is_classic(spark):
        return "the disk of a Spark Connect server need not be this host's"
    return None


def _is_classic(spark: SparkSession) -> bool:
    from tubeq_spark.storage.spark.jvm import is_classic  # noqa: PLC0415  pyspark is optional

    return is_classic(spark)


def for_tube(queue: QueueContext, name: str, options: TubeOptions) -> QueueContext:
    """The queue context for the verbs of a tube.

    Args:
        queue: The queue object.
        name: The tube.
        options: Its options.

    Returns:
        `queue` itself, except for a tube with a change feed: Spark runs its row verbs, and without a Spark
        session they are refused.
    """
    if not options.change_feed or queue.engine.keeps_feeds:
        return queue
    if queue.spark is not None:
        return queue.through_spark()
    why = (
        f"tube {name!r}: change_feed=True, and only Spark keeps a feed of changes, but this queue has "
        f"no session; open it with one, as in Queue(spark, location, engine='spark')"
    )
    return queue.read_only(why)


def require_writable(queue: QueueContext, name: str, options: TubeOptions) -> None:
    """Refuse to create or to drop a tube whose rows could not be written.

    Raises:
        StoreError: The tube has a change feed, and there is no Spark session.
    """
    for_tube(queue, name, options).loop.require_allowed()
