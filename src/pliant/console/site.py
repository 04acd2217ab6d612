"""The pages as one application of NiceGUI, made once per server."""

import asyncio

from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui
from starlette.types import ASGIApp, Message

from pliant.console.design import ICON
from pliant.console.pages import (  # noqa: F401 - their import registers the pages
    assets,
    audit,
    clusters,
    new,
    nodes,
    notifications,
    overview,
    people,
    policies,
    quotas,
    replay,
    reports,
    settings,
    units,
    welcome,
    whatif,
    workload,
    workloads,
)

RECONNECT = 30.0
"""Seconds within which a page that lost its connection finds its state again."""

KEPT: set[asyncio.Task[None]] = set()  # tasks that would be collected as garbage otherwise


async def started() -> ASGIApp:
    """The application, ready to answer."""
    outer = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    pages.config.socket_io_js_transports = ["websocket"]  # the only one whose origin is checked
    # Quasar draws a bar without a name for screen readers whenever the page fetches a part of itself.
    pages.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        outer,
        mount_path="/console",
        title="Pliant",
        favicon=ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT,
        message_history_length=0,
        show_welcome_message=False,
    )
    ready = asyncio.Event()
    asked: asyncio.Queue[Message] = asyncio.Queue()
    asked.put_nowait({"type": "lifespan.startup"})

    async def told(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            ready.set()

    async def live() -> None:
        await outer({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, asked.get, told)

    task = asyncio.create_task(live())
    KEPT.add(task)
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.is_set():
        waiting.cancel()
        task.result()  # raises what went wrong
    return outer
