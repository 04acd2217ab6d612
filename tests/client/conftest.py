"""Both clients against the command line's fake server: the same tests run on each."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pliant.client import AsyncClient, Client
from tests.cli.fake import TOKEN, Fake, serving


class Blocking:
    """The asynchronous client behind blocking calls: its loop runs in a thread."""

    def __init__(self, client: Client) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.own = AsyncClient(client)

    def wait(self, awaitable: Any) -> Any:
        async def run() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(60)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            given = getattr(self.own, name)(*args, **named)
            return self._entries(given) if hasattr(given, "__anext__") else self.wait(given)

        return call

    def _entries(self, given: Any) -> Iterator[Any]:
        """Fetches the first entry at once, as the blocking client opens a stream at once."""
        end = object()
        found = [self.wait(anext(given, end))]

        def rest() -> Iterator[Any]:
            while found[0] is not end:
                yield found[0]
                found[0] = self.wait(anext(given, end))

        return rest()

    def close(self) -> None:
        self.wait(self.own.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as server:
        yield server


@pytest.fixture
def sync(fake: Fake) -> Iterator[Client]:
    with Client(fake.url, TOKEN) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def client(sync: Client, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "sync":
        yield sync
        return
    made = Blocking(sync)
    yield made
    made.close()
