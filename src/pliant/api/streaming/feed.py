"""Turns a blocking iterator into an asynchronous one; a thread of its own reads it and closes it."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import wait
from typing import Any

log = logging.getLogger(__name__)

IDLE = 0.02
"""Seconds between two reads of a source that has nothing new."""

AHEAD = 8
"""Most chunks that are read before the client has taken them."""


BEAT = 1.0
"""Seconds within which a stream without news ends once the server is about to end."""


async def feed(
    chunks: Iterator[bytes], name: str, closing: Callable[[], bool] = lambda: False
) -> AsyncIterator[bytes]:
    """The chunks of the source, which gives b'' for nothing new.

    The source must yield within seconds even when nothing is new: its thread closes it at the first yield
    after the client has gone.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD)
    gone = threading.Event()

    def run() -> None:
        try:
            for chunk in chunks:
                if gone.is_set():
                    break
                if chunk:
                    _wait(queue.put(chunk), loop)
                else:
                    gone.wait(IDLE)
        except Exception:  # an error ends the stream; the server goes on
            log.exception("the stream of %s broke", name)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
            _wait(queue.put(None), loop)

    threading.Thread(target=run, name=f"pliant-feed-{name}", daemon=True).start()
    try:
        while not closing():
            try:
                async with asyncio.timeout(BEAT):
                    chunk = await queue.get()
            except TimeoutError:
                continue
            if chunk is None:
                return
            yield chunk
    finally:
        gone.set()
        while not queue.empty():  # makes room, so that the thread does not wait for a reader that is gone
            queue.get_nowait()


def _wait(put: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """Run `put` on the loop and wait for it; do nothing if the server has ended meanwhile."""
    try:
        done = asyncio.run_coroutine_threadsafe(put, loop)
    except RuntimeError:  # the loop is closed
        put.close()
        return
    while not wait([done], BEAT).done:
        if loop.is_closed():  # it closed between two rounds: it will not run `put`
            put.close()
            return
    done.result()
