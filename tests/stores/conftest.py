"""Provides the fixtures of the tests on other makes of stores: each emulator, and a location there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.emulators import EMULATORS, NotInstalledError, emulated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.concurrency.s3_store import Store


@pytest.fixture(scope="module", params=EMULATORS)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """An emulator."""
    try:
        with emulated(request.param, tmp_path_factory.mktemp(request.param)) as found:
            yield found
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.fixture
def place(store: Store, tmp_path: Path) -> str:
    """A location that nobody else uses."""
    return f"{store.root}/{tmp_path.name}"
