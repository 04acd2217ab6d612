"""The client for asyncio: methods of Client as coroutines, its iterators as asynchronous iterators.

Each call runs in a thread with its own connection, so several calls can run at once and both clients behave
the same. A cancelled call continues in its thread; leaving a stream breaks off its connection.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pliant.client.client import Client

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")

_END: Any = object()


class AsyncClient:
    """A client of one server. `await client.whoami()`, `async for item in client.workloads()`.

    `ask` and `each` do the same with types: `await client.ask(Client.whoami)`. Raises what Client raises.
    """

    def __init__(self, client: Client, *, at_once: int = 8) -> None:
        """Uses the address and token of `client`. At most `at_once` calls run at a time; others wait."""
        self._client = client
        self._idle: queue.SimpleQueue[Client] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(at_once, "pliant-client")

    @classmethod
    async def from_context(cls, server: str | None = None, state: str | None = None) -> AsyncClient:
        """See Client.from_context."""
        return cls(await asyncio.to_thread(Client.from_context, server, state))

    async def run(self, use: Callable[[Client], T]) -> T:
        """Returns `use(client)`: `await client.run(lambda it: it.jobs.get("night").wait())`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._use, use)

    async def ask(self, method: Callable[Concatenate[Client, P], T], *args: P.args, **named: P.kwargs) -> T:
        return await self.run(lambda client: method(client, *args, **named))

    async def each(
        self, method: Callable[Concatenate[Client, P], Iterable[T]], *args: P.args, **named: P.kwargs
    ) -> AsyncIterator[T]:
        """Yields the entries of a method that iterates, such as `workloads`, `logs` or `watch`."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "pliant-stream")
        twin = self._client.twin()
        try:
            found = await loop.run_in_executor(thread, lambda: iter(method(twin, *args, **named)))
            while (entry := await loop.run_in_executor(thread, next, found, _END)) is not _END:
                yield entry
        finally:
            twin.abort()  # unblocks a thread that waits for the next entry
            thread.shutdown(wait=False)

    def __getattr__(self, name: str) -> Any:
        method = getattr(Client, name, None) if not name.startswith("_") else None
        if not callable(method):
            raise AttributeError(f"AsyncClient has no method {name}: use `run`.")
        given = str(method.__annotations__.get("return", ""))
        return partial(self.each if given.startswith(("Iterator", "Stream")) else self.ask, method)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        while not self._idle.empty():
            self._idle.get().close()
        self._client.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _use(self, use: Callable[[Client], T]) -> T:
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = self._client.twin()
        try:
            return use(client)
        finally:
            self._idle.put(client)
