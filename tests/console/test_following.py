"""The task that refreshes a page ends with the server."""

import asyncio
from collections.abc import Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pliant.console import frame as module


async def nothing(*_: object) -> None:
    pass


class Client:
    is_deleted = False
    connected = nothing

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...


def test_it_ends_when_it_is_told_to_just_as_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends changes the board and then cancels all tasks: this one ran on for ever."""
    monkeypatch.setattr(module, "GAP", 0.0)
    followed: list[Coroutine[Any, Any, None]] = []
    create = SimpleNamespace(create=lambda run, name: followed.append(run))
    monkeypatch.setattr(module, "background_tasks", create)

    async def main() -> bool:
        news = asyncio.Event()
        frame = object.__new__(module.Frame)
        vars(frame).update(title="", client=Client(), look=nothing, _news=lambda: nullcontext(news))
        frame.follow(nothing)
        task = asyncio.create_task(followed.pop())
        async with asyncio.timeout(5):
            while not news._waiters:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        news.set()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(main())
