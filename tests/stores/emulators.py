"""Runs emulators of object stores of other makes, each behind the server of the tests, on loopback.

An emulator is installed below `build/stores` when it is first needed, by npm or Go. `TUBEQ_TEST_S3` is what the server
forwards to.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.concurrency.s3_server import MAKE, OTHER
from tests.concurrency.s3_store import ROOT, Store, served

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["EMULATORS", "Azure", "NotInstalledError", "emulated"]

PLACE = ROOT / "build" / "stores"
#: Seconds for an installation, and for a start.
INSTALL, START = 900, 60
#: The account that each Azurite has, and its key, which is no secret.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class NotInstalledError(Exception):
    """An emulator cannot be had here."""


@dataclass
class Azure(Store):
    """Azure Blob Storage."""

    root: ClassVar[str] = "az://bucket"

    @property
    def options(self) -> dict[str, str]:
        """What the native engine needs to reach it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.url}/{ACCOUNT}",
            "allow_http": "true",
        }

    def create_bucket(self) -> None:
        """Make the container of all tests."""
        said = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
        lines = [f"{name}:{value}" for name, value in said.items()]
        place = f"/{ACCOUNT}/{ACCOUNT}/bucket"
        # Between them: what else of the headers is signed, of which there is one.
        signed = ["PUT", *[""] * 4, "text/plain", *[""] * 6, *lines, place, "restype:container"]
        text = "\n".join(signed)
        said["Content-Type"] = "text/plain"
        said["Authorization"] = f"SharedKey {ACCOUNT}:{signature(text)}"
        url = f"{self.url}/{ACCOUNT}/bucket?restype=container"
        with urlopen(Request(url, b"", said, method="PUT")):
            pass


class AzureByToken(Azure):
    """The same, as Spark names it, and by a shared access signature. Azurite removes nothing by that."""

    root: ClassVar[str] = f"abfss://bucket@{ACCOUNT}.dfs.core.windows.net"

    @property
    def options(self) -> dict[str, str]:
        """What the native engine needs to reach it."""
        said = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z"}
        said |= {"sip": "", "spr": "", "sv": "2021-12-02", "ses": ""}
        said["sig"] = signature("\n".join([ACCOUNT, *said.values(), ""]))
        token = urlencode({name: value for name, value in said.items() if value})
        options = super().options | {"AZURE_STORAGE_SAS_KEY": token}
        del options["AZURE_STORAGE_ACCOUNT_KEY"]
        return options


def signature(text: str) -> str:
    """What proves that a text comes from who has the key of the account."""
    return base64.b64encode(
        hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    ).decode()


@dataclass
class Google(Store):
    """Google Cloud Storage."""

    root: ClassVar[str] = "gs://bucket"

    @property
    def options(self) -> dict[str, str]:
        """What the native engine needs to reach it."""
        key = {
            "gcs_base_url": self.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key), "allow_http": "true"}

    def create_bucket(self) -> None:
        """Make the bucket of all tests."""
        said = json.dumps({"name": "bucket"}).encode()
        header = {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.url}/storage/v1/b?project=test", said, header)):
            pass


@dataclass(frozen=True)
class Emulator:
    """How one is installed and started.

    Attributes:
        store: What it is to its clients.
        tool: What installs it.
        install: The command for that.
        program: Its path after that.
        arguments: Of it; `{port}` and `{folder}` are replaced.
        environment: Of it.
    """

    store: type[Store]
    tool: str
    install: Sequence[str]
    program: Path
    arguments: str
    environment: Sequence[tuple[str, str]] = ()


EMULATORS = {
    "azurite": Emulator(
        Azure,
        "npm",
        ("npm", "install", "--no-audit", "--no-fund", "--prefix", str(PLACE), "azurite@3.35.0"),
        PLACE / "node_modules" / ".bin" / "azurite-blob",
        "--silent --inMemoryPersistence --skipApiVersionCheck --disableTelemetry "
        "--blobHost 127.0.0.1 --blobPort {port}",
    ),
    "fake-gcs-server": Emulator(
        Google,
        "go",
        ("go", "install", "github.com/fsouza/fake-gcs-server@v1.56.1"),
        PLACE / "bin" / "fake-gcs-server",
        "-backend memory -scheme http -host 127.0.0.1 -port {port} -public-host 127.0.0.1:{port}",
    ),
    "versitygw": Emulator(
        Store,
        "go",
        ("go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
        PLACE / "bin" / "versitygw",
        "--port 127.0.0.1:{port} posix {folder}",
        (("ROOT_ACCESS_KEY", "test"), ("ROOT_SECRET_KEY", "test")),
    ),
}
EMULATORS["azurite by SAS"] = replace(EMULATORS["azurite"], store=AzureByToken)


def _install(name: str, emulator: Emulator) -> None:
    if emulator.program.exists():
        return
    if shutil.which(emulator.tool) is None:
        raise NotInstalledError(f"NOTHING WAS TESTED ON {name.upper()}: {emulator.tool} is missing")
    PLACE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        emulator.install,
        env=os.environ | {"GOBIN": str(PLACE / "bin")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=INSTALL,
    )
    if done.returncode:
        raise NotInstalledError(f"NOTHING WAS TESTED ON {name.upper()}: {done.stdout[-500:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def emulated(name: str, folder: Path) -> Iterator[Store]:
    """An emulator with an empty bucket, for the time of a block.

    Raises:
        NotInstalledError: It is not there, and cannot be installed.
    """
    emulator = EMULATORS[name]
    _install(name, emulator)
    port = _free_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [emulator.program, *emulator.arguments.format(port=port, folder=folder).split()],
            env=os.environ | dict(emulator.environment),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(port, process, folder / "log")
        mended = {} if emulator.store is Store else {MAKE: name}
        with served(emulator.store, **{OTHER: f"http://127.0.0.1:{port}"}, **mended) as store:
            yield store
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        else:
            return
