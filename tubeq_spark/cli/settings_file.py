"""Defaults of the programs: what `tubeq.toml` and the environment say.

What is given on a command line wins over the environment, and that over the file.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubeq_spark.admin.engines import ENGINES, needs_spark
from tubeq_spark.config import QueueConfig
from tubeq_spark.errors import InvalidOptionError
from tubeq_spark.rules import validation
from tubeq_spark.rules.durability import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE_NAME", "Defaults", "read_defaults"]

#: Looked for in the working directory when no file is named.
FILE_NAME = "tubeq.toml"
_NAMED_BY = "TUBEQ_CONFIG"
_FROM_ENVIRONMENT = {
    "location": "TUBEQ_LOCATION",
    "remote": "TUBEQ_REMOTE",
    "engine": "TUBEQ_ENGINE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The settings of a program: what its command line, the environment and the file say together.

    Attributes:
        location: Of the queue: a path, a URI, or `catalog.schema`.
        remote: Address of a Spark Connect server, `sc://…`; `None`: where Spark is needed, it is an
            embedded one.
        engine: What runs the row verbs, as of a `Queue`: "auto", "spark" or "native".
        ttr: Seconds after its last sign of life before a session's tasks are released.
        config: Settings of the queue object.
    """

    location: str | None = None
    remote: str | None = None
    engine: str = "auto"
    ttr: float | None = None
    config: QueueConfig = field(default_factory=QueueConfig)

    def queue_location(self) -> str:
        """The location, where there must be one.

        Raises:
            InvalidOptionError: Nothing says which.
        """
        if self.location is None:
            msg = "which queue? give --location, or set TUBEQ_LOCATION, or name it in tubeq.toml"
            raise InvalidOptionError(msg)
        return self.location

    def needs_spark(self) -> bool:
        """Whether a program that has no other use for Spark needs a session for this queue.

        Only where Spark was asked for, by `engine` or `remote`, or where the location needs it.

        Raises:
            InvalidOptionError: Nothing says which queue, or it is no location.
        """
        if self.engine == "auto" and self.remote is not None:
            return True
        return needs_spark(self.queue_location(), self.engine)


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
        file: Where they are; by default what `TUBEQ_CONFIG` names, or else `tubeq.toml` in the
            working directory, if there is one.
        environment: Variables; those of the process by default. `TUBEQ_LOCATION`,
            `TUBEQ_REMOTE`, `TUBEQ_ENGINE` and `TUBEQ_DURABILITY` win over the file.
        location: What the command line says, if anything: it wins over both.
        remote: Likewise; it means Spark, whatever the environment and the file say of the engine.
        engine: Likewise.

    Raises:
        InvalidOptionError: The file cannot be read, or says something unknown or bad; or a server
            of Spark and the native engine were both asked for on the command line.
    """
    if remote and engine == "native":
        msg = "--remote and --engine native exclude each other: the native engine runs in this process"
        raise InvalidOptionError(msg)
    given = {"location": location, "remote": remote, "engine": engine or (remote and "spark")}
    variables = os.environ if environment is None else environment
    named = file or (Path(variables[_NAMED_BY]) if variables.get(_NAMED_BY) else None)
    here = Path(FILE_NAME)
    chosen = named or (here if here.is_file() else None)
    said = {} if chosen is None else _read(chosen)
    said |= {
        name: variables[variable]
        for name, variable in _FROM_ENVIRONMENT.items()
        if variables.get(variable)
    }
    said |= {name: value for name, value in given.items() if value}
    if said.get("engine", "auto") not in ENGINES:
        validation.refuse("engine", said["engine"], f"one of {', '.join(ENGINES)}")
    if variables.get(VARIABLE):
        config = said.get("config", QueueConfig())
        said["config"] = replace(config, durability=variables[VARIABLE])
    return Defaults(**said)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        return _checked(found)
    except OSError as error:
        msg = f"{file}: {error.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file}: is no TOML: {error}"
    except InvalidOptionError as error:
        msg = f"{file}: {error}"
    raise InvalidOptionError(msg)


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    settings = found.pop("queue", {})
    if not isinstance(settings, dict):
        validation.refuse("queue", settings, "a table of settings: [queue]")
    _refuse_unknown(found, ("location", "remote", "engine", "ttr"))
    # Only what a file can hold: the observer is a function.
    _refuse_unknown(settings, [n for n in QueueConfig().names() if n != "observer"])
    for name in ("location", "remote", "engine"):
        if name in found:
            validation.text(name, found[name])
    if "ttr" in found:
        found["ttr"] = validation.lease("ttr", found["ttr"])
    return found | {"config": QueueConfig(**settings)}


def _refuse_unknown(found: Mapping[str, Any], known: tuple[str, ...] | list[str]) -> None:
    for name, value in found.items():
        if name not in known:
            validation.refuse(name, value, f"absent: the settings are {', '.join(known)}")
