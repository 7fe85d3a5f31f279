"""A signal ends a stream or a loop with one line, at whichever step it comes, without Spark."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections import Counter
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tubeq_spark import StoreError
from tubeq_spark.runtime.stopping import Stop
from tubeq_spark.storage.rows import PutsSeen
from tubeq_spark.storage.spark.put_frame_rows import CountedFrame
from tubeq_spark.storage.statement import PutIdentity
from tubeq_spark.streams import process, sink
from tubeq_spark.streams.process import until_signal
from tubeq_spark.verbs import put_frame
from tubeq_spark.workers.handlers import Calls
from tubeq_spark.workers.pools import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


#: What Spark searches in the text of an error of Python (`StreamExecution.PROXY_ERROR`), with each
#: repetition of this part one more call on the stack.
INTERRUPTED = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling"
    r"(?P<deep>((\r\n|\r|\n)|.)*)java\.lang\.InterruptedException"
)


class Java:
    """Stands in for a query in the JVM, which ends when it is stopped and `call` has ended."""

    def __init__(
        self, *, sends: int = 0, fails: bool = False, by: signal.Signals = signal.SIGINT
    ) -> None:
        self._stopped, self._sends, self._fails, self._by = threading.Event(), sends, fails, by
        self.call = threading.Event()

    def awaitTermination(self, most_ms: int | None = None) -> bool:  # noqa: N802
        """Wait; the signals come meanwhile."""
        if self._fails:
            raise ValueError("the query has failed")
        if self._sends:
            os.kill(os.getpid(), self._by)
        ended = self._stopped.wait(None if most_ms is None else most_ms / 1000)
        return ended and self.call.wait(None if most_ms is None else most_ms / 1000)

    def stop(self) -> None:
        """Stop, after the call in hand; a second signal comes meanwhile."""
        self._stopped.set()
        if self._sends > 1:
            os.kill(os.getpid(), self._by)
        else:
            self.call.set()
        self.call.wait()


def query(java: Java) -> StreamingQuery:
    return until_signal(StreamingQuery(cast("Any", java)))


@pytest.mark.usefixtures("ctrl_c_comes")
def test_wait_for_a_stream_when_ctrl_c_comes_stops_it_and_raises_what_shows_as_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    java = Java(sends=1)

    with pytest.raises(KeyboardInterrupt) as raised:
        query(java).awaitTermination()

    assert java.call.is_set()
    assert caplog.messages == ["the stream ends"]
    assert signal.getsignal(signal.SIGINT) is before
    shown = cast("Any", raised.value)._render_traceback_()
    assert shown == ["the stream was stopped"]


def test_wait_for_a_stream_when_sigterm_comes_stops_it_and_then_ends_the_program() -> None:
    came: list[bool] = []
    java = Java(sends=1, by=signal.SIGTERM)
    before = signal.signal(signal.SIGTERM, lambda *_: came.append(java.call.is_set()))
    try:
        query(java).awaitTermination()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert came == [True]


@pytest.mark.usefixtures("ctrl_c_comes")
def test_wait_for_a_stream_when_a_second_signal_comes_is_interrupted() -> None:
    java = Java(sends=2)
    try:
        with pytest.raises(KeyboardInterrupt):
            query(java).awaitTermination()
    finally:
        java.call.set()


def test_wait_for_a_stream_when_no_signal_comes_is_that_of_spark() -> None:
    assert query(Java()).awaitTermination(0.01) is False  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the query has failed"):
        query(Java(fails=True)).awaitTermination()


class Stream:
    """Stands in for a session, for the stream that is made of it, and for its query."""

    isActive = True  # noqa: N815  (as Spark has it)
    run: Callable[[Any, int], None]
    asks_for: dict[str, Any]

    def foreachBatch(self, run: Callable[[Any, int], None]) -> Stream:  # noqa: N802
        """Keep what runs at each tick."""
        self.run = run
        return self

    def trigger(self, **options: Any) -> Stream:
        """Keep when it runs."""
        self.asks_for = options
        return self

    def __getattr__(self, name: str) -> Any:
        return self if name in ("readStream", "writeStream") else lambda *_, **__: self


@pytest.mark.parametrize(
    ("trigger", "expected"),
    # Some platforms have no other trigger for what is to run once.
    [(None, {"availableNow": True}), ("1 second", {"processingTime": "1 second"})],
)
@pytest.mark.parametrize("alive", [True, False])
def test_tick_comes_as_it_was_asked_for_and_when_the_program_has_ended_takes_no_more(
    monkeypatch: pytest.MonkeyPatch, alive: bool, trigger: str | None, expected: dict[str, Any]
) -> None:
    stream, asked = Stream(), list[bool]()

    process.start_ticking(cast("Any", stream), lambda goes_on: asked.append(goes_on()), trigger)
    stream.run(None, 0)
    monkeypatch.setattr(threading, "main_thread", lambda: SimpleNamespace(is_alive=lambda: alive))
    stream.run(None, 1)

    assert stream.asks_for == expected
    assert asked == [True] + [True] * alive


def current(context: object) -> Any:
    """A tube whose record does not change."""
    return SimpleNamespace(ctx=context, newest=lambda: context)


def put(monkeypatch: pytest.MonkeyPatch, *, stopped: bool) -> str:
    """Put a batch of a stream, which fails; returns the error as py4j tells Java of it."""

    def fail(*_: object) -> None:
        java = "\n: java.lang.InterruptedException" + "\n\tat org.apache.spark" * 100
        raise StoreError("nothing was written") from RuntimeError(
            f"py4j.protocol.Py4JJavaError: An error occurred while calling o1.save{java}"
        )

    context = SimpleNamespace(
        record=SimpleNamespace(name="mail"),
        frames=SimpleNamespace(engine=SimpleNamespace(spark=None)),
    )
    monkeypatch.setattr(sink.jvm, "streaming_query_id", lambda _: "the query")
    monkeypatch.setattr(sink.jvm, "is_stopped", lambda _, query: stopped and query == "the query")
    monkeypatch.setattr(sink, "count_frame", fail)
    monkeypatch.setattr(sink, "_identity", lambda *_: PutIdentity.of_batch("s", 3))
    with pytest.raises(sink.StreamStoppedError if stopped else StoreError) as raised:
        sink.put_batch(
            current(context), cast("Any", SimpleNamespace(sparkSession=None)), 3,
            "s", None, None,
        )  # fmt: skip
    return "".join(traceback.format_exception(raised.value))


def test_sink_when_its_stream_was_stopped_tells_spark_so_in_few_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = INTERRUPTED.search(put(monkeypatch, stopped=True))

    assert len(found["deep"]) < 20
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "tube mail: the stream was stopped while it put batch 3"
    ]


@pytest.mark.parametrize(
    ("batch", "rows", "told"), [(3, 2, 1), (4, 2, 0), (3, 0, 0)], ids=["repeated", "new", "empty"]
)
def test_sink_when_all_keys_of_a_batch_are_there_warns_only_if_the_batch_was_put_before(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batch: int,
    rows: int,
    told: int,
) -> None:
    frame = CountedFrame(
        cast("Any", SimpleNamespace(columns=["data", "unique"], sparkSession=None)),
        ["data"],
        partitions=Counter({0: rows} if rows else {}),
    )
    loop = SimpleNamespace(run=lambda *call: call[-1]().finish(None))
    context = SimpleNamespace(
        record=SimpleNamespace(name="mail"),
        require_here=lambda: None,
        capacity=None,
        max_attempts=None,
        table_lock=None,
        queue=SimpleNamespace(
            put_files=None,
            loop=loop,
            now_us=lambda: 0,
            config=SimpleNamespace(attempts=1),
        ),
        put_gate=SimpleNamespace(
            read=lambda *_, **__: PutsSeen(0, dropped=False, version=3),
            has_ended_key=lambda *_: False,
        ),
    )
    monkeypatch.setattr(sink.jvm, "streaming_query_id", lambda _: "the query")
    monkeypatch.setattr(sink, "count_frame", lambda *_: frame)
    monkeypatch.setattr(sink, "wait_for", lambda _, __, look, **___: look(context))
    monkeypatch.setattr(
        put_frame, "_with_new_keys", lambda *_: replace(frame, partitions=Counter())
    )

    sink.put_batch(current(context), frame.df, batch, "s", None, None)

    warned = f"tube mail: batch {batch} of the stream s was put before; nothing is added"
    assert caplog.messages == [warned] * told


@pytest.mark.parametrize("kind", [sink.StreamStoppedError, StoreError])
def test_log_of_py4j_has_what_failed_and_not_what_was_stopped(
    caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    logging.getLogger("py4j.clientserver").error("There was an exception", exc_info=kind("x"))

    assert (caplog.messages == []) == (kind is sink.StreamStoppedError)


# -- signals -----------------------------------------------------------------------------------------


class Struck:
    """A loop that clears, is woken, and waits; a signal handler runs within it at one of its steps."""

    def __init__(self, step: int) -> None:
        self.pool = Threads(Calls(print, single=True), 0)
        self.stop = Stop(wake=self.pool.wake)
        self._left = step
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        # Where the handler waits for its own thread, or does not wake it, this takes longer.
        thread.join(20)
        self.has_ended = not thread.is_alive()

    def _run(self) -> None:
        sys.settrace(self._strike)
        try:
            self.pool.ended()
            self.pool.wake()
            self.pool.wait(60)
        finally:
            sys.settrace(None)

    def _strike(self, frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes = True
        if self._left == 0:
            # As Python calls it: between two instructions of the thread.
            self.stop._came(signal.SIGTERM, frame)
        self._left -= 1
        return self._strike


def test_signal_when_it_comes_at_any_step_of_a_loop_that_waits_wakes_it_and_waits_for_nothing() -> (
    None
):
    for step in count():
        struck = Struck(step)
        assert struck.has_ended, step
        if not struck.stop.is_asked:
            break
    assert step > 30


def test_stop_when_a_signal_comes_again_is_urgent_unless_each_counts_once() -> None:
    stops = [Stop(), Stop(each_once=True)]
    for stop in stops:
        stop._came(signal.SIGTERM, None)
        assert stop.is_asked
        assert not stop.is_urgent
        stop._came(signal.SIGTERM, None)
    assert [stop.is_urgent for stop in stops] == [True, False]
    stops[1]._came(signal.SIGINT, None)
    assert stops[1].is_urgent
