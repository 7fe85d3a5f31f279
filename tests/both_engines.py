"""Runs the tests of a folder on Spark and natively by the fixture `engine`.

Its conftest takes over what is here. A test that names the Spark session, itself or by its fixtures, is
about Spark and runs there only; so does a parameter with the mark `frames`. `--engine native` runs nothing else, and
starts no Spark.
"""

from __future__ import annotations

import pytest

from tests.acceptance.support import Native, OnSpark

__all__ = [
    "engine",
    "pytest_collection_modifyitems",
    "pytest_generate_tests",
]

_ENGINES = ("spark", "native")
_FOLDERS = ("concurrency", "stateful")


def _chosen(config: pytest.Config) -> list[str]:
    wanted = config.getoption("--engine") or (
        _ENGINES[:1] if config.getoption("--connect") else _ENGINES
    )
    return [name for name in _ENGINES if name in wanted]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on each engine that was asked for."""
    own = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    if "engine" in metafunc.fixturenames and "engine" not in own:
        on = _ENGINES[:1] if "spark" in metafunc.fixturenames else _ENGINES
        params = [name for name in _chosen(metafunc.config) if name in on]
        metafunc.parametrize("engine", params, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nothing that runs without Spark to the thorough tests: it takes milliseconds.

    And what `without_spark` marks is not run there: the code that it is about knows no engine. What `frames` marks
    needs Spark.
    """
    kept, left_out = [], []
    for item in items:
        callspec, fixtures = getattr(item, "callspec", None), getattr(item, "fixturenames", ())
        # A test that does not ask for an engine was given none.
        name = None if callspec is None else callspec.params.get("engine")
        if name == "native":
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "thorough"]
        needs = name or "spark"
        is_ours = item.path.parent.name in _FOLDERS and (name or "spark" in fixtures)
        left = "without_spark" if needs == "spark" else "frames"
        runs = needs in _chosen(config) and not item.get_closest_marker(left)
        (left_out if is_ours and not runs else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> OnSpark:
    """Opens queues; on Spark where a test does not say."""
    name = getattr(request, "param", "spark")
    if name == "native":
        return Native()
    return OnSpark(request.getfixturevalue("spark"))
