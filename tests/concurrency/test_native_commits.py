"""A native verb returns as usual if its commit landed despite an error of the disk, and else works when repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.concurrency.support import World, ids_of, names
from tubeq_spark import StoreError
from tubeq_spark.storage.store.local_files import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.parametrize("engine", ["native"], indirect=True, scope="module")

#: As the library words what a storage fails with that many hosts share, and what this host's does.
FAR = "Generic S3 error: error sending request for url (http://store/bucket/00000000000000000007.json)"
NEAR = "Generic LocalFileSystem error: Unable to write to /queue/_delta_log: Input/output error"
#: What a verb returns and leaves of tasks a, b, c, of which this session holds the first two.
VERBS: dict[str, tuple[Callable[[World, list[int]], str], str, str]] = {
    "put": (lambda w, _: names(w.tube.put_many(["d"])), "d", "at bt cr dr"),
    "take": (lambda w, _: names(w.tube.take_many(1)), "c", "at bt ct"),
    "ack": (lambda w, ids: names(w.tube.ack_many(ids)), "ab", "cr"),
    "exchange": (lambda w, ids: names(w.tube.exchange(ack=ids[:1], take=1)), "c", "bt ct"),
    "bury": (lambda w, ids: names(w.tube.bury_many(ids[1:])), "b", "at b! cr"),
}


@pytest.mark.parametrize("message", [NEAR, FAR])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_there", [True, False])
def test_verb_when_the_disk_fails_at_its_commit_has_done_it_or_can_be_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, message: str, *, is_there: bool
) -> None:
    act, result, after = VERBS[verb]
    world.put("abc")
    held = ids_of(world.tube.take_many(2))
    put = LocalStore.put_if_absent

    def fails(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        if is_there:
            put(*args, **options)
        raise OSError(message)

    monkeypatch.setattr(LocalStore, "put_if_absent", fails)
    if not is_there:
        # The commits of this process are on this host, so none arrives after its error.
        with pytest.raises(StoreError) as caught:
            act(world, held)
        assert type(caught.value) is StoreError
    assert act(world, held) == result
    assert world.stored() == after
