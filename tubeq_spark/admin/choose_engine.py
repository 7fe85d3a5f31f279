"""Chooses who commits at a location: the native engine in this process, or Spark.

The registry names the committer from the creation of the location on, and all programs use it. `committer_of_new` is the
rule for a new location.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubeq_spark.errors import StoreError, TubeqError
from tubeq_spark.model.error_text import how_to_install, reason_of
from tubeq_spark.model.validation import refuse
from tubeq_spark.storage.location import STORES, TUBES, Location
from tubeq_spark.storage.log.actions import DamagedFileError
from tubeq_spark.storage.opened_location import (
    NATIVE,
    SPARK,
    OpenedLocation,
    belongs_to_spark,
    recover_system_tables,
)
from tubeq_spark.storage.tables.schema import COMMITTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tubeq_spark.storage.engine import Engine
    from tubeq_spark.storage.native.engine import NativeEngine
    from tubeq_spark.storage.spark.engine import SparkEngine
    from tubeq_spark.storage.spark.put_frame_rows import PutFiles
    from tubeq_spark.storage.store.store_options import StorageOptions

log = logging.getLogger(__name__)

ENGINES = ("auto", SPARK, NATIVE)
#: The environment variable with the committer of new locations.
_VARIABLE = "TUBEQ_ENGINE"
#: The client of object stores.
_CLIENT = "obstore"


def committer_of_new(scheme: str, *, is_reached: bool, has_session: bool) -> str:
    """The committer of a new location, if the program does not choose one.

    Args:
        scheme: The scheme of its URI: "file" for a path, "catalog" for a schema of a catalog.
        is_reached: Whether this process can reach an object store without Spark: by the extra `native` and credentials.
        has_session: Whether the program has a Spark session.

    Returns:
        "native" or "spark". Without a session Spark cannot commit, and opening the location says so.
    """
    if scheme == "file":
        return NATIVE
    if scheme not in STORES:
        return SPARK
    return NATIVE if is_reached or not has_session else SPARK


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of a queue object.

    Attributes:
        name: The committer: "spark", "native", or "memory".
        rows: Its engine, which also reads.
        spark: The engine that makes DataFrames of its tables; `None` without a Spark session.
        opens: Opens a location by its text, with settings, and creates missing system tables if `create` is true. It
            raises `QueueNotFoundError` or `StoreError`.
        storage_options: The options by which the native engine reaches the storage.
        put_files: Has Spark write the rows of DataFrames for native commits; `None` unless both engines are used.
    """

    name: str
    rows: Engine
    spark: SparkEngine | None
    opens: Callable[..., OpenedLocation]
    storage_options: StorageOptions | None = None
    put_files: PutFiles | None = None

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
    """Choose the engines for a location: those of its committer, or for a new one what the environment asks for.

    Args:
        spark: The program's session, if it has one.
        text: The location as it was given.
        wanted: One of `ENGINES`. A committer that the program names is not compared with the registry here.
        storage_options: The options by which the native engine reaches the storage; `None` uses those of the
            session and the environment.

    Raises:
        InvalidOptionError: Not a location, or not an engine.
        StoreError: Nobody can commit there, or only Spark can and there is no session.
    """
    location, asked = _reachable(text), _checked("engine", wanted)
    if asked == SPARK and storage_options is not None:
        refuse("storage_options", storage_options, "None with engine='spark': Spark has its own")
    through_spark = None
    if spark is not None:
        from tubeq_spark.storage.spark.engine import SparkEngine  # noqa: PLC0415  pyspark is optional
        from tubeq_spark.storage.spark.open_location import store_options  # noqa: PLC0415  as above

        through_spark = SparkEngine(spark)
        if storage_options is None and location.scheme in STORES:
            storage_options = store_options(spark, location.text)
    why_not = None if asked == SPARK else _why_not_native(spark, location)
    if why_not is not None and (asked == NATIVE or spark is None):
        raise why_not
    name, native, has_spark = asked, None, spark is not None
    if asked == "auto":
        new = _checked(f"the environment variable {_VARIABLE}", os.environ.get(_VARIABLE) or "auto")
        name, native = _committer(location, why_not, storage_options, new, has_spark=has_spark)
    log.info(
        "commits at %s are made by %s", location.text, "this process" if name == NATIVE else "Spark"
    )
    if name == NATIVE:
        from tubeq_spark.storage.native.engine import open_location  # noqa: PLC0415  as above

        native, put_files = native or _native_engine(storage_options), None
        if through_spark is not None:
            from tubeq_spark.storage.spark.put_frame_rows import PutFiles  # noqa: PLC0415  as above

            put_files = PutFiles(through_spark, native.put_directories)
        opens = functools.partial(open_location, native)
        return Engines(name, native, through_spark, opens, storage_options, put_files)
    if native is not None:
        native.close()
    if through_spark is None:
        raise StoreError(belongs_to_spark(location.text))
    from tubeq_spark.storage.spark.open_location import open_location as by_spark  # noqa: PLC0415  as above

    opens = functools.partial(by_spark, through_spark)
    return Engines(SPARK, through_spark, through_spark, opens)


