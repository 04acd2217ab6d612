"""The bridge between a blocking source and the event loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pliant.api.streaming.feed import AHEAD, _wait, feed
from tests.api.stage import until


class Source:
    """Counts what was taken from it, and knows whether it was closed."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.taken = 0
        self.closed = threading.Event()
        self._count, self._error = count, error

    def chunks(self) -> Iterator[bytes]:
        try:
            while self.taken < self._count:
                self.taken += 1
                yield str(self.taken).encode()
            if self._error is not None:
                raise self._error
        finally:
            self.closed.set()


def test_everything_in_order() -> None:
    source = Source(100)

    async def read() -> list[bytes]:
        return [chunk async for chunk in feed(source.chunks(), "test")]

    assert asyncio.run(read()) == [str(number).encode() for number in range(1, 101)]
    assert source.closed.wait(60)


def test_a_slow_reader_holds_the_source_back() -> None:
    source = Source(1000)

    async def read() -> None:
        stream = feed(source.chunks(), "test")
        assert await anext(stream) == b"1"
        await asyncio.get_running_loop().run_in_executor(None, until, lambda: source.taken > AHEAD)
        for _ in range(20):
            await asyncio.sleep(0.002)
            assert source.taken <= AHEAD + 3
        await stream.aclose()

    asyncio.run(read())
    assert source.closed.wait(60)


def test_a_reader_that_leaves_while_nothing_comes() -> None:
    begun, closed = threading.Event(), threading.Event()

    def silent() -> Iterator[bytes]:
        begun.set()
        try:
            while True:
                yield b""
        finally:
            closed.set()

    async def read() -> None:
        stream = feed(silent(), "test")
        waiting = asyncio.ensure_future(anext(stream))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.get_running_loop().run_in_executor(None, closed.wait, 60)

    asyncio.run(read())
    assert closed.is_set()


def test_a_source_that_breaks_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def read() -> list[bytes]:
        return [chunk async for chunk in feed(Source(2, OSError("disk")).chunks(), "test")]

    assert asyncio.run(read()) == [b"1", b"2"]
    assert "the stream of test broke" in caplog.text


def test_a_source_whose_loop_ends_before_it_has_taken_the_last_chunk() -> None:
    """The server ends: its event loop closes while the chunk is still queued in it."""
    loop = asyncio.new_event_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    handing = threading.Thread(target=_wait, args=(queue.put(None), loop), daemon=True)
    handing.start()
    until(lambda: loop._ready)  # type: ignore[attr-defined]
    loop.close()
    handing.join(60)
    assert not handing.is_alive()
