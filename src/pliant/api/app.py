"""The whole API over a service."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Security

from pliant.api import errors
from pliant.api.auth import BEARER, Authority, Gate
from pliant.api.context import Context, ServerInfo
from pliant.api.models import answer_type
from pliant.api.responses.encoding import answer
from pliant.api.routes import (
    audit,
    history,
    job,
    machines,
    organization,
    priorities,
    replay,
    scheduling,
    streams,
    submit,
    trash,
    whatif,
    workloads,
)
from pliant.api.routes import server as server_routes
from pliant.api.streaming.pulse import Pulse
from pliant.api.streaming.sessions import Sessions
from pliant.api.trouble import Trouble
from pliant.control.service import Service
from pliant.wire.server import Problem

__all__ = ["ServerInfo", "create_app"]


def create_app(
    service: Service,
    *,
    token: str,
    secret: bytes,
    server: ServerInfo,
    shutdown: Callable[[bool], None],
    backup: Callable[[Path], None],
    bundle: Callable[[], bytes],
    closing: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """An ASGI application. Whoever sends `token` may do everything; `secret` signs what is issued.

    `shutdown(stop_tasks)` returns at once and ends the server soon; `backup(path)` writes the store there;
    `bundle()` is a zip; `closing()` becomes true when the server is about to end: streams then end within
    a second.
    """
    app = Api(
        title="Pliant",
        version=server.version,
        description="Shares GPUs between teams. Paths and fields are Run:ai's where it has them.",
        openapi_url=None,  # below: made in a thread, it takes a while
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        responses={"default": {"model": answer_type(Problem), "description": "What is wrong and what to do"}},
    )
    authority = Authority(token, secret)
    app.state.context = Context(
        service=service,
        authority=authority,
        server=server,
        sessions=Sessions(service),
        pulse=Pulse(service),
        shutdown=shutdown,
        backup=backup,
        bundle=bundle,
        closing=closing,
    )
    errors.install(app)
    for router in ROUTERS:
        told = [] if router is server_routes.public else [Security(BEARER)]
        app.include_router(router, dependencies=told)
    app.get("/openapi.json", include_in_schema=False)(lambda: answer(app.openapi()))
    app.add_middleware(Gate, authority=authority)
    app.add_middleware(Trouble, service=service)
    app.add_middleware(errors.Guard)
    return app


ROUTERS = (
    server_routes.public,
    server_routes.router,
    submit.router,
    workloads.queue_router,
    history.router,
    job.router,
    streams.router,
    workloads.router,
    trash.router,
    organization.router,
    priorities.router,
    machines.router,
    scheduling.router,
    whatif.router,
    replay.router,
    audit.router,
)


class Api(FastAPI):
    """Says in OpenAPI what it really answers: 400 for what cannot be read, never 422."""

    def openapi(self) -> dict[str, Any]:
        fresh = not self.openapi_schema
        schema = super().openapi()
        if fresh:
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
                    default = operation["responses"].get("default", {})
                    if "application/json" in default.get("content", {}):
                        default["content"] = {errors.MEDIA_TYPE: default["content"]["application/json"]}
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(name, None)
        return schema