def committer_without_session(text: object, wanted: object, new: str) -> str:
    """The committer of a location, for a program that starts a Spark session only if it must.

    Args:
        text: The location as it was given.
        wanted: One of `ENGINES`, from the command line.
        new: The committer of a new location; one of `ENGINES`.

    Returns:
        "native", "spark", or "auto" if only a Spark session can find it out.

    Raises:
        InvalidOptionError: Not a location, or not an engine.
        StoreError: Nobody can commit there; or the registry cannot be read.
    """
    location, asked = _reachable(text), _checked("engine", wanted)
    if asked != "auto":
        return asked
    why_not = _why_not_native(None, location)
    has_spark = _is_installed("pyspark")
    name, native = _committer(location, why_not, None, new, has_spark=has_spark)
    if native is not None:
        native.close()
    return name


def _committer(
    location: Location,
    why_not: StoreError | None,
    options: StorageOptions | None,
    new: str,
    *,
    has_spark: bool,
) -> tuple[str, NativeEngine | None]:
    """The committer of a location, for a program that names none.

    Args:
        location: The location.
        why_not: Why the native engine cannot work there; `None` if it can.
        options: The options by which the native engine reaches it.
        new: The committer of a new location that this process can read; "auto" is native.
        has_spark: Whether a location that this process cannot read is left to Spark.

    Returns:
        "native", "spark", or "auto" if only Spark can find it out; and the engine that has read the registry.

    Raises:
        StoreError: The registry cannot be read.
    """
    # Only Spark can make tables on files with features that the native engine does not read.
    left = "auto" if location.scheme in STORES else SPARK
    is_reached = why_not is None and _has_credentials(location, options)
    rule = committer_of_new(location.scheme, is_reached=is_reached, has_session=has_spark)
    if why_not is not None or rule == SPARK:
        return left, None
    engine = _native_engine(options)
    try:
        found = _registered(engine, location)
    except TubeqError as error:
        engine.close()
        if not has_spark or isinstance(error, DamagedFileError):
            raise
        log.info("%s is left to Spark: %s", location.text, reason_of(error))
        return left, None
    return found or (NATIVE if new == "auto" else new), engine


def _native_engine(options: StorageOptions | None) -> NativeEngine:
    from tubeq_spark.storage.native.engine import NativeEngine  # noqa: PLC0415  it is optional

    return NativeEngine(options)


def _registered(engine: NativeEngine, location: Location) -> str | None:
    """The committer that a registry names; `None` if there is no queue.

    Raises:
        StoreError: The registry cannot be read.
    """
    opened = OpenedLocation.without_spark(location)
    if opened.locks is not None:
        if not (opened.locks.parent / TUBES).is_dir():
            return None
        # A power cut may have left it unreadable.
        recover_system_tables(opened)
    with engine.operating("read", None):
        registry = location.table(TUBES)
        if not engine.tables.is_table(registry):
            return None
        # Opening a location of another format says so.
        return engine.tables.properties(registry).get(COMMITTER) or NATIVE


def _has_credentials(location: Location, options: StorageOptions | None) -> bool:
    """Whether this process may reach a location without Spark.

    Only S3 is asked without credentials of the program or of the environment: clients of other stores would search for
    a host of their cloud.
    """
    if location.scheme == "file" or location.scheme.startswith("s3") or options is not None:
        return True
    prefix = "GOOGLE_" if location.scheme == "gs" else "AZURE_"
    return any(name.upper().startswith(prefix) for name in os.environ)


def _reachable(text: object) -> Location:
    """The location as it was given, if anybody can reach it."""
    location = Location.parse(text)
    unreachable = location.why_unreachable(by_spark=True)
    if unreachable is not None:
        raise StoreError(unreachable)
    return location


def _checked(what: str, wanted: object) -> str:
    if wanted not in ENGINES:
        refuse(what, wanted, f"one of {', '.join(ENGINES)}")
    return str(wanted)


def _why_not_native(spark: SparkSession | None, location: Location) -> StoreError | None:
    """Why the native engine cannot work at a location; `None` if it can."""
    unreachable = location.why_unreachable(by_spark=False)
    if unreachable is not None:
        return StoreError(unreachable)
    if location.scheme in STORES and not _is_installed(_CLIENT):
        needs = "is needed to reach object stores without Spark"
        error = StoreError(f"{_CLIENT} {needs}: {how_to_install('native')}")
        error.__cause__ = ModuleNotFoundError(f"no module {_CLIENT}", name=_CLIENT)
        return error
    if spark is not None and location.scheme == "file":
        from tubeq_spark.storage.spark.open_location import local_place  # noqa: PLC0415  optional

        if local_place(spark, location) is None:
            return StoreError(
                f"{location.text} is not on local files to this Spark session: name the file system, "
                "as in file:/queue"
            )
    return None


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:
        # A program has put something else in its place.
        return False
