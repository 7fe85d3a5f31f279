"""Defaults of the programs, from `tubeq.toml` and the environment.

The command line takes precedence over the environment, and the environment over the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.config import DURABILITY, QueueConfig
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.model import validation

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The file in the working directory that is read if no file is named.
FILE_NAME = "tubeq.toml"
_NAMED_BY = "TUBEQ_CONFIG"
_FROM_ENVIRONMENT = {
    "location": "TUBEQ_LOCATION",
    "remote": "TUBEQ_REMOTE",
    "new_engine": "TUBEQ_ENGINE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The settings of a program, from its command line, the environment and the file.

    Attributes:
        location: The location of the queue: a path, a URI, or `catalog.schema`.
        remote: Address of a Spark Connect server, `sc://…`; with `None` a program that needs Spark
            starts a local session.
        engine: The committer, as for `Queue`: "auto", "spark" or "native".
        new_engine: The committer of a new location. It does not matter to an existing one.
        ttr: Seconds from the last heartbeat of a session until its tasks are released.
        config: Settings of the queue object.
    """

    location: str | None = None
    remote: str | None = None
    engine: str = "auto"
    new_engine: str = "auto"
    ttr: float | None = None
    config: QueueConfig = field(default_factory=QueueConfig)

    def queue_location(self) -> str:
        """Return the location.

        Raises:
            InvalidOptionError: No location was given.
        """
        if self.location is None:
            raise InvalidOptionError("no location: use --location, TUBEQ_LOCATION or tubeq.toml")
        return self.location

    def committer(self) -> str:
        """Return the committer of the queue: "native", "spark", or "auto" if only a Spark session can find it out.

        Raises:
            InvalidOptionError: No location was given, or it is not valid.
            StoreError: The location cannot be used.
        """
        from tubeq_spark.admin.choose_engine import committer_without_session  # noqa: PLC0415  imports storage

        return committer_without_session(self.queue_location(), self.engine, self.new_engine)


def read_defaults(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    location: str | None = None,
    remote: str | None = None,
    engine: str | None = None,
) -> Defaults:
    """Read the defaults.

    Args:
        file: The settings file; by default the one that `TUBEQ_CONFIG` names, or else `tubeq.toml`
            in the working directory, if it exists.
        environment: Environment variables; by default those of the process. `TUBEQ_LOCATION`,
            `TUBEQ_REMOTE`, `TUBEQ_ENGINE` and `TUBEQ_DURABILITY` take precedence over the file.
        location: The location of the command line, if given; it takes precedence over both.
        remote: Likewise.
        engine: The engine of the command line. Those of the environment and of the file are for new
            locations.

    Raises:
        InvalidOptionError: The file cannot be read, or has an unknown setting or a bad value.
    """
    given = {"location": location, "remote": remote, "engine": engine}
    variables = os.environ if environment is None else environment
    here = Path(FILE_NAME)
    chosen = file or variables.get(_NAMED_BY) or (here if here.is_file() else None)
    said = {} if chosen is None else _read(Path(chosen))
    said |= {
        name: variables[variable]
        for name, variable in _FROM_ENVIRONMENT.items()
        if variables.get(variable)
    }
    said |= {name: value for name, value in given.items() if value}
    # `committer` checks the engine of the command line.
    validation.one_of("engine", said.get("new_engine", "auto"), ("auto", "spark", "native"))
    if variables.get(DURABILITY) and "config" in said:
        # The queue object reads the variable itself, for a new location.
        said["config"] = replace(said["config"], durability=None)
    return Defaults(**said)


def _read(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  most calls have no file

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        return _checked(found)
    except OSError as error:
        msg = f"{file}: {error.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file}: is not valid TOML: {error}"
    except InvalidOptionError as error:
        msg = f"{file}: {error}"
    raise InvalidOptionError(msg)


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    settings = found.pop("queue", {})
    if not isinstance(settings, dict):
        validation.refuse("queue", settings, "a table of settings: [queue]")
    _refuse_unknown(found, ("location", "remote", "engine", "ttr"))
    # A file cannot contain the observer, which is a function.
    _refuse_unknown(settings, [f.name for f in fields(QueueConfig) if f.name != "observer"])
    for name in ("location", "remote", "engine"):
        if name in found:
            validation.text(name, found[name])
    if "engine" in found:
        found["new_engine"] = found.pop("engine")
    if "ttr" in found:
        found["ttr"] = validation.lease("ttr", found["ttr"])
    return found | {"config": QueueConfig(**settings)}


def _refuse_unknown(found: Mapping[str, Any], known: tuple[str, ...] | list[str]) -> None:
    for name, value in found.items():
        if name not in known:
            validation.refuse(name, value, f"absent: the settings are {', '.join(known)}")
